from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.index.time_index import TimeIndex

BASE = 500


def time_index(path: Path, max_size: int = 1 << 20) -> TimeIndex:
    return TimeIndex(path, BASE, max_size, FileSystem())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000500.timeindex"


def test_the_bytes_of_an_entry(path: Path) -> None:
    index = time_index(path)
    index.maybe_append(0x0102030405060708, BASE + 0x11)
    index.flush()
    assert path.read_bytes().hex() == "010203040506070800000011"


def test_only_later_timestamps_are_added(path: Path) -> None:
    index = time_index(path)
    for timestamp, offset in ((1000, 510), (1000, 520), (900, 530), (1001, 510), (1001, 540)):
        index.maybe_append(timestamp, offset)
    assert [index.entry(n) for n in range(len(index))] == [(1000, 10), (1001, 40)]


def test_an_offset_that_no_entry_can_name_gets_none(path: Path) -> None:
    index = time_index(path)
    for timestamp, offset in ((1000, 510), (2000, BASE + 2**31), (1500, BASE + 2**31 - 1)):
        index.maybe_append(timestamp, offset)
    assert [index.entry(n) for n in range(len(index))] == [(1000, 10), (1500, 2**31 - 1)]


@pytest.mark.parametrize(
    ("timestamp", "found"), [(999, (-1, BASE)), (1000, (1000, 510)), (1999, (1000, 510)), (2000, (2000, 520))]
)
def test_lookup(path: Path, timestamp: int, found: tuple[int, int]) -> None:
    index = time_index(path)
    index.maybe_append(1000, 510)
    index.maybe_append(2000, 520)
    assert index.lookup(timestamp) == found
    index.seal()
    assert index.lookup(timestamp) == found


def test_the_last_entry_is_kept_for_the_roll(path: Path) -> None:
    index = time_index(path, max_size=24)
    index.maybe_append(1000, 510)
    assert index.is_full
    with pytest.raises(AssertionError, match="full"):
        index.maybe_append(2000, 520)
    index.maybe_append(2000, 520, at_roll=True)
    assert len(index) == 2


def test_truncate_drops_by_offset(path: Path) -> None:
    index = time_index(path)
    index.maybe_append(1000, 510)
    index.maybe_append(2000, 520)
    index.truncate_to(520)
    assert index.last_entry() == (1000, 510)


def test_an_index_that_cannot_be(path: Path) -> None:
    path.write_bytes(bytes(13))
    with pytest.raises(CorruptRecordError, match="multiple of 12"):
        time_index(path).sanity_check()
    path.write_bytes((5000).to_bytes(8) + bytes(4) + (4000).to_bytes(8) + (9).to_bytes(4))
    with pytest.raises(CorruptRecordError, match="ends before it begins"):
        time_index(path).sanity_check()


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 5)), max_size=60), st.lists(st.integers(-1, 310)))
def test_it_never_lies(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int]], probes: list[int]
) -> None:
    """Below the offset that a lookup gives there is no record as new as the timestamp."""
    index = time_index(tmp_path_factory.mktemp("index") / "0.timeindex")
    records: list[tuple[int, int]] = []
    newest = (-1, BASE)
    for timestamp, count in batches:
        offset = (records[-1][0] if records else BASE - 1) + count
        records.append((offset, timestamp))
        if timestamp > newest[0]:
            newest = (timestamp, offset)
        index.maybe_append(*newest)
    for probe in probes:
        hint = index.lookup(probe).offset
        first = next((offset for offset, timestamp in records if timestamp >= probe), None)
        assert first is None or first >= hint
