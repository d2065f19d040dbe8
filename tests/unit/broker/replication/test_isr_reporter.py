"""What leaders propose reaches the controller, and its answers reach them: real partitions, a scripted controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from core.broker.replication.isr_reporter import IsrReporter
from core.cluster.image.single_node_controller import SingleNodeController
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.controller_request import (
    AlteredPartition,
    AlteredPartitionResult,
    AlteredTopicResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
)
from core.protocol.schema.metadata_records import PartitionChangeRecord
from tests.support.broker import SteeredNode, Timers, add_topic, open_broker
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock
from tests.support.replication import KnownPeers
from tests.support.scripted_controller import ScriptedController, channel_to

OTHER, THIRD = 8, 9
HOUR_MS = 3_600_000


class Cluster:
    """A broker that leads topics with replicas at two others, and the controller's part: it writes down what is asked
    of it, or answers with one of `errors`.
    """

    def __init__(self, broker: SteeredNode) -> None:
        self.broker = broker
        self.node_id = broker.services.node.node_id
        self.replicas = broker.services.replicas
        self.broker_epoch = 70
        self.topic_ids: dict[str, bytes] = {}
        self.errors: list[ErrorCode] = []
        """Of whole requests, one after the other."""
        self.partition_errors: list[ErrorCode] = []
        """Likewise, of the partitions that are asked for."""
        self.left_out = 0
        """How many partitions it says nothing of."""

    def add(self, name: str, partitions: int = 1) -> None:
        self.topic_ids[name] = add_topic(self.broker, name, partitions)
        for number in range(partitions):
            self.decide(name, number, [self.node_id])

    def decide(self, name: str, number: int, isr: list[int], leader: int = -2) -> None:
        """The controller decides without being asked."""
        record = PartitionChangeRecord(
            number, self.topic_ids[name], isr=isr, leader=leader, replicas=[self.node_id, OTHER, THIRD]
        )
        cast(SingleNodeController, self.broker.services.controller)._submit([record])

    def partition(self, name: str = "t", number: int = 0) -> Partition:
        return self.replicas.partitions[TopicPartition(name, number)]

    def fetched(self, name: str = "t", number: int = 0, replica: int = OTHER) -> None:
        """A replica has everything."""
        partition = self.partition(name, number)
        end = partition.log.log_end_offset
        self.replicas.note_fetch(partition, replica, end, log_start_offset=0, broker_epoch=100 + replica)

    def reporter(self, controller: ScriptedController, backoff_ms: int = 1) -> IsrReporter:
        reporter = IsrReporter(
            channel_to(controller.find, backoff_ms=backoff_ms),
            node_id=self.node_id,
            broker_epoch=lambda: self.broker_epoch,
            on_answer=self.replicas.on_isr_answer,
        )
        self.replicas.on_proposal.append(reporter.propose)
        return reporter

    def answer(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.errors:
            return AlterPartitionResponse(error_code=self.errors.pop(0))
        topics = [
            AlteredTopicResult(topic_id=topic.topic_id, partitions=[self._result(one) for one in topic.partitions])
            for topic in request.topics
        ]
        for topic in topics:
            while self.left_out and topic.partitions:
                topic.partitions.pop()
                self.left_out -= 1
        return AlterPartitionResponse(topics=topics)

    def _result(self, asked: AlteredPartition) -> AlteredPartitionResult:
        number = asked.partition_index
        error = self.partition_errors.pop(0) if self.partition_errors else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return AlteredPartitionResult(number, error)
        isr = [one.broker_id for one in asked.new_isr_with_epochs]
        epoch = asked.partition_epoch + 1
        return AlteredPartitionResult(number, 0, self.node_id, asked.leader_epoch, isr, 0, epoch)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    broker = open_broker(tmp_path / "data", ManualClock(NOW))
    monkeypatch.setattr(broker.services.replicas, "_peers", KnownPeers(OTHER, THIRD))
    broker.runtime.use(schedule=Timers())
    cluster = Cluster(broker)
    cluster.add("t")
    yield cluster
    broker.close()


async def until_in_sync(partition: Partition, *others: int) -> None:
    """Returns when the partition knows that they are."""
    leadership = partition._leadership
    assert leadership is not None
    while leadership.in_sync.proposal is not None or not leadership.in_sync.committed.issuperset(others):
        await asyncio.sleep(0)


async def test_a_proposal_is_asked_for_with_its_epochs_and_the_answer_taken_up(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "plog.broker"):
        async with ScriptedController(cluster.answer) as controller:
            reporter = cluster.reporter(controller)
            partition = cluster.partition()
            epoch, state_epoch = partition.leader_epoch, partition.partition_epoch
            cluster.fetched()
            await until_in_sync(partition, OTHER)
            (request,) = controller.asked
            assert (request.broker_id, request.broker_epoch) == (cluster.node_id, 70)
            (topic,) = request.topics
            members = [BrokerState(cluster.node_id, -1), BrokerState(OTHER, 100 + OTHER)]
            assert topic.topic_id == cluster.topic_ids["t"]
            assert topic.partitions == [AlteredPartition(0, epoch, [], members, 0, state_epoch)]
            assert partition.partition_epoch == state_epoch + 1
            await reporter.close()
    assert caplog.messages[-1] == f"t-0: the replicas in sync are {cluster.node_id},{OTHER} now"


async def test_what_is_proposed_while_a_request_is_in_flight_goes_into_the_next_one(cluster: Cluster) -> None:
    cluster.add("u", 3)
    async with ScriptedController(cluster.answer) as controller:
        reporter = cluster.reporter(controller)
        cluster.fetched("t")
        cluster.fetched("u", 0)
        await controller.was_asked(1)
        cluster.fetched("u", 1)
        cluster.fetched("u", 2)
        for number in range(3):
            await until_in_sync(cluster.partition("u", number), OTHER)
        asked = [[len(topic.partitions) for topic in request.topics] for request in controller.asked]
        assert asked == [[1, 1], [2]]
        await reporter.close()


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.INVALID_REQUEST])
async def test_a_request_that_is_refused_as_a_whole_is_made_again_in_the_present_life(
    cluster: Cluster, error: ErrorCode
) -> None:
    cluster.errors = [error, error]
    async with ScriptedController(cluster.answer) as controller:
        reporter = cluster.reporter(controller)
        cluster.fetched()
        await controller.was_asked(1)
        cluster.broker_epoch = 71
        await until_in_sync(cluster.partition(), OTHER)
        epochs = [request.broker_epoch for request in controller.asked]
        assert (len(epochs), epochs[0], epochs[-1]) == (3, 70, 71)
        await reporter.close()


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, None])
async def test_a_partition_that_got_no_answer_is_asked_for_again(cluster: Cluster, error: ErrorCode | None) -> None:
    """None for an answer that does not say anything of it."""
    cluster.partition_errors = [] if error is None else [error]
    cluster.left_out = int(error is None)
    async with ScriptedController(cluster.answer) as controller:
        reporter = cluster.reporter(controller)
        cluster.fetched()
        await until_in_sync(cluster.partition(), OTHER)
        assert len(controller.asked) == 2
        await reporter.close()


async def test_a_refusal_that_is_repeated_is_logged_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "plog.broker"):
        cluster.partition_errors = [ErrorCode.INELIGIBLE_REPLICA] * 3
        async with ScriptedController(cluster.answer) as controller:
            reporter = cluster.reporter(controller)
            while len(controller.asked) < 4:
                cluster.fetched()
                await asyncio.sleep(0)
            await until_in_sync(cluster.partition(), OTHER)
            await reporter.close()
    both = f"{cluster.node_id},{OTHER}"
    assert [message for message in caplog.messages if message.startswith("t-0")] == [
        f"t-0: the controller refuses the replicas in sync {both}: {ErrorCode.INELIGIBLE_REPLICA.text}",
        f"t-0: the replicas in sync are {both} now",
    ]


async def test_after_a_refusal_the_next_proposal_waits_a_while(cluster: Cluster) -> None:
    cluster.partition_errors = [ErrorCode.INELIGIBLE_REPLICA]
    async with ScriptedController(cluster.answer) as controller:
        reporter = cluster.reporter(controller, backoff_ms=HOUR_MS)
        cluster.fetched()
        await until_in_sync(cluster.partition())
        cluster.fetched()  # it fetches again, and is proposed again
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(controller.asked) == 1
        reporter._channel.look_again()  # which ends the while
        await until_in_sync(cluster.partition(), OTHER)
        await reporter.close()


async def test_a_proposal_whose_partition_has_moved_on_is_asked_for_no_more(cluster: Cluster) -> None:
    cluster.add("u")
    cluster.errors = [ErrorCode.STALE_BROKER_EPOCH]
    async with ScriptedController(cluster.answer) as controller:
        reporter = cluster.reporter(controller)
        cluster.fetched("t")
        cluster.fetched("u")
        await controller.was_asked(1)
        cluster.decide("t", 0, [OTHER, cluster.node_id], leader=OTHER)
        await until_in_sync(cluster.partition("u"), OTHER)
        assert [topic.topic_id for topic in controller.asked[-1].topics] == [cluster.topic_ids["u"]]
        assert not reporter._waiting
        await reporter.close()


async def test_a_late_answer_leaves_the_next_proposal_alone(cluster: Cluster) -> None:
    """Another state came while the request was in flight, and in that another replica was proposed."""
    async with ScriptedController(cluster.answer) as controller:
        reporter = cluster.reporter(controller)
        cluster.fetched(replica=OTHER)
        await controller.was_asked(1)
        cluster.decide("t", 0, [cluster.node_id], leader=cluster.node_id)
        cluster.fetched(replica=THIRD)
        await until_in_sync(cluster.partition(), THIRD)
        asked = [[one.broker_id for one in request.topics[0].partitions[0].new_isr_with_epochs]
                 for request in controller.asked]  # fmt: skip
        assert asked == [[cluster.node_id, OTHER], [cluster.node_id, THIRD]]
        await reporter.close()


async def test_one_that_is_closed_asks_no_more(cluster: Cluster) -> None:
    async with ScriptedController(lambda _: None) as controller:
        reporter = cluster.reporter(controller)
        await reporter.close()
        cluster.fetched()
        await controller.was_asked(1)
        await reporter.close()
        assert reporter._errand._task is None
        reporter._channel.close()
        cluster.replicas.look_at_followers()


async def test_a_closed_channel_ends_it(cluster: Cluster) -> None:
    async with ScriptedController(lambda _: None) as controller:
        reporter = cluster.reporter(controller)
        cluster.fetched()
        await controller.was_asked(1)
        task = reporter._errand._task
        assert task is not None
        reporter._channel.close()
        await task
        assert reporter._errand._task is None
