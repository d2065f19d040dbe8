"""One open tab of `plog inspect --web`: the app in a process of its own, and the websocket that shows it.

Textual's web driver writes packets to stdout, after a line that says it is ready: a kind (D: bytes for the terminal, M:
JSON), four bytes of length, the payload. It reads the same from stdin. The browser's script sends JSON lists instead:
["stdin", text], ["resize", {"width": w, "height": h}], ["ping", text], ["blur"] and ["focus"].

textual-serve has a class for this, too. It goes through a shell, opens in the browser what the app names, takes any
size for the screen, prints the app's stderr to stdout, and waits without end for an app that does not end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from aiohttp import WSMsgType, web

from core.common.errors import MalformedMessageError
from core.common.printable import printable

LONGEST_MESSAGE = 256 * 1024
"""Bytes that a browser may send at once: somebody pastes a text."""

_READY = b"__GANGLION__\n"
_LINES_BEFORE_READY = 10
_LONGEST_PACKET = 16 * 1024 * 1024
_MOST_COLUMNS, _MOST_LINES = 1000, 500
_STDERR_BYTES = 4096
_ENDING_SECONDS = 2.0
"""How long the app has from SIGTERM to SIGKILL."""

_TO_CLIPBOARD = re.compile(rb"\x1b\]52;c;[A-Za-z0-9+/=]*\x07")
_COMMANDS = re.compile(rb"(?:\x1b\]|\xc2\x9d).*?(?:\x07|\x1b\\|\xc2\x9c|\Z)", re.DOTALL)
_WIPE = b"\x1b[?1049l\x1b[2J\x1b[H"


class Packet(NamedTuple):
    kind: bytes
    payload: bytes

    def to_bytes(self) -> bytes:
        return self.kind + len(self.payload).to_bytes(4, "big") + self.payload


class AppSession:
    """Runs until the browser or the app ends, or `stop` is called. Owned by the server's loop."""

    def __init__(self, command: Sequence[str], socket: web.WebSocketResponse) -> None:
        self._command = command
        self._socket = socket
        self._is_stopped = asyncio.Event()
        self._stderr = b""

    def stop(self) -> None:
        """Ends it soon; `run` returns then."""
        self._is_stopped.set()

    async def run(self, columns: int, lines: int) -> str:
        """Returns when the process has ended. Gives what it said went wrong, if it was the one that ended first; the
        browser shows that, too.

        Raises OSError if there can be no process.
        """
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(columns, lines),
            start_new_session=True,  # a Ctrl-C is for the server, which ends its sessions
        )
        listening = asyncio.create_task(self._hear_complaints(process))
        try:
            is_apps_end = await self._talk(process)
        finally:
            await _end(process, listening)
        complaint = printable(self._stderr.decode("utf-8", "replace").strip()) if is_apps_end else ""
        with contextlib.suppress(OSError, TimeoutError):  # of a browser that is gone, or takes nothing any more
            async with asyncio.timeout(_ENDING_SECONDS):
                if complaint:
                    await self._socket.send_bytes(_WIPE + complaint.replace("\n", "\r\n").encode())
                await self._socket.close()
        return complaint

    async def _talk(self, process: asyncio.subprocess.Process) -> bool:
        """Returns when one of the two has no more to say: True if that was the app."""
        to_browser = asyncio.create_task(self._pass_to_browser(process))
        tasks = [
            to_browser,
            asyncio.create_task(self._pass_to_app(process)),
            asyncio.create_task(_until(self._is_stopped)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            is_apps_end = to_browser.done()
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError | MalformedMessageError):
                raise outcome
        return is_apps_end

    async def _pass_to_browser(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for packet in _packets(process.stdout):
            if packet.kind == b"D":
                await self._socket.send_bytes(without_commands(packet.payload))
            elif packet.kind == b"M" and _parse(packet.payload) == {"type": "exit"}:
                return

    async def _pass_to_app(self, process: asyncio.subprocess.Process) -> None:
        """Returns when the browser is gone. An app that takes no more input must not keep us from noticing that, so
        what it leaves waiting is dropped.
        """
        assert process.stdin is not None
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                raise MalformedMessageError("a message that is no text")
            packet = packet_of(message.data)
            if packet is not None and process.stdin.transport.get_write_buffer_size() <= LONGEST_MESSAGE:
                process.stdin.write(packet.to_bytes())

    async def _hear_complaints(self, process: asyncio.subprocess.Process) -> None:
        """Keeps the end of what the app writes to stderr."""
        assert process.stderr is not None
        while data := await process.stderr.read(_STDERR_BYTES):
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]


def packet_of(message: str) -> Packet | None:
    """Makes what the app is sent of what the browser sent; None if that is not for the app.

    Raises MalformedMessageError for what the page's script does not send.
    """
    match _parse(message):
        case ["stdin", str(text)]:
            return Packet(b"D", text.encode("utf-8", "replace"))
        case ["resize", {"width": int(width), "height": int(height)}]:
            columns, lines = fitting_size(width, height)
            return Packet(b"M", json.dumps({"type": "resize", "width": columns, "height": lines}).encode())
        case ["blur" | "focus" as kind, *_]:
            return Packet(b"M", json.dumps({"type": kind}).encode())
        case ["ping", *_]:
            return None  # of interest to nobody: websockets have a ping of their own
    raise MalformedMessageError("a message that the page does not send")


def fitting_size(columns: int, lines: int) -> tuple[int, int]:
    """Gives a size that a screen may have, as near to that one as can be."""
    return min(max(columns, 1), _MOST_COLUMNS), min(max(lines, 1), _MOST_LINES)


def without_commands(payload: bytes) -> bytes:
    """Takes out of a packet what would make the terminal do more than draw: set a title, read the clipboard, make a
    link. The app escapes what comes from a log, and this makes sure. A packet that is one text for the clipboard, and
    nothing else, was made by `y`.
    """
    if (b"\x1b]" not in payload and b"\xc2\x9d" not in payload) or _TO_CLIPBOARD.fullmatch(payload):
        return payload
    return _COMMANDS.sub(b"", payload)


async def _packets(stdout: asyncio.StreamReader) -> AsyncIterator[Packet]:
    """Gives what the app writes. Raises MalformedMessageError if that is something else, EOFError if it ends within."""
    for _ in range(_LINES_BEFORE_READY):
        if await stdout.readline() == _READY:
            break
    while kind := await stdout.read(1):
        size = int.from_bytes(await stdout.readexactly(4), "big")
        if size > _LONGEST_PACKET:
            raise MalformedMessageError(f"a packet of {size} bytes")
        yield Packet(kind, await stdout.readexactly(size))


async def _end(process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> None:
    """Asks the process to end, and makes it if it does not. Reads on meanwhile: it may be writing."""
    assert process.stdin is not None
    process.stdin.close()
    waiting = asyncio.gather(_read_to_end(process.stdout), listening, process.wait())
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            await asyncio.wait([waiting], timeout=_ENDING_SECONDS)
            if waiting.done():
                return
    finally:
        waiting.cancel()


async def _read_to_end(stream: asyncio.StreamReader | None) -> None:
    assert stream is not None
    while await stream.read(1 << 16):
        pass


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def _parse(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedMessageError("a message that is no JSON") from None


def _environment(columns: int, lines: int) -> dict[str, str]:
    return os.environ | {
        "TEXTUAL_DRIVER": f"{__package__}.web_driver:InspectWebDriver",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        "ROWS": str(lines),
        "LINES": str(lines),
    }
