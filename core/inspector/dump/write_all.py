"""Writes text to a descriptor."""

from __future__ import annotations

import os
from collections.abc import Sequence

Buffer = bytes | memoryview

_MOST_PIECES = 512  # of a writev: IOV_MAX is 1024 at least


def write_all(fd: int, pieces: Sequence[Buffer]) -> None:
    """Writes all pieces, in order, however little the descriptor takes at a time."""
    if len(pieces) > _MOST_PIECES:
        pieces = [b"".join(pieces)]
    written = os.writev(fd, pieces) if pieces else 0
    if written < sum(map(len, pieces)):
        left = memoryview(b"".join(pieces))[written:]
        while left:
            left = left[os.write(fd, left) :]
