"""`plog inspect --web` in this process, with a stand-in for the app behind it, and a client that is no browser."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from cli.inspect.web import InspectServer
from core.common.endpoint import Endpoint

ROOT = Path(__file__).resolve().parents[3]
PACKET_APP = [sys.executable, "-I", "-S", str(Path(__file__).with_name("packet_app.py"))]


class Tab:
    """A websocket as the page's script uses it. Owned by the loop that opened it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.greeting: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return int(self.greeting["pid"])

    async def read(self) -> bytes | None:
        """Gives what comes next for the terminal; None if the server has closed the socket."""
        message = await self.socket.receive()
        if message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
            return None
        assert message.type is aiohttp.WSMsgType.BINARY, message
        assert isinstance(message.data, bytes)
        return message.data

    async def read_until(self, text: bytes) -> None:
        """Reads until that has come."""
        data = b""
        while text not in data:
            more = await self.read()
            assert more is not None, data
            data += more

    async def rest(self) -> bytes:
        """Gives all that comes until the server closes the socket."""
        data = b""
        while (more := await self.read()) is not None:
            data += more
        return data

    def abort(self) -> None:
        """Goes without a word, as a browser does whose machine was switched off."""
        connection = self.socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    async def type(self, text: str) -> None:
        await self.socket.send_json(["stdin", text])


class Visit:
    """A browser, with its cookies, and the server's address."""

    def __init__(self, browser: aiohttp.ClientSession, first_address: str) -> None:
        self.browser = browser
        self.first_address = first_address
        self.address = first_address.partition("?")[0]
        self.port = int(self.address.rpartition(":")[2].strip("/"))

    async def status(self, path: str, **headers: str) -> int:
        async with self.browser.get(self.address.rstrip("/") + path, headers=headers) as answer:
            return answer.status

    async def enter(self) -> None:
        """Exchanges the token for the cookie."""
        async with self.browser.get(self.first_address) as answer:
            assert answer.status == 200

    async def open_socket(self, size: str = "width=80&height=24", origin: str | None = None) -> Tab:
        return Tab(
            await self.browser.ws_connect(
                f"{self.address}ws?{size}", origin=self.address.rstrip("/") if origin is None else origin or None
            )
        )

    async def open_tab(self, size: str = "width=80&height=24") -> Tab:
        """Opens a websocket to the stand-in, and reads its first packet."""
        tab = await self.open_socket(size)
        greeting = await tab.read()
        assert greeting is not None
        tab.greeting = json.loads(greeting)
        return tab


@asynccontextmanager
async def serving(
    command: Sequence[str] = PACKET_APP, *, host: str = "127.0.0.1", enters: bool = True
) -> AsyncIterator[Visit]:
    """Runs the server on a free port until the block ends. `enters` uses the token that it prints."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(InspectServer(command, Endpoint(host, 0)).run(ready.set_result))
    try:
        both: list[asyncio.Future[Any]] = [ready, running]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        async with stranger() as browser:
            visit = Visit(browser, ready.result())
            if enters:
                await visit.enter()
            yield visit
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@asynccontextmanager
async def started(*command: str | Path, enters: bool = True) -> AsyncIterator[tuple[asyncio.subprocess.Process, Visit]]:
    """Runs a server in a process of its own, until the block ends. `enters` uses the token that it prints."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        word, _, address = (await process.stdout.readline()).decode().partition(" ")
        assert word == "ready"
        async with stranger() as browser:
            visit = Visit(browser, address.strip())
            if enters:
                await visit.enter()
            yield process, visit
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def stranger() -> AsyncIterator[aiohttp.ClientSession]:
    """Gives a browser that has no cookies yet."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        yield browser


async def gone(pid: int) -> None:
    """Waits until there is no such process, not even a dead one that nobody has asked for."""
    while Path(f"/proc/{pid}").exists():
        await asyncio.sleep(0.01)
