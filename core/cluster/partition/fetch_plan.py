"""Plans what a follower fetches from one other broker, and what it does with the answers: a fetcher without I/O.

The owner of the connection runs a loop, one request after the other:

    request(now_ms)             a Fetch, or None if there is nothing to ask for before `next_due_ms`
    on_answer(response, now_ms) what to do, for each partition of which there is news; `on_lost` if no answer came
    move, delay or remove       for each partition that something had to be done with, when that is done

A request without an answer is given up with its connection: a late answer would be taken for that of a later request,
of a log that ends at the same offset and has other records by then.

Each partition is in one of three states:

    FETCHING   it is asked for, at the offset where its log ends and with the latest epoch that its log notes
    BUSY       its log is being appended to, cut or begun again; nobody asks for it meanwhile
    WAITING    something was wrong, or it is throttled; it is asked for again after `backoff_ms`

The leader keeps a fetch session (KIP-227): the first request names all partitions, later ones only changed and
forgotten ones. If the leader lost the session, or has no room for one (id 0), all are named. A session identifies
partitions by topic id, so that a recreated topic is another one.

Source: AbstractFetcherThread, ReplicaFetcherThread, FetchSessionHandler; Fetch of version 17.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

FETCH_VERSION = 17
"""The version of the requests, which Kafka 3.9's followers send."""

_NO_SESSION = 0
_INITIAL_EPOCH = 0
_MAX_EPOCH = 0x7FFFFFFF
_SESSION_ERRORS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}

_Key = tuple[bytes, int]  # a topic's id, a partition


class FetchLimits(NamedTuple):
    """The settings of a replica fetcher; the defaults are Kafka's."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000


class Position(NamedTuple):
    """The end of a follower's log, its latest leader epoch (-1 without one), and the log's start.

    That epoch may have no record: a leader notes where its epoch begins before it writes. A follower that named the
    epoch of its last record would keep such a note for ever, and take records of other epochs for those of that one.
    """

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Append(NamedTuple):
    """Append the records, if there are any; then the high watermark and the log start follow the leader's."""

    partition: TopicPartition
    leader_epoch: int
    records: memoryview
    high_watermark: int
    log_start_offset: int


class Truncate(NamedTuple):
    """Cut the log at `truncation_offset`, as the leader's has other records from there on."""

    partition: TopicPartition
    leader_epoch: int
    diverging: EpochEndOffset


class Reset(NamedTuple):
    """The leader's log does not reach to where this one ends: ask for its ends (ListOffsets), and go to
    `offset_in_range`.
    """

    partition: TopicPartition
    leader_epoch: int


class Retry(NamedTuple):
    """Only report the error; the partition, or everything if it is None, is fetched again later."""

    partition: TopicPartition | None
    error: ErrorCode


Action = Append | Truncate | Reset | Retry


class _State(IntEnum):
    FETCHING = auto()
    BUSY = auto()
    WAITING = auto()


_TRANSITIONS = {
    (_State.FETCHING, _State.FETCHING),  # its log moved by itself, or another epoch began
    (_State.FETCHING, _State.BUSY),  # an answer came
    (_State.FETCHING, _State.WAITING),  # an error came, or it is throttled
    (_State.BUSY, _State.FETCHING),  # it was done
    (_State.BUSY, _State.WAITING),  # it could not be done
    (_State.WAITING, _State.FETCHING),  # time went by, or another epoch began
    (_State.WAITING, _State.WAITING),
}


@dataclass(slots=True)
class _Wanted:
    partition: TopicPartition
    fetch: FetchPartition
    state: _State = _State.FETCHING
    due_ms: int = 0
    high_watermark: int = -1
    """The leader's last high watermark in this leader epoch, or -1."""

    @property
    def lag(self) -> int | None:
        return None if self.high_watermark < 0 else max(self.high_watermark - self.fetch.fetch_offset, 0)

    def enter(self, state: _State) -> None:
        assert (self.state, state) in _TRANSITIONS, f"{self.partition}: {self.state.name} to {state.name}"
        self.state = state


class FetchPlan:
    """Owned by one task.

    I1 at most one request is without an answer
    I2 `_session` is the leader's fetch session: the last `fetch` sent for each partition
    I3 a partition whose `fetch`, if it is FETCHING, is not that of the session is in `_changed`
    """

    def __init__(self, replica_id: int, *, limits: FetchLimits = FetchLimits()) -> None:  # noqa: B008 - immutable
        self._replica_id = replica_id
        self._limits = limits
        self._wanted: dict[_Key, _Wanted] = {}  # those that records came of last are asked for last
        self._keys: dict[TopicPartition, _Key] = {}
        self._changed: dict[_Key, None] = {}
        self._waiting: list[tuple[int, _Key]] = []  # a heap: when, which
        self._session: dict[_Key, FetchPartition] = {}
        self._session_id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._due_ms = 0
        self._is_asking = False

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._keys

    # --- the partitions to fetch

    def add(self, partition: TopicPartition, topic_id: bytes, leader_epoch: int, position: Position) -> None:
        """Fetches a partition from now on, or in another leader epoch: answers of the earlier epoch are ignored."""
        key = topic_id, partition.partition
        if self._keys.get(partition, key) != key:
            self.remove(partition)
        self._keys[partition] = key
        fetch = self._fetch(partition.partition, leader_epoch, position)
        self._wanted[key] = _Wanted(partition, fetch)
        self._changed[key] = None

    def remove(self, partition: TopicPartition) -> None:
        """Stops fetching the partition, if it was fetched."""
        key = self._keys.pop(partition, None)
        if key is not None:
            del self._wanted[key]
            self._changed[key] = None

    def move(self, partition: TopicPartition, position: Position) -> None:
        """Fetches from there after the log was appended to, truncated or begun again; a no-op after `remove`."""
        key = self._keys.get(partition)
        if key is not None:
            wanted = self._wanted[key]
            wanted.fetch = self._fetch(partition.partition, wanted.fetch.current_leader_epoch, position)
            wanted.enter(_State.FETCHING)
            self._changed[key] = None

    def delay(self, partition: TopicPartition, now_ms: int) -> None:
        """Fetches again later, at the same offset, because the action failed; a no-op if the partition was removed."""
        key = self._keys.get(partition)
        if key is not None:
            self._wait(key, self._wanted[key], now_ms)

    def _fetch(self, number: int, leader_epoch: int, position: Position) -> FetchPartition:
        return FetchPartition(
            partition=number,
            current_leader_epoch=leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._limits.partition_max_bytes,
        )

    def _wait(self, key: _Key, wanted: _Wanted, now_ms: int) -> None:
        wanted.enter(_State.WAITING)
        wanted.due_ms = now_ms + self._limits.backoff_ms
        heapq.heappush(self._waiting, (wanted.due_ms, key))
        self._changed[key] = None

    # --- asking

    @property
    def next_due_ms(self) -> int | None:
        """Returns when to ask again, if `request` returned None; None if only `add` and `move` change that."""
        due_ms = [first_ms for first_ms, _ in self._waiting[:1]]
        if any(wanted.state is _State.FETCHING for wanted in self._wanted.values()):
            due_ms.append(self._due_ms)
        return max(min(due_ms), self._due_ms) if due_ms else None

    def request(
        self, now_ms: int, *, replica_epoch: int = -1, must_wait: Callable[[TopicPartition], bool] | None = None
    ) -> FetchRequest | None:
        """Returns the next request, for the life of this broker with that epoch, or None if nothing must be fetched
        yet. `must_wait` says of a partition that is not caught up whether it must wait.
        """
        assert not self._is_asking, "the last request has no answer yet"
        if self._waiting:
            self._end_waiting(now_ms)
        if must_wait is not None:
            self._hold_back(must_wait, now_ms)
        is_full = self._epoch == _INITIAL_EPOCH
        session: dict[_Key, FetchPartition] = {} if is_full else self._session
        asked: dict[_Key, FetchPartition] = {}
        forgotten: list[_Key] = []
        for key in self._wanted if is_full else self._changed:
            wanted = self._ready(key)
            if wanted is None:
                if key in session:
                    forgotten.append(key)
            elif session.get(key) != wanted.fetch:
                asked[key] = wanted.fetch
        if now_ms < self._due_ms or (not asked and len(forgotten) == len(session)):
            return None
        self._changed.clear()
        session.update(asked)
        for key in forgotten:
            del session[key]
        self._session = session
        self._is_asking = True
        return FetchRequest(
            replica_state=ReplicaState(self._replica_id, replica_epoch),
            max_wait_ms=self._limits.max_wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_topics(asked),
            forgotten_topics_data=_forgotten_topics(forgotten) if forgotten else [],
        )

    def _ready(self, key: _Key) -> _Wanted | None:
        wanted = self._wanted.get(key)
        return wanted if wanted is not None and wanted.state is _State.FETCHING else None

    def _hold_back(self, must_wait: Callable[[TopicPartition], bool], now_ms: int) -> None:
        for key, wanted in self._wanted.items():
            if wanted.state is _State.FETCHING and wanted.lag != 0 and must_wait(wanted.partition):
                self._wait(key, wanted, now_ms)

    def _end_waiting(self, now_ms: int) -> None:
        while self._waiting and self._waiting[0][0] <= now_ms:
            due_ms, key = heapq.heappop(self._waiting)
            wanted = self._wanted.get(key)
            if wanted is not None and wanted.state is _State.WAITING and wanted.due_ms == due_ms:
                wanted.enter(_State.FETCHING)
                self._changed[key] = None

    @property
    def max_lag(self) -> int:
        """Returns how many committed records the replica furthest behind lacks, as far as that is known."""
        return max((wanted.lag or 0 for wanted in self._wanted.values()), default=0)

    # --- answers

    def on_lost(self, now_ms: int) -> None:
        """Notes that no answer comes to the last request; asks again later, for everything."""
        self._is_asking = False
        self._begin_again()
        self._due_ms = now_ms + self._limits.backoff_ms

    def on_answer(self, response: FetchResponse, now_ms: int) -> list[Action]:
        """Returns the next actions, one for each partition with news. Ignores partitions that were removed, moved, or
        asked for in another leader epoch.
        """
        assert self._is_asking, "nothing was asked"
        self._is_asking = False
        if response.error_code:
            return self._on_error(ErrorCode.of(response.error_code), now_ms)
        answered = [((t.topic_id, data.partition_index), data) for t in response.responses for data in t.partitions]
        self._go_on(response.session_id, answered)
        actions: list[Action] = []
        for key, data in answered:
            action = self._action(key, data, now_ms)
            if action is not None:
                actions.append(action)
        return actions

    def _on_error(self, error: ErrorCode, now_ms: int) -> list[Action]:
        was_full = self._epoch == _INITIAL_EPOCH
        self._begin_again(keeps_id=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if error in _SESSION_ERRORS and not was_full:
            return []
        self._due_ms = now_ms + self._limits.backoff_ms
        return [Retry(None, error)]

    def _begin_again(self, *, keeps_id: bool = True) -> None:
        """Names all partitions in the next request, which ends the session of that id, if the leader has it still."""
        self._epoch = _INITIAL_EPOCH
        if not keeps_id:
            self._session_id = _NO_SESSION

    def _go_on(self, session_id: int, answered: Sequence[tuple[_Key, PartitionData]]) -> None:
        """Goes on in the leader's session. Its first answer names all partitions, or it is of another session."""
        if session_id == _NO_SESSION:
            self._begin_again(keeps_id=False)
        elif self._epoch == _INITIAL_EPOCH and {key for key, _ in answered} == self._session.keys():
            self._session_id, self._epoch = session_id, _INITIAL_EPOCH + 1
        elif self._epoch != _INITIAL_EPOCH and session_id == self._session_id:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        else:
            self._session_id = session_id
            self._begin_again()

    def _action(self, key: _Key, data: PartitionData, now_ms: int) -> Action | None:
        wanted, asked = self._ready(key), self._session.get(key)
        if wanted is None or asked is None:
            return None
        if wanted.fetch is not asked and _place(wanted.fetch) != _place(asked):
            return None
        partition, leader_epoch = wanted.partition, wanted.fetch.current_leader_epoch
        if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self._wait(key, wanted, now_ms)
            return Retry(partition, ErrorCode.of(data.error_code))
        is_diverging = data.diverging_epoch.epoch >= 0
        if is_diverging and data.diverging_epoch.end_offset < 0:  # no leader's log ends there
            self._wait(key, wanted, now_ms)
            return Retry(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        wanted.enter(_State.BUSY)
        wanted.high_watermark = data.high_watermark
        self._changed[key] = None
        if data.error_code:
            return Reset(partition, leader_epoch)
        if is_diverging:
            return Truncate(partition, leader_epoch, data.diverging_epoch)
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview), "an answer that was decoded holds bytes"
        if len(records):
            self._wanted[key] = self._wanted.pop(key)
        return Append(partition, leader_epoch, memoryview(records), data.high_watermark, data.log_start_offset)

    def check_invariants(self) -> None:
        assert {key: wanted.partition for key, wanted in self._wanted.items()} == {k: p for p, k in self._keys.items()}
        if self._epoch != _INITIAL_EPOCH:
            for key in (self._wanted.keys() | self._session.keys()) - self._changed.keys():
                wanted = self._ready(key)
                assert (wanted.fetch if wanted else None) == self._session.get(key), f"{key} is not in step"
        waiting = {(wanted.due_ms, key) for key, wanted in self._wanted.items() if wanted.state is _State.WAITING}
        assert waiting <= set(self._waiting)


def _place(fetch: FetchPartition) -> tuple[int, int, int]:
    """Returns the position that an answer must have been asked for to count."""
    return fetch.current_leader_epoch, fetch.fetch_offset, fetch.last_fetched_epoch


def _topics(asked: dict[_Key, FetchPartition]) -> list[FetchTopic]:
    """Groups the partitions by topic, in the order in which the leader fills its answer."""
    topics: list[FetchTopic] = []
    for (topic_id, _), fetch in asked.items():
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(FetchTopic(topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(fetch)
    return topics


def _forgotten_topics(forgotten: Iterable[_Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in forgotten:
        topics.setdefault(topic_id, []).append(number)
    return [ForgottenTopic(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]
