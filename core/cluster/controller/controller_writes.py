"""The writes that a controller makes before it tells any broker: values that a store turns into transactions.

A decision of `ClusterController` is a generator: it yields the writes that must be made together next, and is sent the
new version of each. Its driver writes them only while the controller is in office. If a write fails, the controller is
out of office, and the decision is not driven any further: its state was stale. A decision about many partitions yields
GIVE_WAY now and then. A write that is too large for ZooKeeper raises KafkaError in the decision, and nothing of that
yield is written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from core.cluster.image.metadata_image import PartitionState
from core.common.topic_partition import TopicPartition

NOT_WRITTEN = -1
"""The version of a state that is not written yet."""


class StateWrite(NamedTuple):
    """The leader and ISR of a partition. `state.partition_epoch` is the version that is replaced."""

    partition: TopicPartition
    state: PartitionState


class AssignmentWrite(NamedTuple):
    """The replicas of a topic's partitions, with those being added or removed. `version` is that of the assignment that
    is replaced; NOT_WRITTEN for a new topic, with `configs`.
    """

    topic: str
    topic_id: bytes
    partitions: Mapping[int, PartitionState]
    version: int
    configs: Mapping[str, str] = {}


class DeletionWrite(NamedTuple):
    """Asks for the deletion of a topic, which any later controller completes."""

    topic: str


class TopicRemoval(NamedTuple):
    """Removes all nodes of a topic: states, assignment, settings, and the request to delete it."""

    topic: str


class ProducerIdWrite(NamedTuple):
    """Allocates a block of producer ids to a broker. `version` is that of the block before."""

    broker_id: int
    ids: range
    version: int


class FeatureWrite(NamedTuple):
    """All finalized features, by level. `version` is the one that is replaced; NOT_WRITTEN without a node."""

    finalized: Mapping[str, int]
    version: int


Write = StateWrite | AssignmentWrite | DeletionWrite | TopicRemoval | ProducerIdWrite | FeatureWrite

GIVE_WAY: Sequence[Write] = ()
"""Nothing to write: others may have a turn before the work goes on."""

_SLICE = 500
"""Partitions that are worked on in one turn."""

T = TypeVar("T")


def slices(items: Iterable[T], weight: Callable[[T], int] = lambda _item: 1) -> Iterator[list[T]]:
    """Yields the items, as many at once as may be worked on in one turn; `weight` returns the number of partitions of
    an item. An item above that limit is alone.
    """
    some: list[T] = []
    total = 0
    for item in items:
        more = max(weight(item), 1)
        if some and total + more > _SLICE:
            yield some
            some, total = [], 0
        some.append(item)
        total += more
    if some:
        yield some


Decision = Generator[Sequence[Write], Sequence[int], T]
