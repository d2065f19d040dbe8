"""Types that travel through the protocol besides Python's own."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Protocol


class Region(Sized, Protocol):
    """Bytes that lie in a file and go out by sendfile; its length is its size in bytes.

    The broker's `FileRegion` is one; the protocol only needs the length.
    """


@dataclass(frozen=True, slots=True)
class Spans:
    """Bytes that lie in several places, and go out one after the other; its length is theirs together."""

    parts: tuple[bytes | memoryview, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


Records = bytes | bytearray | memoryview | Region | Spans
"""Record batches in a message: a view of the frame when read, any of these when written."""

Piece = bytes | bytearray | memoryview | Region | Spans
"""A part of an encoded message, in the order in which it goes out."""
