"""What a cleaning makes of one batch: whole, made again, without records, or gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from core.compaction.retained_records import Rows, empty_batch, rebuild_legacy
from core.records.batches import Batch
from core.records.record_batch import RecordBatch

_NONE: Rows = np.empty(0, np.int64)


@dataclass(slots=True)
class BatchVerdict:
    """What becomes of a batch. `rows`: the numbers of the records that stay; all, until it is settled otherwise."""

    batch: Batch
    count: int = 0
    kept: int = 0
    rows: Rows = field(default_factory=lambda: _NONE)
    is_settled: bool = False
    stays_empty: bool = False
    needs_horizon: bool = False
    rebuilt: bytes | None = None
    max_timestamp: int = 0

    def __post_init__(self) -> None:
        self.max_timestamp = self.batch.max_timestamp
        if isinstance(self.batch, RecordBatch):
            self.count = self.kept = self.batch.count

    def drop(self) -> None:
        """Keeps no record."""
        self.settle(_NONE, needs_horizon=False)

    def settle(self, rows: Rows, *, needs_horizon: bool) -> None:
        self.rows = rows
        self.kept = len(rows)
        self.needs_horizon = needs_horizon
        self.is_settled = True

    @property
    def is_rebuilt(self) -> bool:
        """Says whether records stay, but not the batch as it is."""
        return self.kept > 0 and (self.kept < self.count or self.needs_horizon)

    @property
    def is_changed(self) -> bool:
        return self.rebuilt is not None or self.kept < self.count or (self.count == 0 and not self.stays_empty)

    def data(self) -> bytes | memoryview | None:
        """Gives the batch as it is to be written; None if it goes."""
        batch = self.batch
        if self.rebuilt is not None:
            return self.rebuilt
        if self.kept == 0 and self.count:
            return empty_batch(batch) if self.stays_empty and isinstance(batch, RecordBatch) else None
        if self.kept < self.count:
            assert not isinstance(batch, RecordBatch)
            rebuilt = rebuild_legacy(batch, self.rows.tolist())
            self.max_timestamp = rebuilt.max_timestamp
            return rebuilt.data
        if self.count == 0 and not self.stays_empty:
            return None
        return batch.buffer[batch.start : batch.start + batch.size_bytes]
