"""A partition's log as rows: one for each record, each marker, and each stretch of offsets without a record.

Nothing is scanned: the rows from an offset on are read through the index, batch after batch, as far as the user looks.
Offsets identify rows, because the number of rows before one is unknown. A search with a filter may take long, so every
iterator yields None between its rows now and then, where the caller may stop.

`RowWriter` writes keys and values as a person reads them: text, JSON, decoded with a Schema Registry, or hex. Records
of Kafka's own topics are JSON, without hidden values.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from core.client.read.record_source import WHOLE_LOG
from core.common.config_def import HIDDEN
from core.common.errors import AccessError, CorruptRecordError, PlogError, UsageError
from core.common.lenient_json import compact, indented, read_json
from core.common.printable import printable
from core.common.topic_partition import TopicPartition
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.forensics.batch_location import find_file
from core.forensics.gap_ledger import LOSING_REASONS, Gap, GapReason, gap_of_hole
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.forensics.read_committed import Outcome
from core.inspector.dump.internal_records import DELETED, find_decoder, has_secrets
from core.records.batches import Batch, first_offset_of
from core.records.columns import RecordColumns, decode_whole_batches
from core.records.control_record import FateKind, control_text
from core.records.record import Headers, Record

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.client.schemas.key_value_decoder import SideDecoder
    from core.records.record_filter import RecordFilter


_FIRST_GROUP_BYTES = 16 * 1024
_MOST_GROUP_BYTES = 1024 * 1024
_FETCH_BYTES = 256 * 1024
_LOOK_BACK_FACTOR = 4


BEHIND_OPEN = "behind an open transaction"
"""The fate of records outside transactions that wait for another transaction's end."""


class RowKind(Enum):
    RECORD = "record"
    MARKER = "marker"
    GAP = "gap"


class LogRow(NamedTuple):
    """Offsets [offset, end) of a record, a marker or a gap.

    `text` describes a marker, or why there is no record. `fate` is set for a record that read_committed consumers do
    not get: `aborted`, `open transaction`, `behind an open transaction` or `aborted or not can't be told`; else it is
    empty. `place` is the file and position where a gap was found.
    """

    offset: int
    end: int
    kind: RowKind
    text: str = ""
    fate: str = ""
    reason: GapReason | None = None
    batch: Batch | None = None
    columns: RecordColumns | None = None
    number: int = 0
    place: tuple[Path, int] | None = None
    origin: tuple[TopicPartition, int] | None = None
    """Its partition and offset, if `offset` is its place among the rows of several partitions (topic_rows.py)."""

    def in_its_partition(self) -> LogRow:
        """Returns the row with its own offsets."""
        offset = self.offset if self.origin is None else self.origin[1]
        return self._replace(offset=offset, end=offset + self.end - self.offset)

    @property
    def key(self) -> bytes | None:
        return None if self.columns is None else self.columns.key(self.number)

    @property
    def value(self) -> bytes | None:
        return None if self.columns is None else self.columns.value(self.number)

    @property
    def headers(self) -> Headers:
        return () if self.columns is None else self.columns.headers(self.number)

    @property
    def timestamp(self) -> int | None:
        """In epoch ms; a marker's is its batch's."""
        if self.columns is not None:
            return int(self.columns.timestamps[self.number])
        return None if self.batch is None else self.batch.max_timestamp

    @property
    def is_loss(self) -> bool:
        """Whether it stands for offsets that a consumer must not skip silently."""
        return self.reason in LOSING_REASONS


class _Found(NamedTuple):
    """A batch of records, the first of its offsets that counts, and the fate of its transaction; from the offset
    `stable` on, its records wait for an open one.
    """

    batch: Batch
    first: int
    fate: str = ""
    stable: int = 1 << 63

    def fate_at(self, offset: int) -> str:
        if offset < self.stable:
            return self.fate
        return GapReason.OPEN.value if self.batch.is_transactional else BEHIND_OPEN


Steps = Iterator[LogRow | None]
"""Rows in order; None if no row was found for a while."""


class LogRows(ABC):
    """The rows of one partition; owned by one task.

    I1 start_offset <= end_offset
    I2 without a filter, the rows of `rows_from` cover the offsets from there on up to `end_offset`, without overlap
    """

    partition: TopicPartition
    start_offset: int
    end_offset: int
    position = 0
    """The offset up to which records were decoded last, whether they passed a filter or not."""

    @abstractmethod
    def refresh(self) -> None:
        """Reads the bounds of the log again. Raises AccessError if it is gone."""

    @abstractmethod
    def _items(self, offset: int) -> Iterator[_Found | LogRow | None]:
        """Yields the items from an offset of the log on; batches may begin before it."""

    def file_of(self, row: LogRow) -> tuple[Path, int]:
        """Returns the file that the row lies in, or would, and the position there. Raises AccessError if it is unknown,
        as for a server's.
        """
        raise AccessError(f"no file of {self.partition} offset {row.offset} is known", where=str(self.partition))

    @property
    def notes(self) -> list[str]:
        """Problems and remarks about the log that have no offset."""
        return []

    def rows_from(self, offset: int, wanted: RecordFilter | None = None) -> Steps:
        """Yields the rows from that offset on; with a filter, the records that pass it, and damaged ranges."""
        waiting: list[_Found] = []
        size, limit = 0, _FIRST_GROUP_BYTES
        for item in self._items(max(offset, self.start_offset)):
            if isinstance(item, _Found):
                waiting.append(item)
                size += item.batch.size_bytes
                if size >= limit:
                    yield from self._decoded(waiting, wanted)
                    waiting, size, limit = [], 0, min(2 * limit, _MOST_GROUP_BYTES)
                continue
            yield from self._decoded(waiting, wanted)
            waiting, size = [], 0
            if item is None or wanted is None or item.is_loss:
                yield item
        yield from self._decoded(waiting, wanted)

    def rows_before(self, offset: int, count: int, wanted: RecordFilter | None = None) -> Iterator[list[LogRow] | None]:
        """Yields None some times, and at last up to `count` rows that begin before the offset, in order.

        Reads a stretch of offsets before it, a longer one each time if it has too few rows.
        """
        stretch = count
        while True:
            start = max(self.start_offset, offset - stretch)
            found: deque[LogRow] = deque(maxlen=count + 1)
            for row in self.rows_from(start, wanted):
                if row is None:
                    yield None
                    continue
                if row.offset >= offset:
                    break
                found.append(row)
            is_all = start <= self.start_offset
            if found and not is_all and found[0].kind is not RowKind.RECORD and found[0].offset == start:
                found.popleft()  # it may begin before `start`
            if is_all or len(found) >= count:
                yield list(found)[-count:]
                return
            yield None
            stretch *= _LOOK_BACK_FACTOR

    def _decoded(self, found: Sequence[_Found], wanted: RecordFilter | None) -> Steps:
        if not found:
            return
        if wanted is not None:
            yield None
        self.position = found[-1].batch.last_offset + 1
        errors: dict[int, CorruptRecordError] = {}

        def note(batch: Batch, error: CorruptRecordError) -> None:
            errors[id(batch)] = error

        by_batch: dict[int, tuple[RecordColumns, int, int]] = {}
        for columns in decode_whole_batches([one.batch for one in found], note):
            bounds = np.searchsorted(columns.batch_numbers, np.arange(len(columns.batches) + 1)).tolist()
            for batch, start, end in zip(columns.batches, bounds, bounds[1:], strict=False):
                by_batch[id(batch)] = columns, start, end
        for one in found:
            error = errors.get(id(one.batch))
            if error is not None:
                why = f"its batch at position {one.batch.position} can't be decoded: {error.cause}"
                gap = Gap(one.first, one.batch.last_offset + 1, GapReason.DAMAGED, why)
                yield _gap_row(gap, one.batch)._replace(fate=one.fate_at(one.first))
                continue
            columns, start, end = by_batch[id(one.batch)]
            if wanted is None:
                yield from _rows_of(one, columns, range(start, end))
            else:
                hits = _hits(wanted, self.partition, columns, start, end)
                yield from (row for row in _rows_of(one, columns, hits) if row.kind is RowKind.RECORD)


def _hits(
    wanted: RecordFilter, partition: TopicPartition, columns: RecordColumns, start: int, end: int
) -> Iterator[int]:
    from core.records.record_filter import Rows  # whose numpy takes long to import

    mask = wanted(Rows(partition, columns.select(slice(start, end))))
    return (start + int(number) for number in mask.nonzero()[0])


def _rows_of(found: _Found, columns: RecordColumns, indexes: Iterable[int]) -> Iterator[LogRow]:
    """Yields the rows of a batch, with its missing offsets between them."""
    next_offset, end = found.first, found.batch.last_offset + 1
    evidence = (
        f"the batch at position {found.batch.position} was made for offsets {found.batch.base_offset} to {end - 1}"
    )
    for index in indexes:
        offset = int(columns.offsets[index])
        if offset < next_offset:
            continue
        if offset > next_offset:
            gap = Gap(next_offset, offset, GapReason.COMPACTED, evidence)
            yield _gap_row(gap, found.batch)._replace(fate=found.fate_at(next_offset))
        fate = found.fate_at(offset)
        yield LogRow(offset, offset + 1, RowKind.RECORD, fate=fate, batch=found.batch, columns=columns, number=index)
        next_offset = offset + 1
    if next_offset < end:
        gap = Gap(next_offset, end, GapReason.COMPACTED, evidence)
        yield _gap_row(gap, found.batch)._replace(fate=found.fate_at(next_offset))


def _gap_row(gap: Gap, batch: Batch | None = None) -> LogRow:
    return LogRow(gap.start, gap.end, RowKind.GAP, gap.evidence, reason=gap.reason, batch=batch)


def _marker_row(batch: Batch, first: int) -> LogRow:
    return LogRow(first, batch.last_offset + 1, RowKind.MARKER, control_text(batch), batch=batch)


_FATES = {
    FateKind.ABORTED: GapReason.ABORTED.value,
    FateKind.OPEN: GapReason.OPEN.value,
    FateKind.UNKNOWN: GapReason.UNDECIDED.value,
    FateKind.COMMITTED: "",
}


class DirectoryRows(LogRows):
    """The rows of a partition's folder, as `plog gaps` and `plog consume` read it; owned by one task."""

    def __init__(self, log: PartitionReader, partition: TopicPartition, reader: DirectoryReader | None = None) -> None:
        """The log stays its owner's, who closes it; `reader` is of its directory."""
        self.log = log
        self._reader = reader
        self.partition = partition
        self._take_bounds()

    def refresh(self) -> None:
        if self._reader is not None:
            self._reader.look_again()
        self.log.refresh()
        self._take_bounds()

    def _take_bounds(self) -> None:
        self.start_offset, self.end_offset = self.log.start_offset, self.log.end_offset

    @property
    def notes(self) -> list[str]:
        reading = self.log.reading
        found = [str(error) for error in self.log.unreadable]
        if self.log.wrong_start is not None:
            found.append(str(self.log.wrong_start))
        if reading.lone_tail is not None:
            found.append(f"after the last record: {reading.lone_tail}")
        if self.end_offset < reading.end_offset:
            found.append(
                f"offsets from {self.end_offset} on lie above the last high watermark in the broker's checkpoint"
            )
        return found

    def file_of(self, row: LogRow) -> tuple[Path, int]:
        if row.place is not None:
            return row.place
        if row.batch is not None:
            path = find_file(self.log, row.batch)
            if path is not None:
                return path, row.batch.position
        segment = self.log.segment_of(row.offset)
        if segment is None:
            return super().file_of(row)
        return segment.path, segment.position_before(row.offset)

    def _items(self, offset: int) -> Iterator[_Found | LogRow | None]:
        next_offset = offset
        stable = self.log.last_stable_offset
        outcomes = self.log.read_committed(offset)
        for page, known_outcomes in outcomes:
            for item, known in zip(page, known_outcomes, strict=True):
                if next_offset >= self.end_offset:
                    return
                if isinstance(item, Hole):
                    gap = gap_of_hole(item)
                    gap = gap._replace(start=max(gap.start, next_offset), end=min(gap.end, self.end_offset))
                    if gap.start < gap.end:
                        yield _gap_row(gap)._replace(place=(item.path, max(item.position, 0)))
                    next_offset = max(next_offset, item.end)
                    continue
                first = max(first_offset_of(item, next_offset), next_offset)
                if first > item.last_offset:
                    continue
                yield self._of_batch(item, first, stable, known, outcomes.of)
                next_offset = item.last_offset + 1
            yield None
        if next_offset < self.end_offset:
            yield _gap_row(Gap(next_offset, self.end_offset, GapReason.UNKNOWN, "after the log's last batch"))

    def _of_batch(
        self, batch: Batch, first: int, stable: int, known: Outcome | None, outcome_of: Callable[[Batch], Outcome]
    ) -> _Found | LogRow:
        if batch.is_control:
            return _marker_row(batch, first)
        if batch.last_offset >= stable:
            return _Found(batch, first, stable=stable)
        if not batch.is_transactional:
            return _Found(batch, first)
        return _Found(batch, first, _FATES[(known or outcome_of(batch)).fate])


class ServerRows(LogRows):
    """The rows of a server's partition, without the reasons of missing offsets; owned by one task."""

    def __init__(self, client: KafkaClient, partition: TopicPartition, tell: Callable[[str], None]) -> None:
        """`tell` is called with messages about skipped damage. Raises KafkaError if the partition does not exist."""
        from core.client.admin.admin import Admin

        self._client = client
        self._admin = Admin(client)
        self._tell = tell
        self.partition = partition
        self.refresh()

    def refresh(self) -> None:
        from core.client.admin.admin import EARLIEST, LATEST

        self.start_offset = self._admin.list_offsets({self.partition: EARLIEST})[self.partition]
        self.end_offset = self._admin.list_offsets({self.partition: LATEST})[self.partition]

    def _items(self, offset: int) -> Iterator[_Found | LogRow | None]:
        from core.client.read.consumer import Consumer

        options = replace(WHOLE_LOG, tell=self._tell, note=self._tell, tell_left_out=self._tell)
        consumer = Consumer(self._client, options, partition_bytes=_FETCH_BYTES)
        next_offset = offset
        if next_offset >= self.end_offset:
            return
        with closing(consumer.read({self.partition: offset}, {self.partition: self.end_offset})) as found:  # type: ignore[type-var]
            for _, batches in found:
                for batch in batches:
                    first = max(first_offset_of(batch, next_offset), next_offset)
                    if next_offset >= self.end_offset or first > batch.last_offset:
                        continue
                    if first > next_offset:
                        yield self._gap(next_offset, first)
                    yield (
                        _marker_row(batch, first)
                        if batch.is_control
                        else _Found(batch, first, "in a transaction" if batch.is_transactional else "")
                    )
                    next_offset = batch.last_offset + 1
                yield None
        if next_offset < self.end_offset:
            yield self._gap(next_offset, self.end_offset)

    def _gap(self, start: int, end: int) -> LogRow:
        text = "the server has none here: compacted away, damaged, or never written; it does not say which"
        return LogRow(start, end, RowKind.GAP, text)


NULL = "(null)"
"""Stands for a null key or value; `null` alone would be text."""

_CELL_BYTES = 400
"""The most bytes of a value that a cell is made of; no terminal is wider."""

_WHOLE_BYTES = 256 * 1024
"""The most bytes of a value on the screen of one record."""

_HEX_BYTES = 16


class Form(StrEnum):
    TEXT = "text"
    JSON = "json"
    SCHEMA = "schema"
    HEX = "hex"


def cell_text(data: bytes | None, form: Form, decoder: SideDecoder | None = None, headers: Headers = ()) -> str:
    """Formats a key or value in one line, cut if it is long; it can't control a terminal. Raises AccessError if the
    registry can't be asked, UsageError if its answer is invalid.
    """
    if data is None:
        return NULL
    data = _decoded(data, form, decoder, headers)
    if form is Form.HEX:
        return data[:_CELL_BYTES].hex(" ")
    if form is Form.JSON:
        data = _compact(data)
    return printable(data[:_CELL_BYTES].decode("utf-8", "backslashreplace"), keeps="")


def _decoded(data: bytes, form: Form, decoder: SideDecoder | None, headers: Headers) -> bytes:
    """Decodes bytes as their side's; on failure returns the reason in parentheses."""
    if form is not Form.SCHEMA or decoder is None:
        return data
    try:
        return decoder.decode(data, headers) or b""
    except (AccessError, UsageError):  # errors of the registry itself
        raise
    except PlogError as error:
        return f"({error.message})".encode()


def _compact(data: bytes) -> bytes:
    """Returns JSON without its spaces; other text, and text that is too long for a cell, as it is."""
    if len(data) > _WHOLE_BYTES:
        return data
    try:
        read_json(data)
        return compact(data).encode("utf-8", "surrogatepass")
    except ValueError:
        return data


def whole_lines(data: bytes | None, form: Form, decoder: SideDecoder | None = None, headers: Headers = ()) -> list[str]:
    """Formats a key or value in lines: JSON with its structure, hex with positions; at most 256 KiB of it."""
    if data is None:
        return [NULL]
    data = _decoded(data, form, decoder, headers)
    rest = len(data) - _WHOLE_BYTES
    shown = data[:_WHOLE_BYTES]
    if form is Form.HEX:
        lines = [_hex_line(shown, at) for at in range(0, len(shown), _HEX_BYTES)]
    else:
        text = _pretty(shown) if form is not Form.TEXT and rest <= 0 else None
        lines = (text or shown.decode("utf-8", "backslashreplace")).split("\n")
    lines = [printable(line.replace("\t", "    "), keeps="") for line in lines]
    return [*lines, f"... and {rest:,} bytes more"] if rest > 0 else lines or [""]


def _pretty(data: bytes) -> str | None:
    try:
        read_json(data)
        return indented(data)
    except ValueError:
        return None


def _hex_line(data: bytes, at: int) -> str:
    part = data[at : at + _HEX_BYTES]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<{3 * _HEX_BYTES - 1}}  {text}"


class RowWriter:
    """Formats keys and values of one topic's rows; owned by the reader's task, which has the decoders.

    Records of Kafka's own topics are decoded as `plog dump-segment` does, in every form but hex; possible secrets are
    hidden in every form.
    """

    def __init__(self, topic: str, form: Form, decoders: Mapping[str, SideDecoder] | None = None) -> None:
        """`decoders` are those of `key` and `value`."""
        self.form = form
        own = decoders or {}
        self._key_decoder, self._value_decoder = own.get("key"), own.get("value")
        self._is_metadata = topic == CLUSTER_METADATA_TOPIC
        self._decoder = find_decoder(topic) if topic.startswith("__") else None
        is_plain = form is Form.JSON and self._decoder is None
        self._key_form = Form.TEXT if is_plain else form  # a key is rarely JSON, and 007 is no number

    def cells(self, row: LogRow) -> tuple[str, str]:
        """Returns the key and the value, each formatted in one line. Raises what `cell_text` raises."""
        key, value = self.contents(row)
        if self._decoder is not None and self.form is not Form.HEX:
            key = _key_words(key)
        shown = cell_text(key, self._key_form, self._key_decoder, row.headers)
        return shown, cell_text(value, self.form, self._value_decoder, row.headers)

    def key_lines(self, row: LogRow) -> list[str]:
        return whole_lines(self.contents(row)[0], self._key_form, self._key_decoder, row.headers)

    def value_lines(self, row: LogRow) -> list[str]:
        return whole_lines(self.contents(row)[1], self.form, self._value_decoder, row.headers)

    def contents(self, row: LogRow) -> tuple[bytes | None, bytes | None]:
        """Returns the bytes to show: JSON of a record of Kafka's own topics, unless it can't be decoded."""
        if self._decoder is not None and self.form is not Form.HEX:
            record = Record(row.offset, row.timestamp or 0, row.key, row.value, row.headers)
            with suppress(CorruptRecordError):
                key, value = self._decoder(record)
                return (row.key if key is None else _json(key)), None if value is DELETED else _json(value)
        if self._is_metadata and has_secrets(row.value):
            return row.key, HIDDEN.encode()
        return row.key, row.value


def _json(fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def _key_words(key: bytes | None) -> bytes | None:
    """Returns the fields of a decoded key, in a few words, such as the group, the topic and the partition."""
    try:
        named = json.loads(key or b"")["data"].values()
    except (ValueError, KeyError, TypeError, AttributeError):
        return key
    return " ".join(map(str, named)).encode()
