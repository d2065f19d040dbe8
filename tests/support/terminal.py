"""A shell on a terminal of a given width, with commands typed into it one after another, as a person does."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import subprocess
import termios
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.support.pseudo_terminal import open_terminal
from tests.support.waiting import MOST_SECONDS, machine_seconds, wait_for_exit

_END = re.compile(rb"\x1e(\d+)\x1e")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\].*?(\x07|\x1b\\)|[=>])")


class Typed(NamedTuple):
    """What one command showed, without colours and without the echo of what was typed, and its exit code."""

    code: int
    text: str


class Terminal:
    """Opened by `with`; at its end the shell and everything that it started is gone."""

    def __init__(self, folder: Path, environment: dict[str, str], columns: int = 80) -> None:
        self._folder = folder
        self._environment = {**environment, "TERM": "xterm-256color", "PS1": "", "PS2": ""}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            self._environment.pop(name, None)
        self._columns = columns
        self._buffer = b""

    def __enter__(self) -> Terminal:
        self._own, other = open_terminal(self._columns)
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-o", "pipefail", "-i"],
            stdin=other, stdout=other, stderr=other, cwd=self._folder, env=self._environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(other)
        self.type("stty -echo; set +m")
        return self

    def type(self, command: str) -> Typed:
        """Types it, and waits until it has ended."""
        self._buffer = b""
        self._write(command + "\n")
        return self._end()

    def type_and_interrupt(self, command: str, pattern: bytes) -> Typed:
        """Types it, waits until it shows the pattern, and presses Ctrl-C."""
        self._buffer = b""
        self._write(command + "\n")
        self._wait_for(re.compile(pattern))
        self._write("\x03")
        return self._end()

    def wait_for(self, pattern: bytes) -> str:
        """Waits for the pattern. Gives what was shown up to it since the last command was typed."""
        found = self._wait_for(re.compile(pattern))
        return self._shown(self._buffer[: found.end()])

    def _end(self) -> Typed:
        self._write(r"printf '\x1e%d\x1e' $?" + "\n")
        found = self._wait_for(_END)
        return Typed(int(found[1]), self._shown(self._buffer[: found.start()]))

    def _write(self, text: str) -> None:
        os.write(self._own, text.encode())

    def _wait_for(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        deadline = machine_seconds() + MOST_SECONDS
        while (found := pattern.search(self._buffer)) is None:
            assert machine_seconds() < deadline, self._shown(self._buffer)
            if select.select([self._own], [], [], 1)[0]:
                self._buffer += os.read(self._own, 65536)
        return found

    @staticmethod
    def _shown(data: bytes) -> str:
        text = _ESCAPES.sub("", data.decode(errors="replace"))
        return "\n".join(line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n"))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _signal_all(self._shell.pid, signal.SIGTERM)
        os.close(self._own)  # hangs up the shell
        try:
            wait_for_exit(self._shell)
        finally:
            self._shell.kill()
            _signal_all(self._shell.pid, signal.SIGKILL)


def _signal_all(session: int, number: signal.Signals) -> None:
    for process in _processes_of(session):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(process, number)


def _processes_of(session: int) -> list[int]:
    """Finds all processes of the shell's session but itself."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != session:
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                found.append(int(folder.name))
    return found
