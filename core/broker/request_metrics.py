"""What requests there were: by API and version, with which errors, in which time (kafka.network.RequestMetrics)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any

from core.common.error_code import ErrorCode
from core.protocol.message import schema_of

TIME_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Upper ends of the buckets of `TimeHistogram`; the last bucket has none."""


class TimeHistogram:
    """How long something took, as Prometheus counts it; `counts` by bucket, not added up."""

    def __init__(self) -> None:
        self.counts = [0] * (len(TIME_BUCKETS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, time_ms: float) -> None:
        self.counts[bisect_left(TIME_BUCKETS_MS, time_ms)] += 1
        self.sum_ms += time_ms


class RequestMetrics:
    """Owned by the broker's task."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By API and version."""
        self.errors: Counter[tuple[str, ErrorCode]] = Counter()
        """By API and code, NONE too; an answer counts once for each of the codes in it."""
        self.times: dict[str, TimeHistogram] = {}
        """By API: from the request being read to its answer being made, with what it had to wait for."""

    def add(self, api: str, version: int, codes: Iterable[ErrorCode], time_ms: float) -> None:
        """Counts a request that was answered with those codes."""
        self.requests[api, version] += 1
        for code in codes:
            self.errors[api, code] += 1
        times = self.times.get(api)
        if times is None:
            times = self.times[api] = TimeHistogram()
        times.add(time_ms)


def error_codes(response: Any) -> list[ErrorCode]:
    """Every error code that an answer holds, NONE too, however deep; one NONE for an answer without any."""
    return list(_codes(response)) or [ErrorCode.NONE]


def _codes(message: Any) -> Iterator[ErrorCode]:
    if message is None:
        return
    has_code, arrays = _where_codes_are(message.__class__)
    if has_code:
        yield ErrorCode.of(message.error_code)
    for name in arrays:
        for element in getattr(message, name) or ():
            yield from _codes(element)


@cache
def _where_codes_are(type_: Hashable) -> tuple[bool, tuple[str, ...]]:
    """Whether the struct itself has an error code; and its arrays in which there are some."""
    assert isinstance(type_, type)
    fields = schema_of(type_).fields
    arrays = [field for field in fields if field.kind == "array" and isinstance(field.element, type)]
    return (
        any(field.name == "error_code" for field in fields),
        tuple(field.name for field in arrays if any(_where_codes_are(field.element))),
    )
