"""What the owner of a log finds in one segment; tests/property/test_one_truth.py has the damage made by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.filesystem import File, FileSystem
from core.common.java_limits import LONG_MAX
from core.files.file_records import FileRecords
from core.forensics.damage import DamagedRange
from core.forensics.segment_scanner import DamagedBytes, SegmentScanner
from core.index.offset_index import OffsetPosition
from core.records.batches import Batch
from tests.support import crafted
from tests.support.for_each import for_each
from tests.support.logs import make_batch


class Segment:
    """Batches of two records each, one behind the other, and what was written of them."""

    def __init__(self, path: Path, count: int) -> None:
        batches = [bytes(make_batch(b"a", b"b", base_offset=2 * number).buffer) for number in range(count)]
        self.size = len(batches[0])
        self.batches = batches
        self.path = path

    def read(self, *batches: bytes, end: OffsetPosition | None = None) -> list[Batch | DamagedBytes]:
        self.path.write_bytes(b"".join(batches))
        records = FileRecords(self.path, FileSystem().open_read)
        try:
            reading = SegmentScanner(records, 0, end or OffsetPosition(LONG_MAX, records.size_bytes))
            return list(reading.items())
        finally:
            records.close()


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path / f"{0:020d}.log", 6)


def offsets(items: list[Batch | DamagedBytes]) -> list[int]:
    return [item.base_offset for item in items if not isinstance(item, DamagedBytes)]


def damaged(items: list[Batch | DamagedBytes]) -> list[DamagedRange]:
    return [item.range for item in items if isinstance(item, DamagedBytes)]


PICTURES: dict[str, tuple[list[int], OffsetPosition | None, list[int], list[tuple[int, int, int, int]]]] = {
    "a sound one": ([0, 1, 2, 3, 4, 5], None, [0, 2, 4, 6, 8, 10], []),
    "what was appended since is not looked at": ([0, 1, 2], OffsetPosition(4, 2), [0, 2], []),
    "holes alone are no damage": ([0, 2, 4], None, [0, 4, 8], []),
    "a batch that stands twice": ([0, 1, 2, 3, 1, 4, 5], None, [0, 2, 4, 6, 8, 10], [(8, 8, 4, 5)]),
    # one of them stands where it may; the owner can't send the other from where it lies
    "batches that changed places": ([0, 2, 1, 3, 4, 5], None, [0, 2, 6, 8, 10], [(2, 2, 1, 2)]),
    "batches of the next segment": ([0, 1, 2, 3, 4, 5], OffsetPosition(8, 6), [0, 2, 4, 6], [(8, 8, 4, 6)]),
}
"""The batches in the file, the end that is known, the offsets that are given, and what is damaged; positions count
batches.
"""


@pytest.mark.parametrize("picture", PICTURES)
def test_what_is_given_of_batches_in_this_order(segment: Segment, picture: str) -> None:
    order, end, given, ranges = PICTURES[picture]
    size = segment.size
    end = end and OffsetPosition(end.offset, end.position * size)
    items = segment.read(*(segment.batches[number] for number in order), end=end)
    expected = [DamagedRange(first, last, 0, start * size, stop * size) for first, last, start, stop in ranges]
    assert (offsets(items), damaged(items)) == (given, expected)


def test_bytes_that_change_between_two_looks(segment: Segment) -> None:
    size, batches = segment.size, [bytearray(batch) for batch in segment.batches]
    batches[1][70] ^= 0x40
    segment.path.write_bytes(b"".join(batches))
    records = FileRecords(segment.path, FileSystem().open_read)
    reading = SegmentScanner(records, 0, OffsetPosition(LONG_MAX, records.size_bytes))
    assert damaged(list(reading.items())) == [DamagedRange(2, 4, 0, size, 2 * size)]
    batches[4][70] ^= 0x40
    segment.path.write_bytes(b"".join(batches))
    items = list(reading.items(2 * size, 4))
    records.close()
    assert (offsets(items), damaged(items)) == ([4, 6, 10], [DamagedRange(8, 10, 0, 4 * size, 5 * size)])


def test_an_offset_with_a_flipped_bit(segment: Segment) -> None:
    batches = [*segment.batches]
    batches[2] = (4 + 1024).to_bytes(8, "big") + batches[2][8:]
    items = segment.read(*batches)
    assert offsets(items) == [0, 2, 6, 8, 10]
    assert damaged(items) == [DamagedRange(4, 6, 0, 2 * segment.size, 3 * segment.size)]
    (found,) = (item for item in items if isinstance(item, DamagedBytes))
    assert "bit" in found.cause


def test_the_last_offset_with_a_bit_that_no_index_can_name(segment: Segment) -> None:
    """It rises like that of any batch."""
    items = segment.read(*segment.batches[:5], (10 + 2**33).to_bytes(8, "big") + segment.batches[5][8:])
    assert offsets(items) == [0, 2, 4, 6, 8]
    assert [(one.start_offset, one.position) for one in damaged(items)] == [(10, 5 * segment.size)]


@for_each("inside, stated", [([2, 3], 7), ([2, 3], 2), ([1, 3], 3), ([0, 1], 2)])
def test_an_old_message_whose_offset_and_those_inside_contradict_each_other(
    segment: Segment, inside: list[int], stated: int
) -> None:
    """Or whose offsets inside go back. Headers that rise do not show it."""
    old = [crafted.wrapper(offsets, [(b"a", b"1"), (b"b", b"1")], 0) for offsets in ([0, 1], inside)]
    old[1] = stated.to_bytes(8, "big") + old[1][8:]
    items = segment.read(*old, *segment.batches[4:])
    assert offsets(items) == [0, 8, 10]
    (found,) = damaged(items)
    assert (found.start_offset, found.position, found.end_position) == (2, len(old[0]), len(old[0] + old[1]))


def test_it_goes_on_from_where_it_stopped(segment: Segment) -> None:
    batches = [*segment.batches]
    batches[3] = batches[3][:-1] + b"?"
    whole = segment.read(*batches)
    records = FileRecords(segment.path, FileSystem().open_read)
    reading = SegmentScanner(records, 0, OffsetPosition(LONG_MAX, records.size_bytes))
    at = {0: 0, 2 * segment.size: 4, 4 * segment.size: 8}
    for position, next_offset in at.items():
        items = list(reading.items(position, next_offset))
        expected = [one for one in whole if _position(one) >= position]
        assert [_position(one) for one in items] == [_position(one) for one in expected]
    records.close()


def _position(item: Batch | DamagedBytes) -> int:
    return item.range.position if isinstance(item, DamagedBytes) else item.position


def test_what_the_disk_says_comes_as_it_is(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    segment.path.write_bytes(b"".join(segment.batches))
    records = FileRecords(segment.path, FileSystem().open_read)
    reading = SegmentScanner(records, 0, OffsetPosition(LONG_MAX, records.size_bytes))
    monkeypatch.setattr(File, "read_at", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        list(reading.items())
    records.close()
