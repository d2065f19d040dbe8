"""Apache Kafka 3.9 with ZooKeeper: plog's commands are its clients, and it reads what brokers say to each other.

Every request of a broker is written with an epoch that is wrong, and Kafka says so by its code. That it finds the
epoch, and answers for the right partition, shows that it read the request as it was meant.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.coordinators.producer_ids import ProducerIdBlocks
from core.broker.replication.auto_topic_creation import AutoTopicCreation
from core.broker.replication.cluster_membership import controlled_shutdown
from core.broker.replication.controller_channel import ControllerChannel
from core.broker.replication.isr_reporter import IsrReporter
from core.broker.replication.peer_connection import PeerConnection
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.client.net.client_connection import ClientConnection, SocketTransport
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import IsrAnswer
from core.cluster.partition.partition import Partition
from core.common.endpoint import parse_endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.message import Api
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from core.protocol.schema.controller_request import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    AllocateProducerIdsRequest,
    AlteredPartition,
    AlteredPartitionResult,
    AlteredTopic,
    AlterPartitionRequest,
    BrokerState,
    ControlledShutdownRequest,
)
from core.protocol.schema.fetch import FETCH, EpochEndOffset, FetchPartition, FetchRequest, FetchTopic, ReplicaState
from core.protocol.schema.fetch import PartitionData as FetchedPartition
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.interop.clients import confluent_consume
from tests.support.kafka39 import Kafka39Broker, Kafka39Cluster
from tests.support.logs import iter_batches, open_log
from tests.support.oracle import requires_kafka39
from tests.support.replication import KnownPeers
from tests.support.server import call_plog
from tests.support.waiting import wait_until

pytestmark = [requires_kafka39, pytest.mark.java]

TOPIC = "roles"
OLD_CONTROLLER, CONTROLLER = 0, 1
"""Epochs: the first controller of a cluster has the second."""
OLD_BROKER = 1
"""An epoch before that of any broker."""


def plog(broker: Kafka39Broker, *arguments: str, stdin: bytes = b"", code: int = 0) -> str:
    done = call_plog(*arguments, "--bootstrap-server", broker.address, stdin=stdin)
    assert done.returncode == code, done.stderr
    return (done.stdout or done.stderr).decode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka39Broker]:
    """The only one of its cluster, so the controller; it has a topic with one partition."""
    with Kafka39Cluster(tmp_path_factory.mktemp("kafka39")) as cluster:
        plog(cluster.brokers[1], "topic", "create", TOPIC)
        yield cluster.brokers[1]


class Peer:
    """Speaks to the broker as another broker does."""

    def __init__(self, broker: Kafka39Broker, topic: str = TOPIC) -> None:
        host, _, port = broker.internal_address.rpartition(":")
        self.connection = ClientConnection(SocketTransport(host, int(port)))
        epoch = broker.find_epoch()
        assert epoch is not None
        self.broker_epoch = epoch
        answer = self.connection.call(METADATA, MetadataRequest([MetadataRequestTopic(name=topic)]))
        self.topic_id = answer.topics[0].topic_id

    def versions(self, api: Api[Any, Any]) -> range:
        first, last = self.connection.api_versions[api.key]
        assert (first, last) == (api.versions.first, api.versions.last)
        return range(first, last + 1)

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_epoch: int,
        leader_epoch: int,
        version: int = 7,
        topic_id: bytes | None = None,
    ) -> LeaderAndIsrResponse:
        state = LeaderAndIsrPartitionState(TOPIC, 0, controller_epoch, 1, leader_epoch, [1], 0, [1])
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch)
        request.live_leaders = [LeaderAndIsrLiveLeader(1, "127.0.0.1", 9092)]
        if version < 2:
            request.ungrouped_partition_states = [state]
        else:
            request.topic_states = [LeaderAndIsrTopicState(TOPIC, topic_id or self.topic_id, [state])]
        return self.connection.call(LEADER_AND_ISR, request, at_most=version)

    def alter_partition(
        self,
        *,
        broker_epoch: int,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        in_sync: tuple[int, ...] = (1,),
        version: int = 3,
    ) -> AlteredPartitionResult | ErrorCode:
        """What is answered for the partition, or for the whole request."""
        partition = AlteredPartition(0, leader_epoch, partition_epoch=partition_epoch)
        if version < 3:
            partition.new_isr = list(in_sync)
        else:
            partition.new_isr_with_epochs = [BrokerState(node_id) for node_id in in_sync]
        topic = AlteredTopic(TOPIC if version < 2 else "", self.topic_id, [partition])
        request = AlterPartitionRequest(1, broker_epoch, [topic])
        answer = self.connection.call(ALTER_PARTITION, request, at_most=version)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        (answered,) = answer.topics
        assert (answered.topic_name, answered.topic_id) == ((TOPIC, bytes(16)) if version < 2 else ("", self.topic_id))
        (result,) = answered.partitions
        assert result.partition_index == 0
        return result


@pytest.fixture
def peer(broker: Kafka39Broker) -> Iterator[Peer]:
    peer = Peer(broker)
    yield peer
    peer.connection.close()


def test_it_has_no_features_and_refuses_them_one_by_one(broker: Kafka39Broker) -> None:
    assert json.loads(plog(broker, "cluster", "features", "--output", "json")) == []
    upgrades = ("--upgrade", "group.version=1", "--upgrade", "transaction.version=2", "--yes")
    rows = json.loads(plog(broker, "cluster", "features", *upgrades, "--output", "json", code=1))
    assert [row["feature"] for row in rows] == ["group.version", "transaction.version"]
    assert all(row["result"].startswith("INVALID_REQUEST: Could not apply finalized") for row in rows), rows


def test_topics_are_created_and_described(broker: Kafka39Broker) -> None:
    plog(broker, "topic", "create", "described", "--partitions", "3", "--config", "min.insync.replicas=1")
    rows = json.loads(plog(broker, "topic", "describe", "described", "--output", "json"))
    assert [(row["partition"], row["leader"], row["isr"]) for row in rows] == [(n, 1, [1]) for n in range(3)]
    (row,) = json.loads(plog(broker, "cluster", "status", "--output", "json"))
    assert (row["broker"], row["listeners"], row["controller"]) == (1, [broker.address], True)


def test_records_are_produced_and_consumed(broker: Kafka39Broker) -> None:
    plog(broker, "topic", "create", "records")
    plog(broker, "produce", "records", stdin=b"one\ntwo\n")
    assert plog(broker, "consume", "records", "--from-beginning", "--max-messages", "2") == "one\ntwo\n"
    assert [record.value for record in confluent_consume(broker.address, "records", 2)] == [b"one", b"two"]


def test_groups_are_of_the_protocol_that_the_cluster_has_and_read_on_where_they_stopped(broker: Kafka39Broker) -> None:
    plog(broker, "topic", "create", "grouped")
    plog(broker, "produce", "grouped", stdin=b"one\ntwo\n")
    as_member = ("consume", "grouped", "--group", "readers", "--from-beginning")
    assert [plog(broker, *as_member, "--max-messages", "1") for _ in range(2)] == ["one\n", "two\n"]
    assert "readers" in plog(broker, "group", "list")
    assert "readers  grouped          0       2           2    0" in plog(broker, "group", "describe", "readers")


def test_whoever_asks_for_the_newer_group_protocol_hears_of_the_older_one(broker: Kafka39Broker) -> None:
    newer = ("--group", "new", "--group-protocol", "consumer")
    refused = plog(broker, "consume", TOPIC, *newer, "--max-messages", "1", code=1)
    assert "UNSUPPORTED_VERSION" in refused
    assert "--group-protocol classic" in refused


def test_transactions_are_committed_and_listed(broker: Kafka39Broker) -> None:
    plog(broker, "topic", "create", "transactional")
    plog(broker, "produce", "transactional", "--transactional-id", "mover", stdin=b"one\ntwo\n")
    read = ("consume", "transactional", "--from-beginning", "--isolation", "read_committed", "--max-messages", "2")
    wait_until(lambda: plog(broker, *read) == "one\ntwo\n", "Kafka has written the marker")
    wait_until(lambda: "CompleteCommit" in plog(broker, "transaction", "list"), "Kafka has noted the end")


def test_leader_and_isr_of_an_old_controller_in_every_version(peer: Peer) -> None:
    for version in peer.versions(LEADER_AND_ISR):
        answer = peer.leader_and_isr(OLD_CONTROLLER, peer.broker_epoch, 5, version)
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        topics = [(topic.topic_id, topic.partition_errors) for topic in answer.topics]
        errors = answer.partition_errors if version < 5 else topics[0][1]
        assert [topic_id for topic_id, _ in topics] == ([] if version < 5 else [peer.topic_id])
        assert [(e.topic_name, e.partition_index, e.error_code) for e in errors] == [
            (TOPIC if version < 5 else "", 0, ErrorCode.STALE_CONTROLLER_EPOCH)
        ]


@pytest.mark.parametrize(
    ("broker_epoch", "leader_epoch", "is_its_topic", "whole", "partition"),
    [
        pytest.param(OLD_BROKER, 5, True, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_BROKER_EPOCH, id="an old life"),
        pytest.param(None, 0, True, ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, id="the same leader epoch"),
        pytest.param(None, 5, False, ErrorCode.NONE, ErrorCode.INCONSISTENT_TOPIC_ID, id="another topic of that name"),
    ],
)
def test_leader_and_isr_that_is_refused(
    peer: Peer,
    broker_epoch: int | None,
    leader_epoch: int,
    is_its_topic: bool,
    whole: ErrorCode,
    partition: ErrorCode,
) -> None:
    topic_id = peer.topic_id if is_its_topic else bytes(15) + b"\1"
    epoch = broker_epoch or peer.broker_epoch
    answer = peer.leader_and_isr(CONTROLLER, epoch, leader_epoch, topic_id=topic_id)
    assert answer.error_code == whole
    assert [(t.topic_id, e.error_code) for t in answer.topics for e in t.partition_errors] == [(topic_id, partition)]


def update_metadata(peer: Peer, controller_epoch: int, broker_epoch: int, version: int) -> int:
    state = UpdateMetadataPartitionState(TOPIC, 0, controller_epoch, 1, 5, [1], 0, [1], [])
    endpoint = UpdateMetadataEndpoint(9092, "127.0.0.1", "INTERNAL", 0)
    request = UpdateMetadataRequest(1, controller_epoch=controller_epoch, broker_epoch=broker_epoch)
    request.live_brokers = [UpdateMetadataBroker(1, "127.0.0.1", 9092, [endpoint], "a rack")]
    if version < 5:
        request.ungrouped_partition_states = [state]
    else:
        request.topic_states = [UpdateMetadataTopicState(TOPIC, peer.topic_id, [state])]
    return peer.connection.call(UPDATE_METADATA, request, at_most=version).error_code


def test_update_metadata_of_an_old_controller_or_for_an_old_life(peer: Peer) -> None:
    for version in peer.versions(UPDATE_METADATA):
        error = update_metadata(peer, OLD_CONTROLLER, peer.broker_epoch, version)
        assert error == ErrorCode.STALE_CONTROLLER_EPOCH
        if version >= 5:
            assert update_metadata(peer, CONTROLLER, OLD_BROKER, version) == ErrorCode.STALE_BROKER_EPOCH


def stop_replica_request(controller_epoch: int, broker_epoch: int, leader_epoch: int, version: int) -> Any:
    request = StopReplicaRequest(1, controller_epoch=controller_epoch, broker_epoch=broker_epoch)
    if version == 0:
        request.ungrouped_partitions = [StopReplicaPartitionV0(TOPIC, 0)]
    elif version < 3:
        request.topics = [StopReplicaTopicV1(TOPIC, [0])]
    else:
        request.topic_states = [StopReplicaTopicState(TOPIC, [StopReplicaPartitionState(0, leader_epoch)])]
    return request


def test_stop_replica_of_an_old_controller_for_an_old_life_and_with_an_old_leader_epoch(peer: Peer) -> None:
    for version in peer.versions(STOP_REPLICA):
        request = stop_replica_request(OLD_CONTROLLER, peer.broker_epoch, 0, version)
        answer = peer.connection.call(STOP_REPLICA, request, at_most=version)
        assert (answer.error_code, answer.partition_errors) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])
        if version >= 1:
            request = stop_replica_request(CONTROLLER, OLD_BROKER, 0, version)
            answer = peer.connection.call(STOP_REPLICA, request, at_most=version)
            assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    answer = peer.connection.call(STOP_REPLICA, stop_replica_request(CONTROLLER, peer.broker_epoch, -3, 4))
    errors = [(e.topic_name, e.partition_index, e.error_code) for e in answer.partition_errors]
    assert (answer.error_code, errors) == (ErrorCode.NONE, [(TOPIC, 0, ErrorCode.FENCED_LEADER_EPOCH)])


def test_alter_partition_of_an_old_leader_in_every_version(peer: Peer) -> None:
    for version in peer.versions(ALTER_PARTITION):
        assert peer.alter_partition(broker_epoch=OLD_BROKER, version=version) is ErrorCode.STALE_BROKER_EPOCH
        fenced = peer.alter_partition(broker_epoch=peer.broker_epoch, leader_epoch=-1, version=version)
        assert isinstance(fenced, AlteredPartitionResult)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_alter_partition_is_compared_with_what_the_controller_knows(peer: Peer) -> None:
    def ask(**changes: Any) -> AlteredPartitionResult:
        answer = peer.alter_partition(broker_epoch=peer.broker_epoch, **changes)
        assert isinstance(answer, AlteredPartitionResult)
        return answer

    assert ask() == AlteredPartitionResult(0, ErrorCode.NONE, 1, 0, [1], 0, 0)  # as it is already
    assert ask(leader_epoch=7).error_code == ErrorCode.NOT_CONTROLLER  # the sender knows more
    assert ask(partition_epoch=9).error_code == ErrorCode.NOT_CONTROLLER
    assert ask(in_sync=(1, 9)).error_code == ErrorCode.INELIGIBLE_REPLICA  # there is no broker 9


def test_controlled_shutdown_for_an_old_life_and_of_an_unknown_broker(peer: Peer) -> None:
    for version in peer.versions(CONTROLLED_SHUTDOWN)[1:]:  # the header of version 0 is another
        unknown = peer.connection.call(CONTROLLED_SHUTDOWN, ControlledShutdownRequest(9, OLD_BROKER), at_most=version)
        has_epoch = version >= 2  # which is looked up, and not found
        assert unknown.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if has_epoch else ErrorCode.BROKER_NOT_AVAILABLE)
    old = peer.connection.call(CONTROLLED_SHUTDOWN, ControlledShutdownRequest(1, OLD_BROKER))
    assert (old.error_code, old.remaining_partitions) == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_producer_ids_are_given_in_blocks_to_brokers_that_live(broker: Kafka39Broker, peer: Peer) -> None:
    def ask(node_id: int, epoch: int) -> tuple[int, int, int]:
        answer = peer.connection.call(ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(node_id, epoch))
        return answer.error_code, answer.producer_id_start, answer.producer_id_len

    assert ask(9, OLD_BROKER) == (ErrorCode.BROKER_ID_NOT_REGISTERED, 0, 0)
    assert ask(1, OLD_BROKER) == (ErrorCode.STALE_BROKER_EPOCH, 0, 0)
    first, second = (ask(1, peer.broker_epoch) for _ in range(2))
    assert second == (ErrorCode.NONE, first[1] + 1000, 1000)


def test_a_follower_fetches_and_learns_where_its_log_parts_from_the_leaders(broker: Kafka39Broker) -> None:
    plog(broker, "topic", "create", "followed")
    plog(broker, "produce", "followed", stdin=b"one\ntwo\n")
    peer = Peer(broker, "followed")
    peer.connection.close()
    endpoint = parse_endpoint(broker.internal_address)

    async def fetch(*partitions: FetchPartition, replica_id: int = -1) -> list[FetchedPartition]:
        connection = await PeerConnection.connect(
            endpoint, ReceiveBuffers(), client_id="broker-9-fetcher-0", connect_timeout_s=30, request_timeout_s=30
        )
        requests = [FetchRequest(topics=[FetchTopic("", peer.topic_id, [one])]) for one in partitions]
        for request in requests:
            request.replica_state = ReplicaState(replica_id, -1)
        answers = [await one for one in [connection.send(FETCH, 17, request) for request in requests]]
        connection.close()
        assert {(answer.error_code, answer.responses[0].topic_id) for answer in answers} == {(0, peer.topic_id)}
        return [answer.responses[0].partitions[0] for answer in answers]

    whole, newer, diverging = asyncio.run(
        fetch(
            FetchPartition(0, partition_max_bytes=1 << 20),
            FetchPartition(0, current_leader_epoch=7, partition_max_bytes=1 << 20),
            FetchPartition(0, 0, fetch_offset=5, last_fetched_epoch=0, partition_max_bytes=1 << 20),
        )
    )
    assert isinstance(whole.records, memoryview)
    values = [record.value for batch in iter_batches(whole.records) for record in batch.records()]
    assert (values, whole.high_watermark) == ([b"one", b"two"], 2)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (diverging.error_code, diverging.diverging_epoch) == (ErrorCode.NONE, EpochEndOffset(0, 2))
    (stranger,) = asyncio.run(fetch(FetchPartition(0, partition_max_bytes=1 << 20), replica_id=9))
    assert stranger.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # it has no replica of it


def led_partition(folder: Path, topic_id: bytes, *isr: int) -> Partition:
    """Partition 0 of the topic as broker 1 would know it, with another replica at a broker that does not exist."""
    state = PartitionState(leader=1, leader_epoch=0, isr=isr, replicas=(1, 9), partition_epoch=0)
    return Partition(open_log(folder), topic_id, state, node_id=1, peers=KnownPeers(9))


async def refused(creation: AutoTopicCreation, topic: NewTopic) -> KafkaError:
    while True:
        try:
            creation.begin(topic)
        except KafkaError as error:
            return error
        await asyncio.sleep(0)


def test_what_a_broker_needs_of_the_controller_is_asked_over_a_channel(
    broker: Kafka39Broker, peer: Peer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    joined = led_partition(tmp_path / "joined", peer.topic_id, 1)
    left = led_partition(tmp_path / "left", peer.topic_id, 1, 9)
    expansion = joined.note_fetch(9, 0, log_start_offset=0, broker_epoch=109, now_ms=0)
    shrinking = left.look_at_followers(1_000_000)
    assert expansion is not None
    assert shrinking is not None
    answers: asyncio.Queue[IsrAnswer] = asyncio.Queue()
    config = BrokerConfig.parse({"num.partitions": "2", "controlled.shutdown.max.retries": "1"})

    def broker_epoch() -> int:
        return peer.broker_epoch

    async def report(channel: ControllerChannel) -> None:
        reporter = IsrReporter(
            channel, node_id=1, broker_epoch=broker_epoch, on_answer=lambda *answer: answers.put_nowait(answer[-1])
        )
        reporter.propose(joined, expansion)
        assert (await answers.get()).error is ErrorCode.INELIGIBLE_REPLICA
        reporter.propose(left, shrinking)
        assert await answers.get() == IsrAnswer(isr=(1,), leader_epoch=0, partition_epoch=0)  # as it is already

    async def create(channel: ControllerChannel) -> None:
        creation = AutoTopicCreation(channel, lambda: config)
        creation.begin(NewTopic("needed", configs={"cleanup.policy": "compact"}))
        refusal = await refused(creation, NewTopic("of-many", replication_factor=3))
        assert refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "Replication factor: 3 larger than available brokers: 1" in str(refusal)

    async def take_ids(channel: ControllerChannel) -> None:
        blocks = ProducerIdBlocks(channel, node_id=1, broker_epoch=broker_epoch)
        taken: list[range] = []
        while len(taken) < 2:
            with suppress(KafkaError):
                taken.append(blocks.take())
            await asyncio.sleep(0)
        assert taken[1] == range(taken[0].stop, taken[0].stop + 1000)
        await blocks.close()

    async def scenario() -> None:
        address = parse_endpoint(broker.internal_address)
        channel = ControllerChannel(lambda: (1, address), config, ReceiveBuffers(), client_id="broker-1-to-controller")
        await asyncio.gather(report(channel), create(channel), take_ids(channel))
        assert not await controlled_shutdown(channel, config, node_id=1, broker_epoch=lambda: OLD_BROKER)
        channel.close()

    asyncio.run(scenario())
    assert ErrorCode.STALE_BROKER_EPOCH.text in caplog.messages[-1]
    wait_until(lambda: "needed" in plog(broker, "topic", "list"), "Kafka knows the topic")
    rows = json.loads(plog(broker, "topic", "describe", "needed", "--output", "json"))
    assert [row["partition"] for row in rows] == [0, 1]


def test_another_life_of_a_broker_has_another_epoch(broker: Kafka39Broker) -> None:
    before = broker.find_epoch()
    broker.stop()
    assert broker.find_epoch() is None
    broker.start()
    peer = Peer(broker)
    assert peer.broker_epoch != before
    assert before is not None
    assert peer.alter_partition(broker_epoch=before) is ErrorCode.STALE_BROKER_EPOCH
    peer.connection.close()
