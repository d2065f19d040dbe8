"""Bounds for clients that have not said who they are: their time, their number, and what they may write into the log.

Kafka has none of these: three bytes of a ClientHello hold a connection of it for ten minutes. When there are too many,
those go first that have not even sent a first record or request whole, the oldest before others: so whoever opens
thousands of connections and says little does not keep out a client that says what it wants.
"""

from __future__ import annotations

import logging
from itertools import islice
from time import monotonic  # noqa: TID251  how many lines come in a second
from typing import Protocol

_log = logging.getLogger("plog.connection")

AUTHENTICATION_SECONDS = 10.0
"""What handshake and login may take together, not counting a second until somebody looks."""
MOST_UNAUTHENTICATED = 1000
"""In all; half as many of one address. They never take more than half of the connections that the broker may have."""
_LOOKED_AT = 50


class Stranger(Protocol):
    """A connection."""

    client_host: str

    @property
    def has_begun(self) -> bool:
        """Whether its first record of TLS, or its first request, is whole."""

    def close(self) -> None:
        """Closes it, which leads to `Unauthenticated.remove`."""


class Unauthenticated:
    """The connections of one server whose clients are not known; owned by the loop's task."""

    def __init__(self) -> None:
        self._by_host: dict[str, dict[Stranger, float]] = {}  # since when, the oldest first
        self.count = 0
        self.overdue = self.crowded_out = 0
        """How many were closed since the start, because their time was over, or because there were too many."""
        self._reported = 0

    def add(self, stranger: Stranger, now_s: float, most: int) -> None:
        """Closes another one if there are more than `most` now, or half as many of its address."""
        of_host = self._by_host.setdefault(stranger.client_host, {})
        of_host[stranger] = now_s
        self.count += 1
        if len(of_host) > max(most // 2, 1):
            self._crowd_out(list(islice(of_host, _LOOKED_AT)))
        elif self.count > most:
            hosts = self._by_host.values()
            largest: dict[Stranger, float] = max(hosts, key=len)
            others = (next(iter(one)) for one in islice(hosts, _LOOKED_AT))
            self._crowd_out([*islice(largest, _LOOKED_AT), *others])

    def remove(self, stranger: Stranger) -> None:
        """Does nothing if it is not there."""
        of_host = self._by_host.get(stranger.client_host, {})
        if of_host.pop(stranger, None) is not None:
            self.count -= 1
            if not of_host:
                del self._by_host[stranger.client_host]

    def step(self, now_s: float) -> None:
        """Closes those whose time is over; call it every second."""
        for of_host in list(self._by_host.values()):
            for stranger, since_s in list(of_host.items()):
                if now_s - since_s < AUTHENTICATION_SECONDS:
                    break
                self.overdue += 1
                stranger.close()
        closed = self.overdue + self.crowded_out
        if closed > self._reported:
            text = "closed %d connections whose clients did not authenticate: in %g s, or before too many others came"
            _log.warning(text, closed - self._reported, AUTHENTICATION_SECONDS)
            self._reported = closed

    def _crowd_out(self, oldest: list[Stranger]) -> None:
        """Of all, these are the oldest of the address that has most, and of other addresses, of which one peer may have
        many.
        """
        self.crowded_out += 1
        next((one for one in oldest if not one.has_begun), oldest[0]).close()


class LogLimit(logging.Filter):
    """Leaves out lines that come faster than one a second, after the first hundred: a peer must not fill the disk."""

    _MOST_AT_ONCE = 100

    def __init__(self) -> None:
        super().__init__()
        self._may = float(self._MOST_AT_ONCE)
        self._last_s = monotonic()
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = monotonic()
        self._may = min(self._may + now_s - self._last_s, self._MOST_AT_ONCE)
        self._last_s = now_s
        if self._may < 1:
            self._left_out += 1
            return False
        self._may -= 1
        if self._left_out:
            record.msg = f"{record.msg} (and {self._left_out} lines about other connections were left out before)"
            self._left_out = 0
        return True
