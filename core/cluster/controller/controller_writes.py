"""What a controller has written down before it tells anybody: values, of which a store makes its transactions.

A decision of `ClusterController` is a generator: it gives the writes that must be kept together next, and gets for each
the version that is kept now. Whoever drives it keeps them only while the controller is in office. If one can't be kept,
the controller is in office no more, and the decision is not driven any further: what it knew was not how things are.
A decision about many partitions gives GIVE_WAY now and then. A write that ZooKeeper does not take, as it is too large,
raises KafkaError in the decision, and nothing of that yield is written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from core.cluster.partition.partition_state import PartitionState
from core.common.topic_partition import TopicPartition

NOT_WRITTEN = -1
"""The version of what is not written down yet."""


class StateWrite(NamedTuple):
    """Who leads a partition, and who is in sync. `state.partition_epoch` is the version that is kept until now."""

    partition: TopicPartition
    state: PartitionState


class AssignmentWrite(NamedTuple):
    """Which replicas the partitions of a topic have, of which some are added or removed just now. `version` is that of
    the topic's assignment until now; NOT_WRITTEN for a topic that is made, with `configs`.
    """

    topic: str
    topic_id: bytes
    partitions: Mapping[int, PartitionState]
    version: int
    configs: Mapping[str, str] = {}


class DeletionWrite(NamedTuple):
    """A topic is to be deleted, whoever is the controller until that is done."""

    topic: str


class TopicRemoval(NamedTuple):
    """Nothing is left of a topic: its states, its assignment, its settings, and the wish to delete it."""

    topic: str


class ProducerIdWrite(NamedTuple):
    """A block of producer ids is a broker's. `version` is that of the block before."""

    broker_id: int
    ids: range
    version: int


class FeatureWrite(NamedTuple):
    """All features that are finalized, by level. `version` is that of those before; NOT_WRITTEN if there is nothing."""

    finalized: Mapping[str, int]
    version: int


Write = StateWrite | AssignmentWrite | DeletionWrite | TopicRemoval | ProducerIdWrite | FeatureWrite

GIVE_WAY: Sequence[Write] = ()
"""Nothing to write: others may have a turn, before much work goes on."""

_SLICE = 500
"""Partitions that are worked on in one turn."""

T = TypeVar("T")


def slices(items: Iterable[T], weight: Callable[[T], int] = lambda _item: 1) -> Iterator[list[T]]:
    """Gives the items, no more at once than may be worked on in one turn; `weight` says how many partitions one has.
    An item that has more than that is alone.
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
