"""Finds the batch, or the damage, that holds a byte of a log, and reads as little of the file as possible.

The result is that of a walk over the whole file (core.forensics.batch_scanner). A walk goes on from a sound batch in
the same way whatever was before it; so it may begin at one near the byte, which the offset index leads to. Without an
index, it hops over headers, 61 bytes a batch, and keeps their positions.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import access_error, accessing
from core.common.salvaging_file import SalvagingFile
from core.files.file_names import find_following, parse_offset_file_name
from core.files.file_records import FileRecords
from core.forensics.batch_scanner import BatchScanner, is_valid
from core.forensics.damage import MAX_BATCH_BYTES, Damage
from core.inspector.check.segment_check import IndexEntries, open_offset_index
from core.records.batches import Batch
from core.records.record_batch import RecordBatch

_READ_BYTES = 64 * 1024
_FAR_BYTES = 1024 * 1024
"""From this distance on, a byte is reached by hops over headers, not by a walk, which computes checksums."""

_HOP_BYTES = 64 * 1024
"""The distance of the positions that are kept of a hop."""

_MOST_TRIES = 8
_MOST_KNOWN = 20_000
_REPORT_HEADERS = 256


class LogItem(NamedTuple):
    """A batch at bytes [start, end) of a log, or `damage`. `has_header`: whether damage begins with a batch's
    header.
    """

    start: int
    end: int
    damage: Damage | None = None
    has_header: bool = False


class BatchLookup:
    """The batches and the damage of one log's file; owned by one task. The file stays its owner's.

    Steps yield the position reached, now and then, where the caller may stop.
    """

    def __init__(self, path: Path, file: SalvagingFile, base_offset: int) -> None:
        """Offsets are expected from `base_offset` on, which is in the file's name."""
        self.path = path
        self._file = file
        self._records = FileRecords(path, lambda _path: file)
        self._base_offset = base_offset
        self._following = self._find_following()
        self._index = self._open_index()
        self._starts: list[int] = []
        self._items: dict[int, LogItem] = {}
        self._hops: list[int] = [0]
        self._walked: Iterator[Batch | Damage] | None = None
        self._walked_to = 0

    def _find_following(self) -> int | None:
        with contextlib.suppress(OSError):
            return find_following(self.path)
        return None

    def _open_index(self) -> IndexEntries | None:
        return None if parse_offset_file_name(self.path.name) is None else open_offset_index(self.path)

    @property
    def size_bytes(self) -> int:
        return self._records.size_bytes

    def look_again(self) -> None:
        """Notices bytes that were appended to the file since, or cut off it. Raises OSError."""
        size_bytes = self._file.size()
        if size_bytes == self.size_bytes:
            return
        self._forget(self.size_bytes if size_bytes > self.size_bytes else 0)
        self._records.size_bytes = size_bytes
        if self._index is not None:
            self._index.file.close()
        self._index, self._following = self._open_index(), self._find_following()

    def _forget(self, position: int) -> None:
        """Forgets items that reach that position, and may have been incomplete."""
        kept = [item for item in self._items.values() if item.end <= position and item.damage is None]
        self._items = {item.start: item for item in kept}
        self._starts = sorted(self._items)
        self._hops = [hop for hop in self._hops if hop < position] or [0]
        self._walked = None

    # --- by position

    def known_at(self, position: int) -> LogItem | None:
        """Returns the item that holds the byte, if it was found already, or None."""
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return None
        item = self._items[self._starts[number]]
        return item if position < item.end else None

    def at(self, position: int) -> LogItem:
        """Returns the item that holds a byte of the file."""
        for _ in self.find(position):
            pass
        found = self.known_at(position)
        assert found is not None, position
        return found

    def find(self, position: int) -> Iterator[int]:
        """Finds the item that holds a byte of the file, in steps. Raises AccessError if the disk refuses."""
        if not 0 <= position < self.size_bytes:
            raise IndexError(position)
        while self.known_at(position) is None:
            start = self._sound_before(position)
            if position - start > _FAR_BYTES:
                yield from self._hop(start, position)
                start = self._sound_before(position)
            yield from self._walk_on(start, position)

    def _walk_on(self, start: int, position: int) -> Iterator[int]:
        """Walks until the item is found, or until there may be a shorter way after damage."""
        if self._walked is None or not start <= self._walked_to <= position:
            walk = BatchScanner(self.path, self._base_offset, self._following, read_bytes=_READ_BYTES, file=self._file)
            self._walked = walk.walk_from(start)
        is_past_damage = False
        for found in self._walked:
            item = self._note(found)
            self._walked_to = item.end
            yield item.end
            if item.end > position:
                return
            if is_past_damage and item.damage is None and position - item.end > _FAR_BYTES:
                return
            is_past_damage |= item.damage is not None
        if self.known_at(position) is None:  # the file was cut while it was read
            self._walked = None
            self.look_again()
            if position >= self.size_bytes:
                raise IndexError(position)

    def _note(self, found: Batch | Damage) -> LogItem:
        if isinstance(found, Damage):
            has_header = isinstance(found.batch, RecordBatch)
            item = LogItem(found.position, found.end_position, replace(found, batch=None), has_header)
        else:
            item = LogItem(found.position, found.position + found.size_bytes)
        if item.start not in self._items:
            if len(self._starts) >= _MOST_KNOWN:
                self._starts, self._items = [], {}
            self._starts.insert(bisect_left(self._starts, item.start), item.start)
        self._items[item.start] = item
        return item

    # --- places to begin

    def _sound_before(self, position: int) -> int:
        """Returns the start of the nearest known sound batch before a position, or the file's start."""
        best = 0
        for number in range(bisect_right(self._starts, position) - 1, -1, -1):
            if self._items[self._starts[number]].damage is None:
                best = self._starts[number]
                break
        hop = bisect_right(self._hops, position)
        candidates = [*self._index_positions(position), *reversed(self._hops[max(hop - _MOST_TRIES, 0) : hop])]
        for candidate in sorted(set(candidates), reverse=True):
            if candidate <= best:
                break
            if self._is_sound(candidate):
                return candidate
        return best

    def _index_positions(self, position: int) -> list[int]:
        if self._index is None:
            return []
        found = (self._index[number][1] for number in self._last_entries(1, position))
        return [one for one in found if 0 < one <= position]

    def _last_entries(self, field: int, most: int) -> range:
        """Returns the numbers of the last index entries whose field is at most `most`, the last one first."""
        following = 0 if self._index is None else bisect_right(self._index, most, key=itemgetter(field))
        return range(following - 1, max(following - 1 - _MOST_TRIES, -1), -1)

    def _is_sound(self, position: int, most_offset: int | None = None) -> bool:
        """Returns whether a sound batch begins there, with offsets of the segment up to that one."""
        try:
            header = self._records.read_header(position)
            if header.size_bytes > MAX_BATCH_BYTES or header.last_offset < self._base_offset:
                return False
            if most_offset is not None and header.last_offset > most_offset:
                return False
            batch = self._records.read_batch(position)
        except CorruptRecordError:
            return False
        except OSError as error:
            raise access_error(error, self.path, "read") from error
        return is_valid(batch) and (not isinstance(batch, RecordBatch) or batch.last_offset_delta >= 0)

    def _hop(self, start: int, position: int) -> Iterator[int]:
        """Hops from header to header up to a position, or as far as they lead, and keeps some positions."""
        start = max(start, self._hops[bisect_right(self._hops, position) - 1])
        before = start
        try:
            for number, header in enumerate(self._headers(start), 1):
                if header.position > position:
                    break
                if number % _REPORT_HEADERS == 0:
                    yield header.position
                if header.position - self._hops[-1] >= _HOP_BYTES:
                    self._hops.append(header.position)
                before = header.position
        except CorruptRecordError:
            pass
        self._keep_hop(before)

    def _keep_hop(self, position: int) -> None:
        number = bisect_left(self._hops, position)
        if number == len(self._hops) or self._hops[number] != position:
            self._hops.insert(number, position)

    def _headers(self, position: int) -> Iterator[Batch]:
        """Yields headers from there on. Raises CorruptRecordError for damage, AccessError if the disk refuses."""
        with accessing(self.path):
            yield from self._records.iter_headers(position)

    # --- batches

    def batch(self, item: LogItem) -> Batch:
        """Reads a batch that was found. Raises CorruptRecordError if it is gone, AccessError if the disk refuses."""
        assert item.damage is None, item
        with accessing(self.path):
            return self._records.read_batch(item.start)

    def find_offset(self, offset: int) -> Iterator[int | LogItem]:
        """Finds, in steps, the first batch that ends at an offset or after it, or damage that may have held the offset.
        Yields positions, and at last the item found; if it yields no item, the file ends before the offset.
        """
        position = self._position_before(offset)
        while position < self.size_bytes:
            with contextlib.suppress(CorruptRecordError):
                for number, header in enumerate(self._headers(position)):
                    position = header.position
                    if header.last_offset >= offset:
                        break
                    if number % _REPORT_HEADERS == 0:
                        yield position
                    position += header.size_bytes
            if position >= self.size_bytes:
                return
            yield from self.find(position)
            item = self.at(position)
            if item.damage is not None:
                if item.damage.offset <= offset < (item.damage.end_offset or 0):
                    yield item
                    return
            elif self.batch(item).last_offset >= offset:
                yield item
                return
            position = item.end

    def _position_before(self, offset: int) -> int:
        """Returns the start of a sound batch, by the index, that lies before the offset or holds it; or 0."""
        for number in self._last_entries(0, offset - self._base_offset):
            relative, position = self._index[number] if self._index is not None else (0, 0)
            if 0 < position < self.size_bytes and self._is_sound(position, self._base_offset + relative):
                return position
        return 0

    def close(self) -> None:
        if self._index is not None:
            self._index.file.close()
