"""The screen of a partition's map: its strip, the cursor on it, what is marked, and where it leads."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.findings_out import finding_text
from cli.inspect.line_view import ASCII, UNICODE
from cli.inspect.map_screen import LABEL_WIDTH, MapScreen
from cli.inspect.records_screen import RecordsScreen
from core.common.topic_partition import TopicPartition
from core.forensics.gap_ledger import LOSING_REASONS
from core.inspector.check.verify import verify
from tests.cli.inspect.support import inspecting, note_places, press, screen_text, settled, status, with_loop
from tests.support.damage import places
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import append, fingerprint, make_batch, open_log

PARTITION = SAMPLE_DATA / "partition" / "txn_multisegment-0"
DAMAGED = SAMPLE_DATA / "damaged" / "c_bitflip_middle-0"
OPEN = SAMPLE_DATA / "open-transaction" / "txn_open-0"


def map_of(pilot: Any) -> MapScreen:
    screen = pilot.app.screen
    assert isinstance(screen, MapScreen)
    return screen


def row_of(pilot: Any, name: str) -> str:
    """The letters of one row of the strip."""
    found = re.search(rf"^ {name} +(.*)$", screen_text(pilot.app), re.MULTILINE)
    assert found is not None, screen_text(pilot.app)
    return found[1]


def facts(pilot: Any) -> str:
    """What is said of the cursor's segment, without the breaks of the screen."""
    return "\n".join(f"{line.label} {line.text}" for line in map_of(pilot).detail._lines)


@pytest.mark.parametrize(("size", "glyphs"), [((80, 24), UNICODE), ((60, 24), ASCII), ((160, 48), UNICODE)])
@with_loop
async def test_the_strip_is_to_scale_and_fits(size: tuple[int, int], glyphs: Any) -> None:
    before = fingerprint(PARTITION)
    async with inspecting(PARTITION, size=size, glyphs=glyphs) as pilot:
        await press(pilot, "m")
        text, width = screen_text(pilot.app), size[0] - LABEL_WIDTH - 1
        assert max(map(len, text.splitlines())) <= size[0]
        assert text.isascii() == (glyphs is ASCII)
        first, second = (path.stat().st_size for path in sorted(PARTITION.glob("*.log")))
        bar = row_of(pilot, "segments")
        assert len(bar) == width
        assert abs(bar.count(glyphs.full) - width * first / (first + second)) <= 1
        assert row_of(pilot, "offsets").split() == [f"{glyphs.column}0", f"{glyphs.column}145"]
        assert row_of(pilot, "damage") == "?" * width
        assert row_of(pilot, "transactions") == "." * width
        assert "segment 00000000000000000000.log, 1 of 2" in facts(pilot)
    assert fingerprint(PARTITION) == before


@with_loop
async def test_damage_is_marked_once_verify_has_run_and_leads_to_the_first_lost_offset() -> None:
    async with inspecting(DAMAGED) as pilot:
        await press(pilot, "m")
        assert set(row_of(pilot, "damage")) == {"?"}
        assert status(pilot.app) == "damage was not looked for: v runs plog verify"
        await press(pilot, "n")
        assert "nothing is known to be damaged or open after this" in status(pilot.app)
        await press(pilot, "v", "escape")
        assert set(row_of(pilot, "damage")) == {".", "X"}
        assert status(pilot.app) == "damage is what plog verify found when it ran last"
        await press(pilot, "n")
        assert finding_text(next(iter(verify(DAMAGED)))) in facts(pilot)
        view = map_of(pilot).view
        assert row_of(pilot, "damage")[view.cell] == "X"
        await press(pilot, "enter")
        screen = pilot.app.screen
        assert isinstance(screen, RecordsScreen)
        assert screen.view.item is not None
        assert (screen.view.item.row.offset, screen.view.item.row.reason in LOSING_REASONS) == (21, True)
        await press(pilot, "escape", "N")
        assert "before this" in status(pilot.app)


@with_loop
async def test_an_open_transaction_is_marked_from_where_it_begins() -> None:
    async with inspecting(OPEN) as pilot:
        await press(pilot, "m")
        assert re.fullmatch(r"\.*o+", row_of(pilot, "transactions"))
        assert re.search(r"transaction from offset \d+ on, of producer \d+", facts(pilot))


@with_loop
async def test_the_cursor_goes_along_the_strip_and_enter_to_the_records_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inspecting(PARTITION) as pilot:
        await press(pilot, "m")
        view, went = map_of(pilot).view, note_places(pilot, monkeypatch)
        await press(pilot, "left", "up", "right", "right")
        assert (view.number, view.cell) == (0, 2)
        await press(pilot, "down", "b", "enter")
        assert (view.number, view.position) == (1, 16001)
        assert "byte 0 of the segment, 16,001 of the log" in facts(pilot)
        await press(pilot, "end", "right", "down", "enter")
        assert (view.number, view.position) == (1, 25079)
        await press(pilot, "home", "enter")
        await pilot.click(view, offset=(2, 1))
        await pilot.click(view, offset=(LABEL_WIDTH + 20, 1))
        await settled(pilot)
        assert view.cell == 20
        await pilot.click(view, offset=(LABEL_WIDTH + 20, 1))
        await settled(pilot)
        partition = TopicPartition("txn_multisegment", 0)
        (path, position), second, last, first, middle = went
        assert (path, position) == (PARTITION / "00000000000000000145.log", 0)
        assert (second, first) == ((partition, 145), (partition, 0))
        assert 215 < last[1] <= 225
        at = next(one.offset for one in places(PARTITION) if one.position <= 25080 * 20 // 65 < one.end)
        assert at - 10 < middle[1] <= at


@with_loop
async def test_a_log_that_grows_and_goes_is_looked_at_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"x" * 100))
    async with inspecting(tmp_path / "t-0") as pilot:
        await press(pilot, "m", "end")
        view = map_of(pilot).view
        assert view.of is not None
        position, size_bytes = view.position, view.of.size_bytes
        for _ in range(5):
            append(log, make_batch(b"x" * 100))
        await press(pilot, "r")
        assert (view.position, view.of.size_bytes) == (position, 6 * size_bytes)
        assert "offsets 0 to 5" in facts(pilot)
        log.close()
        shutil.rmtree(tmp_path / "t-0")
        await press(pilot, "r")
        assert str(tmp_path) in status(pilot.app)
        assert view.segment is not None, "what was seen stays"


@pytest.mark.longer
@with_loop
async def test_what_can_not_be_read_and_an_empty_log_are_said(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0"))
    first = min(folder.glob("*.log"))
    first.unlink()
    first.mkdir()
    (tmp_path / "e-0").mkdir()
    (tmp_path / "e-0" / "00000000000000000000.log").write_bytes(b"")
    async with inspecting(tmp_path) as pilot:
        pilot.app.open_screen("map", TopicPartition("t", 0))
        await settled(pilot)
        assert f"{first.name} can't be read" in status(pilot.app)
        assert f"damage {first.name} can't be read" in facts(pilot)
        await press(pilot, "escape")
        pilot.app.open_screen("map", TopicPartition("e", 0))
        await settled(pilot)
        assert "the log is empty" in screen_text(pilot.app)
        assert "offsets none, the next is 0" in facts(pilot)
        await press(pilot, "right", "up", "down", "home", "end", "n", "r")
        assert isinstance(pilot.app.screen, MapScreen)
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, RecordsScreen)
        await press(pilot, "escape", "escape")
        pilot.app.open_screen("map", TopicPartition("none", 0))
        await settled(pilot)
        assert "no folder of none-0 is here" in status(pilot.app)
        assert "nothing can be shown" in screen_text(pilot.app)
        await press(pilot, "right", "down", "end", "enter", "n", "b", "v")
        assert isinstance(pilot.app.screen, MapScreen)
