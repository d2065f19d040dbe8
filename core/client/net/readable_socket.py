"""Waits until a socket has something to read."""

from __future__ import annotations

import selectors
import socket

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # poll asks nothing of the system to be made


def is_readable(plain: socket.socket, seconds: float) -> bool:
    """Returns whether there is something to read, or the end, within that time."""
    with _Selector() as selector:
        selector.register(plain, selectors.EVENT_READ)
        return bool(selector.select(max(seconds, 0)))
