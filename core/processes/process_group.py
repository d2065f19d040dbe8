"""Processes that a command of plog starts, and that must not outlive it.

They share a process group with a guard, a shell that waits for the end of a pipe whose other end only this process
holds. However this process ends, even by `kill -9`, the system closes the pipe, and the guard kills the whole group and
itself. That works on each POSIX system, for children of any thread, and if a process of the group is suspended. A clean
stop is the task of the code that started the process.

Ctrl-C on a terminal does not reach the group, which is not in the foreground: this process stops them.
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
"""HUP: the system sends it to an orphaned process group if one of its processes is suspended."""
_MOST_OF_LOG = 20_000


class ProcessGroup:
    """A context manager that kills the remaining processes at its end. Owned by one thread at a time."""

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
        """Starts a process of the group. Its output goes to `output`, and it inherits the descriptors `keeps`."""
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
        """Kills the group at once, without waiting, so that a signal handler may call it."""
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
    """Describes how a process ended, by its `Popen.returncode`, and why. For a killed one no reason is looked up: its
    last message is about something else.
    """
    if code is not None and code < 0:
        return f"was killed (signal {-code})"
    reason = find_reason()
    return f"has ended with exit code {code}{f': {reason}' if reason else ''}"


def read_tail(path: Path, start: int) -> str:
    """Reads the last bytes of the file, from the byte `start` on; from its beginning if it is shorter (a new file)."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(start if start <= size else 0, size - _MOST_OF_LOG))
        return file.read().decode(errors="replace")
    return ""
