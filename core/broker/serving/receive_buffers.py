"""The memory that sockets receive into, those of clients and those to other brokers."""

from __future__ import annotations

import contextlib
import mmap
from functools import cached_property

SHARED_BUFFER_BYTES = 288 * 1024  # two requests of 128 KB; more would not fit into a core's cache
_POOLED_BUFFERS = {
    64 * 1024: 8,
    SHARED_BUFFER_BYTES: 8,
    1088 * 1024: 8,  # a request of the default message.max.bytes
    4 * 1088 * 1024: 1,
    16 * 1088 * 1024: 1,  # docs/limits.md names these two
}
"""How many buffers of each size are kept: to map the pages of a large one again costs ten times as much as to fill it.
"""
_MAPPED_BYTES = 64 * 1024
_HUGE_BYTES = 2 * 1024 * 1024


class ReceiveBuffers:
    """The receive buffers of all connections of a server; owned by the loop's task.

    `shared` is for reads that begin with a frame. Others have a few sizes, and are used again, or are larger.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[memoryview]] = {size: [] for size in _POOLED_BUFFERS}
        self.shared = self.take(SHARED_BUFFER_BYTES)

    @cached_property
    def scratch(self) -> memoryview:
        """For bytes on their way through TLS: what it holds is used up before the loop goes on."""
        return new_buffer(SHARED_BUFFER_BYTES)

    def take(self, size_bytes: int) -> memoryview:
        """Returns a buffer of at least `size_bytes`."""
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
    """Returns the smallest pooled size of at least `size_bytes`, or `size_bytes` if no pooled size suffices."""
    return next((size for size in _POOLED_BUFFERS if size_bytes <= size), size_bytes)


def new_buffer(size_bytes: int) -> memoryview:
    """Maps large buffers, which return to the system when dropped: the heap would keep them, in pieces. The largest use
    huge pages if possible: most of their cost is the making of pages.
    """
    if size_bytes < _MAPPED_BYTES:
        return memoryview(bytearray(size_bytes))
    buffer = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size_bytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(buffer)
