"""What this process has open: a test that leaves nothing open compares it with what was open before."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_files() -> list[Path]:
    """The files and sockets; not those of /proc, which a thread may look at meanwhile (`tests/support/waiting.py`)."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of this listing, or closed since
            found.append(link.readlink())
    return sorted(path for path in found if not path.is_relative_to("/proc"))
