"""`plog inspect --web`: the same screens in a browser.

Each tab is a process of its own, which draws as in a terminal; textual-serve's script shows that. The server listens on
this machine alone, unless another address is given; it lets in one browser (web_guard.py); and the page loads nothing
from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.options import say
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import UsageError

if TYPE_CHECKING:
    from cli.inspect.web_server import InspectServer

DEFAULT_PORT = 8000
_NEEDED = ("aiohttp", "textual_serve")
_BOUND = {"": "0.0.0.0", "localhost": "127.0.0.1"}  # noqa: S104 - what --listen :PORT asks for
"""Hosts that would be several addresses, which could have different ports."""


def serve_inspect(command: Sequence[str], listen: str, *, title: str = "plog inspect") -> None:
    """Serves what the command draws until SIGTERM, SIGHUP or Ctrl-C. Once browsers may connect it prints one line,
    `ready http://HOST:PORT/?token=...`.

    Raises AccessError if it can't listen at `listen` (HOST:PORT), UsageError if that is no address, or if textual-serve
    is not installed.
    """
    asked = parse_endpoint(listen, DEFAULT_PORT)
    endpoint = Endpoint(_BOUND.get(asked.host.lower(), asked.host), asked.port)
    server = _make_server(command, endpoint, title)
    if not endpoint.is_loopback:
        say(f"warning: on {endpoint} without encryption: whoever has the token, or listens on the way, can read it all")
    server.serve(_say_ready)


def _make_server(command: Sequence[str], endpoint: Endpoint, title: str) -> InspectServer:
    try:
        from cli.inspect.web_server import InspectServer

        return InspectServer(command, endpoint, title)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            raise
        raise UsageError("--web needs the package textual-serve", hint="pip install 'plog-kafka[ui]'") from None


def _say_ready(address: str) -> None:
    print(f"ready {address}", flush=True)
    say("the address lets in one browser, once; Ctrl-C ends the server")
