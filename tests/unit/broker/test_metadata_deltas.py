"""Changes of the metadata that arrive as deltas: what a broker starts, leads and stops by them."""

from __future__ import annotations

from core.cluster.metadata_delta import MetadataDelta
from core.common.error_code import ErrorCode
from core.common.steps import finish
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.support.broker import SteeredNode, add_topic, produce
from tests.support.logs import make_batch

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
    broker.services.topics.delete("t")
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
