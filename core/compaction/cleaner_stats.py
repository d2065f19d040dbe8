"""The counts of a cleaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CleanerStats:
    """Counts of records and of bytes, from the log's start on, including the clean part."""

    map_records: int = 0
    map_bytes: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    superseded: int = 0
    tombstones: int = 0
    aborted: int = 0
    markers: int = 0
    without_key: int = 0

    def continue_from(self, earlier: CleanerStats) -> None:
        """Adds the counts of the previous round, whose result was this round's input."""
        self.records_before += earlier.records_before - earlier.records_after
        self.bytes_before += earlier.bytes_before - earlier.bytes_after
        for name in ("map_records", "map_bytes", "superseded", "tombstones", "aborted", "markers", "without_key"):
            setattr(self, name, getattr(self, name) + getattr(earlier, name))
