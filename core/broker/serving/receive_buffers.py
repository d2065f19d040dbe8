"""The memory that sockets are received into, of clients' connections and of those to other brokers."""

from __future__ import annotations

import contextlib
import mmap

SHARED_BUFFER_BYTES = 288 * 1024  # two requests of 128 KB, and more would not stay in a processor's own cache
_POOLED_BUFFERS = {
    64 * 1024: 8,
    SHARED_BUFFER_BYTES: 8,
    1088 * 1024: 8,  # a request of the default message.max.bytes
    4 * 1088 * 1024: 1,
    16 * 1088 * 1024: 1,  # docs/limits.md names these two
}
"""How many buffers of each size are kept: to make the pages of a large one again costs ten times what it takes to
fill it.
"""
_MAPPED_BYTES = 64 * 1024
_HUGE_BYTES = 2 * 1024 * 1024


class ReceiveBuffers:
    """What all connections of a server receive into; owned by the loop's task.

    `shared` is for reads that begin with a frame. Buffers are of a few sizes, given back and used again, or larger.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {size: [] for size in _POOLED_BUFFERS}
        self.shared = self.take(SHARED_BUFFER_BYTES)

    def take(self, size_bytes: int) -> memoryview:
        """Gives room for at least `size_bytes`."""
        for size, free in self._free.items():
            if size_bytes <= size:
                return free.pop() if free else new_buffer(size)
        return new_buffer(size_bytes)

    def keep(self, buffer: memoryview) -> None:
        """Leaves the buffer to the caller from now on, if it was the shared one."""
        if buffer is self.shared:
            self.shared = self.take(SHARED_BUFFER_BYTES)

    def grow(self, buffer: memoryview, used_bytes: int, size_bytes: int) -> memoryview:
        """Copies the content into a larger buffer."""
        larger = self.take(size_bytes)
        larger[:used_bytes] = buffer[:used_bytes]
        self.give_back(buffer)
        return larger

    def give_back(self, buffer: memoryview) -> None:
        free = self._free.get(len(buffer))
        if free is not None and len(free) < _POOLED_BUFFERS[len(buffer)]:
            free.append(buffer)


def buffer_size(size_bytes: int) -> int:
    """Gives the smallest usual size that has that room; the size itself if it is larger than all of them."""
    return next((size for size in _POOLED_BUFFERS if size_bytes <= size), size_bytes)


def new_buffer(size_bytes: int) -> memoryview:
    """Takes large ones from the system, to which they go back: the heap would keep them, in pieces. The largest are
    made of huge pages if there are any: most of what they cost is the making of pages.
    """
    if size_bytes < _MAPPED_BYTES:
        return memoryview(bytearray(size_bytes))
    buffer = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size_bytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # of a system without them
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(buffer)
