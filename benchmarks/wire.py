"""Connections to a broker without a client, for benchmarks that encode requests before they time them."""

from __future__ import annotations

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.endpoint import parse_bootstrap

_HEADER_BYTES = 61


def transport_to(address: str) -> SocketTransport:
    return SocketTransport(*parse_bootstrap(address)[0])


def connect(address: str) -> ClientConnection:
    return ClientConnection(transport_to(address))


def next_offset(records: memoryview, offset: int) -> int:
    """Returns the offset after the last whole batch of a Fetch response; `offset` if there is no whole batch."""
    position = 0
    while position + _HEADER_BYTES <= len(records):
        size = int.from_bytes(records[position + 8 : position + 12]) + 12
        if position + size > len(records):
            break
        offset = int.from_bytes(records[position : position + 8]) + 1
        offset += int.from_bytes(records[position + 23 : position + 27])
        position += size
    return offset
