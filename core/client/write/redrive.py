"""Sends dead letters back to where they came from, each once, whatever stops it in the middle.

    read up to 500 records, read_committed, that are neither done nor left before
    one transaction: the records to their topics, and the offsets of the group `plog-redrive.DLQ`

The group's offset of a partition is that of the first record that stays in it; without one, that of the next record to
read. Its metadata say what is done behind that offset, so that a later run looks again at what stays, and at nothing
else:

    1 POSITION GAP+COUNT GAP+COUNT ..

Records below POSITION are done, but for runs of COUNT offsets; each begins GAP offsets after the end of the run before,
the first after the group's offset. The transactional id is the group's name: a second run fences the first, and ends
its open transaction before it reads the offsets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import FAILOVER_SECONDS
from core.client.read.cluster_source import ClusterSource
from core.client.read.record_source import ReadOptions
from core.client.write.partitioner import PARTITIONERS, Partitioner
from core.client.write.producer import RecordRefusedError, RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition, is_valid_topic_name, parse_uuid
from core.records.batches import group_batches
from core.records.byte_strings import ByteStrings
from core.records.columns import RecordColumns, decode_whole_batches
from core.records.dead_letter import Origin, find_origin, find_reason, find_tries, headers_to_send
from core.records.record import Headers, encode_headers

if TYPE_CHECKING:
    from core.client.write.redrive_request import RedriveRequest
    from core.records.record_filter import RecordFilter

_MOST_AT_ONCE = 500
_MOST_METADATA = 4000
"""Brokers refuse metadata of more than 4096 bytes (offset.metadata.max.bytes)."""
_BATCH_BYTES = 512 * 1024
_METADATA = re.compile(r"1 (\d{1,19})((?: \d{1,19}\+\d{1,19})*)", re.ASCII)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_INTERNAL = ("-repartition", "-changelog")


class DeadLetter(NamedTuple):
    """A record of the dead letters, and what is done with it."""

    place: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    origin: Origin | None
    tries: int
    reason: str
    topic: str | None
    """Where it goes to, or None if it stays."""
    problem: str
    """Why it stays, or is parked; "" for others."""

    def __str__(self) -> str:
        return f"{self.place}@{self.offset}"


@dataclass
class PartitionProgress:
    """Which offsets of a partition are done: those below `position`, except for `left`."""

    position: int
    left: list[int] = field(default_factory=list)
    """The offsets of records that stay, in order."""

    @classmethod
    def parse(cls, offset: int, metadata: str, end: int) -> PartitionProgress:
        """Reads a committed offset with its metadata; those of others, such as `plog group reset-offsets`, count as an
        offset alone. Beyond the partition's `end` nothing stays.
        """
        found = _METADATA.fullmatch(metadata)
        if found is None or int(found[1]) < offset:
            return cls(offset)
        if int(found[1]) > end:
            return cls(int(found[1]))
        left: list[int] = []
        end = offset
        for run in found[2].split():
            gap, count = map(int, run.split("+"))
            end += gap
            left += range(end, min(end + count, int(found[1])))
            end += count
        return cls(int(found[1]), left)

    @property
    def offset(self) -> int:
        return self.left[0] if self.left else self.position

    @property
    def metadata(self) -> str:
        runs, end = [], self.offset
        offsets = np.array(self.left, np.int64)
        starts = np.flatnonzero(np.diff(offsets, prepend=-2) != 1).tolist()
        for start, after in pairwise([*starts, len(offsets)]):
            first, count = int(offsets[start]), after - start
            runs.append(f" {first - end}+{count}")
            end = first + count
        return f"1 {self.position}{''.join(runs)}"


@dataclass
class Redriven:
    """What became of the dead letters; `rows` are those of the listing."""

    sent: int = 0
    parked: int = 0
    stays: int = 0
    filtered: int = 0
    rows: dict[tuple[object, ...], dict[str, object]] = field(default_factory=dict)

    def add(self, letter: DeadLetter, *, is_each: bool) -> None:
        self.sent += letter.topic is not None and not letter.problem
        self.parked += letter.topic is not None and bool(letter.problem)
        self.stays += letter.topic is None
        origin = letter.origin
        row: dict[str, object] = {"topic": letter.topic, "records": 1, "tries": letter.tries, "reason": letter.reason,
               "problem": letter.problem, "dead_letter": str(letter),
               "from_topic": origin and origin.topic, "from_partition": origin and origin.partition,
               "from_offset": origin and origin.offset}  # fmt: skip
        key = (str(letter),) if is_each else (letter.topic, letter.reason, letter.problem, origin and origin.topic)
        known = self.rows.setdefault(key, row)
        if known is not row:
            known["records"] += 1  # type: ignore[operator]
            known["tries"] = max(known["tries"], letter.tries)  # type: ignore[call-overload]


def redrive(
    request: RedriveRequest,
    client: KafkaClient,
    redriven: Redriven,
    *,
    say: Callable[[str], None],
    undivided: Callable[[], AbstractContextManager[None]],
) -> None:
    """Sends the dead letters that are there now, and notes them in `redriven` as soon as they are committed. Raises
    KafkaError(PRODUCER_FENCED) if another run has begun, and what else a broker refuses; what is committed counts then.
    """
    for name in (request.topic, request.to, request.park):
        if name is not None:
            client.topic(name)
    with ExitStack() as stack:
        producer = None
        if not request.dry_run:  # which ends what another run left open
            producer = TransactionalProducer(client.another, request.group_id, batch_bytes=_BATCH_BYTES)
            stack.enter_context(closing(producer))
        try:
            _Redrive(request, client, producer, redriven, say=say, undivided=undivided).run()
        except KafkaError as error:
            if error.code not in _FENCED:
                raise
            text = f"another redrive of {request.topic} has begun, and goes on with what is left"
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{text}: {error.message}") from error


class _Redrive:
    """Owned by one task."""

    def __init__(
        self,
        request: RedriveRequest,
        client: KafkaClient,
        producer: TransactionalProducer | None,
        redriven: Redriven,
        *,
        say: Callable[[str], None],
        undivided: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._request = request
        self._undivided = undivided
        self._client = client
        self._producer = producer
        self._redriven = redriven
        self._source = ClusterSource(client, ReadOptions(seconds=FAILOVER_SECONDS, tell=say, note=say))
        self._partitioners: dict[str, Partitioner] = {}
        self._problems: dict[str, str] = {}  # of topics
        self._filter = _find_filter(request)
        self._taken = 0
        self._started_s = time.monotonic()
        self._progress: dict[TopicPartition, PartitionProgress] = {}

    def run(self) -> None:
        name = self._request.topic
        partitions = [TopicPartition(name, number) for number in self._source.partitions(name)]
        ends = self._source.ends(partitions)
        self._progress = self._find_progress(self._source.starts(partitions), ends)
        starts = {place: progress.offset for place, progress in self._progress.items()}
        for place, start in starts.items():  # one after the other: in the order of the log
            if start >= ends[place] or self._is_enough():
                continue
            done = self._progress[place]
            for columns, next_offset in self._read(place, start, ends[place]):
                for piece in self._pieces(place, columns, next_offset, done):
                    self._take(place, *piece)
                if self._is_enough():
                    break

    def _read(self, place: TopicPartition, start: int, end: int) -> Iterator[tuple[RecordColumns, int]]:
        for _, batches in self._source.read({place: start}, {place: end}):
            for group in group_batches(batches):
                for columns in decode_whole_batches(group, partial(self._source.leave_out, place)):
                    inside = (columns.offsets >= start) & (columns.offsets < end)
                    yield columns.select(inside), min(columns.batches[-1].next_offset, end)

    def _is_enough(self) -> bool:
        return self._request.limit is not None and self._taken >= self._request.limit

    def _find_progress(
        self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionProgress]:
        if self._request.again:
            return {place: PartitionProgress(start) for place, start in starts.items()}
        admin = GroupAdmin(self._client)
        if self._producer is None:
            committed = admin.offsets(self._request.group_id)
        else:
            committed = admin.stable_offsets(self._request.group_id, list(starts))
        found = {}
        for place, start in starts.items():
            known = committed.get(place)
            if known is None or known.offset < 0:
                found[place] = PartitionProgress(start)
                continue
            progress = PartitionProgress.parse(known.offset, known.metadata, ends[place])
            if progress.position > ends[place]:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"group {self._request.group_id} has committed {progress.position} of {place}, which ends at "
                    f"{ends[place]}: the topic was deleted, and created again",
                    hint="plog redrive --again begins from its start",
                )
            left = [offset for offset in progress.left if offset >= start]
            found[place] = PartitionProgress(max(progress.position, start), left)
        return found

    def _pieces(
        self, place: TopicPartition, columns: RecordColumns, next_offset: int, done: PartitionProgress
    ) -> Iterator[tuple[list[DeadLetter], list[int], int]]:
        """Yields (records, offsets of records that the filter leaves out, offset after them), without those that `done`
        has.
        """
        wanted = np.ones(len(columns), bool)
        if self._filter is not None and len(columns):
            from core.records.record_filter import Rows

            wanted = self._filter(Rows(place, columns))
        most = _MOST_AT_ONCE
        if self._request.rate is not None:
            most = max(min(most, int(self._request.rate)), 1)
        before = set(done.left)
        letters: list[DeadLetter] = []
        out: list[int] = []
        for row, offset in enumerate(columns.offsets.tolist()):
            if offset < done.position and offset not in before:
                continue
            if not wanted[row]:
                out.append(offset)
                continue
            letter = self._letter(place, columns, row)
            letters.append(letter)
            self._taken += letter.topic is not None
            if len(letters) == most or self._is_enough():
                yield letters, out, offset + 1
                letters, out = [], []
                if self._is_enough():
                    return
        yield letters, out, next_offset

    # --- what becomes of a record

    def _letter(self, place: TopicPartition, columns: RecordColumns, row: int) -> DeadLetter:
        request = self._request
        headers = columns.headers(row)
        named = None if request.header is None else request.header.encode()
        origin = find_origin(headers, named)
        letter = DeadLetter(
            place=place,
            offset=int(columns.offsets[row]),
            key=columns.key(row),
            value=columns.value(row),
            headers=headers,
            timestamp=int(columns.timestamps[row]),
            origin=None if origin is None else _with_name(self._client, origin),
            tries=find_tries(headers),
            reason=find_reason(headers),
            topic=None,
            problem="",
        )
        topic = request.to if letter.origin is None else letter.origin.topic
        problem = self._problem(letter, topic)
        if not problem and letter.origin is not None and _is_reference(letter):
            letter, problem = self._with_original(letter, letter.origin)
        return letter._replace(topic=request.park if problem else topic, problem=problem)

    def _problem(self, letter: DeadLetter, topic: str | None) -> str:
        request, origin = self._request, letter.origin
        if topic is None:
            return "no header names a topic"
        if request.max_tries is not None and letter.tries >= request.max_tries:
            return f"sent back {letter.tries} times"
        if topic == request.topic:
            return "its topic is that of the dead letters"
        if topic not in self._problems:
            self._problems[topic] = self._topic_problem(topic)
        if self._problems[topic]:
            return self._problems[topic]
        if request.same_partition and origin is not None:
            count = len(self._client.topic(topic).partitions)
            if origin.partition is None:
                return "no header names its partition"
            if not 0 <= origin.partition < count:
                return f"{topic} has no partition {origin.partition}"
        return ""

    def _topic_problem(self, topic: str) -> str:
        if not is_valid_topic_name(topic):
            return f"{topic!r:.60} is no name of a topic"
        if not self._request.internal and (topic.startswith("__") or topic.endswith(_INTERNAL)):
            return f"{topic} is internal: --internal"
        try:
            self._client.topic(topic)
        except KafkaError as error:
            return error.message
        return ""

    def _with_original(self, letter: DeadLetter, origin: Origin) -> tuple[DeadLetter, str]:
        """Returns the record with the original's key, value, headers and timestamp, and ""; if the original can't be
        read, the record as it is, and the reason.
        """
        if not self._request.fetch_original:
            return letter, "neither key nor value were copied: --fetch-original reads them"
        if origin.partition is None or origin.offset is None:
            return letter, "no header names its partition and offset"
        place = TopicPartition(origin.topic, origin.partition)
        try:
            start, end = self._source.starts([place])[place], self._source.ends([place])[place]
        except KafkaError as error:
            return letter, error.message
        if start <= origin.offset < end:
            for columns, _ in self._read(place, origin.offset, origin.offset + 1):
                if len(columns):
                    found = letter._replace(
                        key=columns.key(0),
                        value=columns.value(0),
                        headers=columns.headers(0),
                        timestamp=int(columns.timestamps[0]),
                    )
                    return found, ""
        return letter, f"the original {place}@{origin.offset} is gone"

    # --- sending

    def _take(self, place: TopicPartition, letters: list[DeadLetter], out: list[int], next_offset: int) -> None:
        """Sends the records in one transaction; one by one if a broker refuses one of them, which stays then."""
        try:
            self._commit(place, letters, out, next_offset)
            return
        except RecordRefusedError as error:
            if error.code in _FENCED:
                raise
            assert self._producer is not None
            self._producer.abort()
            if len(letters) == 1:
                letter = letters[0]._replace(topic=None, problem=f"refused by {letters[0].topic}: {error.code.text}")
                self._commit(place, [letter], out, next_offset)
                return
        for number, letter in enumerate(letters):
            is_last = number == len(letters) - 1
            end = next_offset if is_last else letter.offset + 1
            self._take(place, [letter], [offset for offset in out if offset < end], end)
            out = [offset for offset in out if offset >= end]

    def _commit(self, place: TopicPartition, letters: list[DeadLetter], out: list[int], next_offset: int) -> None:
        before = self._progress[place]
        handled = {letter.offset for letter in letters}
        stay = [letter.offset for letter in letters if letter.topic is None]
        left = sorted({*(offset for offset in before.left if offset not in handled), *stay, *out})
        progress = PartitionProgress(max(before.position, next_offset), left)
        if self._producer is not None:
            if len(progress.metadata) > _MOST_METADATA:
                raise KafkaError(
                    ErrorCode.OFFSET_METADATA_TOO_LARGE,
                    f"{len(left):,} records of {place} stay between others, more than a committed offset can note",
                    hint="--park TOPIC sends records that stay out of the way; without --filter fewer stay",
                )
            self._send(self._producer, [letter for letter in letters if letter.topic is not None])
            with self._undivided():
                self._producer.send_offsets(self._request.group_id, {place: progress.offset}, progress.metadata)
                self._producer.commit()
        self._progress[place] = progress
        self._redriven.filtered += len(out)
        for letter in letters:
            self._redriven.add(letter, is_each=self._request.each)
        if self._request.rate is not None and self._producer is not None:
            sent = self._redriven.sent + self._redriven.parked
            time.sleep(max(sent / self._request.rate - (time.monotonic() - self._started_s), 0))

    def _send(self, producer: TransactionalProducer, letters: list[DeadLetter]) -> None:
        by_target: dict[tuple[str, int], list[int]] = {}
        for row, letter in enumerate(letters):
            assert letter.topic is not None
            by_target.setdefault((letter.topic, self._partition(letter, letter.topic)), []).append(row)
        now_ms = time.time_ns() // 1_000_000
        for (topic, partition), rows in by_target.items():
            some = [letters[row] for row in rows]
            times = [_timestamp(letter) if self._request.keep_timestamp else now_ms for letter in some]
            sections = [
                encode_headers(
                    letter.headers
                    if letter.problem  # it is parked as it is
                    else headers_to_send(letter.headers, letter.origin, letter.tries + 1, str(letter))
                )
                for letter in some
            ]
            records = RecordsToSend(
                partition=partition,
                timestamps=np.array(times, np.int64),
                keys=ByteStrings.of_list([letter.key for letter in some]),
                values=ByteStrings.of_list([letter.value for letter in some]),
                headers=ByteStrings.of_list(sections),
                rows=np.array(rows, np.int64),
            )
            producer.send(records, topic)

    def _partition(self, letter: DeadLetter, topic: str) -> int:
        origin = letter.origin
        if self._request.same_partition and not letter.problem and origin is not None and origin.partition is not None:
            return origin.partition
        if topic not in self._partitioners:
            count = len(self._client.topic(topic).partitions)
            self._partitioners[topic] = PARTITIONERS["murmur2"](count, _BATCH_BYTES)
        keys, values = ByteStrings.of_list([letter.key]), ByteStrings.of_list([letter.value])
        return int(self._partitioners[topic](keys, values)[0])


def _with_name(client: KafkaClient, origin: Origin) -> Origin:
    """Replaces the id of a topic, which share groups may write, by its name, if a topic has that id."""
    if not origin.is_empty:
        return origin
    try:
        id_ = parse_uuid(origin.topic)
    except ValueError:
        return origin
    known = client.refresh()
    return next((origin._replace(topic=name) for name, info in known.items() if info.topic_id == id_), origin)


def _is_reference(letter: DeadLetter) -> bool:
    """Returns whether it may be the mere reference of a share group: sent as it is, it would be a tombstone."""
    return letter.origin is not None and letter.origin.is_empty and letter.key is None and letter.value is None


def _timestamp(letter: DeadLetter) -> int:
    origin = letter.origin
    return letter.timestamp if origin is None or origin.timestamp is None else origin.timestamp


def _find_filter(request: RedriveRequest) -> RecordFilter | None:
    if not request.filters:
        return None
    from core.records.record_filter import both, parse_filter

    now_ms = time.time_ns() // 1_000_000
    found, *more = [parse_filter(text, now_ms) for text in request.filters]
    for other in more:
        found = both(found, other)
    return found
