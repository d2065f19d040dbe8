"""The screens of records: rows, gaps, places, filters, following; and of one record."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from textual.pilot import Pilot

from cli.inspect.bytes_screen import BytesScreen
from cli.inspect.record_screen import RecordScreen
from cli.inspect.records_screen import RecordsScreen
from core.common.time_text import time_text
from core.forensics.gap_ledger import GapLedger
from core.forensics.partition_reader import PartitionReader
from core.pipeline.session import Session
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from core.records.record_filter import RecordFilter, parse_filter
from core.view.records.log_rows import DirectoryRows, LogRow, RowKind, Steps
from tests.cli.inspect.support import inspecting, press, screen_text, settled, status, type_text, until, with_loop
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import make_batch
from tests.support.server import Server, call_plog

PARTITION = SAMPLE_DATA / "partition" / "txn_multisegment-0"
DAMAGED = SAMPLE_DATA / "damaged" / "c_bitflip_middle-0"


def records_screen(pilot: object) -> RecordsScreen:
    screen = pilot.app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, RecordsScreen)
    return screen


def shown_offsets(text: str) -> list[int]:
    return [int(found[1]) for found in re.finditer(r"^ +(\d+)  ", text, re.MULTILINE)]


@with_loop
async def test_a_partition_begins_at_its_first_record() -> None:
    async with inspecting(PARTITION) as pilot:
        text = screen_text(pilot.app)
        assert text.startswith(" txn_multisegment-0  offsets 0 to 225")
        assert shown_offsets(text)[0] == 0
        assert 'k291    [aborted] {"i": 0, "msg": "login' in text


@with_loop
async def test_a_place_says_where_to_begin() -> None:
    async with inspecting(f"{PARTITION}@150") as pilot:
        assert shown_offsets(screen_text(pilot.app))[0] == 150
    async with inspecting(SAMPLE_DATA / "partition", "txn_multisegment@-5") as pilot:
        assert records_screen(pilot).view.item.row.offset == 221  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (200, 50)])
@with_loop
async def test_every_row_is_met_on_the_way_down_and_up(size: tuple[int, int]) -> None:
    async with inspecting(DAMAGED, size=size) as pilot:
        view = records_screen(pilot).view
        met = [view.item.row.offset]  # type: ignore[union-attr]
        while view.cursor < view.count - 1 or not view.is_last:
            view.action_move(1)
            await settled(pilot)
            met.append(view.item.row.offset)  # type: ignore[union-attr]
        assert met == [*range(21), 21, *range(23, 40)]  # offsets 21 and 22 are one gap
        while view.cursor or not view.is_first:
            await press(pilot, "pageup")
        assert view.item.row.offset == 0  # type: ignore[union-attr]


@with_loop
async def test_rows_are_read_on_where_somebody_comes_near_their_end() -> None:
    async with inspecting(PARTITION, size=(80, 50)) as pilot:
        screen = records_screen(pilot)
        assert not screen.view.is_last
        read = len(screen.view.items)
        while screen.view.cursor < read - 1:
            await press(pilot, "pagedown")
        assert len(screen.view.items) > read
        screen.loader.load_around(0)
        await settled(pilot)
        assert len(screen.view.items) == read
        screen.loader.read_on()
        screen.loader.read_on()  # while the first is at it
        await settled(pilot)
        assert read < len(screen.view.items) < 2 * read + 2
        while not screen.view.is_last:
            await press(pilot, "pagedown")
        offsets = [item.row.offset for item in screen.view.items]
        assert (offsets[0], offsets[-1]) == (0, 225)
        assert offsets == sorted(set(offsets))


@with_loop
async def test_gaps_are_rows_with_the_reason_that_gaps_gives() -> None:
    async with inspecting(f"{DAMAGED}@21", size=(400, 24)) as pilot:
        screen = records_screen(pilot)
        row = screen.view.item.row  # type: ignore[union-attr]
        assert (row.kind, row.offset, row.end) == (RowKind.GAP, 21, 23)
        with contextlib.closing(PartitionReader(DAMAGED)) as log:
            (expected,) = (gap for gap in GapLedger(log, 0, 40) if gap.start == 21)
        assert f"2 offsets without a record: damaged: {expected.evidence}" in screen_text(pilot.app)
        assert screen.command_line().startswith("plog gaps c_bitflip_middle:0 --from 21 --until 23 --data-dir ")


@with_loop
async def test_home_and_end_go_to_the_logs_ends() -> None:
    async with inspecting(PARTITION, size=(80, 12)) as pilot:
        await press(pilot, "end")
        assert records_screen(pilot).view.item.row.offset == 225  # type: ignore[union-attr]
        assert "[ABORT marker of producer 43]" in screen_text(pilot.app)
        await press(pilot, "home")
        assert records_screen(pilot).view.item.row.offset == 0  # type: ignore[union-attr]


@pytest.mark.longer
@with_loop
async def test_a_colon_goes_to_a_place() -> None:
    async with inspecting(SAMPLE_DATA / "damaged", size=(80, 12)) as pilot:
        await press(pilot, "colon")
        await type_text(pilot, "c_torn_tail@7")
        assert records_screen(pilot).view.item.row.offset == 7  # type: ignore[union-attr]
        await press(pilot, "colon")
        await type_text(pilot, "30")
        assert records_screen(pilot).view.item.row.offset == 30  # type: ignore[union-attr]
        await press(pilot, "colon")
        await type_text(pilot, "nosuch")
        assert "'nosuch' names no topic" in status(pilot.app)
        assert records_screen(pilot).view.item.row.offset == 30  # type: ignore[union-attr]
        await press(pilot, "colon")
        await type_text(pilot, "999")
        assert "the log holds offsets 0 to 39, not 999" in status(pilot.app)


@pytest.mark.longer
@with_loop
async def test_a_filter_shows_what_consume_would() -> None:
    expression = 'value.msg contains "login" and offset >= 30'
    found = call_plog(
        "consume", "txn_multisegment", "--filter", expression, "--format", "%o\n", "--isolation", "read_uncommitted",
        "--data-dir", str(SAMPLE_DATA / "partition"),
    )  # fmt: skip
    expected = list(map(int, found.stdout.split()))
    async with inspecting(PARTITION, size=(160, 50)) as pilot:
        screen = records_screen(pilot)
        await press(pilot, "slash")
        screen.query_one("#prompt").value = expression  # type: ignore[attr-defined]
        await press(pilot, "enter")
        assert [item.row.offset for item in screen.view.items] == expected
        assert f"filter: {expression}" in screen_text(pilot.app)
        assert "--filter" in screen.command_line()
        await press(pilot, "slash")
        screen.query_one("#prompt").value = "value ==="  # type: ignore[attr-defined]
        await press(pilot, "enter")
        assert "--filter 'value ===', at" in status(pilot.app)
        assert [item.row.offset for item in screen.view.items] == expected
        await press(pilot, "slash")
        screen.query_one("#prompt").value = ""  # type: ignore[attr-defined]
        await press(pilot, "enter")
        assert len(screen.view.items) > len(expected)


@pytest.mark.longer
@with_loop
async def test_the_last_match_is_found_from_the_end_too() -> None:
    async with inspecting(PARTITION, size=(160, 30)) as pilot:
        await press(pilot, "slash")
        pilot.app.screen.query_one("#prompt").value = "offset < 20"  # type: ignore[attr-defined]
        await press(pilot, "enter", "end")
        view = records_screen(pilot).view
        assert view.item.row.offset == 19  # type: ignore[union-attr]
        await press(pilot, "home")
        assert view.item.row.offset == 0  # type: ignore[union-attr]
        await press(pilot, "slash")
        pilot.app.screen.query_one("#prompt").value = 'key == "nobody"'  # type: ignore[attr-defined]
        await press(pilot, "enter", "end")
        assert "nothing matches the filter" in screen_text(pilot.app)


@with_loop
async def test_a_search_from_the_middle_goes_on_before_it_and_says_so() -> None:
    async with inspecting(PARTITION, size=(80, 12)) as pilot:
        screen = records_screen(pilot)
        screen._set_filter("offset >= 0")
        await settled(pilot)
        seen: list[str] = []
        find, tell = DirectoryRows.rows_before, screen.tell

        def find_slowly(*arguments: Any) -> Iterator[list[LogRow] | None]:
            yield None
            yield from find(*arguments)

        with (
            mock.patch.object(DirectoryRows, "rows_before", find_slowly),
            mock.patch.object(screen, "tell", lambda text: (seen.append(text), tell(text))),
        ):
            screen.loader.load_around(100)
            await settled(pilot)
            await press(pilot, "up")
        assert screen.view.item is not None
        assert screen.view.item.row.offset == 98, "99 is a marker"
        assert "looking at what lies before" in seen


@with_loop
async def test_records_behind_an_open_transaction_are_not_called_its_own(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path))
    call_plog("topic", "create", "t", *where)
    folder = tmp_path / "t-0"
    log = folder / f"{0:020}.log"
    of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    mine = make_batch(b"mine", is_transactional=True, **of_producer)
    after = make_batch(b"after", base_offset=1)
    log.write_bytes(bytes(mine.buffer) + bytes(after.buffer))
    for name in ("index", "timeindex"):
        (folder / f"{0:020}.{name}").write_bytes(b"")
    async with inspecting(tmp_path, "t", size=(100, 10)) as pilot:
        text = screen_text(pilot.app)
        assert "[open transaction] mine" in text
        assert "[behind an open transaction] after" in text


@pytest.mark.longer
@with_loop
async def test_records_of_kafkas_own_topics_are_decoded() -> None:
    log = GOLDEN / "__consumer_offsets-2" / f"{0:020}.log"
    dumped = call_plog("dump-segment", str(log), "--format", "kafka", "--print-data-log").stdout.decode()
    async with inspecting(GOLDEN / "__consumer_offsets-2", size=(400, 60)) as pilot:
        text = screen_text(pilot.app)
        names = re.findall(r'"group":"([^"]+)","topic":"([^"]+)","partition":(\d+)', dumped)
        assert len(names) > 1
        for name in names:
            assert f"{' '.join(name)}  " in text
        await press(pilot, "enter")
        assert '"topic": ' in screen_text(pilot.app)
        await press(pilot, "x")
        assert '"topic": ' not in screen_text(pilot.app).partition("Life")[0]


@with_loop
async def test_secrets_of_the_metadata_are_not_shown(tmp_path: Path) -> None:
    call_plog("topic", "create", "t", "--set", "retention.ms=12345", "--data-dir", str(tmp_path))
    async with inspecting(tmp_path / "__cluster_metadata-0", size=(200, 40)) as pilot:
        assert "CONFIG_RECORD" in screen_text(pilot.app)
        for form in ("text", "json", "hex"):
            shown = screen_text(pilot.app)
            assert form == "text" or f"as {form}" in shown
            assert "12345" not in shown
            assert b"12345".hex(" ") not in shown
            await press(pilot, "x")


class _EndlessRows(DirectoryRows):
    """A log in which a search finds nothing and never ends."""

    def rows_from(self, offset: int, wanted: RecordFilter | None = None) -> Steps:
        while wanted is not None:
            yield None
        yield from super().rows_from(offset)


def search_without_end(pilot: Pilot[None]) -> RecordsScreen:
    screen = records_screen(pilot)
    rows = screen.loader.rows
    assert isinstance(rows, DirectoryRows)
    screen.loader.rows = _EndlessRows(rows.log, rows.partition)
    screen._set_filter("offset < 0")
    return screen


@with_loop
async def test_another_place_ends_a_search_that_is_going_on() -> None:
    async with inspecting(PARTITION) as pilot:
        screen = search_without_end(pilot)
        screen.go("sample:0")  # there is no such topic; that can be said only if the search leaves the reader
        await until(pilot, lambda: "names no topic" in status(pilot.app))
        screen.loader.filter = None
        screen.go("100")
        await until(pilot, lambda: screen.view.item is not None and screen.view.item.row.offset == 100)


@with_loop
async def test_a_search_waits_while_another_screen_is_looked_at_and_goes_on_after_it() -> None:
    async with inspecting(PARTITION) as pilot:
        screen = search_without_end(pilot)
        await until(pilot, lambda: not pilot.app.is_idle)  # type: ignore[attr-defined]
        await pilot.press("question_mark")
        await settled(pilot)  # which it never would be while the search went on
        assert isinstance(screen.loader.rows, DirectoryRows)
        screen.loader.rows = DirectoryRows(screen.loader.rows.log, screen.loader.rows.partition)
        screen.loader.filter = parse_filter("offset < 3", 0)
        await press(pilot, "escape")
        assert [item.row.offset for item in screen.view.items] == [0, 1, 2]


@with_loop
async def test_a_read_that_fails_once_does_not_keep_the_screen_from_reading_again() -> None:
    async with inspecting(PARTITION, size=(80, 12)) as pilot:
        screen = records_screen(pilot)
        with mock.patch.object(DirectoryRows, "rows_before", side_effect=OSError(errno.EIO, "Input/output error")):
            await press(pilot, "end")
            assert "Input/output error" in status(pilot.app).replace("input", "Input")
        await press(pilot, "r")
        assert screen.view.items
        await press(pilot, "end")
        assert screen.view.item.row.offset == 225  # type: ignore[union-attr]


@with_loop
async def test_columns_are_chosen() -> None:
    async with inspecting(PARTITION, size=(120, 12)) as pilot:
        await press(pilot, "c")
        pilot.app.screen.query_one("#prompt").value = "offset codec batch producer"  # type: ignore[attr-defined]
        await press(pilot, "enter")
        assert re.search(r"offset +codec +batch +producer", screen_text(pilot.app))
        await press(pilot, "c")
        pilot.app.screen.query_one("#prompt").value = "colour"  # type: ignore[attr-defined]
        await press(pilot, "enter")
        assert "no column colour" in status(pilot.app)
        await press(pilot, "c")
        pilot.app.screen.query_one("#prompt").value = "offset"  # type: ignore[attr-defined]
        await press(pilot, "enter")
        assert "no column" not in status(pilot.app)
        await press(pilot, "c")
        pilot.app.screen.query_one("#prompt").value = "offset position"  # type: ignore[attr-defined]
        await press(pilot, "enter", "home")
        assert re.search(r"^ +3 +420 ", screen_text(pilot.app), re.MULTILINE), "the second batch is at byte 420"


@with_loop
async def test_values_are_shown_as_hex_too() -> None:
    async with inspecting(DAMAGED, size=(120, 12)) as pilot:
        await press(pilot, "x", "x")  # JSON, hex
        assert b'{"i": 0, '.hex(" ") in screen_text(pilot.app)


@with_loop
async def test_a_records_screen_says_what_trace_says() -> None:
    place = ("txn_multisegment@3", "--data-dir", str(SAMPLE_DATA / "partition"))
    traced = call_plog("trace", *place, "--output", "ndjson")
    async with inspecting(f"{PARTITION}@3", size=(160, 60)) as pilot:
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, RecordScreen)
        text = " ".join(screen_text(pilot.app).replace("█", " ").split())
        for row in map(json.loads, traced.stdout.splitlines()):
            if row["what"] not in ("record", "key", "value", "headers", "batch file"):
                value = time_text(row["value"]) if row["what"] == "batch max_timestamp" else str(row["value"])
                assert value in text, row
        before = text
        await press(pilot, "n")
        assert "offset 4" in screen_text(pilot.app)
        await press(pilot, "p")
        assert " ".join(screen_text(pilot.app).replace("█", " ").split()) == before
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, RecordsScreen)


@with_loop
async def test_the_screen_of_a_record_shows_the_bytes_of_its_batch() -> None:
    async with inspecting(f"{PARTITION}@3") as pilot:
        await press(pilot, "b")
        of_batch = screen_text(pilot.app)
        await press(pilot, "escape", "enter", "b")
        assert isinstance(pilot.app.screen, BytesScreen)
        assert screen_text(pilot.app) == of_batch


@with_loop
async def test_bytes_of_records_never_drive_the_terminal(tmp_path: Path) -> None:
    evil = b"\x1b]52;c;aGk=\x07\x1b[2J\xc2\x9bA\xe2\x80\xae\t\x00\xff"
    call_plog("topic", "create", "evil", "--data-dir", str(tmp_path))
    (tmp_path / "value").write_bytes(evil)
    call_plog("produce", "evil", "--format", "raw", str(tmp_path / "value"), "--data-dir", str(tmp_path))
    async with inspecting(tmp_path, "evil", size=(120, 24)) as pilot:
        shown = r"\x1b]52;c;aGk=\x07\x1b[2J\x9bA\u202e\t\x00\xff"
        assert shown in screen_text(pilot.app)
        await press(pilot, "enter")
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", screen_text(pilot.app))


@with_loop
async def test_names_of_headers_never_drive_the_terminal_either(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path))
    call_plog("topic", "create", "evil", *where)
    batch = make_batch_with_headers(((b"\x1b]0;owned\x07" + "\u202e".encode(), b"x"), *[(b"h", b"v" * 500)] * 300))
    (tmp_path / "evil-0" / f"{0:020}.log").write_bytes(batch)
    for name in ("index", "timeindex"):
        (tmp_path / "evil-0" / f"{0:020}.{name}").write_bytes(b"")
    async with inspecting(tmp_path, "evil", size=(120, 24)) as pilot:
        await press(pilot, "enter")
        text = screen_text(pilot.app)
        assert r"\x1b]0;owned\x07\u202e" in text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
        await press(pilot, "end")
        assert "plog trace tells it" in screen_text(pilot.app) or "fate" in screen_text(pilot.app)


def make_batch_with_headers(headers: tuple[tuple[bytes, bytes | None], ...]) -> bytes:
    return batch_of([Record(0, 1_700_000_000_000, b"k", b"v", headers)])


@pytest.mark.longer
@with_loop
async def test_a_panel_with_text_may_become_wider_and_narrower() -> None:
    async with inspecting(PARTITION, size=(60, 24)) as pilot:
        for keys in (("question_mark",), ("y",), ("enter",), ("m",)):
            await press(pilot, *keys, "end")
            for width in (200, 30, 120, 60):
                await pilot.resize_terminal(width, 24)
                await settled(pilot)
            await press(pilot, "escape")


@pytest.mark.longer
@with_loop
async def test_keys_that_come_quickly_lead_to_one_screen() -> None:
    async with inspecting(PARTITION) as pilot:
        screen, before = records_screen(pilot), len(pilot.app.screen_stack)
        screen.view.action_choose()  # as Enter does, but nothing is done between the two
        screen.view.action_choose()
        await settled(pilot)
        assert len(pilot.app.screen_stack) == before + 1
        await press(pilot, "escape")
        screen.view.action_choose()
        pilot.app.pop_screen()  # Esc, before anybody has obeyed Enter
        await settled(pilot)
        assert not any(isinstance(one, RecordScreen) for one in pilot.app.screen_stack)


@with_loop
async def test_work_goes_on_after_the_screen_of_a_job_was_left() -> None:
    async with inspecting(PARTITION) as pilot:
        screen = records_screen(pilot)
        wait = threading.Event()
        screen.in_background(wait.wait, lambda _: None)
        screen.go("5")
        pilot.app.pop_screen()
        wait.set()
        await settled(pilot)
        screen = pilot.app.screen  # type: ignore[assignment]
        screen.go("txn_multisegment:0@7")
        await settled(pilot)
        assert records_screen(pilot).view.item.row.offset == 7  # type: ignore[union-attr]


@pytest.mark.longer
@with_loop
async def test_a_partition_without_a_folder_is_said_to_have_none(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE_DATA / "partition" / "txn_multisegment-0", tmp_path / "a-1")
    shutil.copytree(SAMPLE_DATA / "partition" / "txn_multisegment-0", tmp_path / "a-2")
    async with inspecting(tmp_path) as pilot:
        await press(pilot, "enter", "home")
        for key in ("i", "m", "v"):
            await press(pilot, key)
            assert pilot.app.is_running
            if pilot.app.screen.__class__.__name__ != "PartitionsScreen":
                await press(pilot, "escape")


@with_loop
async def test_an_empty_log_says_so(tmp_path: Path) -> None:
    call_plog("topic", "create", "empty", "--data-dir", str(tmp_path))
    async with inspecting(tmp_path, "empty") as pilot:
        assert "no records" in screen_text(pilot.app)
        assert "no offsets, the next is 0" in screen_text(pilot.app)
        await press(pilot, "enter", "b", "end", "home", "down", "pageup")
        assert "no records" in screen_text(pilot.app)


@pytest.mark.longer
@with_loop
async def test_new_records_are_followed_while_somebody_writes(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        place = ("--bootstrap-server", server.address)
        call_plog("topic", "create", "live", *place)
        call_plog("produce", "live", *place, stdin=b"one\ntwo\n")
        session = Session(directory=tmp_path, find_named_server=lambda: server.address)
        for texts, how in (((tmp_path, "live"), None), (("live",), session)):
            async with inspecting(*texts, session=how) as pilot:
                view = records_screen(pilot).view
                before = view.count
                await pilot.press("f")
                await until(pilot, lambda: "following" in screen_text(pilot.app))
                call_plog("produce", "live", *place, stdin=b"more\n")
                await until(pilot, lambda: view.count == before + 1)  # noqa: B023
                assert view.item.value == "more"  # type: ignore[union-attr]
                await pilot.press("f")


@pytest.mark.longer
@with_loop
async def test_a_place_is_found_in_the_log_as_it_is_now(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path))
    call_plog("topic", "create", "t", *where)
    call_plog("produce", "t", *where, stdin=b"one\n")
    async with inspecting(tmp_path, "t") as pilot:
        call_plog("produce", "t", *where, stdin=b"two\nthree\nfour\n")
        call_plog("topic", "create", "u", *where)
        await press(pilot, "colon")
        await type_text(pilot, "3")
        assert records_screen(pilot).view.item.value == "four"  # type: ignore[union-attr]
        assert not status(pilot.app)
        call_plog("produce", "t", *where, stdin=b"five\n")
        await press(pilot, "r")
        assert "five" in screen_text(pilot.app)
        await press(pilot, "colon")
        await type_text(pilot, "u")
        assert str(records_screen(pilot).partition) == "u-0"


@with_loop
async def test_a_log_that_is_deleted_meanwhile_is_reported_and_the_screen_stays(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE_DATA / "partition", tmp_path / "data")
    async with inspecting(tmp_path / "data", "txn_multisegment", size=(80, 12)) as pilot:
        shutil.rmtree(tmp_path / "data" / "txn_multisegment-0")
        await pilot.press("f")
        await until(pilot, lambda: "!" in status(pilot.app))
        assert "txn_multisegment-0" in status(pilot.app)
        assert shown_offsets(screen_text(pilot.app))
        await press(pilot, "home", "down")
        assert isinstance(pilot.app.screen, RecordsScreen)


@pytest.mark.longer
@with_loop
async def test_a_broker_that_goes_away_is_reported_and_the_screen_stays(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        call_plog("topic", "create", "live", "--bootstrap-server", server.address)
        call_plog("produce", "live", "--bootstrap-server", server.address, stdin=b"one\ntwo\n")
        session = Session(directory=tmp_path, find_named_server=lambda: server.address)
        async with inspecting("live", session=session) as pilot:
            assert "two" in screen_text(pilot.app)
            server.stop()
            await press(pilot, "v")
            assert "a server does not show its files" in status(pilot.app)
            assert "two" in screen_text(pilot.app)
            await press(pilot, "escape", "enter")
            await settled(pilot)


@with_loop
async def test_what_a_log_holds_after_its_last_record_is_noted() -> None:
    async with inspecting(GOLDEN / "c_garbage_tail.corrupt", size=(120, 40)) as pilot:
        assert "position 4268: garbage" in status(pilot.app)


@pytest.mark.longer
@with_loop
async def test_without_unicode_nothing_else_is_drawn() -> None:
    from cli.inspect.line_view import ASCII

    async with inspecting(f"{DAMAGED}@20", glyphs=ASCII) as pilot:
        for keys in ((), ("question_mark",), ("escape", "y"), ("escape", "colon"), ("escape", "enter")):
            await press(pilot, *keys)
            drawn = screen_text(pilot.app)
            assert not re.search("[\u2190-\u25ff\u2026]", drawn), drawn
