"""One wrong entry of an index is found, whatever is wrong with it, and no other is blamed for it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from core.inspector.check import segment_check
from core.inspector.check.verify import verify
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


@pytest.mark.parametrize(
    ("kind", "field", "by"),
    [
        ("index", 0, (-3, -2, -1, 1, 2, 3, 9, 1000)),
        ("index", 1, (-500, -96, -1, 1, 96, 500, 1_000_000)),
        ("timeindex", 0, (-1000, -10, -1, 1, 10, 1 << 40)),
        ("timeindex", 1, (-3, -2, -1, 1, 2, 3, 9, 1000)),
    ],
    ids=["an offset", "a position", "a timestamp", "the offset of a timestamp"],
)
def test_a_wrong_number_is_found(folder: Path, kind: str, field: int, by: tuple[int, ...]) -> None:
    path = folder / f"{0:020d}.{kind}"
    whole = path.read_bytes()
    entry, code = (OFFSET_ENTRY, "index-mismatch") if kind == "index" else (TIME_ENTRY, "time-index-mismatch")
    for wrong_by in by:
        at = change(path, entry, 7, field, wrong_by)
        is_right = (kind, field, wrong_by) == ("timeindex", 1, -1)  # in the same batch, whose timestamp it is
        assert found(folder) == ([] if is_right else [(code, at)]), wrong_by
        path.write_bytes(whole)


def test_an_index_that_is_too_long_to_be_held_is_checked_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_check, "_MOST_HELD_ENTRIES", 1)
    monkeypatch.setattr(segment_check, "_PAGE_ENTRIES", 8)
    assert found(folder) == []
    path = folder / f"{0:020d}.index"
    (second, _), (third, _) = list(OFFSET_ENTRY.iter_unpack(path.read_bytes()))[2:4]
    at = change(path, OFFSET_ENTRY, 3, 0, second - third)
    assert found(folder) == [("index-corrupt", at), ("index-mismatch", -1)], "that one, and that no other was looked at"


def test_entries_for_several_batches_that_were_appended_together_are_right(folder: Path) -> None:
    path = folder / f"{0:020d}.index"
    entries = list(OFFSET_ENTRY.iter_unpack(path.read_bytes()))
    together = [(entries[number + 2][0], entries[number][1]) for number in range(0, len(entries) - 2, 3)]
    path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in together))
    assert found(folder) == []
    at = change(path, OFFSET_ENTRY, 3, 0, 2)
    assert found(folder) == [("index-mismatch", at)]
