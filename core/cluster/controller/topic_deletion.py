"""Deletes topics, as the controller: brokers forget them and delete their replicas, and then ZooKeeper forgets them.

    asked for -> brokers learn that the topic is gone -> each replica is deleted -> the topic's nodes are removed

The deletion waits for brokers that are down: otherwise their folders would come back as another topic's. The next
controller goes on with it, because the request for it is in ZooKeeper.

Source: kafka.controller.TopicDeletionManager of Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from core.cluster.controller.controller_decisions import ControllerDecisions
from core.cluster.controller.controller_writes import Decision, TopicRemoval, slices
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition

_REMOVAL = 10
"""Removing a topic counts as so many partitions."""

_log = logging.getLogger("plog.controller")


class TopicDeletions:
    """Owned by the controller's task."""

    def __init__(self, office: ControllerDecisions) -> None:
        self._office = office
        self._left: dict[str, set[tuple[TopicPartition, int]]] = {}
        """By topic, the replicas that must still be deleted, with their brokers."""

    @property
    def replicas_left(self) -> int:
        """Returns how many replicas must still be deleted, of all topics."""
        return sum(map(len, self._left.values()))

    def find_left(self, name: str) -> dict[int, list[int]]:
        """Finds, by partition, the brokers that have yet to delete their replicas of a topic."""
        left: dict[int, list[int]] = {}
        for partition, broker_id in sorted(self._left.get(name, ())):
            left.setdefault(partition.partition, []).append(broker_id)
        return left

    def begin(self, names: Iterable[str]) -> Decision[None]:
        """Begins the deletion of known topics that are not being deleted yet; removes the nodes of those that are gone
        already. Leaves a topic alone that can't be read: nobody would delete its replicas.
        """
        context = self._office.context
        new = [name for name in names if name not in context.deleted and name not in context.unreadable]
        context.deleted |= {name for name in new if name in context.topics}
        yield from self._remove([name for name in new if name not in context.topics])
        self.resume(name for name in new if name in context.topics)

    def resume(self, names: Iterable[str]) -> None:
        """Tells live brokers that these topics go, and to delete the replicas that they still have."""
        for name in [name for name in names if name in self._office.context.topics]:
            partitions = [TopicPartition(name, number) for number in self._office.context.topics[name].partitions]
            self._office.requests.tell_metadata(partitions)
            if name not in self._left:
                state = self._office.context.state
                self._left[name] = {(one, broker) for one in partitions for broker in state(one).replicas}
            for partition, broker_id in self._left[name]:
                self._office.requests.stop(partition, broker_id, deletes=True)

    def forget(self, name: str) -> None:
        """Gives up the deletion of a topic that somebody else has removed: another topic may have its name."""
        self._left.pop(name, None)
        self._office.context.deleted.discard(name)

    def on_stopped(self, broker_id: int, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Notes the replicas that a broker has deleted."""
        for partition, error in errors.items():
            left = self._left.get(partition.topic)
            if left is None or (partition, broker_id) not in left:
                continue
            if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                left.discard((partition, broker_id))
            else:
                _log.warning(
                    "broker %d can't delete %s: %s; the controller asks it again when a broker joins",
                    *(broker_id, partition, error.text),
                )

    def remove_some(self) -> Decision[list[str]]:
        """Removes topics without replicas, as many as may be worked on in one turn; returns their names."""
        done = (name for name, left in self._left.items() if not left)
        some = next(self._slices(done), [])
        yield from self._remove(some)
        return some

    def _slices(self, names: Iterable[str]) -> Iterator[list[str]]:
        topics = self._office.context.topics
        return slices(names, lambda name: _REMOVAL + (len(topics[name].partitions) if name in topics else 0))

    def _remove(self, names: Iterable[str]) -> Decision[None]:
        for some in self._slices(names):
            yield [TopicRemoval(name) for name in some]
            for name in some:
                self._left.pop(name, None)
                self._office.context.deleted.discard(name)
