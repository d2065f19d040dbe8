"""A pipe that a command reads or writes holds a megabyte; other streams stay as they are."""

from __future__ import annotations

import fcntl
import io
import os
from pathlib import Path

from core.pipeline.pipe_capacity import widen

MOST = int(Path("/proc/sys/fs/pipe-max-size").read_text())


def test_a_pipe_is_widened() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as target:
        narrow = fcntl.fcntl(target, fcntl.F_GETPIPE_SZ)
        widen(target)
        assert fcntl.fcntl(source, fcntl.F_GETPIPE_SZ) == (1 << 20 if MOST >= 1 << 20 else narrow)


def test_what_is_no_pipe_is_left_alone(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        widen(file)
    widen(file)  # it is closed
    widen(io.BytesIO())
