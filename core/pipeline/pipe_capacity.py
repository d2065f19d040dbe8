"""Widens the pipes of a command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import Any

_PIPE_BYTES = 1024 * 1024  # the most for a user, by Linux's default


def widen(stream: Any) -> None:
    """Sets a pipe's capacity to a megabyte, if the system allows it (F_SETPIPE_SZ): its ends wait less for each other.

    Other streams stay as they are.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = stream.fileno()
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
