"""`plog inspect --web` in a real browser: it draws what a terminal would, and asks nobody else for anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.inspect.support import inspecting, press, screen_text, with_loop
from tests.cli.inspect.web_visit import ROOT, Visit, started
from tests.support.browser import Page, browsing, find_browser
from tests.support.logs import append, make_batch, open_log
from tests.support.server import PLOG

NEEDS_BROWSER = pytest.mark.skipif(
    find_browser() is None, reason="no Chromium is installed: the page was not drawn; test_web.py talks to its socket"
)
pytestmark = [pytest.mark.longer, NEEDS_BROWSER]

LOG = ROOT / "sample-data" / "partition" / "txn_multisegment-0"
SIZE = (80, 24)
PIXELS = (724, 506)
"""What holds as many characters of the page's font."""

KEYS = ("down", "down", "enter", "escape", "b", "escape", "v")
"""They open a record, its bytes, and what verify finds. Each is waited for: Escape and a letter at once are Alt and the
letter.
"""


async def _screens() -> list[str]:
    """Gives what Textual itself says that the screen holds, at first and after each key."""
    async with inspecting(LOG, size=SIZE) as pilot:
        found = [screen_text(pilot.app)]
        for key in KEYS:
            await press(pilot, key)
            found.append(screen_text(pilot.app))
    return found


@with_loop
async def test_the_browser_shows_what_a_terminal_would_and_asks_nobody_else(tmp_path: Path) -> None:
    first, *others = await _screens()
    async with _looking(LOG, tmp_path) as (visit, page):
        await page.wait_for(partial(str.__eq__, first))
        for key, expected in zip(KEYS, others, strict=True):
            await page.press(key)
            await page.wait_for(partial(str.__eq__, expected))
            if key in ("enter", "b", "v"):
                await page.save_picture(tmp_path / f"{key}.png")
        assert await page.evaluate("location.href") == visit.address
        assert {urlsplit(address).netloc for address in page.requests} == {f"127.0.0.1:{visit.port}"}
        assert {"/static/js/textual.js", "/static/fonts/RobotoMono-VariableFont_wght.ttf"} <= {
            urlsplit(address).path for address in page.requests
        }


@with_loop
async def test_a_record_makes_the_browser_do_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "evil-0")
    append(log, make_batch(b"https://evil.example/x", b"\x1b]52;c;aGk=\x07\x1b]0;evil\x07", key=b"k"))
    log.close()
    async with _looking(tmp_path / "evil-0", tmp_path) as (visit, page):
        text = await page.wait_for(lambda text: "https://evil" in text)
        assert r"\x1b]52;c;aGk=\x07\x1b]0;evil\x07" in text
        (line,) = (number for number, line in enumerate(text.splitlines()) if "https://" in line)
        column = text.splitlines()[line].index("https://") + 3
        await page.click(column * PIXELS[0] // SIZE[0], line * PIXELS[1] // SIZE[1] + 10)
        await page.wait_for(lambda _: any("Blocked opening" in complaint for complaint in page.complaints))
        assert [target["url"] for target in await page.targets() if target["url"].startswith("http")] == [visit.address]
        assert await page.evaluate("document.title") == "plog inspect"
        assert {urlsplit(address).netloc for address in page.requests} == {f"127.0.0.1:{visit.port}"}
        assert "NotAllowedError" in await page.evaluate("navigator.clipboard.readText().catch(error => error.name)")


@asynccontextmanager
async def _looking(place: Path, folder: Path) -> AsyncIterator[tuple[Visit, Page]]:
    """Looks at a place with `plog inspect --web`, and opens the address that it prints in a browser."""
    async with (
        started(PLOG, "inspect", "--web", "--listen", "127.0.0.1:0", place, enters=False) as (_, visit),
        browsing(folder, width=PIXELS[0], height=PIXELS[1]) as page,
    ):
        await page.load(visit.first_address)
        yield visit, page
