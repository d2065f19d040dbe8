"""A program that draws on a whole terminal, for tests: keys go in, what it draws comes out."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.waiting import MOST_SECONDS, machine_seconds


class FullScreen:
    """A program on a terminal of its own, of 80 columns and 24 lines."""

    def __init__(
        self, command: Sequence[str | Path], *, environment: dict[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.output = b""
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.environ.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})})
            os.chdir(cwd or ".")
            os.execvp(command[0], list(map(str, command)))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def read_until(self, found: Callable[[bytes], bool]) -> bytes:
        """Reads what is drawn until that is there, or the program ends."""
        deadline = machine_seconds() + MOST_SECONDS
        while not found(self.output):
            assert machine_seconds() < deadline, self.output[-500:]
            if not select.select([self._fd], [], [], 1)[0]:
                continue
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the terminal of a program that has ended
                break
            if not data:
                break
            self.output += data
        return self.output

    def write(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Waits for the end, and gives the exit code."""
        self.read_until(lambda _: False)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
