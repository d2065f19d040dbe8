"""The limit of a batch's decompressed bytes: the same for every command, and for the broker.

A few compressed bytes can claim gigabytes, so decompression stops at the limit. Kafka's own limits are of the
compressed size, and its consumers have none; so a batch above the limit may be sound, and a user who trusts it raises
the limit: `plog --max-expansion 1G`, the environment variable `PLOG_MAX_EXPANSION`, or `max-expansion` in config.toml.
The environment carries it to the processes that a command starts. A source of Spark has a limit of its own, if its
option `maxExpansion` says so: others may be read by the same process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from core.common.errors import UsageError

PLOG_MAX_EXPANSION = "PLOG_MAX_EXPANSION"

DEFAULT_EXPANSION_LIMIT = 128 * 1024 * 1024

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST = 0x7FFFFFFF
"""The largest limit: no byte array of Kafka's is larger."""

T = TypeVar("T")

_own_limit: ContextVar[int] = ContextVar("own_limit", default=0)


def expansion_limit() -> int:
    """Returns the limit in bytes. Raises UsageError if the environment variable is not a size."""
    if own := _own_limit.get():
        return own
    text = os.environ.get(PLOG_MAX_EXPANSION)
    return parse_size(text, PLOG_MAX_EXPANSION) if text else DEFAULT_EXPANSION_LIMIT


@cache
def parse_size(text: str, name: str) -> int:
    """Parses the bytes of `134217728`, `131072K`, `128M` or `1G`. Raises UsageError, with `name`, for other text."""
    digits, unit = (text[:-1], _UNITS[text[-1].upper()]) if text[-1:].upper() in _UNITS else (text, 1)
    if not digits.isascii() or not digits.isdecimal():
        raise UsageError(f"{name} {text}: expected a number of bytes, with K, M or G after it if you like: 256M")
    size = int(digits) * unit
    if not 0 < size <= _MOST:
        raise UsageError(f"{name} {text}: expected 1 to {_MOST} bytes")
    return size


@contextmanager
def expansion_limited_to(size: int) -> Iterator[None]:
    """Limits what this thread decompresses in the block to `size` bytes; to the limit for everyone if it is 0."""
    token = _own_limit.set(size)
    try:
        yield
    finally:
        _own_limit.reset(token)


def each_limited_to(size: int, items: Iterator[T]) -> Iterator[T]:
    """Limits the same while each item is made, without effect on the consumer of the items."""
    while True:
        with expansion_limited_to(size):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item
