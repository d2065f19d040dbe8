"""How SIGINT (Ctrl-C), SIGTERM and SIGHUP end a command.

The first of them raises KeyboardInterrupt where the command is just then, so that all three end it in the same way; the
exit code says which it was. The second ends the process at once, as if it were not caught. A signal that was ignored
when the command started stays ignored, as `nohup` requires.

Some work must not be interrupted: a request whose answer says what was written, a page of output and its bookkeeping. A
block of `undivided` ends first, or reaches its time limit; then the exception is raised.

Python drops an exception that is raised while it deletes an object, as an unfinished generator. If that happens to this
one, it is raised once more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FINISHING_SECONDS = 1.0
"""Seconds that a block goes on after the signal, unless it names its own."""

_ENDLESS = float("inf")
_LEAST_SECONDS = 1e-6  # no time at all would switch the alarm off
_AGAIN_SECONDS = 0.05
"""Seconds after which the exception is raised again that Python has dropped, which goes on dropping until then."""
_SAME_HANGUP_SECONDS = 1.0
"""Seconds between two that count as one: a closed terminal sends SIGHUP, and the shell in it sends another."""


class _Stop:
    """Remembers which signal came, and which blocks must end before it counts. Owned by the main thread."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._received_s = 0.0
        self._is_raised = False
        self.hook_before = sys.unraisablehook
        self._blocks: list[float] = []
        """The running blocks, the inner ones last: how long each may go on, in seconds; after a signal, until when."""

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.received is None:
            self.received, self._received_s = signal.Signals(number), now_s
            self._blocks = [now_s + limit_s for limit_s in self._blocks]
            signal.signal(signal.SIGALRM, self._on_alarm)
            if number == signal.SIGHUP:
                leave_terminal()
            self._raise_if_due()
        elif number != signal.SIGHUP or now_s - self._received_s > _SAME_HANGUP_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._blocks and min(self._blocks) <= time.monotonic():
            self._is_raised = True
            raise KeyboardInterrupt
        self._raise_if_due()

    def on_dropped(self, dropped: sys.UnraisableHookArgs) -> None:
        """Replaces `sys.unraisablehook`, which is called with exceptions that Python drops."""
        if self.received is None or not isinstance(dropped.exc_value, KeyboardInterrupt):
            self.hook_before(dropped)
            return
        self._is_raised = False
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def enter(self, limit_s: float) -> None:
        if self.received is None:
            self._blocks.append(limit_s)
        else:
            self._blocks.append(time.monotonic() + limit_s)
            self._set_alarm()

    def leave(self) -> None:
        self._blocks.pop()
        if self.received is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._raise_if_due()

    def _raise_if_due(self) -> None:
        """Raises only once, unless that is dropped: the cleanup after it ends the command."""
        if self._blocks:
            self._set_alarm()
        elif not self._is_raised:
            self._is_raised = True
            raise KeyboardInterrupt

    def _set_alarm(self) -> None:
        if _ENDLESS not in self._blocks:
            signal.setitimer(signal.ITIMER_REAL, max(min(self._blocks) - time.monotonic(), _LEAST_SECONDS))


_stop = _Stop()


@contextlib.contextmanager
def obeying_stop_signals() -> Iterator[None]:
    """Signals end the block as the module says; afterwards their old handlers are back."""
    global _stop
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _stop = _Stop()
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.on_signal) for number in heeded}
    before[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
    sys.unraisablehook = stop.on_dropped
    try:
        yield
    finally:
        sys.unraisablehook = stop.hook_before
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undivided(limit_s: float = FINISHING_SECONDS) -> Iterator[None]:
    """Delays a stop that comes in the block to its end; raises it inside if the block goes on for `limit_s` after that.
    In a command that is stopping already the block has the same time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = _stop
    stop.enter(limit_s)
    try:
        yield
    finally:
        stop.leave()


def collect_stop_signals(on_signal: Callable[[int], None]) -> list[int]:
    """Has each signal call `on_signal` with the number of those before it. Returns the list of received signals."""
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_terminal()
        on_signal(len(received))
        received.append(number)

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` starts it
            signal.signal(number, stop)
    return received


def exit_code_of(code: int) -> int:
    """Returns 128 and the number of the signal, if there was one; else the code."""
    return code if _stop.received is None else 128 + _stop.received


def finish_output() -> bool:
    """Returns whether all output is written; it is not if nobody reads it from a stopped command."""
    try:
        with undivided():
            sys.stdout.flush()
    except (KeyboardInterrupt, OSError):
        return False
    return True


def leave_terminal() -> None:
    """Drops further messages if the terminal is gone: each would fail."""
    for fd in (1, 2):
        try:
            os.write(fd, b"")
        except OSError:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - no path of anybody's
                os.dup2(nowhere.fileno(), fd)
