"""plog as the controller of a cluster with Apache Kafka 3.9: Kafka's own tools ask it, Kafka's broker obeys it, and
takes the office over when it is killed or paused in the midst of its work.

The tests share one cluster, of Kafka's broker 1 and plog's 5 and 6, and run in this order; each leaves it well. What
replicas hold is compared byte by byte, and what producers were told with what is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_endpoint
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.transactions import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.crash.cluster.operators import Operators
from tests.crash.cluster.replicas import Metadata
from tests.support.kafka39 import metadata_at
from tests.support.load import Load, read_numbers
from tests.support.mixed_cluster import Broker, MixedCluster, PlogMember
from tests.support.oracle import requires_kafka, requires_kafka39, run_tool
from tests.support.server import call_plog
from tests.support.waiting import FLUSH_SECONDS, wait_until

pytestmark = [requires_kafka, requires_kafka39]

KAFKA, FIRST, SECOND = 1, 5, 6
ALL = (KAFKA, FIRST, SECOND)
TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "elect": "org.apache.kafka.tools.LeaderElectionCommand",
}
GOLDEN = Path(__file__).parents[1] / "golden" / "znodes" / "kafka-3.9.ndjson"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    settings = {
        "min.insync.replicas": "1",
        "log.segment.delete.delay.ms": "100",
        "replication.quota.window.size.seconds": "60",  # a throttled move gets something in each
    }
    with MixedCluster(tmp_path_factory.mktemp("controls"), 1, (FIRST, SECOND), settings, plog_controls=True) as started:
        yield started


@pytest.fixture(scope="module")
def metadata(cluster: MixedCluster) -> Iterator[Metadata]:
    with closing(Metadata(cluster.kafka.zookeeper.address)) as found:
        yield found


@pytest.fixture(scope="module")
def operators(cluster: MixedCluster, metadata: Metadata) -> Operators:
    return Operators(cluster, metadata, Random(1))


def tool(cluster: MixedCluster, name: str, *options: str) -> str:
    """One of Kafka's tools, with the address of Kafka's broker: it finds out who the controller is."""
    done = run_tool(TOOLS[name], "--bootstrap-server", cluster.kafka.brokers[KAFKA].address, *options)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return done.stdout.decode()


def ensure_plog_controls(cluster: MixedCluster, metadata: Metadata) -> PlogMember:
    """Takes the office from Kafka's broker until one of plog's has it."""

    def is_so() -> bool:
        holder = metadata.controller()
        if holder == KAFKA:
            metadata.depose()
        return holder in cluster.plogs

    wait_until(is_so, "one of plog's brokers is the controller")
    holder = metadata.controller()
    assert holder is not None
    return cluster.plogs[holder]


def test_a_plog_is_the_first_controller(cluster: MixedCluster, metadata: Metadata) -> None:
    assert metadata.controller() == FIRST

    def told() -> set[int | None]:
        answers = [metadata_at(broker.address) for broker in cluster.kafka.brokers.values()]
        return {None if answer is None else answer.controller_id for answer in answers}

    wait_until(lambda: told() == {FIRST}, lambda: f"Kafka's brokers know who it is: {told()}")


def test_kafkas_tools_change_topics(cluster: MixedCluster, metadata: Metadata) -> None:
    """They make and grow one; then plog's command does so, and all are deleted."""
    options = ["--topic", "made", "--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=-1"]
    tool(cluster, "topics", "--create", *options)
    cluster.wait_until_known("made")  # a tool asks any broker
    assert "made" in tool(cluster, "topics", "--list").split()
    tool(cluster, "topics", "--alter", "--topic", "made", "--partitions", "5")
    for number in range(5):
        cluster.wait_for(TopicPartition("made", number), isr=ALL)
    where = ["--bootstrap-server", cluster.brokers[KAFKA].address]
    made = call_plog("topic", "create", "made-by-plog", "--partitions", "2", *where)
    assert made.returncode == 0, made.stderr.decode()
    described = json.loads(call_plog("topic", "describe", "made", "--output", "json", *where).stdout)
    assert len(described) == 5
    cluster.wait_until_known("made-by-plog")
    tool(cluster, "topics", "--delete", "--topic", "made.*")
    wait_until(lambda: not {"made", "made-by-plog"} & set(metadata.topics()), "they are gone")
    ensure_no_folders(cluster, "made")


def ensure_no_folders(cluster: MixedCluster, topic: str) -> None:
    """Of plog's brokers; Kafka's begins to delete half a minute after its start."""
    for member in cluster.plogs.values():
        wait_until(lambda member=member: not list(member.data_dir.glob(f"{topic}*")), "the folders are gone")


def test_the_nodes_have_kafkas_form(cluster: MixedCluster, metadata: Metadata) -> None:
    """The same fields of the same types as in nodes that Kafka's controller wrote, but for those of plog's own."""

    def form(node: Any) -> Any:
        return {key: type(value) for key, value in node.items() if not key.startswith("plog_")}

    kafkas = {line["path"]: line["data"] for line in map(json.loads, GOLDEN.read_text().splitlines()) if line["data"]}
    cluster.make_topic("formed", ALL, (SECOND, FIRST, KAFKA), segment_bytes="50000")
    pairs = {
        "/brokers/topics/formed": "/brokers/topics/t1",
        "/brokers/topics/formed/partitions/1/state": "/brokers/topics/t1/partitions/1/state",
        "/config/topics/formed": "/config/topics/t1",
        "/controller": "/controller",
    }
    for ours, theirs in pairs.items():
        assert form(metadata.read(ours)) == form(json.loads(kafkas[theirs])), ours


def test_partitions_that_somebody_adds_by_hand_are_led(cluster: MixedCluster, metadata: Metadata) -> None:
    """In the topic's node, as Kafka's tools did before 3.0."""
    cluster.make_topic("by-hand", ALL)
    path = "/brokers/topics/by-hand"
    node = metadata.read(path)
    node["partitions"]["1"] = [KAFKA, SECOND]
    metadata.write(path, node)
    cluster.wait_for(TopicPartition("by-hand", 1), leader=KAFKA, isr=(KAFKA, SECOND))


def reassignment(folder: Path, **replicas: Sequence[int]) -> str:
    path = folder / "moves.json"
    partitions = [{"topic": topic, "partition": 0, "replicas": list(one)} for topic, one in replicas.items()]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_kafkas_tools_move_replicas_and_leaders(cluster: MixedCluster, metadata: Metadata, tmp_path: Path) -> None:
    """One partition moves from plog to Kafka's broker; another one, a byte a second, until that is given up."""
    cluster.make_topic("moved", (FIRST, SECOND))
    cluster.make_topic("stuck", (FIRST,))
    cluster.wait_until_known("moved")
    cluster.wait_until_known("stuck")
    with Load(cluster.address, "moved") as load:
        plan = reassignment(tmp_path, moved=(KAFKA, FIRST))
        tool(cluster, "reassign", "--execute", "--reassignment-json-file", plan)
        cluster.wait_for(TopicPartition("moved", 0), isr=(KAFKA, FIRST))
        metadata.settle(ALL)
        verified = tool(cluster, "reassign", "--verify", "--reassignment-json-file", plan)
        assert "Reassignment of partition moved-0 is completed" in verified
        assert "No partition reassignments found." in tool(cluster, "reassign", "--list")
        elected = tool(cluster, "elect", "--election-type", "preferred", "--topic", "moved", "--partition", "0")
        assert "moved-0" in elected
        cluster.wait_for(TopicPartition("moved", 0), leader=KAFKA)
        load.wait_for_more()
    load.verify()
    assert not (cluster.plogs[SECOND].data_dir / "moved-0").exists()
    fill(cluster, "stuck")
    plan = reassignment(tmp_path, stuck=(KAFKA, FIRST))
    tool(cluster, "reassign", "--execute", "--throttle", "1", "--reassignment-json-file", plan)
    assert metadata.unfinished()
    assert f"stuck-0: replicas: {KAFKA},{FIRST}. adding: {KAFKA}." in tool(cluster, "reassign", "--list")
    tool(cluster, "reassign", "--cancel", "--reassignment-json-file", plan)
    assert metadata.unfinished() == []
    assert metadata.assignment("stuck") == {"0": [FIRST]}
    metadata.settle(ALL)
    folder = cluster.brokers[KAFKA].data_dir / "stuck-0"
    wait_until(lambda: not folder.exists(), "what was copied is deleted")


def fill(cluster: MixedCluster, topic: str) -> None:
    """With more than a follower fetches at once."""
    producer = Producer({"bootstrap.servers": cluster.address, "log_level": 0, "linger.ms": 50})
    for _ in range(5000):
        producer.produce(topic, bytes(1000), partition=0)
    producer.flush(FLUSH_SECONDS)


def test_replicas_move_round_while_it_is_produced(
    cluster: MixedCluster, metadata: Metadata, operators: Operators
) -> None:
    """Onto Kafka and off it, all at once and one by one, with another wish on the way."""
    name = TopicPartition("round", 0)
    cluster.make_topic("round", (FIRST, SECOND))
    ensure_plog_controls(cluster, metadata)
    with Load(cluster.address, "round") as load:
        for replicas in ((KAFKA,), (SECOND, FIRST), (KAFKA, SECOND), (FIRST,), (SECOND, KAFKA, FIRST)):
            operators.reassign({name: (FIRST, KAFKA, SECOND)})
            assert operators.reassign({name: replicas}).endswith("NONE")
            metadata.settle(ALL)
            assert metadata.assignment("round") == {"0": list(replicas)}
            load.wait_for_more()
    load.verify()
    cluster.wait_until_equal(name, ALL)


def test_who_stops_hands_over(cluster: MixedCluster, metadata: Metadata) -> None:
    """Kafka's broker, which plog's controller relieves; then the controller, which relieves itself first."""
    names = [TopicPartition(f"stops-{node}", 0) for node in ALL]
    for name, leader in zip(names, ALL, strict=True):
        cluster.make_topic(name.topic, (leader, *(one for one in ALL if one != leader)))
    ensure_plog_controls(cluster, metadata)
    with Load(cluster.address, names[0].topic) as load:
        kafka = cluster.kafka.brokers[KAFKA]
        kafka.stop()
        assert "unclean shutdown" not in kafka.log.read_text()
        load.wait_for_more()
        kafka.start_without_waiting()
        controller = ensure_plog_controls(cluster, metadata)
        others = [node for node in cluster.plogs if node != controller.node_id]
        kafka.wait_until_ready()
        metadata.settle(ALL)
        controller.stop()
        assert "has not taken over" not in controller.log.read_text()
        wait_until(lambda: metadata.controller() in (KAFKA, *others), "somebody else is the controller")
        assert all(state.leader != controller.node_id for state in metadata.states().values() if len(state.isr) > 1)
        load.wait_for_more()
        controller.start()
    metadata.settle(ALL)
    load.verify()
    cluster.wait_until_equal(names[0], ALL)


@pytest.mark.parametrize("is_paused", [False, True], ids=["killed", "paused"])
def test_a_controller_goes_in_the_midst_of_its_work(
    cluster: MixedCluster, metadata: Metadata, operators: Operators, *, is_paused: bool
) -> None:
    """It makes, grows and deletes topics, moves and elects when it is killed, or is paused until another one has long
    taken over and it comes back as one who knows nothing of that. Whatever was begun is ended by somebody.
    """
    kind = "paused" if is_paused else "killed"
    names = [TopicPartition(f"{kind}-{number}", 0) for number in range(4)]
    for number, name in enumerate(names):
        cluster.make_topic(name.topic, (ALL[number % 3], ALL[(number + 1) % 3]))
    doomed = f"{kind}-doomed"
    cluster.make_topic(doomed, *[ALL] * 10)
    controller = ensure_plog_controls(cluster, metadata)
    works: list[Callable[[], object]] = [
        lambda: operators.make(f"{kind}-new", 30),
        lambda: operators.grow(names[0].topic, 10),
        lambda: operators.delete(doomed),
        lambda: operators.reassign(dict.fromkeys(names[1:], (ALL[2], ALL[0]))),
        lambda: cluster.elect_preferred(names),
    ]
    with Load(cluster.address, names[3].topic) as load, ThreadPoolExecutor(len(works)) as pool:
        asked = [pool.submit(work) for work in works]
        wait_until(lambda: metadata.unfinished() or any(one.done() for one in asked), "it is at work")
        if is_paused:
            controller.pause()
            wait_until(lambda: metadata.controller() not in (None, controller.node_id), "another one has the office")
            load.wait_for_more()
            controller.resume()
        else:
            controller.kill()
            wait_until(lambda: metadata.controller() not in (None, controller.node_id), "another one has the office")
            controller.start()
        metadata.settle(ALL)
        load.wait_for_more()
    for one in asked[:-1]:
        one.result()
    load.verify()
    assert doomed not in metadata.topics() or operators.delete(doomed).endswith("NONE")
    metadata.settle(ALL)
    ensure_no_folders(cluster, doomed)
    for name, state in metadata.states().items():
        if name.topic.startswith(kind):
            cluster.wait_until_equal(name, state.replicas)


def test_an_unclean_election(cluster: MixedCluster, metadata: Metadata) -> None:
    """Kafka's broker has fallen behind, and is all that is left: an operator has it lead, and plog is cut to it."""
    controller = ensure_plog_controls(cluster, metadata)
    other = next(node for node in cluster.plogs if node != controller.node_id)
    name = TopicPartition("unclean", 0)
    cluster.make_topic("unclean", (other, KAFKA))
    where = ["--bootstrap-server", cluster.address]
    assert call_plog("produce", "unclean", "--acks", "all", *where, stdin=b"0\n1\n2\n").returncode == 0
    cluster.kafka.brokers[KAFKA].kill()
    cluster.wait_for(name, isr=(other,))
    assert call_plog("produce", "unclean", "--acks", "all", *where, stdin=b"9\n").returncode == 0
    cluster.plogs[other].kill()
    cluster.kafka.brokers[KAFKA].start()
    ensure_plog_controls(cluster, metadata)
    cluster.wait_for(name, leader=-1)
    cluster.elect(name, unclean=True)
    cluster.wait_for(name, leader=KAFKA)
    assert call_plog("produce", "unclean", "--acks", "all", *where, stdin=b"3\n").returncode == 0
    cluster.plogs[other].start()
    metadata.settle(ALL)
    cluster.wait_until_equal(name, (other, KAFKA))
    assert read_numbers(cluster.address, "unclean", 4) == [0, 1, 2, 3]


def test_nobody_gets_a_producer_id_twice(cluster: MixedCluster, metadata: Metadata) -> None:
    """Each broker has blocks of Kafka's controller and of plog's."""

    def ids_of(broker: Broker, count: int) -> list[int]:
        endpoint = parse_endpoint(broker.address)
        given: list[int] = []
        with closing(KafkaClient([(endpoint.host, endpoint.port)])) as client:
            while len(given) < count:
                answer = client.any_connection().call(INIT_PRODUCER_ID, InitProducerIdRequest(None, 1000))
                assert answer.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                given += [answer.producer_id] if answer.error_code == ErrorCode.NONE else []
        return given

    found: list[int] = []
    for turn in range(2):
        for broker in cluster.brokers.values():
            found += ids_of(broker, 510)
        if turn == 0:
            before = metadata.controller()

            def is_another(before: int | None = before) -> bool:
                holder = metadata.controller()
                if holder == before:
                    metadata.depose()
                return holder not in (None, before)

            wait_until(is_another, "another broker is the controller")
    assert len(found) == len(set(found))
