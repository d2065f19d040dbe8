"""A command of plog's at a terminal of so many columns, as somebody sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from cli.main import run

_BYTES = 65536


def run_at_terminal(
    *arguments: str | Path, columns: int = 80, environment: dict[str, str] | None = None
) -> tuple[bytes, int]:
    """What it prints on stdout and stderr, which are both the terminal, and its exit code."""
    controller, terminal = _open(columns)
    process = subprocess.Popen(
        [sys.executable, "-m", "plog", *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
        env={**{k: v for k, v in os.environ.items() if k != "COLUMNS"}, "NO_COLOR": "1", **(environment or {})},
    )  # fmt: skip
    os.close(terminal)
    printed = b"".join(_read_all(controller))
    os.close(controller)
    return printed.replace(b"\r\n", b"\n"), process.wait()


def call_at_terminal(*arguments: str | Path, columns: int = 80) -> tuple[str, int]:
    """As `run_at_terminal`, but in this process, which takes a tenth of the time."""
    controller, terminal = _open(columns)
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


def _open(columns: int) -> tuple[int, int]:
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    return controller, terminal


def _read_all(controller: int) -> Iterator[bytes]:
    """Until nobody holds the terminal any more, which Linux calls an error."""
    with contextlib.suppress(OSError):
        while some := os.read(controller, _BYTES):
            yield some
