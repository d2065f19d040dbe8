"""Divides a process's file descriptors between files of logs, connections, and everything else.

`ulimit -n` bounds them. Files and connections get half each of those left after everything else has its part: the loop,
locks, pipes to the cleaner's processes, and files that are open for a moment, such as indexes and checkpoints. So
neither many partitions nor many clients keep the broker from doing its work.
"""

from __future__ import annotations

import contextlib
import errno
import resource
from typing import NamedTuple

LEAST_DESCRIPTORS = 64
"""The least number of descriptors for serving."""

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

_FOR_ALL_ELSE = 40
_MOST_FILES = 60_000
_MACOS_OPEN_MAX = 10_240
"""The limit that macOS has for a process although it reports none."""


class Shares(NamedTuple):
    """The numbers of descriptors by purpose."""

    files: int
    connections: int


def raise_limit() -> int:
    """Raises the limit of this process as far as the system allows, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, _MACOS_OPEN_MAX):
        if limit == resource.RLIM_INFINITY or limit > soft:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
                break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def share() -> Shares:
    """Divides the descriptors, by the present limit of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    left = max(limit - _FOR_ALL_ELSE, 2)
    files = min(left // 2, _MOST_FILES)
    return Shares(files, left - files)
