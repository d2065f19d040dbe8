"""The screens of a partition's files: the list, and each file as a table beside the log."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from cli.inspect.files_screen import FilesScreen, FileTableScreen, VirtualRows
from core.common.topic_partition import TopicPartition
from core.view.files.index_tables import OffsetIndexTable
from tests.cli.inspect.support import inspecting, note_places, press, screen_text, settled, status, type_text, with_loop
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import NOW, append, fingerprint, make_batch, open_log
from tests.support.server import call_plog

SAMPLE = SAMPLE_DATA / "partition"
SAMPLE_PARTITION = TopicPartition("txn_multisegment", 0)


async def open_files(pilot: Pilot[None], partition: TopicPartition) -> FilesScreen:
    pilot.app.open_screen("files", partition)  # type: ignore[attr-defined]
    await settled(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, FilesScreen)
    return screen


async def open_table(pilot: Pilot[None], files: FilesScreen, name: str) -> FileTableScreen:
    """Opens a file of the list."""
    files.view.move_to([row["file"] for row in files.view.rows].index(name))
    await press(pilot, "enter")
    screen = pilot.app.screen
    assert isinstance(screen, FileTableScreen), status(pilot.app)
    return screen


def data_directory(tmp_path: Path) -> Path:
    """Makes a directory with a partition of 200 batches, and a checkpoint of its root that does not fit."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for number in range(200):
        append(log, make_batch(b"v" * 10, timestamp=NOW + number))
    log.close()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 900\ngone 3 7\n")
    (tmp_path / "notes.txt").write_text("x")
    return tmp_path


@with_loop
async def test_files_and_their_entries_are_shown_and_lead_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(SAMPLE)
    folder = SAMPLE / "txn_multisegment-0"
    async with inspecting(SAMPLE) as pilot:
        files = await open_files(pilot, SAMPLE_PARTITION)
        assert f"{0:020d}.index      offset index          272 B        34" in screen_text(pilot.app)
        await look_at_each_size(pilot, *(f" {path.name}" for path in folder.iterdir()))
        places = note_places(pilot, monkeypatch)
        files.view.move_to(1)
        await press(pilot, "enter", "b", "o")
        log = folder / f"{0:020d}.log"
        assert places == [(log, 0), (log, 0), (SAMPLE_PARTITION, 0)]  # a log has no table
        await open_table(pilot, files, f"{0:020d}.index")
        places.clear()
        await press(pilot, "down", "down", "enter", "b", "o")
        assert places == [(log, 1083), (folder / f"{0:020d}.index", 16), (SAMPLE_PARTITION, 13)]
        await press(pilot, "escape")
        table = await open_table(pilot, files, f"{226:020d}.snapshot")
        await look_at_each_size(pilot, "fits?", " fits", "epoch 7")
        path = folder / f"{226:020d}.snapshot"
        assert table.command_line() == f"plog dump-segment {path}"
        dumped = call_plog("dump-segment", str(path), "--output", "csv").stdout.decode().splitlines()
        assert len(table.view.rows) == len(dumped) - 1
        await press(pilot, "enter")
        assert status(pilot.app).startswith("no batch of the log is known")
        pilot.app.push_screen(FileTableScreen(GOLDEN / "_root" / "meta.properties", SAMPLE_PARTITION))
        await settled(pilot)
        assert "MkU3OEVBNTcwNTJENDM2Qk" in screen_text(pilot.app)
        assert "fits?" not in screen_text(pilot.app)
    assert fingerprint(SAMPLE) == before


async def look_at_each_size(pilot: Pilot[None], *expected: str) -> None:
    """Looks whether that is on the screen, whatever its size."""
    for size in [(60, 24), (160, 48), (80, 24)]:
        await pilot.resize_terminal(*size)
        await settled(pilot)
        text = screen_text(pilot.app)
        assert [one for one in expected if one not in text] == []
        assert max(map(len, text.splitlines())) <= size[0]


@with_loop
async def test_only_the_entries_that_are_seen_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = data_directory(tmp_path)
    compared: set[int] = set()
    compare = OffsetIndexTable._compare

    def note(self: OffsetIndexTable, log: Any, number: int, offset: int) -> Any:
        compared.add(number)
        return compare(self, log, number, offset)

    monkeypatch.setattr(OffsetIndexTable, "_compare", note)
    async with inspecting(root) as pilot:
        files = await open_files(pilot, TopicPartition("t", 0))
        table = await open_table(pilot, files, f"{0:020d}.index")
        count = len(table.view.rows)
        assert count == 199
        assert len(compared) < 100
        await press(pilot, "end")
        text = screen_text(pilot.app)
        assert "..." not in text
        assert text.count(" fits  ") == table.view.page_size
        assert len(compared) < count
        await press(pilot, "slash")
        await type_text(pilot, "77")
        assert "fits: a batch of offsets 77 to 77 begins there" in screen_text(pilot.app)
        table._find("gone")
        await settled(pilot)
        assert status(pilot.app) == "there is no such entry"
        table._find("77")
        await settled(pilot)
        assert "no such entry" not in status(pilot.app)
        shutil.rmtree(root / "t-0")  # while somebody looks
        await press(pilot, "pageup", "r")
        assert status(pilot.app).startswith("! ")
        assert pilot.app.screen is table
        await press(pilot, "escape", "r")
        assert status(pilot.app).startswith("! ")
        assert len(files.view.rows) > 3
        await open_files(pilot, TopicPartition("t", 0))
        assert "nothing can be shown" in screen_text(pilot.app)


@pytest.mark.longer
@with_loop
async def test_what_does_not_fit_or_is_damaged_is_said_in_words(tmp_path: Path) -> None:
    root = data_directory(tmp_path)
    shutil.copytree(GOLDEN / "c_bad_snapshot.corrupt", tmp_path / "a-0")
    shutil.copytree(GOLDEN / "c_missing_index.corrupt", tmp_path / "b-0")
    async with inspecting(root) as pilot:
        files = await open_files(pilot, TopicPartition("a", 0))
        text = screen_text(pilot.app)
        assert "../replication-offset-checkpoint" in text
        assert "notes.txt" not in text
        await open_table(pilot, files, f"{40:020d}.snapshot")
        assert status(pilot.app) == "! producer snapshot crc mismatch: stored fe577244, computed c6064c81"
        assert "no entries" in screen_text(pilot.app)
        await press(pilot, "escape")
        await open_table(pilot, files, "../replication-offset-checkpoint")
        text = screen_text(pilot.app)
        assert "does not fit: the log begins at offset 0 and ends at 200" in text
        await press(pilot, "slash")
        await type_text(pilot, "gone")
        assert "not compared: there is no folder gone-3" in screen_text(pilot.app)
        await press(pilot, "o")
        assert status(pilot.app) == "gone-3 is not here"
        await open_files(pilot, TopicPartition("b", 0))
        assert "offset index, which is missing" in screen_text(pilot.app)
        assert status(pilot.app) == "there is a .log, but not this index"
        await press(pilot, "b")
        assert status(pilot.app) == f"{0:020d}.index is no file that could be shown"
        await press(pilot, "enter")
        assert status(pilot.app).endswith(f"{0:020d}.index: no such file or directory")


def test_virtual_rows_forget_those_that_came_first() -> None:
    rows = VirtualRows(10_000)
    assert rows[9_999] == {"number": 9_999}
    assert rows[-1] == {"number": 9_999}
    for start in range(0, 10_000, 100):
        rows.take({"number": number, "cell": 1} for number in range(start, start + 100))
    assert rows.find_unknown(0, 1) is not None
    assert rows.find_unknown(9_999, 10_000) is None
    assert rows.find_unknown(9_900, 20_000) is None
    assert rows.find_unknown(0, 50) == range(50)
    with pytest.raises(IndexError):
        rows[10_000]
