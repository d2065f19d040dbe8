"""Headers of many batches of magic 2 as columns: for work that is done per batch, or on all of their records.

The layout is that of record_batch.py; `HEADER_DTYPE` is its table for NumPy, big-endian as on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from core.records.batches import Batch
from core.records.checksum import crc32c
from core.records.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, LOG_OVERHEAD, RecordBatch

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

HEADER_DTYPE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_SIZE

HeaderRows = npt.NDArray[np.void]
"""An array of `HEADER_DTYPE`."""


class BatchHeaders(Sequence[Batch]):
    """Batches of magic 2 that lie whole in one buffer; immutable. As a sequence, each as a `RecordBatch`, made when it
    is used. `position` is where the buffer lies in its file.
    """

    def __init__(self, buffer: bytes, starts: Int64s, position: int = 0) -> None:
        self.buffer = buffer
        self.starts = starts
        self.position = position
        headers = np.frombuffer(buffer, np.uint8)[starts[:, None] + np.arange(HEADER_SIZE)]
        self.rows: HeaderRows = headers.view(HEADER_DTYPE).reshape(len(starts))
        """A copy of the headers, which may be written to."""

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, number: int) -> Batch: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Batch]: ...
    def __getitem__(self, number: int | slice) -> Batch | Sequence[Batch]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        start = int(self.starts[number])
        return RecordBatch(memoryview(self.buffer), start, self.position + start)

    def select(self, rows: Mask) -> BatchHeaders:
        return BatchHeaders(self.buffer, self.starts[rows], self.position)

    def next_offsets(self) -> Int64s:
        return self.field("base_offset") + self.field("last_offset_delta") + 1

    @property
    def have_all_offsets(self) -> bool:
        """Says whether each batch's header counts a record for each of its offsets."""
        return bool((self.rows["count"] == self.rows["last_offset_delta"] + 1).all())

    def field(self, name: str) -> Int64s:
        return self.rows[name].astype(np.int64)

    @property
    def sizes(self) -> Int64s:
        """Returns the bytes of each batch, header and all."""
        return self.field("length") + LOG_OVERHEAD

    def ensure_valid(self) -> None:
        """Raises CorruptRecordError for the first batch whose stored crc is not that of its bytes."""
        view = memoryview(self.buffer)
        ends = (self.starts + self.sizes).tolist()
        starts = (self.starts + ATTRIBUTES_POSITION).tolist()
        computed = [crc32c(view[start:end]) for start, end in zip(starts, ends, strict=True)]
        if computed != self.rows["crc"].tolist():
            for batch in self:
                batch.ensure_valid()
