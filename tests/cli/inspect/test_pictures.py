"""Every screen as a picture, on directories that Kafka wrote: colours, styles and all.

A change that is wanted is taken up with `pytest tests/cli/inspect/test_pictures.py --snapshot-update`; look at the
pictures in `__snapshots__` before they are committed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from textual.pilot import Pilot

from cli.inspect import screen
from cli.inspect.line_view import ASCII, UNICODE, Glyphs
from cli.inspect.screen import InspectApp
from core.common.clock import SystemClock
from tests.cli.inspect.support import opened, press, settled
from tests.support.golden import GOLDEN

KAFKA = str(GOLDEN.relative_to(GOLDEN.parents[2]))
DAMAGED = "sample-data/damaged"


class Picture(NamedTuple):
    name: str
    place: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (80, 24)
    theme: str = "textual-dark"
    glyphs: Glyphs = UNICODE


PICTURES = (
    Picture("topics", DAMAGED),
    Picture("topics_narrow", DAMAGED, size=(60, 16)),
    Picture("partitions", "sample-data/open-transaction", ("enter",)),
    Picture("records", f"{KAFKA}/compacted_txn"),
    Picture("records_narrow", f"{KAFKA}/compacted_txn", size=(60, 16)),
    Picture("records_wide", f"{DAMAGED}/c_bitflip_middle-0@19", size=(160, 20)),
    Picture("records_16_colours", f"{DAMAGED}/c_bitflip_middle-0@19", theme="ansi-dark"),
    Picture("records_ascii", f"{DAMAGED}/c_bitflip_middle-0@19", glyphs=ASCII),
    Picture("record", f"{KAFKA}/txn_multisegment@145", ("enter",), (100, 40)),
    Picture("gap", f"{DAMAGED}/c_bitflip_middle-0@21", ("enter",)),
    Picture("map", f"{KAFKA}/txn_multisegment", ("m",)),
    Picture("map_damaged_ascii", f"{KAFKA}/c_bitflip_middle.corrupt", ("m",), glyphs=ASCII),
    Picture("bytes", f"{KAFKA}/txn_multisegment@3", ("b", "tab", "tab")),
    Picture("bytes_narrow", f"{KAFKA}/txn_multisegment@3", ("b",), size=(60, 20)),
    Picture("files", f"{KAFKA}/c_bad_index.corrupt", ("i",)),
    Picture("file", f"{KAFKA}/c_bad_index.corrupt", ("i", "enter")),
    Picture("verify", f"{KAFKA}/c_bitflip_length.corrupt", ("v",)),
    Picture("plan", f"{KAFKA}/c_bitflip_length.corrupt", ("v", "p")),
    Picture("groups", KAFKA, ("g",)),
    Picture("transactions", "sample-data/open-transaction", ("t",)),
    Picture("help", f"{DAMAGED}/c_torn_tail-0", ("question_mark",)),
    Picture("command", f"{DAMAGED}/c_torn_tail-0", ("y",)),
)


FIRST = {"partitions", "records", "gap", "map_damaged_ascii", "bytes_narrow", "plan"}
"""Of the first tier; the others belong to the longer one."""


@pytest.mark.parametrize(
    "picture",
    [pytest.param(one, id=one.name, marks=() if one.name in FIRST else pytest.mark.longer) for one in PICTURES],
)
def test_a_screen_looks_as_it_did(picture: Picture, snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    monkeypatch.setattr(screen, "LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: 1_800_000_000_000)
    monkeypatch.delenv("NO_COLOR", raising=False)
    app = InspectApp(opened(picture.place), glyphs=picture.glyphs)
    app.theme = picture.theme

    async def look(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await press(pilot, *picture.keys)

    assert not os.environ.get("TEXTUAL_DRIVER")
    assert snap_compare(app, terminal_size=picture.size, run_before=look)
