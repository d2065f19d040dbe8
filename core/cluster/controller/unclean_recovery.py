"""Finds the leader of a partition if no replica surely has every committed record, as after a power cut of all brokers.

Every holder may have lost the end of its log. So no replica leads until all holders are back. The controller asks each
one for its log end with ListOffsets of the latest offset as ReplicaId -2; a replica answers that request without being
the leader, once it has recovered and flushed its log. A plog adds the leader epoch of its last record; a broker of
Kafka's adds the current leader epoch instead. The log with the greatest epoch, and among equal ones the longest, has
every committed record, unless all replicas have lost it. An answer counts for the life of the broker that gave it.

Source: KIP-966 (unclean recovery: the choice of LastWrittenLeaderEpoch and LogEndOffset); kafka.tools
ReplicaVerificationTool, which asks replicas in the same way.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core.cluster.controller.controller_context import WITNESS, ControllerContext
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.image.metadata_image import NO_LEADER
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition, by_partition
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_log = logging.getLogger("plog.controller")

_VERSION = 7
_DEBUGGING_CONSUMER = -2
_LATEST = -1
_MOST_PARTITIONS = 1000
_MOST_NAMES = 10


class LogEnd(NamedTuple):
    """The end of a replica's log, and the leader epoch of its last record: -1 if it has none, None if it can't say."""

    epoch: int | None
    offset: int

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sorts higher the more of the committed records the replica has. An empty log is that of a new directory."""
        if not self.offset:
            return 0, 0, 0
        return (1, 0, self.offset) if self.epoch is None else (2, self.epoch, self.offset)

    def __str__(self) -> str:
        return f"ends at offset {self.offset}" + (f" in epoch {self.epoch}" if self.epoch is not None else "")


class UncleanRecovery:
    """Owned by the controller's task."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.waiting: dict[TopicPartition, None] = {}
        """Partitions without a leader until their holders have answered."""
        self._without_witnesses: set[TopicPartition] = set()
        """Partitions that have waited for their witnesses long enough."""
        self._ends: dict[TopicPartition, dict[int, tuple[int, LogEnd]]] = {}
        """For each partition, by broker: the answer, and the broker epoch of the life that gave it."""
        self._asked: dict[tuple[int, int], dict[TopicPartition, ControllerRequest | None]] = defaultdict(dict)
        """For each life of a broker (its id, its epoch), the last question about each partition. None if the broker
        could not answer it yet: `ask_again` lets it be asked again.
        """
        self._missing: dict[TopicPartition, tuple[list[int], bool]] = {}
        """For each partition, the brokers that it waited for at the last look, and whether that has been logged."""

    def begin(self, partition: TopicPartition) -> None:
        self.waiting[partition] = None

    def end(self, partition: TopicPartition) -> None:
        self.waiting.pop(partition, None)
        self._without_witnesses.discard(partition)
        for asked in self._asked.values():
            asked.pop(partition, None)
        self._ends.pop(partition, None)
        self._missing.pop(partition, None)

    def ends(self, partition: TopicPartition) -> dict[int, LogEnd]:
        """Returns the answers of the replicas' present lives."""
        brokers = self._context.brokers
        return {
            one: end
            for one, (epoch, end) in self._ends.get(partition, {}).items()
            if one in brokers and brokers[one].epoch == epoch and self._context.is_online(partition, one)
        }

    def latest_epoch(self, partition: TopicPartition) -> int:
        """Returns the latest leader epoch in the replicas' answers, or -1."""
        return max((end.epoch for end in self.ends(partition).values() if end.epoch is not None), default=-1)

    def missing(self, partition: TopicPartition) -> list[int]:
        """Finds the holders that have not answered in their present lives."""
        ends = self.ends(partition)
        return [one for one in self._context.holders(partition) if one not in ends]

    def furthest(self, partition: TopicPartition, *, of_all: bool = True) -> int | None:
        """Returns the holder that has the most records, or None: if no holder has answered, and with `of_all` as long
        as one of them is missing.
        """
        ends = self.ends(partition)
        holders = self._context.holders(partition)
        missing = [one for one in holders if one not in ends]
        if of_all and partition in self._without_witnesses:
            missing = [one for one in missing if holders[one] != WITNESS]
        if of_all and missing:
            return None
        replicas = [one for one in self._context.state(partition).replicas if one in ends and one in holders]
        return max(replicas, key=lambda one: ends[one].rank, default=None)

    # --- questions

    def questions(self) -> Iterator[ControllerRequest]:
        """Yields the requests to send now, each to one life of a broker. None is repeated while its answer is due, nor
        before `ask_again` if the broker could not answer it yet.
        """
        self._forget_the_gone()
        wanted: dict[int, list[TopicPartition]] = defaultdict(list)
        asked_now = {one: self._asked[one, broker.epoch] for one, broker in self._context.brokers.items()}
        for partition in self.waiting:
            for broker_id in self._context.state(partition).holders:
                asked = asked_now.get(broker_id)
                if asked is None or partition in asked or not self._context.is_online(partition, broker_id):
                    continue
                if broker_id in self._context.holders(partition):
                    wanted[broker_id].append(partition)
        for broker_id, partitions in wanted.items():
            for start in range(0, len(partitions), _MOST_PARTITIONS):
                some = partitions[start : start + _MOST_PARTITIONS]
                question = self._question(broker_id, some)
                asked_now[broker_id].update(dict.fromkeys(some, question))
                yield question

    def _forget_the_gone(self) -> None:
        """Forgets deleted partitions, those that are led, and questions to lives that are over."""
        for partition in list(self.waiting):
            state = self._context.find(partition)
            if state is None or partition.topic in self._context.deleted or state.leader != NO_LEADER:
                self.end(partition)
        brokers = self._context.brokers
        for broker_id, epoch in list(self._asked):
            if broker_id not in brokers or brokers[broker_id].epoch != epoch:
                del self._asked[broker_id, epoch]

    def ask_again(self) -> None:
        """Lets `questions` repeat each question that a broker could not answer yet."""
        for asked in self._asked.values():
            for partition in [one for one, question in asked.items() if question is None]:
                del asked[partition]

    def _question(self, broker_id: int, partitions: Iterable[TopicPartition]) -> ControllerRequest:
        """Asks a plog in the partition's leader epoch, and a Kafka in none: it ignores an epoch without a leader."""
        topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        is_plog = self._context.brokers[broker_id].is_plog
        for name, number in partitions:
            epoch = self._context.state(TopicPartition(name, number)).leader_epoch if is_plog else -1
            topics[name].append(ListOffsetsPartition(number, current_leader_epoch=epoch, timestamp=_LATEST))
        request = ListOffsetsRequest(
            replica_id=_DEBUGGING_CONSUMER, topics=[ListOffsetsTopic(name, of) for name, of in topics.items()]
        )
        return ControllerRequest(broker_id, self._context.brokers[broker_id].epoch, LIST_OFFSETS, _VERSION, request)

    def note(self, request: ControllerRequest, answer: ListOffsetsResponse) -> list[TopicPartition]:
        """Notes a broker's answer, an empty one if the broker could not be asked. Returns the partitions whose answers
        are now complete. Only the last question's answer counts: a replica may have led since an earlier one.
        """
        broker_id, epoch = request.broker_id, request.broker_epoch
        broker = self._context.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            return []
        asked = self._asked[broker_id, epoch]
        answered = dict(by_partition(answer.topics))
        known: list[TopicPartition] = []
        for partition in [one for one, question in asked.items() if question is request]:
            one = answered.get(partition)
            if one is None or one.error_code != ErrorCode.NONE:
                asked[partition] = None
                continue
            end = LogEnd(one.leader_epoch if broker.is_plog else None, max(one.offset, 0))
            self._ends.setdefault(partition, {})[broker_id] = epoch, end
            known.append(partition)
        return [one for one in known if self.furthest(one) is not None]

    def say_missing(self) -> None:
        """Logs the brokers that partitions wait for, once for each set of brokers. A set that has changed by the next
        call is not logged: after a restart the brokers come one after the other.
        """
        to_say: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for partition in self.waiting:
            missing = self.missing(partition)
            seen, is_said = self._missing.get(partition, (None, False))
            if missing == seen and not is_said:
                to_say[tuple(missing)].append(str(partition))
            self._missing[partition] = missing, seen == missing
        for brokers, names in to_say.items():
            listed = ", ".join(names[:_MOST_NAMES]) + (", .." if len(names) > _MOST_NAMES else "")
            told = "1 partition has" if len(names) == 1 else f"{len(names)} partitions have"
            _log.warning("%s no leader while waiting for %s: %s", told, self._told(brokers), listed)

    def _told(self, brokers: Iterable[int]) -> str:
        alive = self._context.brokers
        told = (f"{one}, which {'has not said where its log ends' if one in alive else 'is away'}" for one in brokers)
        return " and ".join(f"broker {one}" for one in told) or "an operator's decision, as no replica is in sync"

    # --- giving up

    def overdue(self, now_ms: int, wait_ms: int | None) -> list[TopicPartition]:
        """Finds the partitions that have waited too long for a holder. The time is counted from the registration of the
        first holder that is back, so that another controller does not begin at zero.
        """
        return [one for one in self.waiting if self._is_overdue(one, now_ms, wait_ms)]

    def _is_overdue(self, partition: TopicPartition, now_ms: int, wait_ms: int | None) -> bool:
        if wait_ms is None:
            wait_ms = _WAIT_MS if self._context.min_isr(partition.topic) < 2 else -1
        if wait_ms < 0:
            return False
        waited_ms = self._waited_ms(partition, now_ms)
        return waited_ms is not None and wait_ms <= waited_ms

    def _waited_ms(self, partition: TopicPartition, now_ms: int) -> int | None:
        holders, brokers = self._context.holders(partition), self._context.brokers
        since = [brokers[one].registered_ms for one in self.ends(partition) if one in holders]
        return now_ms - min(since) if since else None

    def leave_witnesses(self, now_ms: int) -> list[TopicPartition]:
        """Stops waiting for witnesses after five minutes; finds the partitions that have all other answers."""
        found: list[TopicPartition] = []
        for partition in self.waiting:
            if WITNESS not in self._context.state(partition).holders.values():
                continue
            waited_ms = self._waited_ms(partition, now_ms)
            if waited_ms is not None and waited_ms >= _WAIT_MS:
                self._without_witnesses.add(partition)
                if self.furthest(partition) is not None:
                    found.append(partition)
        return found


_WAIT_MS = 300_000
