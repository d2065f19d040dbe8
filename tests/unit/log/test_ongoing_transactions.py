"""What a snapshot says of open transactions counts only if the log bears it out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import doors
from tests.support.golden import GOLDEN
from tests.support.logs import append, append_marker, make_batch, open_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Snapshots at 0 and wherever a segment was rolled: the transaction of offsets 0 to 3 is open in those up to 3, and
    was committed at 4; that of offset 7 is open at the end, 9.
    """
    root = tmp_path / "data"
    root.mkdir()
    shutil.copy(GOLDEN / "_root" / "meta.properties", root)
    log = open_log(root / "t-0", segment_bytes=150)
    for number in range(4):
        append(log, in_transaction(1, number))
    append_marker(log, 1, is_commit=True)
    append(log, make_batch(b"x" * 60))
    append(log, make_batch(b"x" * 60))
    append(log, in_transaction(2, 0))
    append(log, make_batch(b"x" * 60))
    log.close()
    assert {int(path.stem) for path in (root / "t-0").glob("*.snapshot")} >= {2, 3, 5, 8, 9}
    return root / "t-0"


def in_transaction(producer_id: int, sequence: int):  # type: ignore[no-untyped-def]
    return make_batch(
        b"x" * 60, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )


def snapshot(folder: Path, offset: int) -> Path:
    return folder / f"{offset:020}.snapshot"


def committed(folder: Path) -> list[int]:
    """The same from the files and from a server that only reads."""
    found = doors.consume(folder, read_committed=True)
    assert doors.served(folder, read_committed=True) == found
    return sorted(found)


def test_a_transaction_is_open_by_the_newest_snapshot(folder: Path) -> None:
    assert committed(folder) == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize("others", [True, False], ids=["with the others", "without the others"])
@pytest.mark.parametrize(("of", "named"), [(2, 9), (3, 9), (3, 8), (5, 9)])
def test_a_snapshot_under_another_name_holds_nothing_back(folder: Path, of: int, named: int, *, others: bool) -> None:
    """It has the transaction of offset 7 no more, and may have one open that has ended."""
    data = snapshot(folder, of).read_bytes()
    for path in folder.glob("*.snapshot"):
        if not others or path >= snapshot(folder, named):
            path.unlink()
    snapshot(folder, named).write_bytes(data)
    assert committed(folder) == [0, 1, 2, 3, 5, 6, 8]
    for ask in (doors.ask_files, doors.ask_server):
        (told,) = ask(folder, read_committed=True).told
        assert "aborted or not can't be told" in told


def test_one_from_later_on_is_not_believed(folder: Path) -> None:
    snapshot(folder, 9).rename(snapshot(folder, 5))
    for path in folder.glob("*.snapshot"):
        if path != snapshot(folder, 5):
            path.unlink()
    assert committed(folder) == [0, 1, 2, 3, 5, 6]


def test_a_batch_that_stands_twice_opens_nothing_again(folder: Path) -> None:
    """The first one of the transaction that was committed, at the end of the log."""
    first, last = (sorted(folder.glob("*.log"))[number] for number in (0, -1))
    size = int.from_bytes(first.read_bytes()[8:12], "big") + 12
    last.write_bytes(last.read_bytes() + first.read_bytes()[:size])
    for path in folder.glob("*.snapshot"):
        path.unlink()
    assert committed(folder) == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize("how", ["a byte", "all bytes"])
def test_a_transaction_of_which_nothing_is_left_holds_nothing_back(folder: Path, how: str) -> None:
    """However its only batch is damaged."""
    log = max(path for path in folder.glob("*.log") if int(path.stem) <= 7)
    data = bytearray(log.read_bytes())
    end = int.from_bytes(data[8:12], "big") + 12
    assert int.from_bytes(data[:8], "big") == 7
    data[: end if how == "all bytes" else 0] = bytes(end if how == "all bytes" else 0)
    data[end - 20 : end - 10] = b"0123456789"
    log.write_bytes(data)
    assert committed(folder) == [0, 1, 2, 3, 5, 6, 8]


def test_a_log_under_a_name_above_its_offsets_bears_out_no_open_transaction(tmp_path: Path) -> None:
    """None of its batches is the log's; the snapshot beside it has a transaction that began with one of them."""
    folder = shutil.copytree(GOLDEN / "txn_open", tmp_path / "t-0")
    for path in folder.glob("00000000000000000000.*"):
        path.rename(path.with_name("00000000000010000000" + path.suffix))
    for read_committed in (False, True):
        answer = doors.ask_files(folder, read_committed=read_committed)
        assert not answer.records
        assert any("offsets 0 to 9999999" in text for text in answer.told)
