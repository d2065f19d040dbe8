"""What a handler knows about a request besides its message."""

from __future__ import annotations

from typing import NamedTuple

from core.coordinator.coordinator_environment import ClientInfo

_MOST_SHOWN = 200
"""The most characters of a client id in a log line."""


class RequestContext(NamedTuple):
    """`local_host` is this broker's address that the client reached, `client_host` the client's own, `listener` the
    name of the listener; all are empty without a socket.
    """

    api_version: int
    client_id: str | None
    local_host: str = ""
    client_host: str = ""
    listener: str = ""

    @property
    def client(self) -> ClientInfo:
        return ClientInfo(self.client_id or "", f"/{self.client_host}")

    @property
    def sender(self) -> str:
        """The client and its address, for log lines."""
        return f"client {(self.client_id or '')[:_MOST_SHOWN]!r} at {self.client_host or 'no address'}"
