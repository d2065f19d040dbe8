"""The screen of transactions says what `plog transaction` says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.inspect.line_view import ASCII
from cli.inspect.records_screen import RecordsScreen
from cli.inspect.transactions_screen import TransactionsScreen
from core.common.topic_partition import TopicPartition
from tests.cli.inspect.support import inspecting, press, screen_text, status, with_loop
from tests.support.golden import SAMPLE_DATA
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.server import call_plog

SAMPLE = SAMPLE_DATA / "open-transaction"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The sample, and a transaction that nobody knows."""
    directory = tmp_path / "data"
    shutil.copytree(SAMPLE, directory)
    log = open_log(directory / "t-0")
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    append(log, make_batch(b"a", b"b", timestamp=NOW))
    append(log, make_batch(b"x", b"y", timestamp=NOW, **fields))
    log.close()
    return directory


def _screen(pilot: Any) -> TransactionsScreen:
    screen = pilot.app.screen
    assert isinstance(screen, TransactionsScreen)
    return screen


@with_loop
async def test_lists_and_hints_are_those_of_the_commands(directory: Path) -> None:
    async with inspecting(directory, size=(100, 24)) as pilot:
        await press(pilot, "t")
        screen = _screen(pilot)
        command = screen.command_line()
        done = call_plog(*command.split()[1:], "--output", "json")
        shown = [
            (row["partition"].topic, row["start_offset"], row["producer_id"], row["is_hanging"], row["holds_readers"])
            for row in screen.open.rows
        ]
        assert shown == [
            (row["topic"], row["start_offset"], row["producer_id"], row["is_hanging"], row["pins_last_stable_offset"])
            for row in json.loads(done.stdout)
        ]
        assert shown == [("t", 2, 7, True, True), ("txn_open", 5, 65, False, True)]
        listed = json.loads(call_plog("transaction", "list", "--data-dir", str(directory), "--output", "json").stdout)
        assert [(row["transactional_id"], row["state"], row["producer_id"]) for row in screen.ids.rows] == [
            (row["transactional_id"], row["state"], row["producer_id"]) for row in listed
        ]
        text = screen_text(pilot.app)
        assert "Open on partitions: 2, of which 1 hang" in text
        assert re.search(r"^ t-0 +2  hangs, holds readers ", text, re.MULTILINE)
        assert "readers of committed records end at offset 2 of 4: 2 offsets wait" in text
        ending = f"plog transaction abort --topic t --partition 0 --start-offset 2 --data-dir {directory}"
        assert ending in " ".join(text.split())
        hint = call_plog("transaction", "find-hanging", "--data-dir", str(directory)).stderr.decode()
        assert f"hint: {ending}" in hint
        await press(pilot, "down")
        assert f"to end it: plog transaction abort txopen-1 --data-dir {directory}" in " ".join(
            screen_text(pilot.app).split()
        )


@with_loop
async def test_enter_goes_to_the_first_record() -> None:
    async with inspecting(SAMPLE) as pilot:
        await press(pilot, "t", "enter")
        records = pilot.app.screen
        assert isinstance(records, RecordsScreen)
        assert records.view.item is not None
        assert (records.partition, records.view.item.row.offset) == (TopicPartition("txn_open", 0), 5)
        await press(pilot, "escape", "tab", "enter")
        assert "nothing is open of this transactional id" in status(pilot.app)
        await press(pilot, "end", "up", "enter")
        assert isinstance(pilot.app.screen, RecordsScreen)
        await press(pilot, "escape")
        assert _screen(pilot).command_line() == f"plog transaction describe txopen-1 --data-dir {SAMPLE}"


@with_loop
async def test_what_ends_is_gone_at_the_next_look(directory: Path) -> None:
    async with inspecting(directory, size=(60, 20), glyphs=ASCII) as pilot:
        await press(pilot, "t", "down")
        log = open_log(directory / "t-0")
        append_marker(log, 7, is_commit=False)
        log.close()
        await press(pilot, "r")
        screen = _screen(pilot)
        assert [row["where"] for row in screen.open.rows] == ["txn_open-0"]
        assert screen.open.row is not None
        assert "Open on partitions: 1, of which 0 hang" in screen_text(pilot.app)
        (directory / "txn_open-0").rename(directory.parent / "away")
        await press(pilot, "r")
        assert "no transaction is open" in screen_text(pilot.app)
        shutil.rmtree(directory)
        await press(pilot, "r")
        assert "! there is no data directory" in status(pilot.app)
