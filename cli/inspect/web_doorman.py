"""The connections of `plog inspect --web` that nobody knows yet."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

MOST_STRANGERS = 64
_ROUND_SECONDS = 5.0


class Doorman:
    """Whoever has not shown the cookie is a stranger, for two rounds at most; and if there are too many strangers, the
    oldest goes, so that nobody keeps others out by holding on. Owned by the server's loop.
    """

    def __init__(self) -> None:
        self._known: set[RequestHandler] = set()
        self._met: set[RequestHandler] = set()
        """Strangers that were there in the last round."""

    def open_to(self, server: web.Server) -> RequestHandler:
        """Makes the handler of the server's next connection."""
        strangers = self._strangers(server)
        for one in strangers[: max(len(strangers) + 1 - MOST_STRANGERS, 0)]:
            one.force_close()
        return server()

    def let_in(self, handler: RequestHandler) -> None:
        """The connection has shown the cookie: it may stay."""
        self._known.add(handler)

    async def make_rounds(self, server: web.Server) -> NoReturn:
        """Sees off those that stay too long."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            strangers = self._strangers(server)
            for one in self._met.intersection(strangers):
                one.force_close()
            self._met = set(strangers)

    def _strangers(self, server: web.Server) -> list[RequestHandler]:
        """Gives them, the oldest first."""
        connections = server.connections
        self._known.intersection_update(connections)
        return [one for one in connections if one not in self._known]
