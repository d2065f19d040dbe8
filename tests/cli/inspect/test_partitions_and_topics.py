"""From partition to partition of a topic, and the list of topics: its order, and its filter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer

from cli.inspect.records_screen import RecordsScreen
from cli.inspect.topic_records_screen import TopicRecordsScreen
from core.common.topic_partition import TopicPartition
from core.pipeline.session import Session
from plog.testing import running_broker
from tests.cli.inspect.support import inspecting, press, screen_text, settled, status, type_text, until, with_loop
from tests.support.golden import SAMPLE_DATA
from tests.support.server import call_plog


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic t: partition 0 has OK, 1 has ERR at 0 and 2, 2 has ERR at 1; one record a minute."""
    made = tmp_path_factory.mktemp("partitions") / "data"
    place = ["--data-dir", str(made)]
    assert call_plog("topic", "create", "t", "--partitions", "3", "--set", "retention.ms=-1", *place).returncode == 0
    states = {0: ["OK"] * 3, 1: ["ERR", "OK", "ERR"], 2: ["OK", "ERR", "OK"]}
    lines = [
        json.dumps({"partition": partition, "timestamp": 60_000 * minute, "value": json.dumps({"state": state})})
        for partition, found in states.items()
        for minute, state in enumerate(found, 1)
    ]
    done = call_plog("produce", "t", "--format", "envelope", *place, stdin="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr
    for name in ("app-pay-v2", "app-v1", "zpay", "__consumer_offsets"):
        call_plog("topic", "create", name, "--partitions", "1", *place)
    return made


def here(pilot: Pilot[None]) -> tuple[int, int | None]:
    """The partition, and the offset under the cursor."""
    screen = pilot.app.screen
    assert isinstance(screen, RecordsScreen)
    assert screen.partition.topic == "t"
    return screen.partition.partition, None if screen.view.item is None else screen.view.item.row.offset


@with_loop
async def test_brackets_go_to_the_same_time_in_the_next_partition(directory: Path) -> None:
    async with inspecting(directory, "t:0@1") as pilot:
        assert here(pilot) == (0, 1)
        await press(pilot, "x", "right_square_bracket")
        assert here(pilot) == (1, 1)
        assert screen_text(pilot.app).startswith(" t-1 of 3 partitions  offsets 0 to 2  as json")
        await press(pilot, "down", "right_square_bracket")
        assert here(pilot) == (2, 2)
        await press(pilot, "right_square_bracket")
        assert here(pilot) == (2, 2)
        assert status(pilot.app) == "! t-2 is the last partition"
        await press(pilot, "left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert here(pilot) == (0, 2)
        assert status(pilot.app) == "! t-0 is the first partition"


@with_loop
async def test_a_filter_without_a_match_counts_those_of_other_partitions(directory: Path) -> None:
    async with inspecting(directory, "t:0") as pilot:
        await press(pilot, "slash")
        await type_text(pilot, 'value.state=="ERR"')
        assert "nothing matches the filter" in screen_text(pilot.app)
        assert status(pilot.app) == (
            "nothing in this one; 3 in others: 2 in partition 1, 1 in partition 2 ([ and ] go there)"
        )
        await press(pilot, "right_square_bracket")
        assert here(pilot) == (1, 0)
        assert status(pilot.app) == ""
        await press(pilot, "slash", *["backspace"] * 18)
        await type_text(pilot, 'value.state=="NO"')
        assert status(pilot.app) == "nothing in any of 3 partitions"


@with_loop
async def test_topics_are_narrowed_by_a_name_and_internal_ones_come_last(directory: Path) -> None:
    async with inspecting(directory) as pilot:
        view = pilot.app.screen.view  # type: ignore[attr-defined]

        def names() -> list[str]:
            return [row["topic"] for row in view.rows]

        everything = ["app-pay-v2", "app-v1", "t", "zpay", "__consumer_offsets"]
        assert names() == everything
        await press(pilot, "slash")
        await type_text(pilot, "pay")
        assert names() == ["app-pay-v2", "zpay"]
        assert "filter: pay" in screen_text(pilot.app)
        await press(pilot, "escape")
        assert names() == everything
        for text, found in (("^app-.*v2$", ["app-pay-v2"]), ("v1$", ["app-v1"]), ("nope", []), ("a.p", [])):
            await press(pilot, "slash")
            await type_text(pilot, text)
            assert names() == found
            await press(pilot, "escape")
        await press(pilot, "slash")
        await type_text(pilot, "^(")
        await until(pilot, lambda: "^( is no regular expression" in status(pilot.app))
        assert names() == everything
        await press(pilot, "slash")
        await type_text(pilot, "zp")
        await press(pilot, "enter")
        assert pilot.app.screen.partition == TopicPartition("zpay", 0)  # type: ignore[attr-defined]


@with_loop
async def test_topics_are_sorted_by_a_key_and_by_a_click_on_a_heading(directory: Path) -> None:
    async with inspecting(directory) as pilot:
        view = pilot.app.screen.view  # type: ignore[attr-defined]

        def names() -> list[str]:
            return [row["topic"] for row in view.rows]

        by_name = ["__consumer_offsets", "app-pay-v2", "app-v1", "t", "zpay"]
        await press(pilot, "S")
        assert names() == [*by_name[1:], by_name[0]], "by no column yet, so there is no other way round"
        await press(pilot, "s")
        assert names() == by_name
        await press(pilot, "S")
        assert names() == by_name[::-1]
        await press(pilot, "s")
        assert names()[0] == "t", "of the most partitions"
        end = 1 + len(by_name[0]) + 2
        await pilot.click(view, offset=(end - 1, 0))
        assert names() == by_name
        await pilot.click(view, offset=(end, 0))
        assert names()[0] == "t"
        await pilot.click(view, offset=(end, 0))
        assert names()[-1] == "t"


@with_loop
async def test_the_bottom_line_fits_into_80_columns(directory: Path) -> None:
    async with inspecting(directory, size=(80, 24)) as pilot:
        await settled(pilot)
        assert pilot.app.screen.query_one(Footer).virtual_size.width <= 80
    async with inspecting(SAMPLE_DATA / "partition" / "txn_multisegment-0", size=(80, 24)) as pilot:
        assert pilot.app.screen.query_one(Footer).virtual_size.width <= 80


def rows_here(pilot: Pilot[None]) -> list[tuple[int, int]]:
    """Partition and offset of each line."""
    screen = pilot.app.screen
    assert isinstance(screen, TopicRecordsScreen)
    return [(row.origin[0].partition, row.origin[1]) for row, *_ in screen.view.items if row.origin is not None]


@with_loop
async def test_all_partitions_are_shown_by_time(directory: Path) -> None:
    async with inspecting(directory, "t:1@1") as pilot:
        await press(pilot, "a")
        assert rows_here(pilot) == [(partition, offset) for offset in range(3) for partition in range(3)]
        screen = pilot.app.screen
        assert isinstance(screen, TopicRecordsScreen)
        assert screen.view.cursor == 3  # the first of the time of t-1@1
        lines = screen_text(pilot.app).splitlines()
        assert lines[0].startswith(" t, all partitions  9 offsets")
        assert lines[1].split() == ["partition", "offset", "timestamp", "key", "value"]
        assert lines[6].split() == ["1", "1", "1970-01-01", "00:02:00.000", "(null)", '{"state":', '"OK"}']
        assert screen.command_line().startswith("plog consume t --from @120000 --merge --max-messages ")
        await press(pilot, "down", "down", "enter")
        assert screen_text(pilot.app).startswith(" t-2 offset 1  ")
        await press(pilot, "n")
        assert screen_text(pilot.app).startswith(" t-0 offset 2  ")
        await press(pilot, "escape", "a")
        assert here(pilot) == (0, 2)
        await press(pilot, "escape", "right_square_bracket")
        assert status(pilot.app) == "! all partitions are here; a shows the record's own"
    async with inspecting(directory) as pilot:
        await press(pilot, "down", "down", "enter", "a", "end")
        screen = pilot.app.screen
        assert isinstance(screen, TopicRecordsScreen)
        assert (rows_here(pilot)[-1], screen.view.cursor) == ((2, 2), 8)


@with_loop
async def test_a_filter_looks_into_all_partitions(directory: Path) -> None:
    async with inspecting(directory, "t") as pilot:
        await press(pilot, "a", "slash")
        await type_text(pilot, 'value.state == "ERR"')
        assert rows_here(pilot) == [(1, 0), (2, 1), (1, 2)]
        await press(pilot, "down", "slash")
        await press(pilot, *["backspace"] * 20, "enter")
        assert len(rows_here(pilot)) == 9
        await press(pilot, "slash")
        await type_text(pilot, 'value.state == "LOST"')
        assert rows_here(pilot) == []
        await press(pilot, "colon")
        await type_text(pilot, "1970-01-01T00:03:00Z")
        assert "nothing matches the filter" in screen_text(pilot.app)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic k: keys order-0 to order-39, twice, by murmur2 in four partitions."""
    made = tmp_path_factory.mktemp("keys") / "data"
    place = ["--data-dir", str(made)]
    assert call_plog("topic", "create", "k", "--partitions", "4", "--set", "retention.ms=-1", *place).returncode == 0
    lines = [json.dumps({"key": f"order-{n % 40}", "value": str(n), "timestamp": n}) for n in range(80)]
    done = call_plog("produce", "k", "--format", "envelope", "--partitioner", "murmur2", *place,
                     stdin="\n".join(lines).encode())  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


@with_loop
async def test_a_key_is_looked_for_in_its_partition(keyed: Path) -> None:
    async with inspecting(keyed, "k") as pilot:

        async def go() -> RecordsScreen:
            await press(pilot, "colon")
            await type_text(pilot, "key=order-7")
            screen = pilot.app.screen
            assert isinstance(screen, RecordsScreen)
            return screen

        for value in b"7", b"47":
            screen = await go()
            assert screen.view.item is not None
            assert (screen.view.item.row.key, screen.view.item.row.value) == (b"order-7", value)
            partition = screen.partition.partition
            assert status(pilot.app) == (
                f"key order-7 of k: partition {partition} of 4 by murmur2, as 40 of the 40 newest keys"
            )
        await go()
        assert status(pilot.app).startswith(f"! no record of key order-7 after this one in partition {partition} of k")
        await press(pilot, "home", "a", "home")
        for value in b"7", b"47":
            screen = await go()
            assert isinstance(screen, TopicRecordsScreen)
            assert screen.view.item is not None
            assert screen.view.item.row.value == value


@with_loop
async def test_every_screen_has_a_bottom_line_of_80_columns(directory: Path) -> None:
    async with inspecting(directory, "t") as pilot:
        for key in "", "a", "enter", "b", "m", "i", "g", "t", "v":
            if key != "":
                await press(pilot, *["escape"] * (key not in "a enter"), key)
            if pilot.app.screen.query(Footer):
                footer = pilot.app.screen.query_one(Footer)
                assert footer.virtual_size.width <= 80, pilot.app.screen


@pytest.mark.longer
@with_loop
async def test_all_partitions_of_a_server(tmp_path: Path) -> None:
    lines = [json.dumps({"key": f"k{n % 20}", "value": str(n), "timestamp": 1000 * n}) for n in range(1000)]
    with running_broker() as broker:
        broker.create_topic("t", 5, retention_ms="-1")
        place = ["--bootstrap-server", broker.bootstrap_servers]
        done = call_plog("produce", "t", "--format", "envelope", "--partitioner", "murmur2", *place,
                         stdin="\n".join(lines).encode())  # fmt: skip
        assert done.returncode == 0, done.stderr
        session = Session(directory=tmp_path, find_named_server=lambda: broker.bootstrap_servers)
        async with inspecting("t", session=session) as pilot:
            await press(pilot, "a")
            screen = pilot.app.screen
            assert isinstance(screen, TopicRecordsScreen)
            view = screen.view
            await press(pilot, "end", *["pageup"] * 20)
            shown = [int(row.value or b"") for row, *_ in view.items]
            assert shown == list(range(shown[0], 1000))
            assert shown[0] < 700
            await press(pilot, "home", "colon")
            await type_text(pilot, "key=k7")
            assert view.item is not None
            assert view.item.row.value == b"7"
            await press(pilot, "slash")
            await type_text(pilot, 'key == "k3"')
            assert [row.value for row, *_ in view.items] == [str(n).encode() for n in range(3, 1000, 20)]
