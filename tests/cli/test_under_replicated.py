"""Every command that says which partitions lack replicas counts the same ones: asked of the same cluster, whose answers
are the test's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from core.client.cluster_admin.cluster_admin import ClusterAdmin, OngoingReassignment
from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata import MetadataResponse
from plog.testing import running_broker
from tests.support.for_each import for_each
from tests.support.server import call_plog

NOBODY = -1
PARTITIONS = 4

Ongoing = dict[TopicPartition, OngoingReassignment]


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Iterable[tuple[str, str]]:
    """Partitions of big: 0 and 1 have replicas on brokers 1 and 8, of which 1 is in sync, so has 2, and no leader; 3
    has all it is to have.
    """
    ask = KafkaClient._ask_metadata

    def answer(self: KafkaClient, topics: list[str] | None, *, may_create: bool) -> MetadataResponse:
        response = ask(self, topics, may_create=may_create)
        for partition in (partition for topic in response.topics for partition in topic.partitions):
            if partition.partition_index < 3:
                partition.replica_nodes = [1, 8]
            if partition.partition_index == 2:
                partition.leader_id = NOBODY
        return response

    with running_broker() as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        assert call_plog("topic", "create", "big", "--partitions", str(PARTITIONS), *address).returncode == 0
        monkeypatch.setattr(KafkaClient, "_ask_metadata", answer)
        yield address


def rows(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call_plog(*arguments, "--output", "json").stdout)
    return found


def counted_by_doors(where: tuple[str, str]) -> dict[str, int]:
    """How many partitions lack a leader or a replica, by each command."""
    _, whole = rows("cluster", "status", *where)[:2]
    (topic,) = rows("cluster", "topics", *where)
    lacking = re.search(
        r"big: (\d) of 4 partitions lack", call_plog("topic", "describe", "big", *where).stderr.decode()
    )
    under = re.search(r"(\d) under-replicated", call_plog("cluster", "status", *where).stderr.decode())
    return {
        "cluster status": whole["under_replicated"],
        "what cluster status says": int(under[1]) if under else 0,
        "cluster topics": topic["under_replicated"],
        "topic describe": int(lacking[1]) if lacking else 0,
    }


@for_each(
    "added, expected", [((), 3), ((0,), 2), ((0, 1), 1)]
)  # fmt: skip
def test_a_replica_that_is_being_added_is_not_missing(
    where: tuple[str, str], monkeypatch: pytest.MonkeyPatch, added: tuple[int, ...], expected: int
) -> None:
    ongoing: Ongoing = {TopicPartition("big", n): OngoingReassignment((1, 8), (8,), ()) for n in added}
    monkeypatch.setattr(ClusterAdmin, "list_reassignments", lambda _: ongoing)
    counted = counted_by_doors(where)
    assert counted == dict.fromkeys(counted, expected)
    said = call_plog("topic", "describe", "big", *where).stderr.decode()
    names = ", ".join(f"big-{n}" for n in added)
    assert (f"note: replicas are being added: {names}" in said) is bool(added)


def test_a_topic_of_which_all_partitions_only_move_is_not_faulted(
    where: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ongoing: Ongoing = {TopicPartition("big", n): OngoingReassignment((1, 8), (8,), ()) for n in range(3)}
    monkeypatch.setattr(ClusterAdmin, "list_reassignments", lambda _: ongoing)
    said = call_plog("topic", "describe", "big", *where).stderr.decode()
    assert "note: big: 1 of 4 partitions lack a leader or a replica in sync" in said
    assert "hint: plog cluster describe big-2 " in said, "which has no leader"


def test_that_the_controller_does_not_say_it_is_said(where: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_admin: ClusterAdmin) -> Ongoing:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")

    monkeypatch.setattr(ClusterAdmin, "list_reassignments", refuse)
    done = call_plog("topic", "describe", "big", *where)
    assert done.returncode == 0
    assert b"note: which replicas are being added is not known: not for you\n" in done.stderr
    assert b"big: 3 of 4 partitions lack" in done.stderr
