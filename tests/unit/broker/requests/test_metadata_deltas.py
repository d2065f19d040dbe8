"""Changes of the metadata that arrive as deltas: what a broker starts, leads and stops by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from core.broker.partitions.topics import Topics
from core.broker.requests import stepped_answer
from core.broker.requests.fair_scheduler import FairScheduler
from core.cluster.image.broker_metadata import BrokerMetadata, NewTopic
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.common.error_code import ErrorCode
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.support.broker import SteeredNode, add_topic, delete_topic, produce
from tests.support.logs import make_batch
from tests.unit.broker.serving.test_work_in_turns import Loop

ID = b"\7" * 16
T0 = TopicPartition("t", 0)


def apply(broker: SteeredNode, *records: object) -> None:
    """As somebody else's decision: not by this broker's controller."""
    for steps in broker.services.replicas.apply(MetadataDelta(broker.services.image).replay(records)):
        finish(steps)


def partition(number: int, replica: int) -> PartitionRecord:
    return PartitionRecord(number, ID, [replica], [replica], leader=replica, leader_epoch=4, partition_epoch=0)


def test_partitions_with_a_replica_here_are_started_and_others_are_not(broker: SteeredNode) -> None:
    node_id = broker.services.node.node_id
    config = ConfigRecord(2, "new", "flush.messages", "5")
    apply(broker, TopicRecord("new", ID), config, partition(0, node_id), partition(1, node_id + 1))
    assert [tp for tp in broker.services.replicas.partitions if tp.topic == "new"] == [("new", 0)]
    started = broker.services.replicas.partitions[TopicPartition("new", 0)]
    assert (started.topic_id, started.leader_epoch, started.log.leader_epochs.latest_epoch) == (ID, 4, 4)


def test_a_new_leader_epoch_is_led_at_once(broker: SteeredNode) -> None:
    topic_id = add_topic(broker)
    produce(broker, make_batch(b"a", b"b"))
    node_id = broker.services.node.node_id
    apply(broker, PartitionChangeRecord(0, topic_id, isr=[node_id, 9], leader=node_id))
    led = broker.services.replicas.partitions[T0]
    assert led.leader_epoch == 1
    assert (led.log.leader_epochs.epoch_of(1), led.log.leader_epochs.latest_epoch) == (0, 1)
    produce(broker, make_batch(b"c"))
    assert led.log.leader_epochs.epoch_of(2) == 1


def test_partitions_change_their_roles_one_a_step(broker: SteeredNode) -> None:
    """Each leader writes down where its epoch begins: thousands would keep everybody waiting. What is decided later,
    and before their turn comes, counts.
    """
    topic_id, node_id = add_topic(broker, partitions=3), broker.services.node.node_id
    change = [PartitionChangeRecord(number, topic_id, leader=node_id) for number in range(3)]
    first = MetadataDelta(broker.services.image).replay(change)
    (changing,) = broker.services.replicas.apply(first)

    def epochs() -> list[int]:
        return [broker.services.replicas.find("t", number).leader_epoch for number in range(3)]

    assert epochs() == [0, 0, 0]
    next(changing)
    assert epochs() == [1, 0, 0]
    for later in broker.services.replicas.apply(MetadataDelta(first.apply()).replay(change[1:2])):
        finish(later)
    assert epochs() == [1, 2, 0]
    finish(changing)
    assert epochs() == [1, 2, 1]


def test_a_topic_that_is_deleted_before_its_logs_are_made_gets_none(broker: SteeredNode) -> None:
    replicas, node_id = broker.services.replicas, broker.services.node.node_id
    made = MetadataDelta(broker.services.image).replay(
        [TopicRecord("new", ID), *(partition(n, node_id) for n in range(2))]
    )
    (starting,) = replicas.apply(made)
    next(starting)
    replicas.apply(MetadataDelta(made.apply()).replay([RemoveTopicRecord(ID)]))
    finish(starting)
    assert not [tp for tp in replicas.partitions if tp.topic == "new"]


def test_whoever_subscribes_gets_each_change_when_it_is_in_the_image(broker: SteeredNode) -> None:
    seen: list[tuple[list[str], list[str]]] = []
    image = broker.services.controller.image

    def on_delta(delta: MetadataDelta) -> None:
        assert delta.apply() is broker.services.controller.image
        seen.append(([t.name for t, _ in delta.changed_topics()], [t.name for t in delta.deleted_topics()]))

    broker.services.controller.subscribe(on_delta)
    add_topic(broker)
    delete_topic(broker, "t")
    assert seen == [(["t"], []), ([], ["t"])]
    assert image.topics == {}, "an image stays as it is"


def test_a_disk_that_refuses_a_leader_epoch_takes_the_partition_offline(broker: SteeredNode) -> None:
    topic_id = add_topic(broker)
    led = broker.services.replicas.partitions[T0]
    path = led.log.directory / "leader-epoch-checkpoint"
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "in-the-way").touch()
    apply(broker, PartitionChangeRecord(0, topic_id, leader=broker.services.node.node_id))
    assert produce(broker, make_batch(b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR


class Elsewhere:
    """A controller of which this broker only hears: nobody here submits anything to it."""

    is_member = False

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._on_delta: list[Callable[[MetadataDelta], None]] = []

    def subscribe(self, on_delta: Callable[[MetadataDelta], None]) -> None:
        self._on_delta.append(on_delta)

    def decide(self, *records: object) -> None:
        delta = MetadataDelta(self.image).replay(records)
        self.image = delta.apply()
        for on_delta in self._on_delta:
            on_delta(delta)


@pytest.fixture
def elsewhere(broker: SteeredNode) -> Elsewhere:
    controller = Elsewhere(broker.services.image)
    its, metadata = broker.services, cast(BrokerMetadata, controller)
    Topics(its.node, metadata, its.configs, its.replicas, broker._deletion, its.stepped_answers).begin()
    return controller


def test_what_is_decided_elsewhere_is_done_unasked(broker: SteeredNode, elsewhere: Elsewhere) -> None:
    node_id = broker.services.node.node_id
    elsewhere.decide(TopicRecord("new", ID), *(partition(number, node_id) for number in range(3)))
    assert produce(broker, make_batch(b"a"), "new", 2).error_code == ErrorCode.NONE
    elsewhere.decide(RemoveTopicRecord(ID))
    assert produce(broker, make_batch(b"a"), "new", 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [path.name for path in broker.directory.glob("new-*") if not path.name.endswith("-delete")] == []


@pytest.mark.parametrize("is_in_time", [True, False])
def test_what_is_decided_elsewhere_is_done_in_turns_and_before_the_broker_closes(
    broker: SteeredNode, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, *, is_in_time: bool
) -> None:
    monkeypatch.setattr(stepped_answer, "TURN_SECONDS", 0)
    loop = Loop()
    broker.runtime.turns = FairScheduler(cast(asyncio.AbstractEventLoop, loop))
    node_id = broker.services.node.node_id
    elsewhere.decide(TopicRecord("new", ID), *(partition(number, node_id) for number in range(20)))
    assert 0 < len(list(broker.directory.glob("new-*"))) < 20
    if is_in_time:
        loop.run()
    else:
        broker.services.stepped_answers.finish_owed()
    assert len(list(broker.directory.glob("new-*"))) == 20


def test_what_is_submitted_here_meanwhile_has_its_own_steps(broker: SteeredNode) -> None:
    """A creation that stands still in the middle leaves those of others alone."""
    creation = broker.services.topics.create_all([NewTopic("slow", 3)])
    next(creation)
    broker.services.topics.create(NewTopic("quick", 1))
    assert produce(broker, make_batch(b"a"), "quick").error_code == ErrorCode.NONE
    finish(creation)
    assert produce(broker, make_batch(b"a"), "slow", 2).error_code == ErrorCode.NONE
