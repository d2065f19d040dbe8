"""What a handler knows of a request besides the request itself."""

from __future__ import annotations

from typing import NamedTuple


class RequestContext(NamedTuple):
    """`local_host`: the address of ours that the client reached, empty where there is no socket."""

    api_version: int
    client_id: str | None
    local_host: str = ""
