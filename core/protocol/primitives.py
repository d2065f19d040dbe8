"""Types that travel through the protocol besides Python's own."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol


class Region(Sized, Protocol):
    """Bytes that lie in a file and go out by sendfile; its length is its size in bytes.

    The broker's `FileRegion` is one; the protocol only needs the length.
    """


Records = bytes | bytearray | memoryview | Region
"""Record batches in a message: a view of the frame when read, any of these when written."""

Piece = bytes | bytearray | memoryview | Region
"""A part of an encoded message, in the order in which it goes out."""
