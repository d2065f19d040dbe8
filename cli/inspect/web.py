"""`plog inspect --web`: the same screens in a browser, behind a guard.

Each tab is a process of its own, which draws as in a terminal, on Textual's web driver; the page has the script, style
and fonts of textual-serve. Its server is not used: it lets everybody in, starts the app by a shell, opens and saves in
the browser any file that the app names, waits without end for an app that does not end, and loads a font from Google.

The browser that opens the printed address first gets a cookie for the token in it, and nobody else gets in. Two more
checks follow, because a foreign page may send requests, too, from the same browser: `Host` must name this server
(against DNS rebinding), and the page that opens the websocket must be ours (`Origin`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import re
import secrets
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler

from cli.stop_signals import STOP_SIGNALS, leave_terminal
from cli.terminal import say
from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.bound_listener import bind_all
from core.broker.serving.listener_endpoints import Listener
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import UsageError
from core.common.printable import printable

MOST_SESSIONS = 4
"""The most tabs at once; each is a process."""
MOST_STRANGERS = 64
"""The most connections that have not shown the cookie."""
LONGEST_MESSAGE = 256 * 1024
"""Limit of a browser's message in bytes, as the user may paste a text, and of what waits for the app."""

_LONGEST_PACKET = 16 * 1024 * 1024
_STDERR_BYTES = 4096
_STRANGER_SECONDS = 5.0
_SLOT_SECONDS = 3.0
"""How long a new tab waits for one that is closing, as when a page is reloaded."""
_ENDING_SECONDS = 2.0
"""How long the app has from SIGTERM to SIGKILL."""
_SHUTDOWN_SECONDS = 8.0
"""Longer than a session takes to end."""

_STATIC = (
    "css/xterm.css",
    "js/textual.js",
    "fonts/RobotoMono-VariableFont_wght.ttf",
    "fonts/RobotoMono-Italic-VariableFont_wght.ttf",
)
# The page goes on by itself. With a redirect, a browser that came by a link elsewhere would leave the new cookie out.
# And textual-serve's script would fetch what a link to the page names (`?ping=`).
_GO_ON = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><title>plog inspect</title>'
)
_HEADERS = {
    # style: xterm.js makes style elements. sandbox without popups, modals, downloads: xterm.js makes links in records.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "sandbox allow-scripts allow-same-origin",
    "Permissions-Policy": "clipboard-read=()",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer: the page loads nothing foreign, and is not framed, cached, or sent to others."""

_IP_ADDRESS = re.compile(r"[0-9.]+|[0-9a-f.]*:[0-9a-f.:]*")
_TO_CLIPBOARD = re.compile(rb"\x1b\]52;c;[A-Za-z0-9+/=]*\x07")
_COMMANDS = re.compile(rb"(?:\x1b\]|\xc2\x9d).*?(?:\x07|\x1b\\|\xc2\x9c|\Z)", re.DOTALL)
_WIPE = b"\x1b[?1049l\x1b[2J\x1b[H"


def serve_inspect(command: Sequence[str], listen: str) -> None:
    """Serves the command's drawing until SIGTERM, SIGHUP or Ctrl-C. Once browsers may connect it prints one line,
    `ready http://HOST:PORT/?token=...`. Raises AccessError if it can't listen at `listen` (HOST:PORT), UsageError if
    that is not an address.
    """
    endpoint = parse_endpoint(listen, 8000)
    if not endpoint.is_loopback:
        say(
            f"warning: on {endpoint} without encryption: anybody who has the token, or listens on the way, can read "
            "it all"
        )
    asyncio.run(InspectServer(command, endpoint).run(_say_ready))


def _say_ready(address: str) -> None:
    print(f"ready {address}", flush=True)
    say("the address lets in one browser, once; Ctrl-C ends the server")


def is_for_server(host: str | None, endpoint: Endpoint, machine: str) -> bool:
    """Returns whether a `Host` header names the server at the endpoint, on this computer. The port may differ: that of
    a tunnel to it.
    """
    try:
        name = parse_endpoint(host or "").host.lower()
    except UsageError:
        return False
    if endpoint.is_wildcard:  # a number cannot be made to lead elsewhere, as a name can
        return name in ("localhost", machine.lower()) or _IP_ADDRESS.fullmatch(name) is not None
    return name == endpoint.host.lower() or (endpoint.is_loopback and name in ("localhost", "127.0.0.1", "::1"))


class InspectServer:
    """Serves the page, and checks each connection and request. Owned by the loop that it runs in."""

    def __init__(self, command: Sequence[str], listen: Endpoint) -> None:
        """`command` draws on Textual's web driver. Raises AccessError if the server can't listen there."""
        (self._bound,) = bind_all([Listener.plaintext_at(listen)], BrokerConfig())
        self._endpoint = at = self._bound.endpoint
        self._command = command
        self._machine = platform.node()
        self._address = f"http://{Endpoint(self._machine if at.is_wildcard else at.host, at.port)}/"
        self._token: str | None = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._cookie_name = f"plog-inspect-{at.port}"  # to cookies, all ports of a host are the same
        self._known: set[RequestHandler] = set()
        """Connections that have shown the cookie."""
        self._slots = asyncio.Semaphore(MOST_SESSIONS)
        self._is_stopping = asyncio.Event()

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serves until a signal stops it. Calls `on_ready` with the first address to open, once clients may connect."""
        app = web.Application(middlewares=[self._watch])
        app.on_response_prepare.append(_add_headers)
        app.on_shutdown.append(self._end_sessions)
        app.router.add_get("/ws", self._open_session, allow_head=False)
        for path, file in _files().items():
            app.router.add_get(path, partial(_send_file, file), allow_head=False)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, lingering_time=0.0)
        await runner.setup()
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        try:
            door = await loop.create_server(partial(self._meet, runner.server), sock=self._bound.socket)
            with contextlib.closing(door):
                for number in STOP_SIGNALS:
                    if signal.getsignal(number) is not signal.SIG_IGN:
                        loop.add_signal_handler(number, self._stop_by, number)
                on_ready(f"{self._address}?token={self._token}")
                await self._is_stopping.wait()
        finally:
            await runner.cleanup()

    def _stop_by(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        self._is_stopping.set()
        for one in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(one)  # the second ends it at once

    async def _end_sessions(self, _app: web.Application) -> None:
        for one in self._known:
            if one.transport is not None:
                one.transport.abort()  # its session ends, as if the browser had gone

    def _meet(self, server: web.Server) -> RequestHandler:
        """Returns the handler of the next connection, which is closed if it stays a stranger. If there are too many
        strangers, closes the oldest, so that idle connections do not keep others out.
        """
        self._known.intersection_update(server.connections)
        for one in [one for one in server.connections if one not in self._known][: 1 - MOST_STRANGERS]:
            one.force_close()
        handler = server()
        asyncio.get_running_loop().call_later(_STRANGER_SECONDS, self._close_stranger, handler)
        return handler

    def _close_stranger(self, handler: RequestHandler) -> None:
        if handler not in self._known:
            handler.force_close()

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admits requests with the cookie, or the token for it; all others get no information."""
        if not is_for_server(request.headers.get("Host"), self._endpoint, self._machine):
            raise web.HTTPMisdirectedRequest(text=f"this server's address is {self._address}\n")
        go_on = web.Response(text=_GO_ON, content_type="text/html")
        is_for_page = request.method == "GET" and request.path == "/"
        if _is_same(request.cookies.get(self._cookie_name, ""), self._cookie):
            self._known.add(request.protocol)
            return go_on if is_for_page and request.query_string else await handler(request)
        if not is_for_page or "token" not in request.query:
            raise web.HTTPForbidden(text="open the address that plog inspect --web printed, with its token\n")
        if self._token is None or not _is_same(request.query["token"], self._token):
            used = "a token works once, in one browser; start plog inspect --web again for another one\n"
            raise web.HTTPForbidden(text=used)
        self._token = None
        go_on.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="Strict")
        return go_on

    async def _open_session(self, request: web.Request) -> web.WebSocketResponse:
        """Shows a session to a page of ours, for as long as both last."""
        host = request.headers.get("Host")
        if request.headers.get("Origin") not in (f"http://{host}", f"https://{host}"):
            raise web.HTTPForbidden(text="the page is not of this server\n")
        try:
            async with asyncio.timeout(_SLOT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise web.HTTPServiceUnavailable(text=f"{MOST_SESSIONS} sessions are open\n") from None
        websocket = web.WebSocketResponse(heartbeat=15.0, max_msg_size=LONGEST_MESSAGE, compress=False, timeout=1.0)
        try:
            await websocket.prepare(request)
            await self._show(request, websocket)
        finally:
            self._slots.release()
        return websocket

    async def _show(self, request: web.Request, websocket: web.WebSocketResponse) -> None:
        try:
            process = await _start(self._command, *_size_of(request.query))
        except OSError as error:
            say(f"warning: a session could not start: {(error.strerror or str(error)).lower()}")
            return
        session = AppSession(websocket, process)
        try:
            await session.follow_page()
        finally:
            await session.stop()


class AppSession:
    """The process of one tab, which can only draw, and ends with the tab. Owned by the server's loop.

    A packet from the app or to it is its kind (D: bytes of the terminal, M: JSON), four bytes of length, the payload.
    """

    def __init__(self, websocket: web.WebSocketResponse, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._websocket, self._process = websocket, process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._complaint = b""
        self._hearing = asyncio.create_task(self._hear(process.stderr))
        self._drawing = asyncio.create_task(self._draw())

    async def follow_page(self) -> None:
        """Passes the page's messages on to the app, until the page is gone or sends one that our page never sends."""
        with contextlib.suppress(AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
            async for message in self._websocket:
                if message.type is WSMsgType.TEXT:
                    kind, *rest = message.json()
                    if kind == "ping":
                        await self._websocket.send_json(["pong", rest[0]])
                    elif kind == "stdin":
                        self._send(b"D", rest[0].encode())
                    elif kind == "resize":
                        width, height = _fitting(rest[0]["width"], rest[0]["height"])
                        self._send(b"M", json.dumps({"type": kind, "width": width, "height": height}).encode())
                    elif kind in ("blur", "focus"):
                        self._send(b"M", json.dumps({"type": kind}).encode())

    def _send(self, kind: bytes, payload: bytes) -> None:
        """Drops input that the app does not read: if we waited for the app, we would not notice that the browser is
        gone.
        """
        if not self._stdin.is_closing() and self._stdin.transport.get_write_buffer_size() <= LONGEST_MESSAGE:
            self._stdin.write(kind + len(payload).to_bytes(4, "big") + payload)

    async def _draw(self) -> None:
        """Passes on the app's drawing, and nothing else, until the app ends or writes bytes that are not a packet.
        Shows the app's errors in its place.
        """
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            await self._stdout.readuntil(b"__GANGLION__\n")
            while kind := await self._stdout.read(1):
                size = int.from_bytes(await self._stdout.readexactly(4), "big")
                if size > _LONGEST_PACKET:
                    break
                payload = await self._stdout.readexactly(size)
                if kind == b"D":
                    await self._websocket.send_bytes(without_commands(payload))
                elif kind == b"M" and json.loads(payload) == {"type": "exit"}:
                    break
        self._stdin.close()
        await asyncio.wait([self._hearing], timeout=_ENDING_SECONDS)
        with contextlib.suppress(OSError):  # of a browser that is gone
            if complaint := printable(self._complaint.decode("utf-8", "replace").strip()):
                say(f"warning: a session ended: {complaint}")
                await self._websocket.send_bytes(_WIPE + complaint.replace("\n", "\r\n").encode())
            await self._websocket.close()

    async def stop(self) -> None:
        """Asks the process to end, and kills it if it does not. Reads on meanwhile: it may be writing."""
        self._drawing.cancel()
        await asyncio.wait([self._drawing])
        self._stdin.close()
        process = self._process
        ending = asyncio.gather(_read_to_end(self._stdout), self._hearing, process.wait())
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            await asyncio.wait([ending], timeout=_ENDING_SECONDS)
            if ending.done():
                return
        ending.cancel()

    async def _hear(self, stderr: asyncio.StreamReader) -> None:
        """Keeps the end of the app's stderr."""
        while data := await stderr.read(_STDERR_BYTES):
            self._complaint = (self._complaint + data)[-_STDERR_BYTES:]


async def _start(command: Sequence[str], columns: int, lines: int) -> Process:
    driver = {"TEXTUAL_DRIVER": f"{__package__}.web_driver:InspectWebDriver", "TEXTUAL_COLOR_SYSTEM": "truecolor"}
    size = {"COLUMNS": str(columns), "LINES": str(lines), "ROWS": str(lines)}
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ | driver | size | {"TERM": "xterm-256color", "TERM_PROGRAM": "textual"},
        start_new_session=True,  # a Ctrl-C is for the server, which ends its sessions
    )


def without_commands(payload: bytes) -> bytes:
    """Removes from a packet commands that do more than draw: set a title, read the clipboard, make a link. The app
    escapes texts from a log; this makes sure. A packet that is only one text for the clipboard was made by `y`.
    """
    return payload if _TO_CLIPBOARD.fullmatch(payload) else _COMMANDS.sub(b"", payload)


def _fitting(columns: int, lines: int) -> tuple[int, int]:
    """Returns a size that a screen may have, as near to that one as can be."""
    return min(max(columns, 1), 1000), min(max(lines, 1), 500)


def _size_of(query: Mapping[str, str]) -> tuple[int, int]:
    try:
        return _fitting(int(query["width"]), int(query["height"]))
    except (KeyError, ValueError):
        return 80, 24


def _files() -> dict[str, Path]:
    """Returns all files that are served, by their paths. Imports nothing of textual-serve: that takes 0.2 s."""
    spec = find_spec("textual_serve")
    assert spec is not None  # `plog inspect` has looked for it
    assert spec.origin is not None
    static, page = Path(spec.origin).with_name("static"), Path(__file__).with_name("web_page")
    files = {"/": page / "page.html", "/page/page.js": page / "page.js"}
    return files | {f"/static/{name}": static / name for name in _STATIC}


async def _send_file(file: Path, _request: web.Request) -> web.FileResponse:
    return web.FileResponse(file)


async def _read_to_end(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 16):
        pass


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _is_same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
