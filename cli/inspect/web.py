"""`plog inspect --web`: the same screens in a browser, by textual-serve, behind a guard.

Each tab is a process of its own, which draws as in a terminal. The browser that opens the printed address first gets a
cookie for the token in it, and nobody else gets in. Two more checks follow, because a foreign page may send requests,
too, from the same browser: `Host` must name this server (against DNS rebinding), and the page that opens the websocket
must be ours (`Origin`).

textual-serve alone lets everybody in, starts the app by a shell, opens and saves in the browser any file that the app
names, and waits without end for an app that does not end. Its page loads a font from Google.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import re
import secrets
import shlex
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from cli.options import say
from cli.stop_signals import STOP_SIGNALS, leave_terminal
from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.bound_listener import bind_all
from core.broker.serving.listener_endpoints import Listener
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import UsageError
from core.common.printable import printable

MOST_SESSIONS = 4
"""The most tabs at once; each is a process."""
MOST_STRANGERS = 64
LONGEST_MESSAGE = 256 * 1024
"""Limit of a browser's message in bytes: the user may paste a text."""

_LONGEST_PACKET = 16 * 1024 * 1024
_STDERR_BYTES = 4096
_ROUND_SECONDS = 5.0
_SLOT_SECONDS = 3.0
"""How long a new tab waits for one that is closing, as when a page is reloaded."""
_ENDING_SECONDS = 2.0
"""How long the app has from SIGTERM to SIGKILL."""
_SHUTDOWN_SECONDS = 8.0
"""Longer than a session takes to end."""

_PAGE = Path(__file__).with_name("web_page")
_STATIC = (
    "css/xterm.css",
    "js/textual.js",
    "fonts/RobotoMono-VariableFont_wght.ttf",
    "fonts/RobotoMono-Italic-VariableFont_wght.ttf",
)
_PATHS = {"/", "/ws", "/page/page.js", *(f"/static/{name}" for name in _STATIC)}
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
    "X-Frame-Options": "DENY",
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


class InspectServer(Server):
    """textual-serve's server, with checks of each connection and request. Owned by the loop that it runs in."""

    def __init__(self, command: Sequence[str], listen: Endpoint, title: str = "plog inspect") -> None:
        """`command` draws on Textual's web driver. Raises AccessError if the server can't listen there."""
        (self._bound,) = bind_all([Listener.plaintext_at(listen)], BrokerConfig())
        self._endpoint = at = self._bound.endpoint
        self._machine = platform.node()
        self._address = f"http://{Endpoint(self._machine if at.is_wildcard else at.host, at.port)}/"
        self._token: str | None = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._cookie_name = f"plog-inspect-{at.port}"  # to cookies, all ports of a host are the same
        self._known: set[RequestHandler] = set()
        """Connections that have shown the cookie."""
        self._slots = asyncio.Semaphore(MOST_SESSIONS)
        self._is_stopping = asyncio.Event()
        super().__init__(shlex.join(command), at.host, at.port, title, templates_path=_PAGE)

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serves until a signal stops it. Calls `on_ready` with the first address to open, once clients may connect."""
        app = await self._make_app()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, lingering_time=0.0)
        await runner.setup()
        assert runner.server is not None
        loop = asyncio.get_running_loop()
        rounds = asyncio.create_task(self._make_rounds(runner.server))
        try:
            door = await loop.create_server(partial(self._meet, runner.server), sock=self._bound.socket)
            with contextlib.closing(door):
                for number in STOP_SIGNALS:
                    if signal.getsignal(number) is not signal.SIG_IGN:
                        loop.add_signal_handler(number, self._stop_by, number)
                on_ready(f"{self._address}?token={self._token}")
                await self._is_stopping.wait()
        finally:
            rounds.cancel()
            await runner.cleanup()

    def _stop_by(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        self._is_stopping.set()
        for one in STOP_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(one)  # the second ends it at once

    def _meet(self, server: web.Server) -> RequestHandler:
        """Returns the handler of the next connection. If there are too many strangers, closes the oldest, so that idle
        connections do not keep others out.
        """
        strangers = self._strangers(server)
        for one in strangers[: max(len(strangers) + 1 - MOST_STRANGERS, 0)]:
            one.force_close()
        return server()

    async def _make_rounds(self, server: web.Server) -> None:
        """Closes connections that are strangers for two rounds."""
        met: set[RequestHandler] = set()
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            strangers = self._strangers(server)
            for one in met.intersection(strangers):
                one.force_close()
            met = set(strangers)

    def _strangers(self, server: web.Server) -> list[RequestHandler]:
        """Returns the connections without the cookie, the oldest first."""
        self._known.intersection_update(server.connections)
        return [one for one in server.connections if one not in self._known]

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._watch)
        app.on_response_prepare.append(_add_headers)
        app.router.add_static("/page", _PAGE)
        return app

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admits requests with the cookie, or the token for it; all others get no information."""
        if not is_for_server(request.headers.get("Host"), self._endpoint, self._machine):
            raise web.HTTPMisdirectedRequest(text=f"this server's address is {self._address}\n")
        go_on = web.Response(text=_GO_ON, content_type="text/html")
        is_for_page = request.method == "GET" and request.path == "/"
        if _is_same(request.cookies.get(self._cookie_name, ""), self._cookie):
            self._known.add(request.protocol)
            if request.method != "GET" or request.path not in _PATHS:
                raise web.HTTPNotFound
            return go_on if is_for_page and request.query_string else await handler(request)
        if not is_for_page or "token" not in request.query:
            raise web.HTTPForbidden(text="open the address that plog inspect --web printed, with its token\n")
        if self._token is None or not _is_same(request.query["token"], self._token):
            used = "a token works once, in one browser; start plog inspect --web again for another one\n"
            raise web.HTTPForbidden(text=used)
        self._token = None
        go_on.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="Strict")
        return go_on

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Shows a session to a page of ours, for as long as both last."""
        host = request.headers.get("Host")
        if request.headers.get("Origin") not in (f"http://{host}", f"https://{host}"):
            raise web.HTTPForbidden(text="the page is not of this server\n")
        try:
            async with asyncio.timeout(_SLOT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise web.HTTPServiceUnavailable(text=f"{MOST_SESSIONS} sessions are open\n") from None
        try:
            return await self._show(request)
        finally:
            self._slots.release()

    async def _show(self, request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(heartbeat=15.0, max_msg_size=LONGEST_MESSAGE, compress=False, timeout=1.0)
        await websocket.prepare(request)

        async def close() -> None:
            await websocket.close()

        session = AppSession(
            self.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=close,
            download_manager=self.download_manager,
        )
        width, height = request.query.get("width", ""), request.query.get("height", "")
        try:
            await session.start(*_fitting(to_int(width, 80), to_int(height, 24)))
        except OSError as error:
            say(f"warning: a session could not start: {(error.strerror or str(error)).lower()}")
            return websocket
        try:
            await self._process_messages(websocket, session)
        except (AssertionError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError):
            pass  # the page sends no such message; or the browser is gone
        finally:
            await session.stop()
        return websocket

    async def on_startup(self, app: web.Application) -> None:
        """Prints nothing; textual-serve would print the command."""

    async def on_shutdown(self, app: web.Application) -> None:  # noqa: ARG002 - textual-serve's
        for one in self._known:
            if one.transport is not None:
                one.transport.abort()  # its session ends, as if the browser had gone


class AppSession(AppService):
    """textual-serve's process of one tab, which can only draw, and ends with the tab. Owned by the server's loop."""

    _complaint = b""

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *shlex.split(self.command),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            start_new_session=True,  # a Ctrl-C is for the server, which ends its sessions
        )
        assert process.stdin is not None
        self._stdin = process.stdin
        process.stdin.transport.set_write_buffer_limits(_LONGEST_PACKET)  # more than ever waits, see send_bytes
        self._hearing = asyncio.create_task(self._hear(process.stderr))
        return process

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        driver = f"{__package__}.web_driver:InspectWebDriver"
        own = {"TEXTUAL_DRIVER": driver, "TERM": "xterm-256color", "LINES": str(height)}
        return super()._build_environment(width, height) | own

    async def send_bytes(self, data: bytes) -> bool:
        """Drops input that the app does not read: if we waited for the app, we would not notice that the browser is
        gone.
        """
        has_room = self.stdin.transport.get_write_buffer_size() <= LONGEST_MESSAGE
        return has_room and await super().send_bytes(data)

    async def set_terminal_size(self, width: int, height: int) -> None:
        await super().set_terminal_size(*_fitting(width, height))

    async def run(self) -> None:
        """Passes on the app's drawing, until it ends or writes bytes that are not a packet; textual-serve's passes on
        links and files, too. Shows the app's errors in its place.

        A packet is its kind (D: bytes for the terminal, M: JSON), four bytes of length, the payload.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        stdout = self._process.stdout
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            await stdout.readuntil(b"__GANGLION__\n")
            while kind := await stdout.read(1):
                size = int.from_bytes(await stdout.readexactly(4), "big")
                if size > _LONGEST_PACKET:
                    break
                payload = await stdout.readexactly(size)
                if kind == b"D":
                    await self.remote_write_bytes(without_commands(payload))
                elif kind == b"M" and json.loads(payload) == {"type": "exit"}:
                    break
        self.stdin.close()
        await asyncio.wait([self._hearing], timeout=_ENDING_SECONDS)
        with contextlib.suppress(OSError):  # of a browser that is gone
            if complaint := printable(self._complaint.decode("utf-8", "replace").strip()):
                say(f"warning: a session ended: {complaint}")
                await self.remote_write_bytes(_WIPE + complaint.replace("\n", "\r\n").encode())
            await self.remote_close()

    async def stop(self) -> None:
        """Asks the process to end, and kills it if it does not. Reads on meanwhile: it may be writing."""
        assert self._task is not None
        assert self._process is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        self.stdin.close()
        process = self._process
        ending = asyncio.gather(_read_to_end(process.stdout), self._hearing, process.wait())
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            await asyncio.wait([ending], timeout=_ENDING_SECONDS)
            if ending.done():
                return
        ending.cancel()

    async def _hear(self, stderr: asyncio.StreamReader | None) -> None:
        """Keeps the end of the app's stderr."""
        assert stderr is not None
        while data := await stderr.read(_STDERR_BYTES):
            self._complaint = (self._complaint + data)[-_STDERR_BYTES:]


def without_commands(payload: bytes) -> bytes:
    """Removes from a packet commands that do more than draw: set a title, read the clipboard, make a link. The app
    escapes texts from a log; this makes sure. A packet that is only one text for the clipboard was made by `y`.
    """
    return payload if _TO_CLIPBOARD.fullmatch(payload) else _COMMANDS.sub(b"", payload)


def _fitting(columns: int, lines: int) -> tuple[int, int]:
    """Returns a size that a screen may have, as near to that one as can be."""
    return min(max(columns, 1), 1000), min(max(lines, 1), 500)


async def _read_to_end(stream: asyncio.StreamReader | None) -> None:
    assert stream is not None
    while await stream.read(1 << 16):
        pass


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _is_same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), secret.encode())
