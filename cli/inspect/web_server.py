"""The server behind `plog inspect --web`: a page, the scripts and fonts it needs, and a websocket for each tab.

The scripts and fonts are those that come with textual-serve. Its own page loads a font from Google, and fetches any
address that a link to it names (`?ping=`), and its server lets in whoever asks. So the page is ours, and `WebGuard`
watches the door. Of textual-serve's server only the routes would be left; they are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import html
import os
import platform
import signal
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

import textual_serve
from aiohttp import web
from aiohttp.typedefs import Handler

from cli.inspect.web_doorman import Doorman
from cli.inspect.web_guard import HEADERS, WebGuard
from cli.inspect.web_session import LONGEST_MESSAGE, AppSession, fitting_size
from cli.options import say
from cli.stop_signals import STOP_SIGNALS, leave_terminal
from core.common.endpoint import Endpoint
from core.common.errors import AccessError

MOST_SESSIONS = 4
"""Tabs at once; each is a process."""

_SLOT_SECONDS = 3.0
"""How long a new tab waits for one that is just being closed: that is what loading a page again does."""

_HEARTBEAT_SECONDS = 15.0
_SHUTDOWN_SECONDS = 8.0
"""Longer than a session takes to end."""

_ASSETS = {
    "textual.js": ("js/textual.js", "text/javascript"),
    "xterm.css": ("css/xterm.css", "text/css"),
    "upright.ttf": ("fonts/RobotoMono-VariableFont_wght.ttf", "font/ttf"),
    "italic.ttf": ("fonts/RobotoMono-Italic-VariableFont_wght.ttf", "font/ttf"),
}
"""What the page calls it -> where textual-serve has it, and its type."""

_OWN_ASSETS = {"page.js": "text/javascript", "page.css": "text/css"}
_PAGE = Path(__file__).with_name("web_page")

# The page goes on by itself. With a redirect, a browser that came by a link elsewhere would leave the new cookie out.
_GO_ON = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><title>plog inspect</title>'
)
_NO_COOKIE = "open the address that plog inspect --web printed, with its token\n"
_USED = "a token works once, in one browser; start plog inspect --web again for another one\n"


class Asset(NamedTuple):
    """A file that the page loads."""

    body: bytes
    content_type: str


class InspectServer:
    """Owned by the loop that it runs in."""

    def __init__(self, command: Sequence[str], listen: Endpoint, title: str) -> None:
        """`command` draws on Textual's web driver; `title` is the page's."""
        self._command = command
        self._assets = _read_assets()
        page = Template((_PAGE / "index.html").read_text(encoding="utf-8"))
        self._page = page.substitute(title=html.escape(title), sessions=MOST_SESSIONS)
        self._guard = WebGuard(listen, platform.node())
        self._doorman = Doorman()
        self._sessions: set[AppSession] = set()
        self._slots = asyncio.Semaphore(MOST_SESSIONS)
        self._is_stopping = asyncio.Event()

    def serve(self, on_ready: Callable[[str], None]) -> None:
        """Serves until a signal stops it. Calls `on_ready` with the first address to open, once clients may connect.

        Raises AccessError if it can't listen there.
        """
        asyncio.run(self.run(on_ready))

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Does what `serve` does, in a loop that runs already."""
        runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, lingering_time=0.0
        )
        await runner.setup()
        assert runner.server is not None
        rounds = asyncio.create_task(self._doorman.make_rounds(runner.server))
        try:
            with contextlib.closing(await self._listen(partial(self._doorman.open_to, runner.server))) as door:
                self._obey_signals()
                await door.start_serving()
                on_ready(self._guard.first_address)
                await self._is_stopping.wait()
        finally:
            self._is_stopping.set()
            rounds.cancel()
            for session in self._sessions:
                session.stop()
            await runner.cleanup()

    async def _listen(self, make_handler: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        listen = self._guard.endpoint
        try:
            door = await asyncio.get_running_loop().create_server(
                make_handler, listen.host, listen.port, start_serving=False
            )
        except OSError as error:
            number = error.errno or 0  # below zero it is the resolver's
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            hint = "another server listens there; --listen 127.0.0.1:0 takes a free port"
            raise AccessError(
                f"could not listen on {listen}: {reason.lower()}",
                where=str(listen),
                hint=hint if number == errno.EADDRINUSE else None,
            ) from error
        self._guard.endpoint = Endpoint(listen.host, door.sockets[0].getsockname()[1])
        return door

    def _obey_signals(self) -> None:
        loop = asyncio.get_running_loop()
        heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

        def stop(number: signal.Signals) -> None:
            if number == signal.SIGHUP:
                leave_terminal()
            self._is_stopping.set()
            for one in heeded:
                loop.remove_signal_handler(one)  # the second ends it at once

        for number in heeded:
            loop.add_signal_handler(number, stop, number)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._watch])
        application.on_response_prepare.append(_add_headers)
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/static/{name}", self._asset),
                web.get("/ws", self._websocket, allow_head=False),
            ]
        )
        return application

    @web.middleware
    async def _watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Lets those in who have the cookie, or the token for it; nobody else learns what there is."""
        if not self._guard.is_for_us(request.headers.get("Host")):
            raise web.HTTPMisdirectedRequest(text=f"this server's address is {self._guard.address}\n")
        if self._guard.is_known(request.cookies.get(self._guard.cookie_name)):
            self._doorman.let_in(request.protocol)
            return await handler(request)
        token = request.query.get("token")
        if request.path != "/" or request.method != "GET" or token is None:
            raise web.HTTPForbidden(text=_NO_COOKIE)
        cookie = self._guard.take_token(token)
        if cookie is None:
            raise web.HTTPForbidden(text=_USED)
        response = _page_of(_GO_ON)
        response.set_cookie(self._guard.cookie_name, cookie, httponly=True, samesite="Strict")
        return response

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return _page_of(_GO_ON if request.query_string else self._page)

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.match_info["name"])
        if asset is None:
            raise web.HTTPNotFound
        return web.Response(body=asset.body, content_type=asset.content_type)

    async def _websocket(self, request: web.Request) -> web.StreamResponse:
        if not self._guard.is_own_page(request.headers.get("Origin"), request.headers.get("Host")):
            raise web.HTTPForbidden(text="the page is not of this server\n")
        size = fitting_size(_number(request.query.get("width"), 80), _number(request.query.get("height"), 24))
        try:
            async with asyncio.timeout(_SLOT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise web.HTTPServiceUnavailable(text=f"{MOST_SESSIONS} sessions are open\n") from None
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_SECONDS, max_msg_size=LONGEST_MESSAGE, compress=False, timeout=1.0
        )
        try:
            await socket.prepare(request)
            await self._show(socket, size)
        finally:
            self._slots.release()
        return socket

    async def _show(self, socket: web.WebSocketResponse, size: tuple[int, int]) -> None:
        session = AppSession(self._command, socket)
        if self._is_stopping.is_set():
            session.stop()
        self._sessions.add(session)
        try:
            if complaint := await session.run(*size):
                say(f"warning: a session ended: {complaint}")
        except OSError as error:
            say(f"warning: a session could not start: {(error.strerror or '').lower()}")
        finally:
            self._sessions.discard(session)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def _page_of(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html")


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else default


def _read_assets() -> dict[str, Asset]:
    folder = files(textual_serve) / "static"
    assets = {name: Asset((folder / path).read_bytes(), kind) for name, (path, kind) in _ASSETS.items()}
    return assets | {name: Asset((_PAGE / name).read_bytes(), kind) for name, kind in _OWN_ASSETS.items()}
