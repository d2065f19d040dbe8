"""The buffers that are kept for later requests."""

from __future__ import annotations

from core.broker.serving.receive_buffers import ReceiveBuffers
from tests.support.for_each import for_each

KB = 1024


@for_each(
    "size_bytes, most", [(64 * KB, 8), (288 * KB, 8), (1088 * KB, 8), (4352 * KB, 1), (17408 * KB, 1), (17409 * KB, 0)]
)
def test_so_many_buffers_are_kept_as_the_limits_say(size_bytes: int, most: int) -> None:
    """docs/limits.md; a larger request than those has a buffer of its own."""
    buffers = ReceiveBuffers()
    used = [buffers.take(size_bytes) for _ in range(most + 1)]
    for buffer in used:
        buffers.give_back(buffer)
    again = [buffers.take(size_bytes) for _ in range(most + 1)]
    assert sum(any(one is other for other in used) for one in again) == most
