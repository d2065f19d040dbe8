"""A terminal of so many columns, and a command of plog's that writes to it, as somebody sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from cli.main import run

_BYTES = 65536


def call_at_terminal(*arguments: str | Path, columns: int = 80) -> tuple[str, int]:
    """Runs the command in this process, as `call_plog` does. Gives what it prints on stdout and stderr, which are both
    the terminal, and its exit code.
    """
    controller, terminal = open_terminal(columns)
    printed: list[bytes] = []
    reader = threading.Thread(target=lambda: printed.extend(_read_all(controller)))
    reader.start()
    stdout, stderr = os.fdopen(os.dup(terminal), "w"), os.fdopen(terminal, "w")
    environment = {"NO_COLOR": "1", "COLUMNS": str(columns)}
    with (
        stdout,
        stderr,
        mock.patch.dict(os.environ, environment),
        mock.patch.multiple(sys, stdout=stdout, stderr=stderr),
    ):
        code = run([*map(str, arguments)])
    reader.join()
    os.close(controller)
    return b"".join(printed).replace(b"\r\n", b"\n").decode(), code


def open_terminal(columns: int) -> tuple[int, int]:
    """Gives the descriptor of who sits at the terminal, and that of who writes to it."""
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    return controller, terminal


def _read_all(controller: int) -> Iterator[bytes]:
    """Reads until nobody holds the terminal any more, which Linux calls an error."""
    with contextlib.suppress(OSError):
        while some := os.read(controller, _BYTES):
            yield some
