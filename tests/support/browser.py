"""A headless Chromium, driven through its DevTools protocol; there is no other way to see what a page draws.

What leaves this machine does not: the browser is told to resolve no names, and every request that a page makes is kept
in `requests`.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import MOST_SECONDS, machine_seconds

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)
_KEEP_TERMINAL = """
Object.defineProperty(Object.prototype, "terminal", {
  configurable: true,
  set(value) {
    Object.defineProperty(this, "terminal", { value, writable: true, configurable: true, enumerable: true });
    if (value && value.buffer && value.cols) window.theTerminal = value;
  },
});
"""
"""xterm.js is inside textual.js, which shows its terminal to nobody. So it is caught when it is assigned."""

_TEXT = """
(() => {
  const terminal = window.theTerminal;
  if (!terminal) return null;
  const lines = [];
  for (let i = 0; i < terminal.rows; i++) lines.push(terminal.buffer.active.getLine(i).translateToString(true));
  return lines.map(line => line.replace(/ +$/, "")).join("\\n") + "\\n";
})()
"""
_KEYS = {
    "enter": ("Enter", "Enter", 13, "\r"),
    "escape": ("Escape", "Escape", 27, ""),
    "down": ("ArrowDown", "ArrowDown", 40, ""),
}
"""Textual's name -> what the DevTools call it: key, code, number, text."""


def find_browser() -> str | None:
    """Gives where a Chromium is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class NavigatedError(Exception):
    """The page that was asked is gone: another is being loaded in its place."""


class Page:
    """One tab. Owned by the loop that opened it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        """Addresses of all requests and websockets."""
        self.complaints: list[str] = []
        """What the page's console and the browser complain of."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None

    async def listen(self) -> None:
        """Takes what the browser says, until it has gone."""
        async for message in self._socket:
            self._take(json.loads(message.data))

    def _take(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case None:
                self._waiting.pop(message["id"]).set_result(message)
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Network.webSocketCreated":
                self.requests.append(parameters["url"])
            case "Log.entryAdded":
                self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol and gives its result."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        envelope = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(envelope | ({"sessionId": self._session} if self._session else {}))
        found = await answer
        if "navigated" in found.get("error", {}).get("message", ""):
            raise NavigatedError(found)
        assert "error" not in found, found
        result = found["result"]
        assert isinstance(result, dict)
        return result

    async def open_tab(self, width: int, height: int) -> None:
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Network", "Page", "Log", "Runtime"):
            await self.ask(f"{domain}.enable")
        await self.ask("Page.addScriptToEvaluateOnNewDocument", source=_KEEP_TERMINAL)
        await self.resize(width, height)

    async def resize(self, width: int, height: int) -> None:
        """Makes the tab that many pixels wide and high."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def load(self, address: str) -> None:
        await self.ask("Page.navigate", url=address)

    async def evaluate(self, script: str) -> Any:
        """Gives what a script in the page gives, as JSON."""
        found = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    async def text(self) -> str | None:
        """Gives the characters in the terminal; lines end where their text does. None before there is a terminal."""
        try:
            found = await self.evaluate(_TEXT)
        except NavigatedError:
            return None
        assert found is None or isinstance(found, str)
        return found

    async def press(self, *keys: str) -> None:
        """Presses keys, by Textual's names; a single character is typed."""
        for key in keys:
            name, code, number, text = _KEYS.get(key, (key, "", 0, key))
            down = {"type": "keyDown" if text else "rawKeyDown"} | ({"text": text} if text else {})
            of_key = {"key": name, "code": code, "windowsVirtualKeyCode": number}
            await self.ask("Input.dispatchKeyEvent", **down, **of_key)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", **of_key)

    async def click(self, x: int, y: int) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def wait_for(self, condition: Callable[[str], bool]) -> str:
        """Waits until the terminal's text is so, and gives it."""
        deadline = machine_seconds() + MOST_SECONDS
        while (text := await self.text()) is None or not condition(text):
            assert machine_seconds() < deadline, f"the page has {text}\n{self.complaints}\n{self.requests}"
            await asyncio.sleep(0.02)
        return text

    async def targets(self) -> list[dict[str, Any]]:
        """Gives what the browser has open: tabs, and parts of its own."""
        found = await self.ask("Target.getTargets")
        return list(found["targetInfos"])

    async def save_picture(self, path: Path) -> None:
        found = await self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def browsing(folder: Path, *, width: int = 800, height: int = 480) -> AsyncIterator[Page]:
    """Runs a browser with a tab of that size, and a profile of its own in the folder, until the block ends."""
    browser = find_browser()
    assert browser is not None
    process = await asyncio.create_subprocess_exec(
        browser,
        *_OPTIONS,
        f"--user-data-dir={folder / 'profile'}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with aiohttp.ClientSession() as session:
            address = await _devtools_address(process)
            async with session.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                await page.open_tab(width, height)
                yield page
                listening.cancel()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _devtools_address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = b""
    while line := await process.stderr.readline():
        said += line
        if line.startswith(b"DevTools listening on "):
            return line.decode().split()[-1]
    raise AssertionError(f"the browser ended: {said.decode(errors='replace')}")
