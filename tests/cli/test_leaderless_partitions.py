"""What commands say of partitions that nobody leads, and of a ZooKeeper that is away: answers of a cluster are the
test's, as plog's controller gives them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from core.client.admin import cluster_status
from core.client.cluster_admin import cluster_partitions
from core.client.cluster_admin.log_dirs_query import LogDirsQuery
from core.client.net.client_connection import ClientConnection
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.cluster_nodes import (
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    UNREGISTER_BROKER,
    DescribeClusterBroker,
    UnregisterBrokerResponse,
)
from core.protocol.schema.metadata import DESCRIBE_TOPIC_PARTITIONS, METADATA
from core.protocol.schema.reassignments import ELECT_LEADERS, ElectLeadersResponse
from core.protocol.schema.topic_changes import CREATE_TOPICS
from plog.testing import running_broker
from tests.support.server import call_plog

NOBODY = -1
T0 = TopicPartition("t", 0)


class Cluster:
    """t-0 has replicas 1, 2 and 3, all holders, of which 1 is in sync. 1 and 2 live, and 1 is the controller."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader = NOBODY
        self.forgotten: list[int] = []
        self.has_plogs_controller = True
        self.silences: dict[int, int | None] = {1: 0, 2: 0}
        self._call = ClientConnection.call
        negotiate = ClientConnection._negotiate
        cluster = self

        def versions(connection: ClientConnection) -> dict[int, tuple[int, int]]:
            found = {key: one for key, one in negotiate(connection).items() if key != DESCRIBE_QUORUM.key}
            return found | ({UNREGISTER_BROKER.key: (0, 0)} if cluster.has_plogs_controller else {})

        def call(connection: ClientConnection, api: Any, request: Any, **how: Any) -> Any:
            return cluster.answer(connection, api, request, **how)

        def survey(*_: Any) -> dict[int, LogDirsQuery]:
            return {1: LogDirsQuery(ends={T0: 10}, epochs={T0: 4}), 2: LogDirsQuery(ends={T0: 7}, epochs={T0: 5})}

        monkeypatch.setattr(ClientConnection, "_negotiate", versions)
        monkeypatch.setattr(ClientConnection, "call", call)
        monkeypatch.setattr(cluster_partitions, "survey_brokers", survey)
        monkeypatch.setattr(cluster_status, "_zookeeper_silence", lambda _, broker: self.silences[broker])

    @property
    def is_cut_off(self) -> bool:
        return any(self.silences.values())

    def answer(self, connection: ClientConnection, api: Any, request: Any, **how: Any) -> Any:
        if api is UNREGISTER_BROKER:
            if self.is_cut_off:
                return UnregisterBrokerResponse(error_code=ErrorCode.NOT_CONTROLLER)
            self.forgotten.append(request.broker_id)
            self.leader = 2
            return UnregisterBrokerResponse(error_message=None)
        if api is ELECT_LEADERS and self.is_cut_off:
            return ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
        answer = self._call(connection, api, request, **how)
        if api is CREATE_TOPICS and self.is_cut_off:
            answer.topics[0].error_code = ErrorCode.NOT_CONTROLLER
        if api is DESCRIBE_CLUSTER:
            (own,) = answer.brokers
            answer.brokers.append(DescribeClusterBroker(2, own.host, own.port))
        for partition in (one for topic in getattr(answer, "topics", ()) for one in getattr(topic, "partitions", ())):
            if api in (METADATA, DESCRIBE_TOPIC_PARTITIONS):
                partition.leader_id, partition.replica_nodes, partition.isr_nodes = self.leader, [1, 2, 3], [1]
                partition.offline_replicas = [3]
                partition.leader_epoch += self.leader != NOBODY
            if api is DESCRIBE_TOPIC_PARTITIONS:
                partition.eligible_leader_replicas, partition.last_known_elr = [3], [2]
        return answer


@pytest.fixture
def where() -> Iterator[tuple[str, str]]:
    with running_broker() as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        assert call_plog("topic", "create", "t", "--partitions", "1", *address).returncode == 0
        yield address


@pytest.fixture
def cluster(where: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def said(*arguments: str, code: int) -> str:
    done = call_plog(*arguments)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() + done.stderr.decode()


WAITS = "t-0 waits for broker 3: 1 ends at offset 10 in epoch 4, 2 ends at offset 7 in epoch 5; if broker 2 leads now, "
WAITS += "records that only broker 3 may have from offset 7 on are given up\n"


def test_status_says_what_a_partition_waits_for(where: tuple[str, str], cluster: Cluster) -> None:
    assert WAITS in said("cluster", "status", *where, code=1)
    (row, _, gone) = json.loads(call_plog("cluster", "status", *where, "--output", "json").stdout)
    assert (gone["broker"], gone["state"]) == (3, "not registered")
    assert row["waiting"] == [
        {
            "partition": "t-0",
            "waits_for": [3],
            "ends": {"1": {"offset": 10, "epoch": 4}, "2": {"offset": 7, "epoch": 5}},
            "next_leader": 2,
            "gives_up_from": 7,
        }
    ]


def test_an_election_says_what_it_costs(where: tuple[str, str], cluster: Cluster) -> None:
    told = said("cluster", "elect", "--unclean", "t:0", "--dry-run", *where, code=0)
    assert f"warning: {WAITS}" in told
    assert "would do this without --dry-run; nothing was changed\n" in told
    assert "2 would lead" in told


def test_with_a_controller_of_kafkas_those_in_sync_are_waited_for(where: tuple[str, str], cluster: Cluster) -> None:
    cluster.has_plogs_controller = False
    told = said("cluster", "status", *where, code=1)
    assert "t-0 has all that it waited for: 1 ends at offset 10, 2 ends at offset 7; nothing is given up" in told
    told = said("cluster", "forget-replica", "3", "--yes", *where, code=1)
    assert "the controller broker 1, which is Kafka's, does not support this" in told
    assert cluster.forgotten == []


def test_a_broker_that_is_gone_for_good(where: tuple[str, str], cluster: Cluster) -> None:
    cost = "warning: t-0: records that only broker 3 may have from offset 7 on are given up\n"
    told = said("cluster", "forget-replica", "3", "--dry-run", *where, code=0)
    assert cost in told
    assert "2 would lead" in told
    assert "there is no terminal to ask" in said("cluster", "forget-replica", "3", *where, code=2)
    assert cluster.forgotten == []
    done = call_plog("cluster", "forget-replica", "3", "--yes", "--output", "json", *where)
    assert cluster.forgotten == [3]
    assert cost in done.stderr.decode()
    assert json.loads(done.stdout) == [{"partition": "t-0", "leader": 2, "waits_for": [], "result": "elected"}]


def test_a_broker_that_lives_is_not_gone(where: tuple[str, str], cluster: Cluster) -> None:
    assert "broker 2 is registered: it lives" in said("cluster", "forget-replica", "2", "--yes", *where, code=1)
    assert cluster.forgotten == []


def test_status_is_not_well_while_zookeeper_is_away(where: tuple[str, str], cluster: Cluster) -> None:
    cluster.leader = 1
    cluster.silences = {1: 15_000, 2: 16_000}
    told = said("cluster", "status", *where, code=1)
    assert "error: ZooKeeper has been away for 15 s, says broker 1, 2: no leader is elected" in told
    assert "all well" not in told
    (row, *_) = json.loads(call_plog("cluster", "status", *where, "--output", "json").stdout)
    assert row["zookeeper_silence_ms"] == 15_000
    cluster.silences = {1: 15_000, 2: 0}
    assert "says broker 1: others may not see them" in said("cluster", "status", *where, code=1)


def test_what_needs_the_controller_says_that_zookeeper_is_away(where: tuple[str, str], cluster: Cluster) -> None:
    cluster.silences = {1: 15_000, 2: None}
    why = "ZooKeeper has been away for 15 s, says broker 1: until ZooKeeper is back there is no controller"
    for command in (
        ("topic", "create", "u", "--partitions", "1"),
        ("cluster", "elect", "--unclean", "t:0", "--yes"),
        ("cluster", "forget-replica", "3", "--yes"),
    ):
        assert why in said(*command, *where, code=1)
