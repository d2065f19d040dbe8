"""Reads the records that are still readable in the bytes that a plan of `plog recover` takes out of logs. Reads only.

Each record becomes an envelope (core.records.json_envelope) with two fields more; unknown fields are null:

    {"topic": "t", "partition": 0, "offset": 17, "timestamp": 1357017300000, "timestamp_type": "CreateTime",
     "key": "N14228", "value": "...", "headers": [], "leader_epoch": 0, "unproven": true,
     "salvaged": {"file": "00000000000000000000.log", "position": 4711, "end_position": 5043,
                  "batch": [61, 524288], "damage": [[8192, 8704]], "is_transactional": false}}

`unproven` says that no checksum covers the record. It is false if one does: each message of magic 0 and 1 inside a
compressed one has its own; a batch is sound after all if a flipped bit explains the damage, or if only its offsets are
wrong. Positions are those in the file; a compressed record has those of its batch. `damage` are the bytes of the batch
that are known to be lost: none of them is the record's. If it is empty, any byte of the batch may be the wrong one.

Finds records in a damaged batch: those that their lengths still chain together.

Each record begins with its length (record.py), so where one ends the next one begins. The chain is followed from the
first record to where it breaks. After that, a beginning is looked for at every byte: one from which records that make
sense, with rising offset deltas, follow each other exactly to the end of the batch. A value may look like records (a
copy of a log), but it does not end where its batch does.

Such records are not proven, as the checksum is that of the whole batch. A record is left out if a byte of it lies in a
hole: zeros as long as a sector, or bytes that the disk refuses.
"""

from __future__ import annotations

import contextlib
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.java_limits import LONG_MAX
from core.common.varint import read_varint, read_varlong
from core.files.file_names import locate_partition
from core.forensics.batch_scanner import ZEROS
from core.forensics.damage import MAX_BATCH_BYTES, Damage, DamageKind
from core.forensics.log_map import FileDamage, LogMap
from core.forensics.partition_reader import PartitionReader
from core.inspector.recover.recovery_plan import FolderPlan, Step
from core.records.batches import CURRENT_MAGIC, Batch, read_batch, timestamp_type
from core.records.compression import CompressionType, decompress_what_can_be
from core.records.json_envelope import encode_bytes, encode_headers_json
from core.records.legacy_message_set import LegacyRecordBatch
from core.records.record import SMALLEST_RECORD_BYTES, Headers, read_headers
from core.records.record_batch import CODEC_MASK, HEADER_SIZE, MAGIC_POSITION, RecordBatch, is_thinned

_FEWEST = 3
"""So many records make a chain plausible that ends in a hole, and not with the batch."""

_LENGTH_BYTES = 5
"""The most that a length takes."""

_BEGINNING = re.compile(rb"(?s)(?=(?:[\x0c-\x7e]|[\x80-\xff][\x01-\x7f]|[\x80-\xff]{2}[\x01-\x7f]|[\x80-\xff]{3}.)\0)")
"""A record's length, and its attributes, which nobody sets."""


class FoundRecord(NamedTuple):
    """A record at bytes [start, end) of the data. The deltas are relative to the base offset and timestamp."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Section(NamedTuple):
    """Says where the records of one batch lie: bytes [start, end) of `data`, less the holes [start, end), which rise.

    `has_start`: the first record begins at `start`. `is_cut`: more may have followed `end`. `last_delta` is the offset
    delta of the last record if it is known. `is_thinned`: a cleaner may have taken records out.
    """

    data: bytes
    start: int
    end: int
    holes: Sequence[tuple[int, int]] = ()
    has_start: bool = True
    is_cut: bool = False
    last_delta: int | None = None
    is_thinned: bool = False


def find_holes(data: bytes) -> list[tuple[int, int]]:
    """Finds zeros that are as long as a sector, or longer."""
    return [match.span() for match in ZEROS.finditer(data)]


def find_records(section: Section) -> Iterator[FoundRecord]:
    search = _Search(section)
    position = section.start if section.has_start else search.find_chain(section.start, 0)
    least_delta = 0
    while position is not None and position < section.end:
        record = search.read(position)
        if record is None or record.offset_delta < least_delta or search.is_lossy(record):
            position = search.find_chain(position + 1, least_delta, search.find_end(position))
            continue
        yield record
        least_delta, position = record.offset_delta + 1, record.end


class _Search:
    def __init__(self, section: Section) -> None:
        self._section = section
        self._dead: set[int] = set()  # chains from there lead nowhere
        self._ends = [end for _, end in section.holes]

    def find_end(self, position: int) -> int | None:
        """Finds where a record ends by its length; None if that can't be right, or lies in a hole."""
        try:
            length, start = read_varint(self._section.data, position)
        except (ValueError, IndexError):
            return None
        return None if self._is_lost(position, start) or length < SMALLEST_RECORD_BYTES - 1 else start + length

    def read(self, position: int) -> FoundRecord | None:
        """Reads the record that begins there; None if no record does, or its length is lost."""
        data, last_delta = self._section.data, self._section.last_delta
        end = self.find_end(position)
        if end is None or end > self._section.end:
            return None
        try:
            _, at = read_varint(data, position)
            attributes = data[at]
            timestamp_delta, at = read_varlong(data, at + 1)
            offset_delta, at = read_varint(data, at)
            key, at = _read_bytes(data, at, end)
            value, at = _read_bytes(data, at, end)
            count, _ = read_varint(data, at)
            if attributes or offset_delta < 0 or count > end - at:
                return None
            headers, at = read_headers(data, at)
        except (ValueError, IndexError):
            return None
        if at != end or (last_delta is not None and offset_delta > last_delta):
            return None
        return FoundRecord(
            start=position,
            end=end,
            offset_delta=offset_delta,
            timestamp_delta=timestamp_delta,
            key=key,
            value=value,
            headers=headers,
        )

    def is_lossy(self, record: FoundRecord) -> bool:
        """Says whether bytes of the record are lost. Its last byte does not count: it says that no headers follow, as
        the length does.
        """
        return self._is_lost(record.start, record.end - 1)

    def _is_lost(self, start: int, end: int) -> bool:
        number = bisect_right(self._ends, start)
        return number < len(self._ends) and self._section.holes[number][0] < end

    def find_chain(self, start: int, least_delta: int, guess: int | None = None) -> int | None:
        """Finds where records begin that lead somewhere; `guess` is tried first."""
        if guess is not None and start <= guess < self._section.end and self._leads_on(guess, least_delta):
            return guess
        for match in _BEGINNING.finditer(self._section.data, start, self._section.end):
            if self._leads_on(match.start(), least_delta):
                return match.start()
        return None

    def _leads_on(self, start: int, least_delta: int) -> bool:
        """Says whether records from there on follow each other to the batch's end, or some of them into a hole."""
        section, visited, deltas = self._section, list[int](), list[int]()
        position = start
        while position not in self._dead:
            if position == section.end:
                is_free = section.is_cut or section.is_thinned or section.last_delta is None
                if len(deltas) > is_free and (is_free or deltas[-1] == section.last_delta):
                    return True
                break
            record = self.read(position)
            if record is None or self.is_lossy(record):
                if len(deltas) >= _FEWEST and self._runs_into_hole(position):
                    return True
                break
            if record.offset_delta < least_delta:
                return False
            is_next = section.is_thinned or not deltas or record.offset_delta == deltas[-1] + 1
            if not is_next:
                break
            visited.append(position)
            deltas.append(record.offset_delta)
            least_delta, position = record.offset_delta + 1, record.end
        self._dead.update(visited)
        return False

    def _runs_into_hole(self, position: int) -> bool:
        """Says whether a record that begins there has bytes in a hole, or beyond the end of a batch that is cut off."""
        end = self.find_end(position) or position + _LENGTH_BYTES
        return (self._section.is_cut and end > self._section.end) or self._is_lost(position, end)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise ValueError(f"field of {length} bytes where {end - position} are left")
    return data[position : position + length], position + length


_Range = tuple[int, int]


class _Salvaged(NamedTuple):
    """A record, with its known fields. `start` and `end` are its bytes among the damaged ones."""

    offset: int | None
    timestamp: int | None
    content: tuple[bytes | None, bytes | None, Headers]
    start: int
    end: int
    is_proven: bool


class Envelope(NamedTuple):
    """A record as a line of JSON."""

    text: str
    is_unproven: bool


class _Region(NamedTuple):
    """Damaged bytes, and the bounds that their neighbours set: their offsets are `low` and above, and below `high` if
    it is not None. `is_cut`: the lost batch may have gone on after them.
    """

    path: Path
    position: int
    data: bytes
    holes: Sequence[_Range]
    low: int
    high: int | None
    is_cut: bool
    is_thinned: bool


def salvaged_from(plan: FolderPlan) -> list[Step]:
    """Returns the steps of a plan that cost records; each record that is lost or given up is counted in one of them."""
    return [step for step in plan.steps if (step.records != 0 or step.given_up) and step.position >= 0]


def salvage(plan: FolderPlan) -> Iterator[Envelope]:
    """Yields an envelope for each readable record that the plan loses or gives up. Raises AccessError if a log can't be
    read.
    """
    steps = salvaged_from(plan)
    if not steps:
        return
    partition, _ = locate_partition(plan.directory)
    topic, number = (plan.directory.name, None) if partition is None else partition
    start = f'{{"topic": {encode_bytes(topic.encode())}, "partition": {json.dumps(number)}, '
    with contextlib.closing(PartitionReader(plan.directory)) as reader:
        log_map = reader.reading.map
        for one in log_map.damage:
            path, position = log_map.files[one.number].path, one.damage.position
            is_lost = any(step.path == path and step.position <= position < step.end_position for step in steps)
            if is_lost and one.damage.kind is not DamageKind.ZEROED:
                region = _region(log_map, one)
                for batch, record in _read_batch_or(region, one.damage):
                    yield Envelope(start + _rest_of_envelope(region, batch, record), is_unproven=not record.is_proven)


def _region(log_map: LogMap, one: FileDamage) -> _Region:
    number, damage = one
    file = log_map.files[number]
    pieces = sorted((piece for piece in log_map.log if piece.file == number), key=lambda piece: piece.position)
    after = bisect_left(pieces, damage.position, key=lambda piece: piece.position)
    low = max((piece.end_offset for piece in pieces[:after]), default=file.base_offset)
    following = [piece.base_offset for piece in pieces[after:]]
    following += [later.base_offset for later in log_map.files[number + 1 : number + 2]]
    high = min(following, default=None)
    is_longer = damage.end_position - damage.position > MAX_BATCH_BYTES  # no batch is as long
    end = damage.position + MAX_BATCH_BYTES if is_longer else damage.end_position
    data = bytearray(file.file.read_at(end - damage.position, damage.position))
    for fix in filter(None, (damage.fix, damage.base_offset_fix)):
        data[fix.position - damage.position] = fix.expected
    return _Region(
        path=file.path,
        position=damage.position,
        data=bytes(data),
        holes=find_holes(bytes(data)),
        low=low,
        high=high if high is not None and high > low and not is_longer else None,
        is_cut=is_longer or (end >= file.file.size() and number + 1 == len(log_map.files)),
        is_thinned=log_map.is_thinned,
    )


def _read_batch_or(region: _Region, damage: Damage) -> Iterator[tuple[Batch | None, _Salvaged]]:
    """Yields the records of a batch that is sound after all, or else the readable ones."""
    try:
        batch = read_batch(memoryview(region.data), 0, region.position)
        batch.ensure_valid()
    except CorruptRecordError:
        yield from _read_damaged(region)
        return
    if batch.is_control:
        return
    with contextlib.suppress(CorruptRecordError):
        for record in batch.records():
            offset = None if damage.fix is None else record.offset
            yield batch, _Salvaged(offset, record.timestamp, record[2:], 0, batch.size_bytes, is_proven=True)


def _read_damaged(region: _Region) -> Iterator[tuple[Batch | None, _Salvaged]]:
    start = 0
    while start < len(region.data):
        batch = _find_header(region, start)
        if batch is None:
            yield from ((None, record) for record in _read_headless(region, start))
            return
        if isinstance(batch, LegacyRecordBatch):
            records = _read_legacy(region, batch)
        elif batch.is_control:
            records = iter(())
        else:
            records = _read_current(region, batch)
        yield from ((batch, record) for record in records)
        start += batch.size_bytes


def _find_header(region: _Region, start: int) -> Batch | None:
    """Reads the batch that begins there, if its header makes sense, and does not lie in a hole."""
    data, holes = memoryview(region.data), region.holes
    if len(data) - start < HEADER_SIZE or any(begin < start + HEADER_SIZE and start < end for begin, end in holes):
        return None
    limit = LONG_MAX if region.high is None else region.high
    if data[start + MAGIC_POSITION] != CURRENT_MAGIC:
        with contextlib.suppress(CorruptRecordError):
            batch = read_batch(data, start, region.position + start)
            return batch if region.low <= batch.last_offset < limit else None
        return None
    batch = RecordBatch(data, start, region.position + start)
    is_right = region.low <= batch.base_offset <= batch.last_offset < limit and batch.size_bytes >= HEADER_SIZE
    is_right &= 0 <= batch.count <= batch.last_offset_delta + 1 and batch.attributes & CODEC_MASK < len(CompressionType)
    return batch if is_right else None


def _read_current(region: _Region, batch: RecordBatch) -> Iterator[_Salvaged]:
    start, whole_end = batch.start, batch.start + batch.size_bytes
    end = min(whole_end, len(region.data))
    section = Section(
        region.data,
        start + HEADER_SIZE,
        end,
        region.holes,
        is_cut=region.is_cut and whole_end > end,
        last_delta=batch.last_offset_delta,
        is_thinned=region.is_thinned or is_thinned(batch.count, batch.last_offset_delta, batch.attributes),
    )
    if batch.compression is not CompressionType.NONE:
        first = next((hole[0] for hole in region.holes if section.start < hole[0] < end), end if section.is_cut else 0)
        data = decompress_what_can_be(batch.compression, region.data[section.start : first]) if first else b""
        section = section._replace(data=data, start=0, end=len(data), holes=(), is_cut=True)
    is_plain = section.data is region.data
    for found in find_records(section):
        timestamp = batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + found.timestamp_delta
        offset = batch.base_offset + found.offset_delta
        at = (found.start, found.end) if is_plain else (start, end)
        yield _Salvaged(offset, timestamp, found[4:], *at, is_proven=False)


def _read_headless(region: _Region, start: int) -> Iterator[_Salvaged]:
    """Reads the end of a batch whose header is lost: if nothing is missing after it, its last record has the offset
    before the next batch.
    """
    end = len(region.data)
    section = Section(
        region.data, start, end, region.holes, has_start=False, is_cut=region.is_cut, is_thinned=region.is_thinned
    )
    records = list(find_records(section))
    is_last = bool(records) and records[-1].end == end and region.high is not None and not region.is_thinned
    base_offset = region.high - 1 - records[-1].offset_delta if is_last and region.high is not None else -1
    for found in records:
        offset = base_offset + found.offset_delta if base_offset >= region.low else None
        yield _Salvaged(offset, None, found[4:], found.start, found.end, is_proven=False)


def _read_legacy(region: _Region, batch: LegacyRecordBatch) -> Iterator[_Salvaged]:
    """Reads a message of magic 0 or 1, or the messages in a compressed one that their own checksums prove."""
    at = batch.start, batch.start + batch.size_bytes
    try:
        codec = batch.compression
        key, value = batch.key_and_value()
    except CorruptRecordError:
        return
    if codec is CompressionType.NONE:
        if not any(begin < at[1] and at[0] < end for begin, end in region.holes):
            yield _Salvaged(batch.last_offset, batch.max_timestamp, (key, value, ()), *at, is_proven=False)
        return
    messages = list(_sound_messages(decompress_what_can_be(codec, value or b"", magic=batch.magic)))
    is_whole = bool(messages) and region.low + messages[-1].last_offset == batch.last_offset
    for message in messages:
        offset = message.last_offset if batch.magic == 0 else region.low + message.last_offset if is_whole else None
        timestamp = batch.max_timestamp if batch.is_log_append_time else message.max_timestamp
        yield _Salvaged(offset, timestamp, (*message.key_and_value(), ()), *at, is_proven=True)


def _sound_messages(data: bytes) -> Iterator[LegacyRecordBatch]:
    position = 0
    with contextlib.suppress(CorruptRecordError):
        while position < len(data):
            message = read_batch(memoryview(data), position)
            position += message.size_bytes
            if isinstance(message, LegacyRecordBatch) and message.computed_crc() == message.crc:
                yield message


def _rest_of_envelope(region: _Region, batch: Batch | None, record: _Salvaged) -> str:
    size = len(region.data)
    start, end = (0, size) if batch is None else (batch.start, min(batch.start + batch.size_bytes, size))
    shift, (key, value, headers) = region.position, record.content
    where = {
        "file": region.path.name,
        "position": shift + record.start,
        "end_position": shift + record.end,
        "batch": [shift + start, shift + end],
        "damage": [[shift + max(a, start), shift + min(b, end)] for a, b in region.holes if a < end and start < b],
        "is_transactional": None if batch is None else batch.is_transactional,
    }
    return (
        f'"offset": {json.dumps(record.offset)}, "timestamp": {json.dumps(record.timestamp)}, '
        f'"timestamp_type": {json.dumps(None if batch is None else timestamp_type(batch))}, '
        f'"key": {encode_bytes(key)}, "value": {encode_bytes(value)}, '
        f'"headers": {encode_headers_json(headers)}, '
        f'"leader_epoch": {json.dumps(None if batch is None else batch.partition_leader_epoch)}, '
        f'"unproven": {json.dumps(not record.is_proven)}, "salvaged": {json.dumps(where)}}}\n'
    )
