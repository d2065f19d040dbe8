"""What a handler knows of a request besides the request itself."""

from __future__ import annotations

from typing import NamedTuple

from core.coordinator.group_environment import ClientInfo

_MOST_SHOWN = 200
"""Characters of a client's id that a log line has."""


class RequestContext(NamedTuple):
    """What is known of a request; `local_host` is the address of ours that the client reached, `client_host` its own,
    `listener` the name of the listener that it came to; empty if there is no socket.
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
        """Names the client and its address, for log lines."""
        return f"client {(self.client_id or '')[:_MOST_SHOWN]!r} at {self.client_host or 'no address'}"
