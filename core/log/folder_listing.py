"""Shows what is in a partition's folder, at one look: which files of segments, without opening any of them.

A folder may hold thousands of segments. Whoever opens its log asks this instead of the disk, while nothing changes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from core.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    is_file,
)

_DIGITS = 20
_LEFT_OVER = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


class FolderListing:
    """As the folder was when this was made; immutable. Raises OSError if it can't be read."""

    def __init__(self, directory: Path) -> None:
        found = defaultdict[str, dict[int, os.DirEntry[str]]](dict)
        self.has_leftovers = False
        """Whether there is anything that a deletion or a swap of segments leaves in the middle."""
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                offset = name[:_DIGITS]
                if len(offset) == _DIGITS and offset.isdecimal() and offset.isascii():
                    found[name[_DIGITS:]][int(offset)] = entry
                if name.endswith(_LEFT_OVER):
                    self.has_leftovers = True
        self._found: Mapping[str, Mapping[int, os.DirEntry[str]]] = found

    def _named(self, suffix: str) -> Mapping[int, os.DirEntry[str]]:
        return self._found.get(suffix, {})

    @property
    def has_lone_indexes(self) -> bool:
        """Whether anything is called an index of a segment that has no log."""
        logs = self._named(LOG_SUFFIX).keys()
        return any(not self._named(suffix).keys() <= logs for suffix in INDEX_SUFFIXES)

    @property
    def has_unreadable_logs(self) -> bool:
        """Whether anything is called a log and is no regular file, nor a link to one."""
        return not all(map(is_file, self._named(LOG_SUFFIX).values()))

    def log_sizes(self) -> dict[int, int]:
        """Gives the bytes of each log, by its base offset, in order. Raises the disk's OSError."""
        logs = self._named(LOG_SUFFIX)
        return {offset: logs[offset].stat().st_size for offset in sorted(logs) if is_file(logs[offset])}

    def without_indexes(self, sizes: Mapping[int, int]) -> set[int]:
        """Gives the segments that lack an index which they should have; `sizes` are `log_sizes`."""
        indexes, time_indexes = self._files(INDEX_SUFFIX), self._files(TIME_INDEX_SUFFIX)
        return {o for o, size in sizes.items() if o not in indexes or (size and o not in time_indexes)}

    def with_transaction_index(self) -> set[int]:
        """Gives the base offsets of transaction indexes, or of whatever has such a name."""
        return set(self._named(TRANSACTION_INDEX_SUFFIX))

    def snapshots(self) -> list[tuple[int, Path]]:
        """Gives the snapshots of producers, in order of their offsets."""
        named = self._named(SNAPSHOT_SUFFIX)
        return [(offset, Path(named[offset].path)) for offset in sorted(self._files(SNAPSHOT_SUFFIX))]

    def _files(self, suffix: str) -> set[int]:
        return {offset for offset, entry in self._named(suffix).items() if is_file(entry)}
