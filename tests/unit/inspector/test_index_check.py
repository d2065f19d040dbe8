"""One wrong entry of an index is found, whatever is wrong with it, and no other is blamed for it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from core.inspector.verify import verify
from tests.support.logs import NOW, append, make_batch, open_log

OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of 20 batches of two records, with an entry for each batch but the first; nothing says where it ends."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for number in range(20):
        append(log, make_batch(b"v" * 20, b"w", timestamp=NOW + 10 * number))
    log.close()
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    return tmp_path / "t-0"


def change(path: Path, entry: struct.Struct, number: int, field: int, by: int) -> int:
    """Adds to one number of one entry; gives where that begins."""
    data = bytearray(path.read_bytes())
    fields = list(entry.unpack_from(data, number * entry.size))
    fields[field] += by
    entry.pack_into(data, number * entry.size, *fields)
    path.write_bytes(data)
    return number * entry.size


def found(folder: Path) -> list[tuple[str, int]]:
    return [(finding.code.value, finding.position) for finding in verify(folder)]


def test_the_log_is_sound_before(folder: Path) -> None:
    assert len(list(OFFSET_ENTRY.iter_unpack((folder / f"{0:020d}.index").read_bytes()))) > 15
    assert found(folder) == []


@pytest.mark.parametrize("by", [-3, -2, -1, 1, 2, 3, 9, 1000])
def test_a_wrong_offset_is_found(by: int, folder: Path) -> None:
    at = change(folder / f"{0:020d}.index", OFFSET_ENTRY, 7, 0, by)
    assert found(folder) == [("index-mismatch", at)]


@pytest.mark.parametrize("by", [-500, -96, -1, 1, 96, 500, 1_000_000])
def test_a_wrong_position_is_found(by: int, folder: Path) -> None:
    at = change(folder / f"{0:020d}.index", OFFSET_ENTRY, 7, 1, by)
    assert found(folder) == [("index-mismatch", at)]


@pytest.mark.parametrize("by", [-3, -2, -1, 1, 2, 3, 9, 1000])
def test_a_wrong_offset_of_a_timestamp_is_found(by: int, folder: Path) -> None:
    at = change(folder / f"{0:020d}.timeindex", TIME_ENTRY, 7, 1, by)
    expected = [] if by == -1 else [("time-index-mismatch", at)]  # in the same batch, whose timestamp it is
    assert found(folder) == expected


@pytest.mark.parametrize("by", [-1000, -10, -1, 1, 10, 1 << 40])
def test_a_wrong_timestamp_is_found(by: int, folder: Path) -> None:
    at = change(folder / f"{0:020d}.timeindex", TIME_ENTRY, 7, 0, by)
    assert found(folder) == [("time-index-mismatch", at)]


def test_entries_for_several_batches_that_were_appended_together_are_right(folder: Path) -> None:
    path = folder / f"{0:020d}.index"
    entries = list(OFFSET_ENTRY.iter_unpack(path.read_bytes()))
    together = [(entries[number + 2][0], entries[number][1]) for number in range(0, len(entries) - 2, 3)]
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in together))
    assert found(folder) == []
    at = change(path, OFFSET_ENTRY, 3, 0, 2)
    assert found(folder) == [("index-mismatch", at)]
