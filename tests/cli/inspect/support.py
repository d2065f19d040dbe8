"""Runs `plog inspect` under Textual's pilot, without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from cli.inspect.line_view import UNICODE, Glyphs
from cli.inspect.screen import InspectApp
from core.pipeline.session import Session
from core.view.target.inspect_target import Opened, open_places


def with_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test that is a coroutine."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def opened(*texts: str | Path, session: Session | None = None) -> Opened:
    """Opens what the arguments of the command would."""
    session = session or Session(directory=Path("no-such-directory"))
    return open_places(list(map(str, texts)), session, lambda text: "/" in text)


@asynccontextmanager
async def inspecting(
    *texts: str | Path,
    size: tuple[int, int] = (80, 24),
    session: Session | None = None,
    glyphs: Glyphs = UNICODE,
    **options: Any,
) -> AsyncIterator[Pilot[None]]:
    """Runs the app on places, as the command line names them, until the block ends."""
    app = InspectApp(opened(*texts, session=session), glyphs=glyphs, **options)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        yield pilot
        if app.bug is not None:
            raise app.bug


async def settled(pilot: Pilot[None]) -> None:
    """Waits until all work is done and drawn."""
    app = pilot.app
    assert isinstance(app, InspectApp)
    quiet, begun = 0, app.jobs_begun
    while quiet < 3:  # what is done may begin more
        await pilot.pause(0 if app.is_idle else 0.002)
        quiet = quiet + 1 if app.is_idle and begun == app.jobs_begun else 0
        begun = app.jobs_begun


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Waits until that is so."""
    while not condition():
        await pilot.pause(0.01)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Presses keys, and waits after each until its work is done."""
    with mock.patch("textual.app.wait_for_idle", _one_round):
        for key in keys:
            await pilot.press(key)
            await settled(pilot)


async def _one_round(_seconds: float) -> None:
    """Stands for Textual's wait for an idle process, 20 ms at least, where `settled` knows what is awaited."""
    await asyncio.sleep(0)


async def type_text(pilot: Pilot[None], text: str) -> None:
    """Types a text into the line that has the focus, and Enter."""
    names = {" ": "space", ":": "colon", "@": "at", "-": "minus", ".": "full_stop", "/": "slash", "_": "underscore"}
    await press(pilot, *(names.get(character, character) for character in text), "enter")


def screen_text(app: Any) -> str:
    """Gives the characters on the screen, without colours; lines end where their text does."""
    _, height = app.size
    compositor = app.screen._compositor
    lines = compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in lines[:height]) + "\n"


def status(app: Any) -> str:
    """What the line above the keys says."""
    return str(app.screen.query_one("#status", Static).content).rstrip()


def note_places(pilot: Pilot[None], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects where the screens go instead of going there."""
    places: list[Any] = []
    monkeypatch.setattr(pilot.app, "open_bytes", lambda path, position=0: places.append((path, position)))
    monkeypatch.setattr(pilot.app, "open_records", lambda partition, offset=None: places.append((partition, offset)))
    return places
