"""Reads the records of one batch a few thousand at a time: whatever a batch says or expands to, a step is short, and
holds little unless a record itself is large.

A kilobyte can hold a million records. A caller that must not be held up by them, as the broker's task, walks; others
have `columns.decode_columns` and `RecordBatch.records`, which take less time altogether.

Columns are loaded when they are needed, so that a broker which never walks starts without them; it has another thread
call `load_libraries` before the first walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.common.task import Task, Yield
from core.common.varint import read_varint
from core.records.batches import Batch
from core.records.record import Record
from core.records.record_batch import CODEC_MASK, RecordBatch

if TYPE_CHECKING:
    from core.records.columns import RecordColumns

MOST_RECORDS = 8192
"""The most records of a step: some 2 ms."""

SMALL_SECTION_BYTES = 16 * 1024
"""Uncompressed bytes in which records are read faster one by one than as columns, and in no more than a step's time."""


def is_small(batch: RecordBatch) -> bool:
    """Says whether the batch is small for certain, by its header; a compressed one may turn out to be."""
    return batch.size_bytes <= SMALL_SECTION_BYTES and not batch.attributes & CODEC_MASK


def read_if_small(batch: RecordBatch) -> list[Record] | Iterator[bytes]:
    """Returns all records of a small batch; of another the pieces of its section. Raises CorruptRecordError if they do
    not decode, which may also show with the next piece.
    """
    if is_small(batch):
        return batch.records()
    section = b""
    for piece in batch.section_pieces():
        section += piece
        if len(section) > SMALL_SECTION_BYTES:
            return batch.section_pieces()  # from the start: nothing is held before somebody asks for the first
    return batch.records_in(section)


def find_by_time(batch: Batch, timestamp: int, start_offset: int) -> Task[tuple[int, int] | None]:
    """Finds timestamp and offset of the batch's first record with a timestamp and an offset at or above those given.
    Raises CorruptRecordError if bytes that do not decode come before it.
    """
    content = read_if_small(batch) if isinstance(batch, RecordBatch) else batch.records()
    if isinstance(content, list):
        fitting = (r for r in content if r.timestamp >= timestamp and r.offset >= start_offset)
        return next(((record.timestamp, record.offset) for record in fitting), None)
    yield Yield.MUCH_FOLLOWS
    import numpy as np

    assert isinstance(batch, RecordBatch)
    walk = RecordWalk(batch)
    for piece in content:
        for columns in walk.take(piece):
            if columns is not None:
                rows = np.flatnonzero((columns.timestamps >= timestamp) & (columns.offsets >= start_offset))
                if len(rows):
                    return int(columns.timestamps[rows[0]]), int(columns.offsets[rows[0]])
            yield Yield.GIVE_WAY
        yield Yield.GIVE_WAY
    walk.ensure_whole()
    return None


def load_libraries() -> None:
    """Imports all that a walk needs, which takes a tenth of a second."""
    from core.records import columns  # noqa: F401 - NumPy, and the parts of it in use


class RecordWalk:
    """Owned by one task: takes the batch's section piece by piece (`RecordBatch.section_pieces`), and yields the
    records that have arrived whole. Raises what `RecordBatch.records` raises, when it is met.
    """

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._count = 0
        self._parts: list[bytes] = []  # of a record that is not there whole
        self._size = 0
        self._needed = 0

    def take(self, piece: bytes) -> Iterator[RecordColumns | None]:
        """Yields the next records, in order, step by step; None after a step without any."""
        from core.records.columns import PAD

        self._parts.append(piece)
        self._size += len(piece)
        if self._size < self._needed:
            return
        data, end, position = b"".join((*self._parts, PAD)), self._size, 0
        while ends := self._hop(data, position, end):
            yield from self._decode(data, position, ends)
            position = ends[-1]
        self._parts, self._size = [data[position:end]], end - position

    def _hop(self, data: bytes, position: int, end: int) -> list[int]:
        """Finds where the next records end that are there whole."""
        ends: list[int] = []
        append = ends.append
        try:
            for _ in range(MOST_RECORDS):
                byte = data[position]
                if byte & 1:
                    raise self._batch.corrupt("record of negative length")
                if byte < 128:
                    after = position + 1 + (byte >> 1)
                else:
                    length, after = read_varint(data, position)
                    after += length
                if after > end:  # as when its length is not there whole: it ends with zeros then
                    self._needed = after - position
                    break
                append(after)
                position = after
        except ValueError as error:
            raise self._batch.corrupt(f"the length of a record: {error}") from error
        return ends

    def _decode(self, data: bytes, position: int, ends: list[int]) -> Iterator[RecordColumns | None]:
        import numpy as np

        from core.records.columns import RecordPlaces, decode_in_steps

        first, self._count = self._count, self._count + len(ends)
        if self._count > self._batch.count:
            raise self._batch.corrupt(f"batch holds more than {self._batch.count} records, as its header says")
        ends_ = np.array(ends, np.int64)
        starts = np.concatenate(([position], ends_[:-1]))
        places = RecordPlaces(data, [self._batch], np.zeros(len(ends), np.int32), starts, ends_, first)
        steps = decode_in_steps(places)
        while True:
            try:
                next(steps)
            except StopIteration as made:
                yield made.value
                return
            yield None

    def ensure_whole(self) -> None:
        """Raises CorruptRecordError unless all records came, and nothing else."""
        if self._size:
            raise self._batch.corrupt("the records' lengths do not add up to the batch's")
        if self._count != self._batch.count:
            raise self._batch.corrupt(f"batch holds {self._count} records, its header says {self._batch.count}")
