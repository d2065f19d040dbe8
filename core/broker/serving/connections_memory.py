"""The memory that all connections hold together: incomplete requests, and unsent answers.

`queued.max.request.bytes` bounds it, by these rules:

- A request holds its received bytes, twice that at most; one above 1 MB counts whole after its first MB. So an
admitted request can be completed, and a claimed size costs nothing before bytes follow it.
- A request that needs more room than is free waits, and its connection is not read. Of the small ones those that need
least are served first; large ones have a line of their own, and leave a quarter of the room to small ones. One large
request is admitted in any case.
- A request that is processed in turns, or waits for its transaction to be written, still holds its received bytes.
- While a connection waits, others that hold memory and move less than 16 KB in two seconds are slow: they are closed,
those that hold most first, until the next one in line has room. If all wait, the last one in line is closed. A
connection whose request is being processed is not slow, and frees its memory when that is done.
- While half of the memory is taken, connections are read in small pieces, and none has a second answer unsent.

So a client that sends small requests and reads the answers is served beside any number of others that do neither.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from operator import itemgetter
from typing import Protocol

_log = logging.getLogger("plog.connection")

LARGE_BYTES = 1088 * 1024
"""A request of the default message.max.bytes is not large yet."""
SLOW_BYTES = 16 * 1024
"""Bytes in two steps below which a client is slow: in one step, after a delay of the loop, none may have been read."""
_MOST_UNSENT_BYTES = 1024 * 1024


class Holder(Protocol):
    """A connection."""

    moved_bytes: int
    """Bytes received and sent since it was opened."""

    @property
    def is_at_work(self) -> bool:
        """Whether the broker is processing a request of it, so that it can only wait."""

    def on_granted(self) -> None:
        """Called when the requested room is free; it counts as held."""

    def close(self) -> None:
        """Frees everything, by `forget`."""


class ConnectionsMemory:
    """The memory of one server; owned by the loop's task.

    I1 the next holder in a line does not fit, or the lines are being served
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: dict[Holder, int] = {}
        self._total = 0
        self._small: dict[Holder, int] = {}  # waiting holders, and the bytes that each wants to hold
        self._large: dict[Holder, int] = {}
        self._admitted: set[Holder] = set()  # of the large ones
        self._marks: dict[Holder, int] = {}  # bytes moved until the last step but one
        self._last_marks: dict[Holder, int] = {}  # and until the last one
        self._slow: list[Holder] = []  # as of the last step; the largest holder comes last
        self._closed = 0
        self.is_short = False
        """Whether connections must save memory."""
        self.most_unsent_bytes = _MOST_UNSENT_BYTES
        """A connection with more unsent bytes handles no further request."""

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Notes the bytes that it holds now, whether or not there is room."""
        before = self._held.pop(holder, 0)
        if size_bytes:
            self._held[holder] = size_bytes
        if size_bytes < LARGE_BYTES:
            self._admitted.discard(holder)
        self._total += size_bytes - before
        self.is_short = 2 * self._total > self._limit
        self.most_unsent_bytes = 0 if self.is_short else _MOST_UNSENT_BYTES
        if size_bytes < before:
            self._serve()

    def ask(self, holder: Holder, size_bytes: int) -> None:
        """Asks to hold that much; calls it back when it may, at once or when there is room."""
        if size_bytes <= self._held.get(holder, 0):  # more bytes of a large one
            holder.on_granted()
            return
        line = self._large if size_bytes > LARGE_BYTES else self._small
        line[holder] = size_bytes
        self._make_room()

    def forget(self, holder: Holder) -> None:
        """Forgets a holder whose connection is closed."""
        self._take_out(holder)
        self.hold(holder, 0)

    def _take_out(self, holder: Holder) -> None:
        """Removes it from the lines; its moved bytes are counted from 0 again."""
        for book in (self._small, self._large, self._marks, self._last_marks):
            book.pop(holder, None)

    def step(self) -> None:
        """Finds the slow connections, and closes some of them if others wait; call it every second."""
        marks, slow, is_moving = {}, [], False
        for holder in self._held:
            if self._waits(holder):
                continue
            marks[holder] = holder.moved_bytes
            if self._is_slow(holder):
                slow.append(holder)
            else:
                is_moving = True
        self._marks, self._last_marks = self._last_marks, marks
        self._slow = sorted(slow, key=self._held.__getitem__)
        self._make_room()
        if not is_moving and not slow:
            for holder in [*reversed(self._large), *reversed(self._small)][:-1]:
                if not self._is_wanting():
                    break
                self._close(holder)
        if self._closed:
            text = (
                "closed %d connections that had sent only a part of a request, or did not read their answers: other "
                "connections needed the memory; queued.max.request.bytes is %d"
            )
            _log.warning(text, self._closed, self._limit)
            self._closed = 0

    def _waits(self, holder: Holder) -> bool:
        return holder in self._small or holder in self._large

    def _is_slow(self, holder: Holder) -> bool:
        if holder.is_at_work or holder not in self._marks:
            return False
        return holder.moved_bytes - self._marks[holder] < SLOW_BYTES

    def _fits(self, holder: Holder, size_bytes: int) -> bool:
        total = self._total + size_bytes - self._held.get(holder, 0)
        if size_bytes <= LARGE_BYTES:
            return total <= self._limit
        return total <= self._limit - self._limit // 4 or not self._admitted

    def _admit(self, holder: Holder, size_bytes: int) -> None:
        self.hold(holder, size_bytes)
        if size_bytes > LARGE_BYTES:
            self._admitted.add(holder)

    def _next_in_lines(self) -> Iterator[tuple[Holder, int]]:
        if self._small:
            yield min(self._small.items(), key=itemgetter(1))
        if self._large:
            yield next(iter(self._large.items()))

    def _is_wanting(self) -> bool:
        return self._total > self._limit or any(not self._fits(*waiting) for waiting in self._next_in_lines())

    def _make_room(self) -> None:
        while self._slow and self._is_wanting():
            holder = self._slow.pop()
            if not self._waits(holder) and self._is_slow(holder):
                self._close(holder)
        self._serve()

    def _close(self, holder: Holder) -> None:
        self._closed += 1
        holder.close()

    def _serve(self) -> None:
        while served := [waiting for waiting in self._next_in_lines() if self._fits(*waiting)]:
            holder, size_bytes = served[0]
            self._take_out(holder)
            self._admit(holder, size_bytes)
            holder.on_granted()

    def _check_invariants(self) -> None:
        """Asserts the invariants; not while the lines are being served."""
        assert not any(self._fits(*waiting) for waiting in self._next_in_lines()), "I1"
