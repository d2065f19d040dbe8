"""The processes that a command of plog's starts, and that must not outlive it.

They share a process group with a guard, a shell that waits for the end of a pipe of which this process alone has the
other end. However this process ends, also by `kill -9`, the system closes the pipe, and the guard ends the whole group
and itself. That works on each POSIX system, whichever thread started what, and whoever of the group is stopped just
then. Nothing but a clean stop ends them gently: that is for whoever started them.

Ctrl-C on a terminal is not for the group either, which is none of the terminal's: this process stops them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

_GUARD = "trap '' HUP INT TERM; read -r _; kill -9 0"
"""HUP: the system sends it to a group that nobody waits for any more, if one of its processes is stopped."""


class ProcessGroup:
    """Begun by `with`; whatever runs at its end is killed. Owned by one thread at a time."""

    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def start(
        self,
        command: Sequence[str | Path],
        *,
        output: IO[bytes] | int,
        keeps: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a process of the group. All that it prints goes to `output`, and it keeps the descriptors `keeps`."""
        if self._guard is None:
            self._guard = subprocess.Popen(  # noqa: S603 - our own command
                ["/bin/sh", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        return subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=keeps,
            env=environment,
            process_group=self._guard.pid,
        )

    def kill(self) -> None:
        """Ends all of them at once. Nobody is waited for, so that a signal's handler may call it."""
        if self._guard is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)

    def __exit__(self, *exception: object) -> None:
        self.kill()
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None


def describe_end(code: int | None, find_reason: Callable[[], str]) -> str:
    """Says how a process has ended, by what `Popen.returncode` has, and why. One that was killed was not asked for a
    reason: what it said last is of something else.
    """
    if code is not None and code < 0:
        return f"was killed (signal {-code})"
    reason = find_reason()
    return f"has ended with exit code {code}{f': {reason}' if reason else ''}"
