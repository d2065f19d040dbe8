"""The screens of groups: the list, one group, its history; of files, and of a server that comes and goes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.inspect.groups_screen import CommitsScreen, GroupScreen, GroupsScreen, sparkline
from cli.inspect.line_view import ASCII, UNICODE
from cli.inspect.records_screen import RecordsScreen
from core.common.topic_partition import TopicPartition
from core.pipeline.session import Session
from tests.cli.inspect.support import inspecting, press, screen_text, status, until, with_loop
from tests.support.coordinated import commit, golden_directory, write_values
from tests.support.logs import NOW, fingerprint
from tests.support.server import Server, call_plog

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_directory(tmp_path_factory.mktemp("groups") / "data")


def _asked(*arguments: str | Path) -> list[dict[str, Any]]:
    done = call_plog(*map(str, arguments), "--output", "json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def _rows(pilot: Any) -> list[dict[str, Any]]:
    return list(pilot.app.screen.view.rows)


def _chosen(pilot: Any) -> dict[str, Any]:
    return dict(pilot.app.screen.view.row)


def _lags(pilot: Any) -> list[tuple[str, int]]:
    return [(row["group"], row["lag"]) for row in _rows(pilot)]


@with_loop
async def test_the_list_is_that_of_plog_group_list(golden: Path) -> None:
    before = fingerprint(golden)
    async with inspecting(golden, size=(100, 24)) as pilot:
        await press(pilot, "g")
        assert isinstance(pilot.app.screen, GroupsScreen)
        expected = _asked("group", "list", "--data-dir", golden)
        assert [(row["group"], row["state"], row["type"], row["protocol_type"]) for row in _rows(pilot)] == [
            (row["group"], row["state"], row["type"], row["protocol_type"]) for row in expected
        ]
        text = screen_text(pilot.app)
        assert " kip848-java      Empty   consumer         0            1    33" in text
        assert pilot.app.screen.command_line() == f"plog group list --data-dir {golden}"
    assert fingerprint(golden) == before


@pytest.mark.longer
@with_loop
async def test_a_group_is_that_of_plog_group_describe_and_enter_goes_to_its_place(golden: Path) -> None:
    async with inspecting(golden) as pilot:
        await press(pilot, "g", "end", "up", "enter")
        screen = pilot.app.screen
        assert isinstance(screen, GroupScreen)
        command = screen.command_line()
        assert command == f"plog group describe kip848-java --data-dir {golden}"
        (expected,) = _asked(*command.split()[1:])
        (row,) = _rows(pilot)
        for name in ("topic", "partition", "offset", "end_offset", "lag", "metadata"):
            assert row[name] == expected[name]
        text = screen_text(pilot.app)
        assert "group kip848-java  Empty, consumer, 0 members, lag 33" in text
        assert "grouped-0: committed offset 7, the log ends at 40; lag 33" in text
        assert "metadata metadata: ünïcode" in text
        await press(pilot, "m")
        assert "the group has no members" in screen_text(pilot.app)
        assert screen.command_line() == f"plog group describe kip848-java --members --data-dir {golden}"
        await press(pilot, "m")
        assert "metadata metadata: ünïcode" in screen_text(pilot.app)
        await press(pilot, "enter")
        records = pilot.app.screen
        assert isinstance(records, RecordsScreen)
        assert records.view.item is not None
        assert (records.partition, records.view.item.row.offset) == (TopicPartition("grouped", 0), 7)
        await press(pilot, "escape", "escape", "up", "up", "enter")
        assert "group classic-java  Empty, classic, 0 members, lag 0" in screen_text(pilot.app)
        await press(pilot, "enter")  # all of it was read
        records = pilot.app.screen
        assert isinstance(records, RecordsScreen)
        assert records.view.item is not None
        assert records.view.item.row.offset == 39


@with_loop
async def test_what_changes_is_seen_and_the_cursor_stays(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", *[b"x"] * 20)
    write_values(tmp_path, "t-1", *[b"x"] * 20)
    for group in ("a", "b", "c"):
        commit(tmp_path, group, {T0: 5, T1: 20}, time_ms=NOW)
    async with inspecting(tmp_path, size=(60, 20), glyphs=ASCII, has_animation=False) as pilot:  # looks if it is told
        await press(pilot, "g", "down")
        commit(tmp_path, "aa", {T0: 1})
        commit(tmp_path, "b", {T0: 15}, metadata="\x1b[31mred")
        await press(pilot, "r")
        assert _lags(pilot) == [("a", 15), ("aa", 19), ("b", 5), ("c", 15)]
        assert _chosen(pilot)["group"] == "b"
        assert _rows(pilot)[2]["trend"] == "#-"  # two looks
        await press(pilot, "enter")
        assert r"metadata \x1b[31mred" in screen_text(pilot.app)
        await press(pilot, "end")
        text = screen_text(pilot.app)
        assert "t-1: committed offset 20, the log ends at 20; lag 0" in text
        commit(tmp_path, "b", {T0: 19})
        await press(pilot, "r")
        assert _chosen(pilot)["partition"] == 1
        assert [row["lag"] for row in _rows(pilot)] == [1, 0]
        await press(pilot, "home", "h")
        assert isinstance(pilot.app.screen, CommitsScreen)
        assert [row["offset"] for row in _rows(pilot)] == [19, 15, 5]


@with_loop
async def test_no_groups_and_a_directory_that_goes_away(tmp_path: Path) -> None:
    write_values(tmp_path / "data", "t-0", b"a")
    async with inspecting(tmp_path / "data") as pilot:
        await press(pilot, "g")
        assert "has no __consumer_offsets, in which groups are kept" in status(pilot.app)
        assert "no consumer groups" in screen_text(pilot.app)
        for offset in (1, 0):
            commit(tmp_path / "data", "g", {T0: offset})
        log = tmp_path / "data" / "__consumer_offsets-0" / f"{0:020d}.log"
        log.write_bytes(bytes(40) + log.read_bytes()[40:])
        await press(pilot, "r", "enter")
        assert "committed offset 0" in screen_text(pilot.app)
        assert "! __consumer_offsets-0: " in status(pilot.app)
        shutil.rmtree(tmp_path / "data")
        await press(pilot, "r")
        assert "! there is no data directory" in status(pilot.app)
        assert "committed offset 0" in screen_text(pilot.app)


@pytest.mark.longer
@with_loop
async def test_a_server_is_asked_as_long_as_it_is_there(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(data) as server:
        where = ["--bootstrap-server", server.address]
        call_plog("topic", "create", "t", "--set", "retention.ms=-1", *where)
        call_plog("produce", "t", *where, stdin=b"a\nb\nc\n")
        call_plog("group", "reset-offsets", "g", "--topic", "t", "--to-offset", "1", "--apply", *where)
        session = Session(directory=tmp_path / "none", find_named_server=lambda: server.address)
        async with inspecting(data) as pilot, inspecting(session=session) as other:
            await press(other, "g")
            await press(pilot, "g")
            assert _lags(pilot) == _lags(other) == [("g", 2)]
            assert status(pilot.app) == f"asked of the server on {server.address}, which owns the directory"
            await press(pilot, "enter")
            expected = _asked("group", "describe", "g", *where)
            assert [row["lag"] for row in _rows(pilot)] == [row["lag"] for row in expected] == [2]
            call_plog("produce", "t", *where, stdin=b"d\n")
            await until(pilot, lambda: [row["lag"] for row in _rows(pilot)] == [3])  # it looks again by itself
            await press(pilot, "h")
            assert "not known from a server" in status(pilot.app)
            await press(pilot, "escape")
            server.stop()
            await press(pilot, "r", "r")
            assert [row["lag"] for row in _rows(pilot)] == [3]
            assert status(pilot.app) == "read from the files"
            await press(other, "r")
            assert status(other.app).startswith("! ")
            assert _lags(other)[0][0] == "g"


def test_a_sparkline_is_as_high_as_its_values() -> None:
    assert sparkline([0, 1, 50, 100], UNICODE, 10) == "▁▂▅█"
    assert sparkline([None, 0, 0], UNICODE, 10) == " ▁▁"
    assert sparkline([1, 2, 4, 8], ASCII, 2) == "+#"
    assert sparkline([], ASCII, 10) == ""
