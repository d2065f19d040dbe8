"""A cluster of plogs alone, one of which is the controller: topics are made, grown and deleted at it, rightly and
wrongly, and what is odd in ZooKeeper costs nobody the office. Three brokers, which the tests share and leave well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient

from core.client.kafka_client import KafkaClient
from core.common.endpoint import parse_endpoint
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.api import Api
from core.protocol.schema.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from core.protocol.schema.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from core.protocol.schema.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from core.protocol.schema.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from core.protocol.schema.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from core.protocol.schema.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.support.kafka39 import zookeeper_client
from tests.support.mixed_cluster import MixedCluster, PlogMember, metadata_at
from tests.support.oracle import requires_kafka39
from tests.support.waiting import machine_seconds, wait_until

pytestmark = requires_kafka39

Req, Res = TypeVar("Req"), TypeVar("Res")
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",  # a machine may stand still for some seconds
    "log.segment.delete.delay.ms": "100",
}
SECONDS_TO_STOP = 20
"""Of the machine: a controller that can write nothing down is given less than controller.socket.timeout.ms, 30 s."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    folder = tmp_path_factory.mktemp("plogs")
    with MixedCluster(folder, 0, (5, 6, 7), SETTINGS, plog_controls=True) as started:
        yield started


@pytest.fixture(scope="module")
def zookeeper(cluster: MixedCluster) -> Iterator[KazooClient]:
    with zookeeper_client(cluster.kafka.connect) as client:
        yield client


@pytest.fixture(autouse=True)
def calm(cluster: MixedCluster, zookeeper: KazooClient) -> None:
    wait_until(lambda: len(zookeeper.get_children("/brokers/ids")) == 3, "all live")


def controller(cluster: MixedCluster, zookeeper: KazooClient) -> PlogMember:
    """The broker that is the controller, once there is one."""
    wait_until(lambda: zookeeper.exists("/controller"), "somebody is the controller")
    return cluster.plogs[json.loads(zookeeper.get("/controller")[0])["brokerid"]]


@pytest.fixture
def ask(cluster: MixedCluster, zookeeper: KazooClient) -> Callable[[Api[Any, Any], Any], Any]:
    """Asks the controller."""

    def call(api: Api[Req, Res], request: Req) -> Res:
        endpoint = parse_endpoint(controller(cluster, zookeeper).address)
        with closing(KafkaClient([(endpoint.host, endpoint.port)])) as client:
            return client.any_connection().call(api, request)

    return call


Ask = Callable[[Api[Any, Any], Any], Any]


def create(ask: Ask, *topics: CreatableTopic, timeout_ms: int = 30_000, preview: bool = False) -> list[ErrorCode]:
    answer = ask(CREATE_TOPICS, CreateTopicsRequest(list(topics), timeout_ms, preview))
    by_name = {result.name: ErrorCode.of(result.error_code) for result in answer.topics}
    return [by_name[topic.name] for topic in topics]


def grow(
    ask: Ask, name: str, count: int, assignments: list[list[int]] | None = None, *, preview: bool = False
) -> ErrorCode:
    given = None if assignments is None else [CreatePartitionsAssignment(one) for one in assignments]
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, given)], 30_000, preview)
    return ErrorCode.of(ask(CREATE_PARTITIONS, request).results[0].error_code)


def delete(ask: Ask, *names: str, timeout_ms: int = 30_000) -> list[ErrorCode]:
    answer = ask(DELETE_TOPICS, DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms))
    return [ErrorCode.of(one.error_code) for one in answer.responses]


@pytest.fixture
def ask_old(cluster: MixedCluster, zookeeper: KazooClient) -> Ask:
    """Asks the controller in the last version in which DeleteTopics has names."""

    def call(api: Api[Req, Res], request: Req) -> Res:
        endpoint = parse_endpoint(controller(cluster, zookeeper).address)
        with closing(KafkaClient([(endpoint.host, endpoint.port)])) as client:
            return client.any_connection().call(api, request, at_most=5)

    return call


def epoch(zookeeper: KazooClient) -> int:
    return int(zookeeper.get("/controller_epoch")[0])


# --- topics


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("no/name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("x", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("x", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("x", 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (CreatableTopic("x", 1, 1, configs=[CreatableTopicConfig("no", "1")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("x", 1, 1, configs=[CreatableTopicConfig("retention.ms", "y")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("x", 2, 1, [CreatableReplicaAssignment(0, [5])]), ErrorCode.INVALID_REQUEST),
        (CreatableTopic("x", -1, -1, [CreatableReplicaAssignment(1, [5])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("x", -1, -1, [CreatableReplicaAssignment(0, [5, 9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("x", -1, -1, [CreatableReplicaAssignment(0, [5, 5])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
@pytest.mark.parametrize("preview", [True, False])
def test_a_topic_that_can_not_be(
    ask: Ask, zookeeper: KazooClient, topic: CreatableTopic, error: ErrorCode, *, preview: bool
) -> None:
    """Nothing is written, and the controller stays in office."""
    before = epoch(zookeeper), zookeeper.get_children("/brokers/topics"), zookeeper.get_children("/config/topics")
    assert create(ask, topic, preview=preview) == [error]
    assert before == (
        epoch(zookeeper),
        zookeeper.get_children("/brokers/topics"),
        zookeeper.get_children("/config/topics"),
    )


def test_settings_that_zookeeper_does_not_take(ask: Ask, zookeeper: KazooClient) -> None:
    """It would close the connection, whenever the controller asked."""
    before = epoch(zookeeper)
    listed = CreatableTopicConfig("follower.replication.throttled.replicas", "0:1" + ",0:1" * 300_000)
    assert create(ask, CreatableTopic("large", 1, 1, configs=[listed])) == [ErrorCode.INVALID_REQUEST]
    assert create(ask, CreatableTopic("not-large", 1, 1)) == [ErrorCode.NONE]
    assert epoch(zookeeper) == before


def test_topics_of_one_request_are_made_each_on_its_own(ask: Ask, zookeeper: KazooClient) -> None:
    made = create(
        ask,
        CreatableTopic("one.a", 2, 3),
        CreatableTopic("one_a", 1, 1),
        CreatableTopic("one-a", -1, -1),
        CreatableTopic("one b", 1, 1),
    )
    assert made == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert create(ask, CreatableTopic("one_a", 1, 1)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert create(ask, CreatableTopic("one.a", 1, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    twice = ask(CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("two", 1, 1), CreatableTopic("two", 1, 1)], 30_000))
    assert [(one.name, one.error_code) for one in twice.topics] == [("two", ErrorCode.INVALID_REQUEST)]
    assert len(json.loads(zookeeper.get("/brokers/topics/one-a")[0])["partitions"]["0"]) == 3


def test_a_preview_makes_nothing(ask: Ask, zookeeper: KazooClient) -> None:
    assert create(ask, CreatableTopic("seen", 2, 2), preview=True) == [ErrorCode.NONE]
    assert not zookeeper.exists("/brokers/topics/seen")
    assert create(ask, CreatableTopic("seen", 2, 2)) == [ErrorCode.NONE]
    assert grow(ask, "seen", 5, preview=True) is ErrorCode.NONE
    assert len(json.loads(zookeeper.get("/brokers/topics/seen")[0])["partitions"]) == 2


def knows(member: PlogMember, topic: str) -> bool:
    return topic in metadata_at(member.address).topics


def test_who_does_not_wait_is_told_so_and_it_is_done(
    ask: Ask, ask_old: Ask, cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    """Unless it was done before anybody could be told."""
    (made,) = create(ask, CreatableTopic("soon", 20, 3), timeout_ms=0)
    assert made in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    for node_id, member in cluster.plogs.items():
        wait_until(lambda member=member: knows(member, "soon"), f"broker {node_id} knows it")
    (gone,) = delete(ask_old, "soon", timeout_ms=0)
    assert gone in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    wait_until(lambda: not zookeeper.exists("/brokers/topics/soon"), "it is gone")
    assert not zookeeper.exists("/config/topics/soon")


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (20_000, None, ErrorCode.INVALID_PARTITIONS),
        (4, [[5]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[5, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_can_not_grow(
    ask: Ask, zookeeper: KazooClient, count: int, assignments: list[list[int]] | None, error: ErrorCode
) -> None:
    create(ask, CreatableTopic("small", 2, 2))
    assert grow(ask, "small", count, assignments) is error
    assert len(json.loads(zookeeper.get("/brokers/topics/small")[0])["partitions"]) == 2


def test_a_request_adds_so_many_partitions_at_most(ask: Ask, zookeeper: KazooClient) -> None:
    assert create(ask, CreatableTopic("half-a", 1, 1), CreatableTopic("half-b", 1, 1)) == [ErrorCode.NONE] * 2
    wanted = [CreatePartitionsTopic("half-a", 5_001, None), CreatePartitionsTopic("half-b", 5_002, None)]
    results = ask(CREATE_PARTITIONS, CreatePartitionsRequest(wanted, 30_000, validate_only=False)).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_PARTITIONS] * 2
    assert "10001 partitions are more than the 10000" in (results[0].error_message or "")
    assert len(json.loads(zookeeper.get("/brokers/topics/half-a")[0])["partitions"]) == 1


def test_more_topics_than_one_turn_makes(ask: Ask, ask_old: Ask, zookeeper: KazooClient) -> None:
    """Each is there, and each is told of, also those that are wrong."""
    wanted = [CreatableTopic(f"turn-{number}", 110 if number % 3 else 0, 1) for number in range(9)]
    code = {110: ErrorCode.NONE, 0: ErrorCode.INVALID_PARTITIONS}
    assert create(ask, *wanted) == [code[topic.num_partitions] for topic in wanted]
    more = [CreatePartitionsTopic(topic.name, 220, None) for topic in wanted]
    results = ask(CREATE_PARTITIONS, CreatePartitionsRequest(more, 30_000, validate_only=False)).results
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in results] == [0 if topic.num_partitions else unknown for topic in wanted]
    assert len(json.loads(zookeeper.get("/brokers/topics/turn-8")[0])["partitions"]) == 220
    made = [topic.name for topic in wanted if topic.num_partitions]
    assert delete(ask_old, *made) == [ErrorCode.NONE] * len(made)


def test_a_topic_grows(ask: Ask, cluster: MixedCluster, zookeeper: KazooClient) -> None:
    create(ask, CreatableTopic("grown", 1, 2))
    assert grow(ask, "grown", 3, [[6, 7], [7, 5]]) is ErrorCode.NONE
    assert grow(ask, "grown", 12) is ErrorCode.NONE
    cluster.wait_for(TopicPartition("grown", 11))
    assigned = json.loads(zookeeper.get("/brokers/topics/grown")[0])["partitions"]
    assert (assigned["1"], assigned["2"]) == ([6, 7], [7, 5])
    assert {len(set(replicas)) for replicas in assigned.values()} == {2}
    assert grow(ask, "never", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_being_deleted_is_there_until_it_is_gone(
    ask: Ask, ask_old: Ask, cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    """A broker that holds a replica is dead: the wish stays, and nobody may do anything with the topic."""
    create(ask, CreatableTopic("going", -1, -1, [CreatableReplicaAssignment(0, [5, 6, 7])]))
    dead = next(member for member in cluster.plogs.values() if member is not controller(cluster, zookeeper))
    dead.kill()
    wait_until(lambda: len(zookeeper.get_children("/brokers/ids")) == 2, "it is known to be dead")
    assert delete(ask_old, "going") == [ErrorCode.NONE]
    assert delete(ask_old, "going") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert grow(ask, "going", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(ask, CreatableTopic("going", 1, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    elected = ask(ELECT_LEADERS, ElectLeadersRequest(0, [TopicPartitions("going", [0])], 1000))
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    moved = ask(
        ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(1000, topics=[ReassignableTopic("going", [ReassignablePartition(0, [5])])]),
    )
    assert moved.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    dead.start()
    wait_until(lambda: not zookeeper.exists("/admin/delete_topics/going"), "it is gone")
    for member in cluster.plogs.values():
        wait_until(lambda member=member: not list(member.data_dir.glob("going-*")), "its folders are gone")
    assert create(ask, CreatableTopic("going", 1, 3)) == [ErrorCode.NONE]


# --- what is odd in ZooKeeper


@pytest.mark.parametrize("is_state", [True, False])
def test_a_garbled_topic_costs_nobody_the_office(
    ask: Ask, ask_old: Ask, cluster: MixedCluster, zookeeper: KazooClient, *, is_state: bool
) -> None:
    """Nor the other topics their leaders. When it is mended it is led again."""
    name = f"odd-{is_state}"
    assert create(ask, CreatableTopic(name, 2, 3), CreatableTopic(f"fine-{is_state}", 1, 3)) == [ErrorCode.NONE] * 2
    path = f"/brokers/topics/{name}/partitions/0/state" if is_state else f"/brokers/topics/{name}"
    good, _ = zookeeper.get(path)
    zookeeper.set(path, b'{"garbled')
    before, last = controller(cluster, zookeeper), epoch(zookeeper)
    before.kill()
    before.start()
    wait_until(lambda: epoch(zookeeper) > last, "another one was elected")
    cluster.wait_for(TopicPartition(f"fine-{is_state}", 0), isr=(5, 6, 7))
    in_office = epoch(zookeeper)
    assert create(ask, CreatableTopic(name, 1, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert grow(ask, name, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(ask_old, name) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    zookeeper.create(f"/admin/delete_topics/{name}")
    assert create(ask, CreatableTopic(f"next-{is_state}", 1, 3)) == [ErrorCode.NONE]
    assert epoch(zookeeper) == in_office
    assert zookeeper.exists(f"/brokers/topics/{name}/partitions/1/state")
    zookeeper.delete(f"/admin/delete_topics/{name}")
    zookeeper.set(path, good)
    assert create(ask, CreatableTopic(f"again-{is_state}", 1, 3)) == [ErrorCode.NONE]
    cluster.wait_for(TopicPartition(name, 0), isr=(5, 6, 7))
    assert delete(ask_old, name) == [ErrorCode.NONE]


def test_a_garbled_block_of_producer_ids_costs_nobody_the_office(
    ask: Ask, cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    """Brokers ask until they get a block."""
    in_office = epoch(zookeeper)
    good, stat = zookeeper.get("/latest_producer_id_block")
    zookeeper.set("/latest_producer_id_block", b"?")
    first = controller(cluster, zookeeper)

    def error_of(member: PlogMember) -> ErrorCode:
        endpoint = parse_endpoint(member.address)
        with closing(KafkaClient([(endpoint.host, endpoint.port)])) as client:
            answer = client.any_connection().call(INIT_PRODUCER_ID, InitProducerIdRequest(None, 1000))
            return ErrorCode.of(answer.error_code)

    assert create(ask, CreatableTopic("idempotent", 1, 3)) == [ErrorCode.NONE]
    zookeeper.set("/latest_producer_id_block", good)
    for member in cluster.plogs.values():
        wait_until(lambda member=member: error_of(member) is ErrorCode.NONE, "it has a block")
    assert controller(cluster, zookeeper) is first
    assert epoch(zookeeper) == in_office
    assert stat.version >= 0


def test_a_controller_stops_without_zookeeper(cluster: MixedCluster, zookeeper: KazooClient) -> None:
    """It asks itself to be relieved of what it leads, in vain, as often as it is to."""
    first = controller(cluster, zookeeper)
    cluster.kafka.zookeeper.pause()
    try:
        started = machine_seconds()
        first.stop()
        assert machine_seconds() - started < SECONDS_TO_STOP
    finally:
        cluster.kafka.zookeeper.resume()
    assert "ZooKeeper is away, and the controller does not answer" in first.log.read_text()
    first.start()
    wait_until(lambda: zookeeper.exists("/controller"), "somebody is the controller")
