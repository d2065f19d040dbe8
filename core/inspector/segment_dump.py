"""What is in a `.log` (or KRaft `.checkpoint`): its batches, and on request its records, as text, rows or Arrow.

Large files are decoded by columns, small ones record by record: loading the column libraries takes longer than reading
a few megabytes without them. Tests hold the two against each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem, access_error
from core.inspector.file_kind import FileKind, kind_of
from core.inspector.findings import Finding, claimed_finding, undecodable_finding
from core.inspector.in_turns import Turn, write_in_turns
from core.inspector.index_dump import Row
from core.inspector.kafka_text import (
    RecordText,
    bare_lines,
    batch_line,
    control_text,
    no_text,
    plain_text,
    record_lines,
    timestamp_type,
)
from core.inspector.output import Buffer, write_all
from core.inspector.value_format import ValueFormat, as_utf8, format_text
from core.log.damage import Damage, DamageKind
from core.log.file_names import CLUSTER_METADATA_TOPIC, find_following, parse_offset_file_name
from core.log.segment_reader import SegmentReader
from core.log.segment_walk import SegmentWalk, is_valid
from core.records.batches import CURRENT_MAGIC, ENTRY_HEADER_SIZE, Batch, group_batches
from core.records.compression import CompressionType
from core.records.legacy_message_set import MIN_MESSAGE_SIZE, LegacyRecordBatch
from core.records.record import Record
from core.records.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    RecordBatch,
)

if TYPE_CHECKING:
    from core.inspector.internal_records import Decoder

_READ_BYTES = 4 * 1024 * 1024
"""Of which most groups of batches lie in one buffer, to be decoded where they are."""

_WINDOW_BYTES = 2 * 1024 * 1024
_COMPRESSED_WEIGHT = 8
"""How many times more a compressed batch is likely to hold."""

_SMALL_BYTES = 4 * 1024 * 1024
_NEGATIVE = 0x80
"""A magic from here on is negative to Java, and Kafka knows no header of it."""


NO_START = -(1 << 63)
"""Below any offset, those that only damage makes as well."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """`with_records`: records and not only batches; `with_data`: their keys and values too.

    `start_offset` leaves out what comes before it, `start_timestamp` the batches before the first that is as new;
    `max_records` counts records, or batches where no records are asked for; `max_bytes` is how much of the file is
    looked at, in whole batches. `key`: only records that have it. `decoded_as`: the internal topic that the records are
    of, where the folder's name does not say so. `skips_metadata`: of records only keys and values, in Kafka's text.
    `shows_secrets`: those of metadata records, too; `is_secret_config` says which settings' values may be some.
    """

    with_records: bool = False
    with_data: bool = False
    start_offset: int = NO_START
    start_timestamp: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    decoded_as: str | None = None
    skips_metadata: bool = False
    key: bytes | None = None
    key_format: ValueFormat = as_utf8
    value_format: ValueFormat = as_utf8
    shows_secrets: bool = False
    is_secret_config: Callable[[int, str], bool] = lambda _resource_type, _name: True

    def hides_secrets_of(self, path: Path) -> bool:
        """Whether it is a file of metadata, whose secrets are not to be shown."""
        is_metadata = self.is_of_metadata(path) or kind_of(path) is FileKind.METADATA_SNAPSHOT
        return is_metadata and not self.shows_secrets

    def is_of_metadata(self, path: Path) -> bool:
        """Whether it is a file of the metadata log, by its folder or as it was told."""
        return self._topic_of(path) == CLUSTER_METADATA_TOPIC

    def _topic_of(self, path: Path) -> str:
        return self.decoded_as or path.resolve().parent.name.rpartition("-")[0]

    def find_decoder(self, path: Path) -> Decoder | None:
        """Of the internal topic that the file belongs to; None for other topics."""
        topic = self._topic_of(path)
        if not topic.startswith("__"):
            return None
        from core.inspector.internal_records import find_decoder, hidden_metadata

        if topic == CLUSTER_METADATA_TOPIC and not self.shows_secrets:
            return hidden_metadata(self.is_secret_config)
        return find_decoder(topic)


class SegmentDump:
    """One file; owned by one task. After the iteration `findings` says what was wrong on the way."""

    def __init__(self, path: Path, options: DumpOptions) -> None:
        """Raises AccessError if the file can't be read."""
        self.path = path
        self.findings: list[Finding] = []
        self._options = options
        self._left = options.max_records
        self._walk = SegmentWalk(path, _base_offset(path), find_following(path), read_bytes=_READ_BYTES)
        self._stops_at_damage = False
        self._invalid_bytes = 0
        self._blind: set[int] = set()
        """Where frames begin that were followed through damage."""
        self._is_broken_off = False
        """Nothing more is said, as Kafka's tool ends with an exception there."""
        self._damaged: set[int] = set()
        """Where batches begin that are shown though they are damaged."""
        self._max_position = 1 << 63 if options.max_bytes is None else options.max_bytes
        is_whole = self._left is None and options.key is None and not options.skips_metadata
        self._hides_secrets = options.hides_secrets_of(path)
        self._is_large = is_whole and self._walk.size_bytes > _SMALL_BYTES
        self._is_read_in_windows = self._is_large and options.start_timestamp is None and options.max_bytes is None
        self._text_of, self._decoder = self._make_text()

    def _make_text(self) -> tuple[RecordText, Any]:
        """How keys and values become text, and the decoder of an internal topic's records where it is one."""
        options = self._options
        decoder = options.find_decoder(self.path) if options.with_data else None
        if decoder is not None:
            from core.inspector.internal_records import decoded_text

            is_metadata = options.is_of_metadata(self.path)
            return (lambda record: decoded_text(record, decoder, is_metadata=is_metadata)), decoder
        if not options.with_data:
            return no_text, decoder
        if self._hides_secrets:
            return (lambda record: self._formatted_text(self._without_secrets(record))), decoder
        if options.key_format is as_utf8 and options.value_format is as_utf8:
            return plain_text, decoder
        return self._formatted_text, decoder

    def _is_hidden(self, value: bytes | None) -> bool:
        from core.inspector.internal_records import has_secrets

        return self._hides_secrets and has_secrets(value, self._options.is_secret_config)

    def _without_secrets(self, record: Record) -> Record:
        """The record as it is shown: `[hidden]` is the value of one that holds secrets."""
        return record._replace(value=HIDDEN.encode()) if self._is_hidden(record.value) else record

    def _formatted_text(self, record: Record) -> str:
        key, value = self._options.key_format(record.key), self._options.value_format(record.value)
        text = "" if record.key is None else f" key: {format_text(key)}"
        return text if record.value is None else f"{text} payload: {format_text(value)}"

    # --- what was asked for

    def _groups(self) -> Iterator[list[Batch]]:
        """Batches in groups to be decoded together, or one by one."""
        batches = self._batches(self._start_position())
        if self._is_large:
            yield from group_batches(batches)
            return
        while (self._left is None or self._left > 0) and (batch := next(batches, None)) is not None:
            yield [batch]
            if self._left is not None and not self._options.with_records:
                self._left -= 1
        self._walk.close()

    def _batches(self, position: int) -> Iterator[Batch]:
        awaited = self._options.start_timestamp
        for item in self._walk.walk_from(position):
            if self._walk.position > self._max_position:
                break
            if self.findings and not isinstance(item, Damage):
                self._bound_claim(item.base_offset)
            batch = self._framed(item) if isinstance(item, Damage) else item
            if isinstance(item, Damage) and self._stops_at_damage:
                frames = self._blind_batches(item.position)
                if batch is None:
                    yield from frames
                    break
                batch = next(frames, batch)  # of another magic to Kafka, perhaps
                frames.close()
                self._blind.discard(item.position)  # what comes next is known to be a batch
                self._is_broken_off = False
            is_wanted = batch is not None and self._may_be_wanted(batch)
            if batch is not None and is_wanted and (awaited is None or batch.max_timestamp >= awaited):
                awaited = None
                yield batch
            if self._walk.position >= self._max_position:
                break
        self._walk.close()

    def _may_be_wanted(self, batch: Batch) -> bool:
        return batch.last_offset >= self._options.start_offset

    def _start_position(self) -> int:
        """Where the indexes say that what is asked for begins, at the latest."""
        offset, timestamp = self._options.start_offset, self._options.start_timestamp
        if kind_of(self.path) is not FileKind.LOG or (offset <= 0 and timestamp is None):
            return 0
        reader = SegmentReader(self.path, _base_offset(self.path), FileSystem())
        try:
            by_offset = reader.position_before(offset)
            return by_offset if timestamp is None else max(by_offset, reader.position_by_timestamp(timestamp))
        except CorruptRecordError:
            return 0
        finally:
            reader.close()

    def _framed(self, damage: Damage) -> Batch | None:
        """The damaged batch, where its frame is sound: it can be shown as it is."""
        self.findings.append(claimed_finding(damage, self.path))
        batch = damage.batch
        is_framed = batch is not None and batch.position + batch.size_bytes == damage.end_position
        if is_framed and damage.kind is not DamageKind.BAD_LENGTH:
            self._damaged.add(damage.position)
            return batch
        return None

    def _bound_claim(self, next_offset: int) -> None:
        """What a damaged header claims ends where the next sound batch begins."""
        last = self.findings[-1]
        if last.offset < next_offset <= last.last_offset:
            self.findings[-1] = replace(last, last_offset=next_offset - 1)

    def _blind_batches(self, position: int) -> Generator[Batch]:
        """What Kafka's tool takes for batches after damage: it goes from frame to frame, whatever is in them, until
        one does not fit in the file, or breaks off at one that has no header.
        """
        file = FileSystem().open_read(self.path)
        try:
            end = min(self._walk.size_bytes, self._max_position)
            while end - position >= ENTRY_HEADER_SIZE and not self._is_broken_off:
                head = file.read_at(HEADER_SIZE, position)
                length, magic = int.from_bytes(head[8:12], "big", signed=True), head[MAGIC_POSITION]
                size = LOG_OVERHEAD + length
                if length >= MIN_MESSAGE_SIZE and size > end - position:
                    break
                has_header = magic < CURRENT_MAGIC or (magic < _NEGATIVE and len(head) == HEADER_SIZE)
                if length < MIN_MESSAGE_SIZE or not has_header:
                    self._is_broken_off = True
                    return
                view = memoryview(file.read_at(max(size, HEADER_SIZE), position))
                is_legacy = magic < CURRENT_MAGIC
                batch = LegacyRecordBatch(view, 0, position) if is_legacy else RecordBatch(view, 0, position)
                self._damaged.add(position)
                self._blind.add(position)
                if self._may_be_wanted(batch):
                    yield batch
                position += size
            if self._options.max_bytes is None:
                self._invalid_bytes = self._walk.size_bytes - position
        except OSError as error:
            raise access_error(error, self.path, "read") from error
        finally:
            file.close()

    def _is_wanted(self, record: Record) -> bool:
        """Of a record in its turn: what is wanted is counted."""
        options = self._options
        if record.offset < options.start_offset or (options.key is not None and record.key != options.key):
            return False
        if self._left is not None:
            if not self._left:
                return False
            self._left -= 1
        return True

    def _report(self, batch: Batch, error: CorruptRecordError) -> None:
        self.findings.append(undecodable_finding(batch, self.path, error))

    # --- as text

    def kafka_text(self) -> Iterator[bytes]:
        """Kafka's text, in pieces."""
        yield self._start_text()
        for text, _ in self._turns(0, 1):
            yield b"".join(text)
        yield self._end_text()

    def write_kafka_text(self, fd: int) -> None:
        """The same to a descriptor, on as many CPUs as it is worth. OSError where it takes no more."""
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        if not self._is_read_in_windows or workers < 2:
            for piece in self.kafka_text():
                write_all(fd, [piece])
            return
        from core.inspector import kafka_columns  # noqa: F401 - once, before there are several of us

        write_all(fd, [self._start_text()])
        outcomes = write_in_turns(
            fd,
            lambda number: self._turns(number, workers),
            workers,
            lambda: (self.findings[:], 0 if self._is_broken_off else self._invalid_bytes),
        )
        found = [finding for findings, _ in outcomes for finding in findings]
        self.findings = sorted(found, key=lambda finding: finding.position)
        self._invalid_bytes = max(invalid_bytes for _, invalid_bytes in outcomes)
        write_all(fd, [self._end_text()])

    def _turns(self, number: int, workers: int) -> Iterator[Turn]:
        """The text of every so many-th window of the file, from window `number` on. The others are passed over by their
        frames alone; who finds something wrong in one of its own does all that is left.
        """
        if not self._is_read_in_windows:
            yield from (Turn(self._group_text(group), keeps_turn=True) for group in self._groups())
            return
        walk = self._walk
        walk.position = self._start_position()
        size_bytes = self._window_bytes(walk.position)
        for window in count():
            if walk.position >= walk.size_bytes:
                break
            if window % workers != number:
                if not walk.pass_window(size_bytes):
                    break  # it is not this one's turn to say what is wrong there
                continue
            batches, is_well = walk.sound_window(size_bytes)
            text: list[Buffer] = []
            for group in group_batches(filter(self._may_be_wanted, batches), _WINDOW_BYTES):
                text += self._group_text(group)
            yield Turn(text, keeps_turn=not is_well)
            if not is_well:
                for group in group_batches(self._batches(walk.position)):
                    yield Turn(self._group_text(group), keeps_turn=True)
                break
        walk.close()

    def _window_bytes(self, position: int) -> int:
        """What is best worked on together: less where batches are compressed, as the first of them shows."""
        header = self._walk.head(position, position + HEADER_SIZE)
        is_compressed = len(header) == HEADER_SIZE and RecordBatch(memoryview(header)).attributes & CODEC_MASK
        return _WINDOW_BYTES // _COMPRESSED_WEIGHT if is_compressed else _WINDOW_BYTES

    def _start_text(self) -> bytes:
        self._stops_at_damage = True  # as Kafka's tool does
        if kind_of(self.path) is FileKind.METADATA_SNAPSHOT:
            end_offset, _, epoch = self.path.stem.partition("-")
            return f"Snapshot end offset: {_number(end_offset)}, epoch: {_number(epoch)}\n".encode()
        return f"Log starting offset: {_number(self.path.stem)}\n".encode()

    def _end_text(self) -> bytes:
        if not self._invalid_bytes or self._is_broken_off:
            return b""
        return f"Found {self._invalid_bytes} invalid bytes at the end of {self.path.name}\n".encode()

    def _group_text(self, group: list[Batch]) -> list[Buffer]:
        if not self._options.with_records:
            return [self._batch_line(batch) for batch in group]
        pieces: list[Buffer] = []
        run: list[Batch] = []
        may_be_columnar = self._is_large and self._text_of in (plain_text, no_text)
        for batch in group:
            if self._is_broken_off:
                break
            if may_be_columnar and self._is_columnar(batch):
                run.append(batch)
                continue
            pieces += self._column_text(run)
            run = []
            pieces += self._batch_text(batch)
        return pieces + self._column_text(run)

    def _is_columnar(self, batch: Batch) -> bool:
        is_plain = isinstance(batch, RecordBatch) and not batch.attributes & CONTROL_FLAG
        is_plain &= batch.position not in self._blind
        return is_plain and batch.base_offset >= self._options.start_offset

    def _column_text(self, batches: Sequence[Batch]) -> list[Buffer]:
        if not batches:
            return []
        from core.inspector.kafka_columns import column_lines
        from core.records.columns import decode_columns

        try:
            columns = decode_columns(batches)
        except CorruptRecordError:
            return [piece for batch in batches for piece in self._batch_text(batch)]
        pieces: list[Buffer] = []
        lines = column_lines(columns, with_data=self._options.with_data)
        for batch, text in zip(batches, lines, strict=True):
            pieces += (self._batch_line(batch)[:-1], text, b"\n")
        return pieces

    def _batch_line(self, batch: Batch) -> bytes:
        is_sound = batch.position not in self._damaged or is_valid(batch)
        return batch_line(batch, is_sound=is_sound).encode()

    def _batch_text(self, batch: Batch) -> list[bytes]:
        try:
            lines_of = bare_lines if self._options.skips_metadata else record_lines
            lines = lines_of(batch, self._text_of, self._is_wanted)
        except CorruptRecordError as error:
            if batch.position in self._blind:
                self._is_broken_off = True
            else:
                self._report(batch, error)
            lines = []
        if self._options.key is not None and not lines:
            return []
        return [self._batch_line(batch), *lines]

    # --- as rows

    def rows(self) -> Iterator[Row]:
        """Records where they were asked for, else batches; the columns of docs/dump-log.md."""
        for group in self._groups():
            for batch in group:
                if not self._options.with_records:
                    yield batch_row(batch)
                    continue
                try:
                    records = batch.records()
                except CorruptRecordError as error:
                    self._report(batch, error)
                    continue
                yield from (self._record_row(batch, record) for record in records if self._is_wanted(record))

    def _record_row(self, batch: Batch, record: Record) -> Row:
        sequence = -1
        if isinstance(batch, RecordBatch) and batch.base_sequence >= 0:
            sequence = (batch.base_sequence + record.offset - batch.base_offset) & 0x7FFFFFFF
        row: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": timestamp_type(batch),
            "sequence": sequence,
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
            "headers": [name.decode("utf-8", "replace") for name, _ in record.headers],
            "batch_position": batch.position,
            "leader_epoch": batch.partition_leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "is_transactional": batch.is_transactional,
            "is_control": batch.is_control,
        }
        if self._options.with_data:
            row["headers"] = [[as_utf8(name), as_utf8(value)] for name, value in record.headers]
            row["key"], row["value"] = self._shown(batch, record)
        return row

    def _shown(self, batch: Batch, record: Record) -> tuple[Any, Any]:
        """Key and value; of control records and internal topics what they say."""
        if batch.is_control:
            return None, control_text(record).strip()
        if self._decoder is not None:
            try:
                key, value = self._decoder(record)
            except CorruptRecordError:
                return as_utf8(record.key), as_utf8(self._without_secrets(record).value)
            return key, None if record.value is None else value
        record = self._without_secrets(record)
        return self._options.key_format(record.key), self._options.value_format(record.value)

    # --- as Arrow

    def arrow(self) -> Iterator[Any]:  # pyarrow.RecordBatch
        """Every record with its keys and values; `arrow_batch.ARROW_SCHEMA`."""
        from core.inspector.arrow_batch import arrow_batch

        for group in self._groups():
            for columns in self._columns(group):
                keep = columns.offsets >= self._options.start_offset
                if self._options.key is not None:
                    keep &= [key == self._options.key for key in columns.keys().to_pylist()]
                wanted = columns if keep.all() else columns.select(keep)
                if self._left is not None:
                    wanted = wanted.select(slice(0, self._left))
                    self._left -= len(wanted)
                if len(wanted):
                    yield arrow_batch(wanted, self._is_hidden if self._hides_secrets else None)

    def _columns(self, group: list[Batch]) -> Iterator[Any]:  # RecordColumns
        """The group's records at once, or batch by batch where one is bad."""
        from core.records.columns import decode_columns

        try:
            yield decode_columns(group)
        except CorruptRecordError as error:
            if len(group) == 1:
                self._report(group[0], error)
                return
            for batch in group:
                yield from self._columns([batch])


def batch_row(batch: Batch) -> Row:
    """Of magic 0 and 1, whose headers say less, `base_offset` and `count` are None."""
    codec_number = batch.attributes & CODEC_MASK
    is_current = isinstance(batch, RecordBatch)
    return {
        "position": batch.position,
        "size": batch.size_bytes,
        "base_offset": batch.base_offset if is_current else None,
        "last_offset": batch.last_offset,
        "count": batch.count if isinstance(batch, RecordBatch) else None,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": timestamp_type(batch),
        "codec": CompressionType(codec_number).text if codec_number < len(CompressionType) else str(codec_number),
        "magic": batch.magic,
        "crc": batch.crc,
        "is_valid": is_valid(batch),
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
    }


def _base_offset(path: Path) -> int:
    parsed = parse_offset_file_name(path.name)
    return parsed[0] if parsed else 0


def _number(digits: str) -> int:
    return int(digits) if digits.isdecimal() else 0
