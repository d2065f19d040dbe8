"""Text to a descriptor."""

from __future__ import annotations

import os
from collections.abc import Sequence

Buffer = bytes | memoryview

_MOST_PIECES = 512  # of a writev: IOV_MAX is 1024 at least


def write_all(fd: int, pieces: Sequence[Buffer]) -> None:
    """All of them, in order, however little the descriptor takes at a time."""
    data = b"".join(pieces) if len(pieces) > _MOST_PIECES else None
    if data is not None:
        pieces = [data]
    left = [memoryview(piece) for piece in pieces if len(piece)]
    while left:
        written = os.writev(fd, left)
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
