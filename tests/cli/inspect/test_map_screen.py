"""The screen of a partition's map: its strips, zoom, jumps, details, and reading all of the log."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from textual import events

from cli.findings_out import finding_text
from cli.inspect import map_screen
from cli.inspect.line_view import ASCII, UNICODE
from cli.inspect.map_details import detail_lines
from cli.inspect.map_screen import MapScreen
from cli.inspect.map_view import LABEL_WIDTH
from cli.inspect.records_screen import RecordsScreen
from core.common.topic_partition import TopicPartition
from core.forensics.gap_ledger import LOSING_REASONS
from core.inspector.check.verify import verify
from core.view.map.map_cell import Span
from core.view.map.partition_map import PartitionMap
from tests.cli.inspect.support import inspecting, press, screen_text, settled, status, with_loop
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import append, fingerprint, make_batch, open_log
from tests.support.server import call_plog

PARTITION = SAMPLE_DATA / "partition" / "txn_multisegment-0"
DAMAGED = SAMPLE_DATA / "damaged" / "c_bitflip_middle-0"


def map_of(pilot: Any) -> MapScreen:
    screen = pilot.app.screen
    assert isinstance(screen, MapScreen)
    return screen


async def go(pilot: Any, *keys: str) -> None:
    """Presses keys; asserts after each that the cursor is on a cell."""
    for key in keys:
        await press(pilot, key)
        map_of(pilot).view.check_invariants()


def strip_of(pilot: Any, name: str) -> str:
    """The letters of one row of the screen."""
    found = re.search(rf"^ {name} +(.*)$", screen_text(pilot.app), re.MULTILINE)
    assert found is not None, screen_text(pilot.app)
    return found[1]


def details(pilot: Any) -> str:
    """The details of the cell under the cursor, without the breaks of the screen."""
    view = map_of(pilot).detail
    return "\n".join(line.text for line in view._lines)


@pytest.mark.parametrize("size", [(80, 24), (60, 24), (160, 48)])
@with_loop
async def test_the_strips_stand_below_each_other_and_fit(size: tuple[int, int]) -> None:
    async with inspecting(PARTITION, size=size) as pilot:
        await press(pilot, "m")
        lines = screen_text(pilot.app).splitlines()
        assert max(map(len, lines)) <= size[0]
        names = ["offsets", "part shown", "segments", "codecs", "transactions", "compaction", "index", "gaps", "damage"]
        shown = [line.split("  ")[0].strip() for line in lines[1:11] if line.strip() and not line.startswith(" marks")]
        assert [name for name in names if any(line.startswith(name) for line in shown)] == names
        cells = size[0] - LABEL_WIDTH - 1
        for name in ("segments", "codecs", "transactions", "index", "gaps", "damage"):
            assert len(strip_of(pilot, name)) == cells
        assert any(line.startswith(" bytes") for line in lines[14:])


def test_of_many_segments_a_cell_names_the_first_and_the_last() -> None:
    with closing(PartitionMap(PARTITION, TopicPartition("txn_multisegment", 0))) as of:
        (cell,) = of.window(of.whole, 1).cells
        said = {line.label: line.text for line in detail_lines(of.at(cell))}
    logs = sorted(PARTITION.glob("*.log"))
    size_bytes = sum(log.stat().st_size for log in logs)
    expected = f"0 to {size_bytes - 1:,}: {logs[0].name} from position 0 on, up to {logs[-1].name}"
    assert said["bytes"].startswith(expected)


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@with_loop
async def test_letters_say_without_colours_what_gaps_and_verify_say(glyphs: Any) -> None:
    async with inspecting(DAMAGED, glyphs=glyphs) as pilot:
        await press(pilot, "m")
        text = screen_text(pilot.app)
        assert "E" in strip_of(pilot, "damage")
        assert "D" in strip_of(pilot, "gaps")
        assert set(strip_of(pilot, "damage")) == {".", "E"}
        if glyphs is ASCII:
            assert text.isascii()
        assert "gaps: D damaged" in text
        await press(pilot, "n")
        assert finding_text(next(iter(verify(DAMAGED)))) in details(pilot)
        row = call_plog("gaps", str(DAMAGED), "--output", "csv").stdout.decode().splitlines()[1]
        assert "damaged" in row
        assert row.split(",", 6)[6].strip('"') in details(pilot)


@with_loop
async def test_enter_goes_to_the_first_offset_that_is_lost_in_the_cell() -> None:
    async with inspecting(DAMAGED) as pilot:
        await press(pilot, "m", "n", "enter")
        screen = pilot.app.screen
        assert isinstance(screen, RecordsScreen)
        assert screen.view.item is not None
        assert (screen.view.item.row.offset, screen.view.item.row.reason in LOSING_REASONS) == (21, True)
        await press(pilot, "escape")
        assert "there" in details(pilot)


@pytest.mark.longer
@with_loop
async def test_zoom_keeps_the_cursors_bytes_and_0_shows_all_again() -> None:
    async with inspecting(PARTITION) as pilot:
        await press(pilot, "m")
        view = map_of(pilot).view
        view.move_to(10)
        assert view.cell is not None
        middle = (view.cell.start + view.cell.end) // 2
        whole = view.window
        for key, size_bytes in (("plus", 25080 // 4), ("up", 25080 // 16), ("down", 25080 // 4)):
            await press(pilot, key)
            assert view.window is not None
            assert abs(view.window.span.size_bytes - size_bytes) <= 2
            assert view.cell.start <= middle < view.cell.end
        view.action_zoom(0.001)
        await settled(pilot)
        assert view.window.span.size_bytes == view.cell_count, "a cell has a byte at least"
        await press(pilot, "0")
        assert view.window == whole


@pytest.mark.longer
@with_loop
async def test_moving_on_brings_in_what_lies_beyond() -> None:
    async with inspecting(PARTITION) as pilot:
        await press(pilot, "m", "plus", "home")
        view = map_of(pilot).view
        spans = [view.span]
        await go(pilot, *["pagedown"] * 2)
        spans.append(view.span)
        await press(pilot, "end")
        spans.append(view.span)
        assert spans == [Span(0, 6270), Span(12540, 18810), Span(18810, 25080)]
        assert view.position > 24900
        await press(pilot, "right")
        assert view.position > 24900
        await go(pilot, "home", "right", "left", "left")
        assert (view.span, view.position) == (Span(0, 6270), 0)
        view.move_to(view.cell_count - 1)
        await press(pilot, "right")
        assert view.span == Span(3135, 9405)
        assert view.cell is not None
        assert view.cell.start <= 6270 < view.cell.end


@pytest.mark.longer
@with_loop
async def test_a_click_moves_the_cursor_a_second_one_opens_and_the_wheel_zooms() -> None:
    async with inspecting(PARTITION) as pilot:
        await press(pilot, "m")
        view = map_of(pilot).view
        await pilot.click(view, offset=(LABEL_WIDTH + 20, 5))
        await settled(pilot)
        assert view.number == 20
        await pilot.click(view, offset=(2, 5))
        assert view.number == 20
        at = view.position
        await pilot._post_mouse_events([events.MouseScrollUp], view, offset=(LABEL_WIDTH + 20, 5), button=0)
        await settled(pilot)
        assert view.span.size_bytes == 25080 // 2
        assert abs(view.position - at) < 400
        await press(pilot, "0")
        await pilot.click(view, offset=(LABEL_WIDTH + 20, 5))
        await pilot.click(view, offset=(LABEL_WIDTH + 20, 5))
        await settled(pilot)
        assert isinstance(pilot.app.screen, RecordsScreen)


@with_loop
async def test_a_large_log_is_read_when_somebody_asks_and_stopped_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_screen, "_MOST_UNASKED", 1000)
    before = fingerprint(PARTITION)
    async with inspecting(PARTITION) as pilot:
        await press(pilot, "m")
        assert set(strip_of(pilot, "damage")) == set(strip_of(pilot, "gaps")) == {"?"}
        assert "a reads all of the log" in status(pilot.app)
        await pilot.press("a", "a")
        await settled(pilot)
        assert status(pilot.app).startswith(("stopped", "all was read"))
        await press(pilot, "a")
        assert status(pilot.app) == "all was read: 36 gaps, 0 findings of plog verify"
        assert set(strip_of(pilot, "damage")) == {"."}
        assert set(strip_of(pilot, "gaps")) == {"a", "k", "."}
        assert len(call_plog("gaps", str(PARTITION)).stdout.splitlines()) == 36 + 1
        await press(pilot, "n")
        assert "no trouble is known" in status(pilot.app)
    assert fingerprint(PARTITION) == before


@with_loop
async def test_a_log_that_grows_and_goes_is_looked_at_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"x" * 100))
    async with inspecting(tmp_path / "t-0") as pilot:
        await press(pilot, "m")
        view = map_of(pilot).view
        size_bytes = view.size_bytes
        for _ in range(5):
            append(log, make_batch(b"x" * 100))
        await press(pilot, "r")
        assert view.size_bytes == 6 * size_bytes
        assert strip_of(pilot, "damage").endswith("?")
        await press(pilot, "a")
        assert set(strip_of(pilot, "damage")) == {"."}
        log.close()
        shutil.rmtree(tmp_path / "t-0")
        await press(pilot, "r")
        assert str(tmp_path) in status(pilot.app)
        assert view.cell is not None, "what was seen stays"


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
        pilot.app.open_map(TopicPartition("t", 0))
        await settled(pilot)
        assert f"{first.name} can't be read" in status(pilot.app)
        await press(pilot, "escape")
        pilot.app.open_map(TopicPartition("e", 0))
        await settled(pilot)
        assert "the log is empty" in screen_text(pilot.app)
        await pilot.press("right", "plus", "enter", "n", "a", "b", "end")
        await settled(pilot)
        assert isinstance(pilot.app.screen, MapScreen)
        await press(pilot, "escape")
        pilot.app.open_map(TopicPartition("none", 0))
        await settled(pilot)
        assert "no folder of none-0 is here" in status(pilot.app)
        assert "nothing can be shown" in screen_text(pilot.app)
