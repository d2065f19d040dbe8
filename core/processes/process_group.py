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
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from core.common.errors import AccessError

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


class ServerProcess(ABC):
    """A server that is a process of a group: `name` is what errors call it, `log` the file that says more of it. Can be
    started again with the same directory. Owned by one thread.
    """

    def __init__(self, name: str, directory: Path, log: Path, group: ProcessGroup) -> None:
        self.name = name
        self.directory = directory
        self.log = log
        self._group = group
        self._log_start = 0  # the size of the log at the last start
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Sends a signal to the process, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, seconds: float | None = None) -> bool:
        """Returns whether the process ends within so many seconds; None waits without limit."""
        try:
            if self._process is not None:
                self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _end(self, seconds: float) -> bool:
        """Stops the process cleanly, also a paused one; returns False if it took longer, and was killed."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        has_ended = self.wait(seconds)
        if not has_ended:
            self.signal(signal.SIGKILL)
            self.wait()
        return has_ended

    def failure(self) -> AccessError:
        """Returns the error about a process that has ended, with the reason that it printed. For a killed one no reason
        is looked up: its last message is about something else.
        """
        code = self._process.returncode if self._process is not None else None
        if code is not None and code < 0:
            what = f"was killed (signal {-code})"
        else:
            reason = self._reason()
            what = f"has ended with exit code {code}{f': {reason}' if reason else ''}"
        return AccessError(f"{self.name} {what}", where=str(self.directory), hint=f"{self.log} says more")

    @abstractmethod
    def _reason(self) -> str:
        """Finds in its output why it has ended; "" if that is not known."""

    def _tail_of_log(self) -> str:
        """Reads the last bytes of the log from `_log_start` on; of all of it if it is shorter (a new file)."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            size = self.log.stat().st_size
            file.seek(max(self._log_start if self._log_start <= size else 0, size - _MOST_OF_LOG))
            return file.read().decode(errors="replace")
        return ""
