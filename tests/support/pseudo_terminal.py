"""A command of plog's at a terminal of so many columns, as somebody sees it."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

_BYTES = 65536


def run_at_terminal(
    *arguments: str | Path, columns: int = 80, environment: dict[str, str] | None = None
) -> tuple[bytes, int]:
    """What it prints on stdout and stderr, which are both the terminal, and its exit code."""
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "plog", *map(str, arguments)],
        stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal,
        env={**{k: v for k, v in os.environ.items() if k != "COLUMNS"}, "NO_COLOR": "1", **(environment or {})},
    )  # fmt: skip
    os.close(terminal)
    printed = b""
    try:
        while some := os.read(controller, _BYTES):
            printed += some
    except OSError:  # how Linux says that nobody holds the terminal any more
        pass
    os.close(controller)
    return printed.replace(b"\r\n", b"\n"), process.wait()
