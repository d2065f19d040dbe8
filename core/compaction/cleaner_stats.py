"""What a cleaning did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CleanerStats:
    """What a cleaning did: records, and bytes of log, from the log's start on, the clean part too."""

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

    def add(self, other: CleanerStats) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
