from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.index.offset_index import OffsetIndex, OffsetPosition
from tests.support.disk import RecordingFileSystem, disk_after, unsynced

BASE = 1000
ENTRIES = [(1004, 61), (1005, 4096), (1099, 70000)]


def offset_index(path: Path, *, max_size: int = 1 << 20, base_offset: int = BASE) -> OffsetIndex:
    return OffsetIndex(path, base_offset, max_size, FileSystem())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000001000.index"


@pytest.fixture
def index(path: Path) -> OffsetIndex:
    index = offset_index(path)
    for offset, position in ENTRIES:
        index.append(offset, position)
    return index


def test_what_was_written_is_on_the_disk_after_a_sync(path: Path) -> None:
    """New entries, and the end of a file that was cut."""
    disk = RecordingFileSystem()
    index = OffsetIndex(path, BASE, 1 << 20, disk)
    for offset, position in ENTRIES:
        index.append(offset, position)
    for change in (index.seal, lambda: index.truncate_to(ENTRIES[1][0])):
        change()
        assert _unsynced_changes(disk)
        index.sync()
        assert not _unsynced_changes(disk)


def test_the_zeros_of_a_preallocated_file_are_no_entries(path: Path) -> None:
    for entries, zeros in ((entries, zeros) for entries in range(6) for zeros in (*range(6), 1000)):
        data = b"".join(OffsetIndex.ENTRY.pack(1 + number, 100 * number) for number in range(entries))
        path.write_bytes(data + bytes(zeros * OffsetIndex.ENTRY.size))
        index = offset_index(path)
        assert len(index) == entries
        assert index.last_entry() == ((BASE + entries, 100 * (entries - 1)) if entries else (BASE, 0))
        index.seal()
        assert path.stat().st_size == len(data)


def test_a_kill_leaves_no_old_entries_after_the_new_ones(path: Path) -> None:
    """Of an index that is made again: bisection would meet offsets that fall."""
    disk = RecordingFileSystem()
    index = OffsetIndex(path, BASE, 1 << 20, disk)
    for offset, position in ENTRIES:
        index.append(offset, position)
    index.flush()
    old, begun = path.read_bytes(), len(disk.operations)
    index.reset()
    index.append(1050, 9000)
    index.flush()
    new = path.read_bytes()
    assert len(new) == OffsetIndex.ENTRY.size
    for end in range(begun, len(disk.operations) + 1):
        killed = disk_after(path.parent, disk.operations[:end])
        assert bytes(killed.files[killed.names[path]]) in (old, b"", new)


def _unsynced_changes(disk: RecordingFileSystem) -> list[str]:
    kinds = [disk.operations[number].kind for number in unsynced(disk.operations)]
    return [kind for kind in kinds if kind in ("write", "truncate")]


def test_the_bytes_of_an_entry(index: OffsetIndex, path: Path) -> None:
    index.flush()
    assert path.read_bytes().hex(" ", 4) == "00000004 0000003d 00000005 00001000 00000063 00011170"


def test_an_empty_index_says_the_segments_start(path: Path) -> None:
    index = offset_index(path)
    assert index.lookup(5) == OffsetPosition(BASE, 0)
    assert index.last_entry() == (BASE, 0)
    assert index.find_upper_bound(0, 100) is None


def upper_bound(index: OffsetIndex, position: int, size_bytes: int) -> int | None:
    """Its offset; asserts that its position is that of an entry beyond the read."""
    found = index.find_upper_bound(position, size_bytes)
    assert found is None or (found.position >= position + size_bytes and index.lookup(found.offset) == found)
    return None if found is None else found.offset


def test_truncate_drops_the_offset_itself(index: OffsetIndex, path: Path) -> None:
    index.flush()
    index.truncate_to(1005)
    assert (len(index), index.last_entry().offset) == (1, 1004)
    assert path.stat().st_size == 8
    index.append(1005, 99)
    index.seal()
    assert index.lookup(1005) == (1005, 99)


def test_what_is_appended_after_a_seal_is_kept(index: OffsetIndex, path: Path) -> None:
    index.seal()
    index.append(1200, 80000)
    index.flush()
    assert offset_index(path).last_entry() == (1200, 80000)
    assert len(offset_index(path)) == 4


def test_a_release_frees_what_the_file_has_and_nothing_else(index: OffsetIndex) -> None:
    index.release()
    assert [tuple(index.lookup(offset)) for offset, _ in ENTRIES] == ENTRIES
    index.flush()
    index.release()
    assert index._data is None
    assert [tuple(index.lookup(offset)) for offset, _ in ENTRIES] == ENTRIES


def test_a_full_index_takes_no_more(path: Path) -> None:
    index = offset_index(path, max_size=20)
    index.append(1001, 100)
    assert not index.is_full
    index.append(1002, 200)
    assert index.is_full
    with pytest.raises(AssertionError, match="full"):
        index.append(1003, 300)


def test_an_offset_that_no_entry_can_name_gets_none(index: OffsetIndex) -> None:
    """Segments of old cleaners have such: KAFKA-5413."""
    index.append(BASE + 2**31, 80_000)
    assert index.last_entry() == ENTRIES[-1]
    index.append(BASE + 2**31 - 1, 90_000)
    assert index.last_entry() == (BASE + 2**31 - 1, 90_000)


def test_offsets_must_rise(index: OffsetIndex) -> None:
    with pytest.raises(AssertionError, match="not above"):
        index.append(1099, 80000)


def test_an_index_that_cannot_be(path: Path) -> None:
    path.write_bytes(bytes(9))
    with pytest.raises(CorruptRecordError, match="9 bytes, expected a multiple of 8"):
        offset_index(path).sanity_check()
    path.write_bytes(bytes.fromhex("ffffffff00000010"))
    with pytest.raises(CorruptRecordError, match="below its segment's base"):
        offset_index(path).sanity_check()


@given(
    gaps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=60),
    probes=st.lists(st.integers(-10, 4000), max_size=20),
    cut=st.integers(0, 4000),
)
def test_it_is_a_sorted_map(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[tuple[int, int]], probes: list[int], cut: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "0.index"
    index = offset_index(path)
    model: list[tuple[int, int]] = []
    offset, position = BASE, 0
    for by, size in gaps:
        offset, position = offset + by, position + size
        index.append(offset, position)
        model.append((offset, position))
    index.truncate_to(BASE + cut)
    model = [entry for entry in model if entry[0] < BASE + cut]
    for _ in range(2):
        for target in [0, 1 << 60, *(BASE + p for p in probes), *(offset - by for offset, _ in model for by in (0, 1))]:
            assert index.lookup(target) == max((e for e in model if e[0] <= target), default=(BASE, 0))
        for end in [500, *(500 + p * 50 for p in probes), *(position + by for _, position in model for by in (0, 1))]:
            expected = next((o for o, p in model if p >= end), None)
            assert upper_bound(index, end - 500, 500) == expected
        index.seal()
