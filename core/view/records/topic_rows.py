"""The rows of all partitions of a topic, in order of time; each partition keeps its own order.

A row is as late as the latest record or marker before it in its partition; with a filter, as the latest row. Rows of
one time come partition by partition. So the order is the same wherever the reading begins: at a time, every partition
has the offset of its first record or marker that is that late or later, which ListOffsets finds, and these offsets
together are a cut through the order. The number of offsets that lie before a cut,
in all partitions, is its place, and the places stand for offsets in what reads rows (`LogRow.origin` has the
partition and the offset).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.client.read.record_source import Offsets
from core.common.topic_partition import TopicPartition
from core.view.records.log_rows import LogRow, LogRows, RowKind, Steps

if TYPE_CHECKING:
    from core.records.record_filter import RecordFilter


class _Cut(NamedTuple):
    """An offset in each partition, and how late the rows before it are, or -1."""

    offsets: tuple[int, ...]
    latest: tuple[int, ...]


_LATEST_MS = 1 << 43
"""Later than any sensible timestamp: the year 2248."""
_NEAR = 2000
"""So many rows are read and passed over rather than another time looked up."""
_MOST_CUTS = 20_000


class TopicRows(LogRows):
    """Owned by one task, as the rows that it merges."""

    def __init__(self, rows: Sequence[LogRows], offsets_at: Callable[[Sequence[TopicPartition], int], Offsets]) -> None:
        """`offsets_at` returns the offset of the first record with that timestamp or a later one, or else the end."""
        self._rows = list(rows)
        self._offsets_at = offsets_at
        self._starts: tuple[int, ...] = ()
        self._cuts: dict[int, _Cut] = {}
        self.partition = TopicPartition(rows[0].partition.topic, -1)
        self._take_bounds()

    def refresh(self) -> None:
        for rows in self._rows:
            rows.refresh()
        self._take_bounds()

    def _take_bounds(self) -> None:
        starts = tuple(rows.start_offset for rows in self._rows)
        if starts != self._starts:
            self._starts = starts
            self._cuts = {}
        self.start_offset = 0
        self.end_offset = sum(rows.end_offset for rows in self._rows) - sum(starts)

    @property
    def notes(self) -> list[str]:
        return [f"{rows.partition}: {note}" for rows in self._rows for note in rows.notes]

    def file_of(self, row: LogRow) -> tuple[Path, int]:
        for rows in self._rows:
            if row.origin is not None and rows.partition == row.origin[0]:
                return rows.file_of(row.in_its_partition())
        return super().file_of(row)

    def place_at(self, time_ms: int) -> int:
        """Returns the place of the first row of that time or a later one, or else the end."""
        return self._note(*self._cut_at(time_ms))

    def find_place(self, partition: TopicPartition, offset: int, time_ms: int) -> Iterator[int | None]:
        """Yields None some times, and at last the place of the record that has this time, or the end."""
        for row in self.rows_from(self.place_at(time_ms)):
            if row is None:
                yield None
            elif row.origin is not None and row.origin[0] == partition and row.origin[1] >= offset:
                yield row.offset
                return
        yield self.end_offset

    def _items(self, offset: int) -> Iterator[LogRow | None]:
        raise AssertionError(f"each partition has its own, also at {offset}")

    def rows_from(self, offset: int, wanted: RecordFilter | None = None) -> Steps:
        for row in self._merged(self._cut_before(offset), wanted):
            if row is None or row.end > offset:
                yield row

    # --- cuts

    def _note(self, offsets: Sequence[int], latest: Sequence[int]) -> int:
        """Remembers a cut, and returns its place."""
        place = sum(offsets) - sum(self._starts)
        self._cuts[place] = _Cut(tuple(offsets), tuple(latest))
        if len(self._cuts) > _MOST_CUTS:
            del self._cuts[next(iter(self._cuts))]
        return place

    def _cut_before(self, place: int) -> _Cut:
        """Returns the cut of the place, or one that is a little before it."""
        if place in self._cuts:
            return self._cuts[place]
        cut, low, high = _Cut(self._starts, (-1,) * len(self._starts)), 0, _LATEST_MS
        while high - low > 1 and sum(cut.offsets) - sum(self._starts) + _NEAR < place:
            middle = (low + high) // 2
            tried = self._cut_at(middle)
            if sum(tried.offsets) - sum(self._starts) <= place:
                cut, low = tried, middle
            else:
                high = middle
        return cut

    def _cut_at(self, time_ms: int) -> _Cut:
        found = self._offsets_at([rows.partition for rows in self._rows], time_ms)
        offsets = (min(max(found[rows.partition], rows.start_offset), rows.end_offset) for rows in self._rows)
        return _Cut(tuple(offsets), (-1,) * len(self._rows))

    # --- merging

    def _merged(self, cut: _Cut, wanted: RecordFilter | None) -> Steps:
        at, latest = list(cut.offsets), list(cut.latest)
        """How far each partition is: the offset of its next row, or up to which none was found."""
        heads: list[LogRow | None] = [None] * len(at)
        streams = []
        for rows, offset in zip(self._rows, cut.offsets, strict=True):
            rows.position = offset
            streams.append(rows.rows_from(offset, wanted))

        def fill(number: int) -> Steps:
            heads[number] = None
            for row in streams[number]:
                if row is None:
                    at[number] = max(at[number], self._rows[number].position)
                    self.position = self._note(at, latest)
                    yield None
                    continue
                if row.kind is not RowKind.GAP:
                    latest[number] = max(latest[number], row.timestamp or 0)
                heads[number] = row
                at[number] = row.offset
                return
            at[number] = max(at[number], self._rows[number].end_offset)

        for number in range(len(at)):
            yield from fill(number)
        while True:
            number, row = min(
                ((number, row) for number, row in enumerate(heads) if row is not None),
                key=lambda head: (latest[head[0]], head[0]),
                default=(-1, None),
            )
            if row is None:
                return
            place = self._note(at, latest)
            at[number] = row.end
            self.position = self._note(at, latest)
            origin = self._rows[number].partition, row.offset
            yield row._replace(offset=place, end=place + row.end - row.offset, origin=origin)
            yield from fill(number)
