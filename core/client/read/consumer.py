"""Reads partitions of a cluster: whole batches, checked, in order of offsets within a partition.

`AbortedFilter` leaves out batches of control records and of aborted transactions.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from core.client.net.kafka_client import KafkaClient, KnownLeaders
from core.client.net.retry import FAILOVER_SECONDS, RETRIABLE, Retry
from core.client.read.record_source import DAMAGE_HINT, ReadOptions, Watermarks
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import (
    ConnectionFailedError,
    CorruptRecordError,
    KafkaError,
    MalformedMessageError,
    PlogError,
)
from core.common.topic_partition import TopicPartition
from core.forensics.missing_offsets import offsets_text
from core.forensics.unexplained_gaps import UnexplainedGaps
from core.index.transaction_index import AbortedTransaction
from core.log.damaged_ranges import (
    DAMAGED_OFFSETS,
    UNDECIDED_OFFSETS,
    UNEXPLAINED_OFFSETS,
    WRONG_START,
    WRONG_TAIL,
    parse_damaged_offsets,
)
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from core.records.batches import Batch, first_offset_of, iter_whole_batches, stated_offset


class AbortedFilter:
    """Says, batch after batch in order of offsets, which ones a reader does not get: control batches, and those of
    aborted transactions (as org.apache.kafka.clients.consumer.internals.CompletedFetch does)."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        """Takes `aborted` sorted by first offset; empty for read_uncommitted."""
        self._aborted = aborted
        self._next = 0
        self._open: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        if not batch.is_control and not batch.is_transactional:
            return False
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= batch.last_offset:
            self._open.add(self._aborted[self._next].producer_id)
            self._next += 1
        if batch.is_control:
            self._open.discard(batch.producer_id)
            return True
        return batch.producer_id in self._open

    @property
    def hides_some(self) -> bool:
        """Whether a transaction is open that was aborted."""
        return bool(self._open)

    def pass_over(self, batch: Batch) -> None:
        """Notes a batch before those that are wanted: it may be the marker of a transaction that the answer names."""
        with contextlib.suppress(CorruptRecordError):
            if batch.is_control:
                batch.ensure_valid()
                self.hides(batch)


_FETCH_BYTES = 50 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024
"""Most bytes requested per partition in one fetch."""
_FIRST_VERSION_WITH_IDS = 13  # KIP-516

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_IDLE_SECONDS = 0.2
_WRONG_ENDS = {
    WRONG_TAIL: (
        "the broker says that after the log's end lie bytes that are not the log's, or can't be read; the "
        "broker's own log names them"
    ),
    WRONG_START: "the broker ignores log-start-offset-checkpoint, which names a start that can't be the log's",
}
_MOST_OFFSETS = 1 << 24  # a damaged batch that claims more is not believed
_MOST_HOLES_KEPT = 1000
_MOST_STUCK = 10
"""Answers in a row from which nothing can be read; a few may be sound, as when a batch lies after a high watermark that
is older."""

_Ranges = list[tuple[int, int]]
"""Pairs of a first and a last offset."""

_Sent = dict[int, dict[str, list[FetchPartition]]]
"""What was requested of each leader, by its node id and topic."""


class Consumer:
    """Owned by one task."""

    def __init__(
        self,
        client: KafkaClient,
        options: ReadOptions | None = None,
        *,
        max_wait_ms: int = 500,
        watermarks: dict[TopicPartition, Watermarks] | None = None,
        partition_bytes: int = PARTITION_BYTES,
        reads_ahead: bool = False,
    ) -> None:
        """`watermarks` is kept up to date. `reads_ahead`: `read` asks for more before it gives what came, so that the
        client is its own.
        """
        self._reads_ahead = reads_ahead
        self._partition_bytes = partition_bytes
        self._client = client
        self._max_wait_ms = max_wait_ms
        self._options = options or ReadOptions()
        self._watermarks = {} if watermarks is None else watermarks
        self._lost = Retry(self._options.seconds, tell=self._options.tell, notice_s=0)
        self._refused = Retry(math.inf)
        self._leaders = KnownLeaders(client, self._options.tell)
        self._lost_broker = ""
        self._reads: dict[TopicPartition, _PartitionRead] = {}

    def read(
        self, start_offsets: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        """Yields batches as they arrive, until every partition has reached its end offset. An empty list means that a
        partition was read to its end. The first batch may begin before the start offset, and the last may end after the
        end offset. Control batches are left out if they are not wanted, and with read_committed also batches of aborted
        transactions. Raises KafkaError with the broker's code; CorruptRecordError for a batch whose checksum is wrong;
        ConnectionFailedError when the time to wait for a broker is over.
        """
        positions = {tp: offset for tp, offset in start_offsets.items() if offset < end_offsets[tp]}
        for partition, end in end_offsets.items():
            self._read_of(partition).end_offset = end
        sent: _Sent | ConnectionFailedError | None = None
        try:
            while positions:
                answers = self._receive_patiently(sent or self._try_to_send(positions), positions)
                sent = None
                found: list[tuple[TopicPartition, list[Batch]]] = []
                failure: PlogError | None = None
                try:
                    found.extend(self._advance(answers, positions))
                except PlogError as error:
                    failure = error  # records before it are returned first
                else:
                    self._pause_if_refused(answers, has_found=bool(found))
                if self._reads_ahead and positions and failure is None:
                    sent = self._try_to_send(positions)
                yield from found
                if failure is not None:
                    raise failure
            self._report_wrong_ends(start_offsets, end_offsets)
        finally:
            self.report_damaged(positions)
            if sent is not None:
                self._client.forget_connections()  # nobody waits for the answer

    def _advance(
        self, answers: list[tuple[TopicPartition, PartitionData]], positions: dict[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        """Yields the batches of the answers; moves the positions on, and removes those that have reached their ends."""
        got_nothing = True
        without_more: list[_PartitionRead] = []
        for partition, data in answers:
            read = self._reads[partition]
            end = read.end_offset
            batches, next_offset = read.batches(data, positions[partition])
            is_empty = next_offset == positions[partition] and not (data.error_code or data.records)
            got_nothing = got_nothing and is_empty and not read.looked_back
            positions[partition] = next_offset
            is_done = next_offset >= end
            if is_empty and not is_done and data.high_watermark < end:
                read.wait_for(data.high_watermark)
            else:
                read.waiting.end()
            if is_done:
                read.report_damaged(min(next_offset, end))
                del positions[partition]
            elif (data.last_stable_offset if self._options.read_committed else data.high_watermark) >= end:
                without_more.append(read)  # if nothing else comes either, compaction has removed what is missing
            if batches:
                yield partition, batches
            if is_done:
                yield partition, []
        if got_nothing:
            for read in without_more:
                read.pass_hole(positions.pop(read.partition), read.end_offset)
                yield read.partition, []

    def _read_of(self, partition: TopicPartition) -> _PartitionRead:
        if partition not in self._reads:
            self._reads[partition] = _PartitionRead(partition, self._client, self._options)
        return self._reads[partition]

    def follow(
        self, start_offsets: Mapping[TopicPartition, int], find_more: Callable[[], Mapping[TopicPartition, int]] = dict
    ) -> Iterator[tuple[TopicPartition, list[Batch]] | None]:
        """Reads as `read` does, for ever; yields None after a round without batches. `find_more` is called after each
        round, and the partitions that it returns are read from then on, from the offsets that it names; if no broker
        answers it, it is called again later.
        """
        positions = dict(start_offsets)
        idle = Retry(math.inf, most_s=_IDLE_SECONDS)
        try:
            while True:
                before = dict(positions)
                for partition, _, batches in self.poll(positions):
                    yield partition, batches
                if positions == before:
                    yield None
                if not positions:
                    idle.wait()
                try:
                    positions = {**find_more(), **positions}
                except ConnectionFailedError as error:
                    self.reconnect(error)
        finally:
            self.report_damaged(positions)

    def poll(self, positions: dict[TopicPartition, int]) -> Iterator[tuple[TopicPartition, int, list[Batch]]]:
        """Reads one round: what there is from the positions on, with the first offset that is wanted; moves them on.

        All answers are there before the first is given: the connections may be used for other requests meanwhile.
        """
        answers = self._receive_patiently(self._try_to_send(positions), positions) if positions else []
        has_found = False
        for partition, data in answers:
            start = positions[partition]
            batches, positions[partition] = self._reads[partition].batches(data, start)
            if batches:
                has_found = True
                yield partition, start, batches
        self._pause_if_refused(answers, has_found=has_found)

    def _pause_if_refused(self, answers: list[tuple[TopicPartition, PartitionData]], *, has_found: bool) -> None:
        """Waits a little after a round that found nothing and in which a leader refused a partition: a broker answers
        such a request at once. A round that found something does not delay what other partitions have.
        """
        if not has_found and any(self._reads[partition].is_refused for partition, _ in answers):
            self._refused.wait()
        else:
            self._refused.end()

    def _try_to_send(self, positions: Mapping[TopicPartition, int]) -> _Sent | ConnectionFailedError:
        """Returns the error if a leader can't be reached, or is not in the cluster."""
        try:
            return self._send(positions)
        except ConnectionFailedError as error:
            return error
        except KafkaError as error:
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE or not self._options.seconds:
                raise
            return ConnectionFailedError(error.message, where="a leader")

    def _receive_patiently(
        self, sent: _Sent | ConnectionFailedError, positions: Mapping[TopicPartition, int]
    ) -> list[tuple[TopicPartition, PartitionData]]:
        """Returns the answers; those that came if a connection breaks."""
        found: list[tuple[TopicPartition, PartitionData]] = []
        try:
            if isinstance(sent, ConnectionFailedError):
                raise sent
            found.extend(self._receive(sent))
            self.reached()
        except ConnectionFailedError as error:
            self.reconnect(error)
            for topic in {partition.topic for partition in positions}:
                self._client.forget_topic(topic)
        return found

    def reconnect(self, error: ConnectionFailedError) -> None:
        """Has the next request connect again, a little later; raises `error` if patience is at an end."""
        self._lost_broker = self._lost_broker or error.where
        if not self._lost.wait(error):
            raise error
        self._client.forget_connections()

    def reached(self) -> None:
        """Notes that the brokers answer, and says so if they did not before."""
        away_s = self._lost.end()
        if away_s is not None:
            self._options.note(f"reading goes on, after {away_s:.1f} s without {self._lost_broker}")
        self._lost_broker = ""

    def _send(self, positions: Mapping[TopicPartition, int]) -> _Sent:
        by_leader: _Sent = {}
        leaders = self._leaders.find(positions, may_wait=lambda _: self._options.seconds > 0)
        for partition, leader in leaders.items():
            offset = self._read_of(partition).offset_to_ask_for(positions[partition], self._partition_bytes)
            wanted = FetchPartition(partition.partition, fetch_offset=offset, partition_max_bytes=self._partition_bytes)
            by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(wanted)
        for leader, topics in by_leader.items():
            self._client.connection_to(leader).send(FETCH, self._request(topics))
        return by_leader

    def _receive(self, sent: _Sent) -> Iterator[tuple[TopicPartition, PartitionData]]:
        for leader, topics in sent.items():
            connection = self._client.connection_to(leader)
            wanted = [TopicPartition(name, p.partition) for name, parts in topics.items() for p in parts]
            may_repeat = self._options.seconds > 0
            response: FetchResponse = self._client.receive_from_leader(leader, wanted, may_repeat=may_repeat)
            if response.error_code:
                raise KafkaError(ErrorCode.of(response.error_code))
            names = {self._client.topic(name).topic_id: name for name in topics}
            uses_ids = connection.version_of(FETCH) >= _FIRST_VERSION_WITH_IDS
            missing = set(wanted)
            for topic in response.responses:
                name = names.get(topic.topic_id, "") if uses_ids else topic.topic
                for data in topic.partitions:
                    partition = TopicPartition(name, data.partition_index)
                    if partition not in missing:
                        raise MalformedMessageError("a Fetch answer has a partition twice, or one not asked for")
                    missing.discard(partition)
                    if not data.error_code:
                        self._watermarks[partition] = Watermarks(
                            data.log_start_offset, data.last_stable_offset, data.high_watermark
                        )
                    yield partition, data
            for partition in missing:
                self._reads[partition].note_stuck()

    def _request(self, topics: dict[str, list[FetchPartition]]) -> FetchRequest:
        wanted = [FetchTopic(name, self._client.topic(name).topic_id, parts) for name, parts in topics.items()]
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=READ_COMMITTED if self._options.read_committed else READ_UNCOMMITTED,
            topics=wanted,
        )

    def report_damaged(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reports damage that reading is still passing over, at these positions, when it ends, and what was read past
        that nothing explains.
        """
        for partition, read in self._reads.items():
            read.report_damaged(positions.get(partition))
        for read in self._reads.values():
            read.report_gaps()

    def _report_wrong_ends(
        self, start_offsets: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Reports partitions that were read to their ends, and have a wrong tail or a wrong start, or were read from
        where the log begins since its first segments were lost. Raises CorruptRecordError unless damage is passed over,
        but for the last. Asks a topic's leader once for all that it has of the topic.
        """
        report: dict[tuple[int, str], dict[str, dict[int, _Ranges]]] = {}
        for partition, end in end_offsets.items():
            try:
                place = self._client.leader_of(partition), partition.topic
            except PlogError:
                continue
            if place not in report:
                report[place] = _fetch_topic_report(self._client, partition, *_WRONG_ENDS, UNEXPLAINED_OFFSETS)
            log_start = self._watermarks[partition].log_start_offset if partition in self._watermarks else -1
            for first, last in report[place][UNEXPLAINED_OFFSETS].get(partition.partition, []):
                if last + 1 == start_offsets[partition] == log_start:
                    lost = UnexplainedGaps()
                    lost.add(first, last + 1)
                    self._options.tell_left_out(f"{partition}: {lost.text()}")
            for key, what in _WRONG_ENDS.items():
                if not any(first <= end for first, _ in report[place][key].get(partition.partition, [])):
                    continue
                text = f"{partition}: {what}"
                if not self._options.skips_damage:
                    raise _damage(text, end)
                self._options.tell_left_out(text)


class _BrokerReport(NamedTuple):
    """The ranges that a partition's leader reports, each list sorted."""

    damaged: _Ranges
    unexplained: _Ranges
    undecided: _Ranges

    def is_undecided(self, offset: int) -> bool:
        at = bisect_right(self.undecided, (offset, 1 << 63)) - 1
        return at >= 0 and offset <= self.undecided[at][1]


@dataclass(slots=True)
class _PartitionRead:
    """What reading a partition met, apart from its position; owned by its consumer, for as long as that lives."""

    partition: TopicPartition
    client: KafkaClient
    options: ReadOptions
    end_offset: int = 1 << 63  # the reader wants no records from there on

    disk_failed: Retry = field(init=False)  # while the disk of its leader fails
    refused: Retry = field(init=False)  # while its leader refuses it
    is_refused: bool = False  # by the last answer, and asked for again
    waiting: Retry = field(init=False)  # while its log ends before the wanted offset
    stuck: int = 0  # how many answers in a row held nothing that can be read
    failure: tuple[int, CorruptRecordError] | None = None
    """What was met after what was given last, with the offset that the broker is asked for again."""
    after_end: int = -1
    """First offset of the batch that lay after the end of its log when it came last."""
    last_size: int = 0  # in bytes, of the last batch that came

    asked_for: int = -1  # the offset that the broker was asked for last
    looks_back: bool = False
    """The broker was asked for the batch before the position, too. It begins with the first batch that ends after the
    offset that it is asked for, so a batch of a hole that stands between two answers would come in none of them.
    """
    looked_back: bool = False
    """The last answer did so, and brought nothing new: the broker is asked for just the position next."""

    passed: deque[tuple[int, int]] = field(default_factory=partial(deque, maxlen=_MOST_HOLES_KEPT))
    """(first, last) offset of the holes that were passed last: a batch that belongs there may stand further on."""
    displaced: list[tuple[int, int, str]] = field(default_factory=list)
    """Offsets [start, end) of batches that stand before their place, and why they were passed over: they may be missing
    further on.
    """
    damaged: int | None = None  # first offset of the damage that is being passed over
    known_damage: _Ranges = field(default_factory=list)  # the damage that its leader knew of when that began
    report: _BrokerReport | None = None  # asked for at the first hole, or the first batch of a transaction
    met: UnexplainedGaps = field(default_factory=UnexplainedGaps)
    """The unexplained offsets that were read past and not reported yet."""
    hidden: UnexplainedGaps = field(default_factory=UnexplainedGaps)
    """The undecided ones, likewise."""

    def __post_init__(self) -> None:
        failover_s = max(self.options.seconds, FAILOVER_SECONDS)
        self.disk_failed, self.refused, self.waiting = Retry(self.options.seconds), Retry(failover_s), Retry(failover_s)

    def offset_to_ask_for(self, position: int, most_bytes: int) -> int:
        """Returns the offset before the position if a hole was passed, unless that costs more than half of the
        answer's bytes.
        """
        self.looks_back = bool(self.passed) and not self.looked_back and 0 < 2 * self.last_size <= most_bytes
        self.asked_for = position - self.looks_back
        return self.asked_for

    def batches(self, data: PartitionData, position: int) -> tuple[list[Batch], int]:
        """Returns the batches that a reader gets, and the offset to go on from: a damaged one's, if that is after them.

        Raises KafkaError, and CorruptRecordError if the first is damaged. Raises MalformedMessageError if answer after
        answer holds bytes and nothing that can be read from the position on: a part of a batch, say, or batches that
        end before it.
        """
        self.is_refused = False
        if data.error_code and self.looks_back:  # it may be the offset before that can't be had
            self.stuck, self.looked_back = 0, True
            return [], position
        if data.error_code:
            self.stuck = 0
            return [], self._without_records(ErrorCode.of(data.error_code), position)
        self.disk_failed.end()
        self.refused.end()
        failure, self.failure = self.failure, None
        if failure is not None and failure[0] == position:
            raise failure[1]  # a broker that is asked for what is damaged may pass over it without a word
        self.report_damaged(position)
        self.looked_back = self.looks_back  # until something new comes
        batches, next_offset = self._read_batches(data, position)
        if next_offset != position or not data.records or self.looks_back:
            self.stuck = 0
        else:
            self.note_stuck()
        return batches, next_offset

    def note_stuck(self) -> None:
        self.stuck += 1
        if self.stuck >= _MOST_STUCK:
            raise MalformedMessageError(
                f"could not read {self.partition} from offset {self.asked_for} on: the broker's answers do not move on",
                hint="does the broker give whole batches? plog cluster check compares what the replicas have",
            )

    def wait_for(self, high_watermark: int) -> None:
        """Raises MalformedMessageError if the log has ended before the end offset for longer than another broker may
        take to take over.
        """
        if not self.waiting.note():
            why = f"its log ends at {high_watermark} now, says the broker"
            raise MalformedMessageError(f"could not read {self.partition} up to offset {self.end_offset}: {why}")

    def _read_batches(self, data: PartitionData, position: int) -> tuple[list[Batch], int]:
        """Goes along the batches of an answer; returns what `batches` does."""
        aborted = [AbortedTransaction(a.producer_id, a.first_offset, -1, -1) for a in data.aborted_transactions or ()]
        hidden = AbortedFilter(sorted(aborted, key=lambda a: a.first_offset))
        assert data.records is None or isinstance(data.records, memoryview)
        found = _with_next(iter_whole_batches(data.records or memoryview(b"")))
        batches: list[Batch] = []
        high_watermark = data.high_watermark
        start, batch, following, earlier = position, None, None, 0
        while True:
            is_first = position == start
            try:
                batch, following = next(found, (None, None))
                if batch is None:
                    return batches, position
                if is_first and batch.last_offset < position:
                    earlier += 1
                    if earlier > 1:
                        self._meet_earlier(batch)
                    hidden.pass_over(batch)
                    continue
                if stated_offset(batch) != position and not self._is_next(
                    batch, following, position, high_watermark, is_first=is_first, has_batches=bool(batches)
                ):
                    return batches, position
                batch.ensure_valid()
            except CorruptRecordError as error:
                end = self._pass_damage(batch, following, position, high_watermark, error, is_first=is_first)
                if end is None:
                    return batches, position  # a broker that is asked for what is damaged may know how far that goes
                if following is None or (hidden.hides_some and end > position):
                    return batches, max(end, position + 1)  # the damage may have ended a transaction: ask from there
                start = position = end  # a broker that is asked again may begin with the same batch
                continue
            is_hidden = hidden.hides(batch)
            if self._is_undecided(batch):
                if batches and not self.options.skips_damage:
                    return batches, position
                self._hide(batch)
                is_hidden = True
            position = batch.next_offset
            self.last_size = batch.size_bytes
            self.looked_back = False
            if not is_hidden or (self.options.with_control and batch.is_control):
                batches.append(batch)

    def _is_next(
        self,
        batch: Batch,
        following: Batch | None,
        position: int,
        high_watermark: int,
        *,
        is_first: bool,
        has_batches: bool,
    ) -> bool:
        """Returns whether a batch that does not begin at the position is read now, after the hole before it; False if
        the next answer begins there. `has_batches`: this answer had batches before it, which are given before an error.
        """
        if self._may_be_newer(batch, position, high_watermark):
            return False
        _ensure_fits(batch, following, position, high_watermark, is_first=is_first)
        first_offset = first_offset_of(batch, position)
        if first_offset > position:
            if following is None and not is_first:
                return False  # a fetch at the hole returns what follows, or the broker knows why
            is_given_first = has_batches and not self.options.skips_damage
            if is_given_first and _common(self._ask_leader().damaged, position, first_offset):
                return False
            self.pass_hole(position, first_offset)
        return True

    def _may_be_newer(self, batch: Batch, position: int, high_watermark: int) -> bool:
        """Says whether a batch that lies after the log's end may have been appended since: Kafka reads the high
        watermark before it reads the records. An answer to the next request knows of it.
        """
        first_offset = stated_offset(batch)
        if first_offset <= position or first_offset < high_watermark:
            return False
        before, self.after_end = self.after_end, first_offset
        return before != first_offset

    def _without_records(self, code: ErrorCode, position: int) -> int:
        """Returns the offset to go on from after an error; raises KafkaError if asking again would not help."""
        topic = self.partition.topic
        what = f"could not read {self.partition}"
        if code in RETRIABLE or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # the metadata tell whether it is there
            self.client.forget_topic(topic)
            if self.refused.note():
                self.is_refused = True
                return position
        elif code is ErrorCode.KAFKA_STORAGE_ERROR:
            if self.client.has_other_replicas(self.partition) and self.disk_failed.note():
                self.client.forget_topic(topic)  # another broker may soon lead it
                self.is_refused = True
                return position
        elif code is ErrorCode.CORRUPT_MESSAGE and self.options.skips_damage:
            if self.damaged is None:
                (self.known_damage,) = self._fetch_report(DAMAGED_OFFSETS)
                self.damaged = position
            return next((last + 1 for first, last in self.known_damage if first <= position <= last), position + 1)
        elif code is ErrorCode.CORRUPT_MESSAGE:
            raise KafkaError(
                code, f"{what}: offset {position} is damaged or missing, says the broker", hint=DAMAGE_HINT
            )
        raise KafkaError(code, f"{what} from offset {position} on: {code.text}")

    def _fetch_report(self, *names: str) -> list[_Ranges]:
        found = _fetch_topic_report(self.client, self.partition, *names)
        return [sorted(found[name].get(self.partition.partition, [])) for name in names]

    def _ask_leader(self) -> _BrokerReport:
        if self.report is None:
            self.report = _BrokerReport(*self._fetch_report(DAMAGED_OFFSETS, UNEXPLAINED_OFFSETS, UNDECIDED_OFFSETS))
        return self.report

    def pass_hole(self, start: int, end: int) -> None:
        """Notes offsets [start, end) that did not come: compaction may have taken them, but the broker may also know
        that some are damaged. Raises KafkaError for those, unless damage is passed over.
        """
        end = min(end, self.end_offset)
        if start >= end:
            return
        report = self._ask_leader()
        damaged = _common(report.damaged, start, end)
        if damaged and not self.options.skips_damage:
            self._without_records(ErrorCode.CORRUPT_MESSAGE, damaged[0][0])
        for first, last in damaged:
            self.damaged = first if self.damaged is None else self.damaged
            self.report_damaged(last + 1)
        for first, last in _common(report.unexplained, start, end):
            self.met.add(first, last + 1)
        self.passed.append((start, end - 1))
        for first, after, cause in self.displaced:
            if max(first, start) < min(after, end):
                self._report_passed_over(max(first, start), min(after, end), cause)

    def _pass_damage(
        self,
        batch: Batch | None,
        following: Batch | None,
        position: int,
        high_watermark: int,
        error: CorruptRecordError,
        *,
        is_first: bool,
    ) -> int | None:
        """Returns where the damage ends, or None if it has to be asked for first. Raises CorruptRecordError if the
        reader does not pass over damage, now or when it was asked for.
        """
        skips_damage = self.options.skips_damage
        is_asked_again = not is_first and not (skips_damage and following is not None)
        if not skips_damage:
            failure = _damage(f"{error.cause} of {self.partition}", error.offset)
            if not is_asked_again:
                raise failure from None
            self.failure = position, failure
        if is_asked_again:
            return None
        end = _end_of_damage(batch, following, position, high_watermark)
        if end > position:
            self._report_passed_over(position, end, error.cause)
        elif batch is not None:
            self._pass_displaced(batch, position, error.cause)
        return end

    def _pass_displaced(self, batch: Batch, position: int, cause: str) -> None:
        """Passes over a batch that stands where nothing is missing: it is a copy, or missing where it belongs."""
        first = first_offset_of(batch, position)
        if first >= position:
            self.displaced.append((first, batch.next_offset, cause))
            return
        for start, last in _common(self.passed, first, batch.next_offset):
            self._report_passed_over(start, last + 1, cause)

    def _meet_earlier(self, batch: Batch) -> None:
        """Meets a batch whose offsets lie before those requested, and which does not come first in the answer: if it
        was missing in its place, it is passed over; raises CorruptRecordError unless damage is.
        """
        missing = _common(self.passed, first_offset_of(batch, 0), batch.next_offset)
        try:
            batch.ensure_valid()
        except CorruptRecordError:
            return  # which offsets damaged bytes had is not known
        if missing and not self.options.skips_damage:
            raise _damage(f"offsets do not rise of {self.partition}", missing[0][0])
        for first, last in missing:
            self._report_passed_over(first, last + 1, "offsets do not rise")

    def _is_undecided(self, batch: Batch) -> bool:
        """Returns whether readers of committed records must not get the batch, as its transaction's end is unknown."""
        if not self.options.read_committed or not batch.is_transactional or batch.is_control:
            return False
        return self._ask_leader().is_undecided(batch.base_offset)

    def _hide(self, batch: Batch) -> None:
        """Reports it later; raises CorruptRecordError unless damage is passed over."""
        if not self.options.skips_damage:
            offsets = offsets_text(batch.base_offset, batch.next_offset)
            text = f"{offsets} of {self.partition}: aborted or not can't be told, says the broker"
            raise _damage(text, batch.base_offset)
        self.hidden.add(batch.base_offset, batch.next_offset)

    def _report_passed_over(self, start: int, end: int, cause: str) -> None:
        self._tell_left_out(f"{offsets_text(start, end)} passed over: {cause}")

    def report_damaged(self, end: int | None) -> None:
        """Reports damaged offsets that follow one another together, once the end of them is known, or, with None, will
        never be.
        """
        start, self.damaged = self.damaged, None
        if start is not None:
            offsets = offsets_text(start, start + 1 if end is None else end)
            self._tell_left_out(f"passed over: {offsets}: damaged or missing, says the broker")

    def report_gaps(self) -> None:
        """Reports what was read past that nothing explains, or decides."""
        met, hidden = self.met, self.hidden
        self.met, self.hidden = UnexplainedGaps(), UnexplainedGaps()
        if met.count:
            self._tell_left_out(met.text())
        if hidden.count:
            text = f"{hidden.offsets} record{'s' * (hidden.offsets != 1)} in {offsets_text(hidden.start, hidden.end)}"
            self._tell_left_out(f"{text}: aborted or not can't be told, says the broker; they are left out")

    def _tell_left_out(self, text: str) -> None:
        self.options.tell_left_out(f"{self.partition}: {text}")


def _fetch_topic_report(client: KafkaClient, partition: TopicPartition, *names: str) -> dict[str, dict[int, _Ranges]]:
    """Asks what the leader reports of all its partitions of the topic, by key and by partition; nothing of Kafka,
    which has no such keys.
    """
    request = DescribeConfigsRequest([DescribeConfigsResource(ConfigResourceType.TOPIC, partition.topic, list(names))])
    found: dict[str, dict[int, _Ranges]] = {name: {} for name in names}
    try:
        results = client.connection_to(client.leader_of(partition)).call(DESCRIBE_CONFIGS, request).results
    except PlogError:
        return found
    for config in (config for result in results for config in result.configs):
        if config.name in found and config.value:
            found[config.name] |= parse_damaged_offsets(config.value)
    return found


def _damage(text: str, offset: int) -> CorruptRecordError:
    error = CorruptRecordError(text, offset=offset)
    error.hint = DAMAGE_HINT
    return error


def _with_next(found: Iterator[Batch]) -> Iterator[tuple[Batch, Batch | None]]:
    """Yields each item with the next one; raises an error of the iterator only after all items before it."""
    before, failure = None, None
    while failure is None:
        try:
            batch = next(found, None)
        except CorruptRecordError as error:
            batch, failure = None, error
        if before is not None:
            yield before, batch
        if batch is None:
            break
        before = batch
    if failure is not None:
        raise failure


def _ensure_fits(batch: Batch, following: Batch | None, position: int, high_watermark: int, *, is_first: bool) -> None:
    """Raises CorruptRecordError for a batch whose offsets can't be its own: no checksum covers the first one, and a
    broker that trusts its log sends it as it lies. `position` is what comes next; `is_first`: it begins the answer.

    One that begins where the reader is may lie after the high watermark, which is older than the records.
    """
    first_offset = stated_offset(batch)
    if first_offset >= high_watermark and first_offset > position:
        raise batch.corrupt(f"offsets lie after the log's end, which is {high_watermark}")
    if not is_first and first_offset < position:
        raise batch.corrupt("offsets do not rise")
    if following is None or first_offset <= position:
        return
    if stated_offset(following) <= batch.last_offset and position <= following.last_offset:
        raise batch.corrupt("offsets are the next batch's")


def _end_of_damage(batch: Batch | None, following: Batch | None, position: int, high_watermark: int) -> int:
    """Finds where the offsets from `position` on end that a damaged batch holds: where the next one begins, if that is
    sound, or by its own header, if that can be believed; the next offset else.
    """
    if following is not None:
        with contextlib.suppress(CorruptRecordError):
            following.ensure_valid()
            if position <= following.last_offset < high_watermark:
                return max(first_offset_of(following, position), position)
            if following.last_offset < position and batch is not None and batch.next_offset <= position:
                return position  # both stand after their place: the batch that belongs here may follow
    if batch is None:
        return position + 1
    count = batch.next_offset - first_offset_of(batch, position)
    claimed = batch.next_offset if position < batch.next_offset <= high_watermark else position + count
    return claimed if position < claimed <= min(position + _MOST_OFFSETS, high_watermark) else position + 1


def _common(ranges: Iterable[tuple[int, int]], start: int, end: int) -> _Ranges:
    return [(max(first, start), min(last, end - 1)) for first, last in ranges if first < end and last >= start]
