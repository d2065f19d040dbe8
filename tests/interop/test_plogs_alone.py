"""A cluster of plogs alone, one of which is the controller: topics are made, grown and deleted at it, rightly and
wrongly, what is odd in ZooKeeper costs nobody the office, and any two brokers may be killed, in any order. Three
brokers, which the tests share and leave well.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, Self

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from kazoo.client import KazooClient

from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_endpoint
from core.common.error_code import ErrorCode
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.protocol.message import MAX_VERSION, Api
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from core.protocol.schema.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from core.protocol.schema.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from core.protocol.schema.transactions import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.support.kafka39 import topics_at, zookeeper_client
from tests.support.load import Load
from tests.support.mixed_cluster import MixedCluster, PlogMember
from tests.support.oracle import requires_kafka39
from tests.support.server import call_plog
from tests.support.waiting import machine_seconds, wait_until

pytestmark = requires_kafka39

ALL = (5, 6, 7)
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",  # a machine may stand still for some seconds
    "replica.lag.time.max.ms": "6000",
    "log.segment.delete.delay.ms": "100",
}
SECONDS_TO_STOP = 20
"""Of the machine: a controller that can write nothing down is given less than controller.socket.timeout.ms, 30 s."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    folder = tmp_path_factory.mktemp("plogs")
    with MixedCluster(folder, 0, ALL, SETTINGS, plog_controls=True) as started:
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


Ask = Callable[..., Any]
"""Asks the controller, or a member that is given, in the last version of a request or `at_most` another."""


@pytest.fixture
def ask(cluster: MixedCluster, zookeeper: KazooClient) -> Ask:
    def call(api: Api[Any, Any], request: Any, *, member: PlogMember | None = None, at_most: int = MAX_VERSION) -> Any:
        endpoint = parse_endpoint((member or controller(cluster, zookeeper)).address)
        with closing(KafkaClient([(endpoint.host, endpoint.port)])) as client:
            return client.any_connection().call(api, request, at_most=at_most)

    return call


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
    """In the last version in which the request has names."""
    answer = ask(DELETE_TOPICS, DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms), at_most=5)
    return [ErrorCode.of(one.error_code) for one in answer.responses]


def epoch(zookeeper: KazooClient) -> int:
    return int(zookeeper.get("/controller_epoch")[0])


# --- topics


IMPOSSIBLE = [
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
]


def test_topics_that_can_not_be(ask: Ask, zookeeper: KazooClient) -> None:
    """Nothing is written, and the controller stays in office."""

    def written() -> tuple[int, list[str], list[str]]:
        return epoch(zookeeper), zookeeper.get_children("/brokers/topics"), zookeeper.get_children("/config/topics")

    before = written()
    for preview in (True, False):
        found = [create(ask, topic, preview=preview)[0] for topic, _ in IMPOSSIBLE]
        assert found == [error for _, error in IMPOSSIBLE]
        assert written() == before


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
    return topic in topics_at(member.address)


def test_who_does_not_wait_is_told_so_and_it_is_done(ask: Ask, cluster: MixedCluster, zookeeper: KazooClient) -> None:
    """Unless it was done before anybody could be told."""
    (made,) = create(ask, CreatableTopic("soon", 20, 3), timeout_ms=0)
    assert made in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    for node_id, member in cluster.plogs.items():
        wait_until(lambda member=member: knows(member, "soon"), f"broker {node_id} knows it")
    (gone,) = delete(ask, "soon", timeout_ms=0)
    assert gone in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE)
    wait_until(lambda: not zookeeper.exists("/brokers/topics/soon"), "it is gone")
    assert not zookeeper.exists("/config/topics/soon")


def test_what_can_not_grow(ask: Ask, zookeeper: KazooClient) -> None:
    create(ask, CreatableTopic("small", 2, 2))
    for count in (2, 1, -1, 20_000):
        assert grow(ask, "small", count) is ErrorCode.INVALID_PARTITIONS, count
    wrong: list[tuple[int, list[list[int]]]] = [(4, [[5]]), (3, [[5, 9]]), (3, [[]])]
    for count, assignments in wrong:
        assert grow(ask, "small", count, assignments) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, assignments
    assert len(json.loads(zookeeper.get("/brokers/topics/small")[0])["partitions"]) == 2


def test_a_request_adds_so_many_partitions_at_most(ask: Ask, zookeeper: KazooClient) -> None:
    assert create(ask, CreatableTopic("half-a", 1, 1), CreatableTopic("half-b", 1, 1)) == [ErrorCode.NONE] * 2
    wanted = [CreatePartitionsTopic("half-a", 5_001, None), CreatePartitionsTopic("half-b", 5_002, None)]
    results = ask(CREATE_PARTITIONS, CreatePartitionsRequest(wanted, 30_000, validate_only=False)).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_PARTITIONS] * 2
    assert "10001 partitions are more than the 10000" in (results[0].error_message or "")
    assert len(json.loads(zookeeper.get("/brokers/topics/half-a")[0])["partitions"]) == 1


def test_more_topics_than_one_turn_makes(ask: Ask, zookeeper: KazooClient) -> None:
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
    assert delete(ask, *made) == [ErrorCode.NONE] * len(made)


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
    ask: Ask, cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    """A broker that holds a replica is dead: the wish stays, and nobody may do anything with the topic."""
    create(ask, CreatableTopic("going", -1, -1, [CreatableReplicaAssignment(0, [5, 6, 7])]))
    dead = next(member for member in cluster.plogs.values() if member is not controller(cluster, zookeeper))
    dead.kill()
    wait_until(lambda: len(zookeeper.get_children("/brokers/ids")) == 2, "it is known to be dead")
    assert delete(ask, "going") == [ErrorCode.NONE]
    assert delete(ask, "going") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert grow(ask, "going", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(ask, CreatableTopic("going", 1, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    at = ("--bootstrap-server", controller(cluster, zookeeper).address)
    said = call_plog("topic", "create", "going", *at).stderr.decode()
    assert f"it waits for broker {dead.node_id}, which is not alive" in said
    left = [{"topic": "going", "replicas_left": 1, "on": [dead.node_id], "waits_for": [dead.node_id]}]
    command = ("topic", "list", "--deleting", "--output", "json", *at)

    def going() -> list[dict[str, Any]]:
        """A topic of a test before may wait for the dead one, too."""
        return [row for row in json.loads(call_plog(*command).stdout) if row["topic"] == "going"]

    wait_until(lambda: going() == left, lambda: f"the others have deleted theirs: {call_plog(*command)}")
    elected = ask(ELECT_LEADERS, ElectLeadersRequest(0, [TopicPartitions("going", [0])], 1000))
    assert elected.replica_election_results[0].partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    moved = ask(
        ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(1000, topics=[ReassignableTopic("going", [ReassignablePartition(0, [5])])]),
    )
    assert moved.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    dead.start()
    wait_until(lambda: not zookeeper.exists("/admin/delete_topics/going"), "it is gone")
    assert going() == []
    for member in cluster.plogs.values():
        wait_until(lambda member=member: not list(member.data_dir.glob("going-*")), "its folders are gone")
    assert create(ask, CreatableTopic("going", 1, 3)) == [ErrorCode.NONE]


# --- what is odd in ZooKeeper


@pytest.mark.parametrize("is_state", [True, False])
def test_a_garbled_topic_costs_nobody_the_office(
    ask: Ask, cluster: MixedCluster, zookeeper: KazooClient, *, is_state: bool
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
    cluster.wait_for(TopicPartition(f"fine-{is_state}", 0), isr=ALL)
    in_office = epoch(zookeeper)
    assert create(ask, CreatableTopic(name, 1, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert grow(ask, name, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(ask, name) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    zookeeper.create(f"/admin/delete_topics/{name}")
    assert create(ask, CreatableTopic(f"next-{is_state}", 1, 3)) == [ErrorCode.NONE]
    assert epoch(zookeeper) == in_office
    assert zookeeper.exists(f"/brokers/topics/{name}/partitions/1/state")
    zookeeper.delete(f"/admin/delete_topics/{name}")
    zookeeper.set(path, good)
    assert create(ask, CreatableTopic(f"again-{is_state}", 1, 3)) == [ErrorCode.NONE]
    cluster.wait_for(TopicPartition(name, 0), isr=ALL)
    assert delete(ask, name) == [ErrorCode.NONE]


def test_a_garbled_block_of_producer_ids_costs_nobody_the_office(
    ask: Ask, cluster: MixedCluster, zookeeper: KazooClient
) -> None:
    """Brokers ask until they get a block."""
    in_office = epoch(zookeeper)
    good, _ = zookeeper.get("/latest_producer_id_block")
    zookeeper.set("/latest_producer_id_block", b"?")
    first = controller(cluster, zookeeper)

    def error_of(member: PlogMember) -> ErrorCode:
        return ErrorCode.of(ask(INIT_PRODUCER_ID, InitProducerIdRequest(None, 1000), member=member).error_code)

    assert create(ask, CreatableTopic("idempotent", 1, 3)) == [ErrorCode.NONE]
    zookeeper.set("/latest_producer_id_block", good)
    for member in cluster.plogs.values():
        wait_until(lambda member=member: error_of(member) is ErrorCode.NONE, "it has a block")
    assert controller(cluster, zookeeper) is first
    assert epoch(zookeeper) == in_office


# --- brokers that die


class Reading:
    """Reads a topic's partition as it grows, while `with` lasts; `found` has what was read, by offset."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        self.found: dict[int, int] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster.address, topic))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self, address: str, topic: str) -> None:
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "readers", "enable.auto.commit": False, "log_level": 0,
             "auto.offset.reset": "error", "socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 500}
        )  # fmt: skip
        consumer.assign([Position(topic, 0, 0)])
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.found[message.offset() or 0] = int(message.value() or b"")
        consumer.close()


def ensure_kept(cluster: MixedCluster, load: Load, reading: Reading) -> None:
    """Each number was acknowledged and is there once, in order; what was read is still there."""
    load.verify()
    assert reading.found == {offset: offset for offset in reading.found}
    cluster.wait_until_equal(TopicPartition(load.topic, 0), ALL)


def test_any_two_may_die_in_any_order(cluster: MixedCluster) -> None:
    """Also while the others catch up."""
    name = TopicPartition("two-die", 0)
    cluster.make_topic("two-die", ALL)
    first, second, third = cluster.plogs.values()
    with Load(cluster.address, "two-die") as load, Reading(cluster, "two-die") as reading:
        first.kill()  # the leader, and perhaps the controller
        cluster.wait_for(name, isr=(6, 7))
        load.wait_for_more()
        second.kill()
        cluster.wait_for(name, isr=(7,))
        load.wait_for_more()
        first.start()
        cluster.wait_for(name, isr=(5, 7))
        third.kill()
        cluster.wait_for(name, leader=5, isr=(5,))
        load.wait_for_more()
        second.start()
        third.start()
        cluster.wait_for(name, isr=ALL)
        second.kill()
        third.kill()  # both at once
        cluster.wait_for(name, leader=5, isr=(5,))
        load.wait_for_more()
        third.start()
        second.start()
        cluster.wait_for(name, isr=ALL)
        load.wait_for_more()
    ensure_kept(cluster, load, reading)


class Asking:
    """Asks one broker for its topics, again and again, while it is killed and started."""

    def __init__(self, member: PlogMember, topic: str) -> None:
        self.codes: set[int] = set()
        self.counts: set[int] = set()
        self._endpoint = parse_endpoint(member.address)
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        one = MetadataRequest([MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        while not self._is_over.wait(0.002):
            try:
                with closing(KafkaClient([(self._endpoint.host, self._endpoint.port)])) as client:
                    connection = client.any_connection()
                    self.codes.update(topic.error_code for topic in connection.call(METADATA, one).topics)
                    self.counts.add(len(connection.call(METADATA, MetadataRequest(None)).topics))
            except PlogError:
                continue


def test_no_broker_forgets_topics_when_all_are_killed(ask: Ask, cluster: MixedCluster) -> None:
    """Each of them starts without any, and the new controller tells first which brokers live."""
    cluster.make_topic("kept", ALL)
    names = [f"one-of-30-{number}" for number in range(30)]
    assert set(create(ask, *(CreatableTopic(name, 10, 3) for name in names))) == {ErrorCode.NONE}
    for member in cluster.plogs.values():
        wait_until(lambda member=member: topics_at(member.address) >= {"kept", *names}, "all know all")
    with Load(cluster.address, "kept") as load, ExitStack() as stack:
        asking = [stack.enter_context(Asking(member, names[7])) for member in cluster.plogs.values()]
        wait_until(lambda: all(one.counts for one in asking), "all answer")
        for member in cluster.plogs.values():
            member.kill()
        for member in cluster.plogs.values():
            member.start()
        load.wait_for_more()
    cluster.wait_for(TopicPartition("kept", 0), isr=ALL)
    assert [(one.codes, len(one.counts)) for one in asking] == [({0}, 1)] * 3
    load.verify()
    delete(ask, *names)


def test_a_rolling_restart_costs_clients_nothing(cluster: MixedCluster) -> None:
    """Each broker is stopped and started again, the controller among them; producers retry, and see no error."""
    name = TopicPartition("rolling", 0)
    cluster.make_topic("rolling", ALL, min_insync_replicas="2")
    before = {node: member.log.stat().st_size for node, member in cluster.plogs.items()}
    with Load(cluster.address, "rolling") as load, Reading(cluster, "rolling") as reading:
        for member in cluster.plogs.values():
            load.wait_for_more()
            member.stop()
            load.wait_for_more()
            member.start()
            cluster.wait_for(name, isr=ALL)
        load.wait_for_more()
    for node, member in cluster.plogs.items():
        assert b"this broker stops all the same" not in member.log.read_bytes()[before[node] :]
    ensure_kept(cluster, load, reading)


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
