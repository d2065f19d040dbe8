"""The memory that all connections hold together: requests of which only a part came, and answers that were not sent.

`queued.max.request.bytes` bounds it, by these rules:

- A request holds what came of it, twice that at most; one above 1 MB that has sent its first MB is counted whole. So
  what is admitted can be finished, and a claim costs nobody anything before bytes follow it.
- A request that needs more room than there is waits, and its connection is not read. Of the small ones those that need
  least are served first; large ones have a line of their own, and leave a quarter of the room to small ones. One large
  request is admitted whatever there is.
- A request that is worked on in turns, or waits for its transaction to be written, goes on holding what came of it.
- As long as somebody waits, who moves less than 16 KB in two seconds, while holding memory, is slow: slow connections
  are closed, those that hold most first, until who is next has room. If everybody waits, who came last is closed.
  Whose request is being worked on is not slow, and gives back what it holds when that is done.
- While half of the memory is taken, connections are read in small pieces, and none has a second answer unsent.

So a client whose requests are small, and who reads the answers, is served beside any number of others that do neither.
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
"""Bytes in two steps below which a client is slow: in one, after the loop was held up, nobody may have been read."""
_MOST_UNSENT_BYTES = 1024 * 1024


class Holder(Protocol):
    """A connection."""

    moved_bytes: int
    """Bytes that came or went since it was opened."""

    @property
    def is_at_work(self) -> bool:
        """Says whether the broker works at a request of it, and it can but wait."""

    def on_granted(self) -> None:
        """Called when there is the room that it asked for, which is counted as held."""

    def close(self) -> None:
        """Gives everything back, by `forget`."""


class ConnectionsMemory:
    """The memory of one server; owned by the loop's task.

    I1 who waits in line does not fit, or the line is being served
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held: dict[Holder, int] = {}
        self._total = 0
        self._small: dict[Holder, int] = {}  # who waits, and how much each wants to hold
        self._large: dict[Holder, int] = {}
        self._admitted: set[Holder] = set()  # of the large ones
        self._marks: dict[Holder, int] = {}  # what each had moved at the last step but one
        self._last_marks: dict[Holder, int] = {}  # likewise, at the last one
        self._slow: list[Holder] = []  # as of the last step; who holds most comes last
        self._closed = 0
        self.is_short = False
        """Whether connections must be frugal."""
        self.most_unsent_bytes = _MOST_UNSENT_BYTES
        """With more than that unsent a connection handles no further request."""

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Notes what it holds now, whether or not there is room."""
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
        """Asks to hold that much, and calls it back when it may: at once, or when there is room."""
        if size_bytes <= self._held.get(holder, 0):  # a large one, of which more came
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
        """Takes it out of the lines; what it moved is counted again from 0."""
        for book in (self._small, self._large, self._marks, self._last_marks):
            book.pop(holder, None)

    def step(self) -> None:
        """Finds out who is slow, and closes some of them if others wait; to be called every second."""
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
                "%d connections were closed that sent only a part of a request, or did not read their answers: others "
                "needed the memory; queued.max.request.bytes is %d"
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
        """Says whether there is less room than is needed."""
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
        """Asserts what always holds; to be called while the line is not being served."""
        assert not any(self._fits(*waiting) for waiting in self._next_in_lines()), "I1"
