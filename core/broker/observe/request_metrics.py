"""Counts requests by API and version, their error codes, and their times (kafka.network.RequestMetrics)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any

from core.common.error_code import ErrorCode
from core.protocol.message import schema_of

TIME_BUCKETS_MS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
"""Upper ends of the buckets of `TimeHistogram`; the last bucket has none."""


class TimeHistogram:
    """A histogram of times for Prometheus; `counts` by bucket, not cumulative."""

    def __init__(self) -> None:
        self.counts = [0] * (len(TIME_BUCKETS_MS) + 1)
        self.sum_ms = 0.0

    def add(self, time_ms: float) -> None:
        self.counts[bisect_left(TIME_BUCKETS_MS, time_ms)] += 1
        self.sum_ms += time_ms

    def add_all(self, times_s: list[float]) -> None:
        """Sorts the times, in seconds, and counts them by bucket."""
        times_s.sort()
        start = 0
        for bucket, end_ms in enumerate(TIME_BUCKETS_MS):
            end = bisect_right(times_s, end_ms / 1000, start)
            self.counts[bucket] += end - start
            start = end
        self.counts[-1] += len(times_s) - start
        self.sum_ms += sum(times_s) * 1000


_MOST_UNCOUNTED = 256
"""Times of one kind of request that are collected before they are sorted into buckets together."""


class RequestMetrics:
    """Owned by the broker's task."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._errors: Counter[tuple[str, ErrorCode]] = Counter()
        self._times: dict[str, TimeHistogram] = {}
        self._uncounted: defaultdict[tuple[str, int], list[float]] = defaultdict(list)

    @property
    def requests(self) -> Counter[tuple[str, int]]:
        """The number of requests, by API and version."""
        self._count_good()
        return self._requests

    @property
    def errors(self) -> Counter[tuple[str, ErrorCode]]:
        """By API and code, including NONE; an answer counts once for each of its codes."""
        self._count_good()
        return self._errors

    @property
    def times(self) -> dict[str, TimeHistogram]:
        """By API: from reading the request to the finished answer, including all waits."""
        self._count_good()
        return self._times

    def add(self, api: str, version: int, codes: Iterable[ErrorCode], time_ms: float) -> None:
        """Counts a request that was answered with those codes."""
        self._requests[api, version] += 1
        for code in codes:
            self._errors[api, code] += 1
        self._histogram(api).add(time_ms)

    def add_good(self, kind: tuple[str, int], time_s: float) -> None:
        """Counts a request, of that API and version, whose answer has one error code, NONE. As most are, they are
        sorted into buckets together.
        """
        times_s = self._uncounted[kind]
        times_s.append(time_s)
        if len(times_s) >= _MOST_UNCOUNTED:
            self._count_good()

    def _count_good(self) -> None:
        for (api, version), times_s in self._uncounted.items():
            self._requests[api, version] += len(times_s)
            self._errors[api, ErrorCode.NONE] += len(times_s)
            self._histogram(api).add_all(times_s)
        self._uncounted.clear()

    def _histogram(self, api: str) -> TimeHistogram:
        return self._times.setdefault(api, TimeHistogram())


def error_codes(response: Any) -> list[ErrorCode]:
    """Returns every error code in an answer, including NONE, at any depth; one NONE for an answer without any."""
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
    """Returns whether the struct itself has an error code, and its arrays that have some."""
    assert isinstance(type_, type)
    fields = schema_of(type_).fields
    arrays = [field for field in fields if field.kind == "array" and isinstance(field.element, type)]
    return (
        any(field.name == "error_code" for field in fields),
        tuple(field.name for field in arrays if any(_where_codes_are(field.element))),
    )
