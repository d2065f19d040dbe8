"""CRC-32C (Castagnoli), the checksum of everything of magic 2 and of producer snapshots; that of messages of magic 0
and 1 is CRC-32, `zlib.crc32`.

`crc32c` takes any contiguous buffer without copying it. fastcrc does it in hardware (about 50 GB/s from cache); if its
wheel is missing, crcmod, slower, computes the same numbers. `crc32c_by_table` is always crcmod: the independent second
opinion of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

Buffer = bytes | bytearray | memoryview


@cache
def _crcmod_crc32c() -> Callable[[bytes, int], int]:
    from crcmod.predefined import mkPredefinedCrcFun

    function: Callable[[bytes, int], int] = mkPredefinedCrcFun("crc-32c")
    return function


def crc32c_by_table(data: Buffer, crc: int = 0) -> int:
    """Computes CRC-32C by crcmod's table: slow, independent of `crc32c`."""
    return _crcmod_crc32c()(bytes(data), crc)


try:
    from fastcrc.crc32 import iscsi

    crc32c = iscsi
except ImportError:  # a platform without the wheel
    crc32c = crc32c_by_table  # type: ignore[assignment]  # whose second argument has another name
"""Computes the CRC-32C of the whole buffer; with a second argument, the CRC-32C of bytes before it, that of both. That
of no bytes is 0.
"""


def crc32c_of_parts(parts: Iterable[Buffer]) -> int:
    """Computes the CRC-32C of the parts, one after the other, without joining them."""
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return crc
