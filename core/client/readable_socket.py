"""Waits until a socket has something to read."""

from __future__ import annotations

import selectors
import socket


def is_readable(plain: socket.socket, seconds: float) -> bool:
    """Says whether there is something to read, or the end, within that time."""
    with selectors.DefaultSelector() as selector:  # not every system has poll
        selector.register(plain, selectors.EVENT_READ)
        return bool(selector.select(max(seconds, 0)))
