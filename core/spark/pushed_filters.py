"""What of a query's conditions the source sees to itself: which partitions are read, from which offsets on.

Conditions on `topic`, `partition` and `offset` are met exactly, and Spark need not look again. One on `timestamp` moves
the start forward, past what is older, and stays Spark's: times need not be in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from core.common.topic_partition import TopicPartition
from core.spark.source import Offsets, Source

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, several: value in several,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_NO_LIMIT = 1 << 62


class PushedFilters:
    """Owned by one reader; can be pickled."""

    def __init__(self, *, only_partitions: bool = False) -> None:
        """With `only_partitions` no condition on records is taken: it would change what the last of a key is."""
        self._only_partitions = only_partitions
        self._of_partitions: list[Filter] = []
        self._start_offset = 0
        self._end_offset = _NO_LIMIT
        self._first_time_ms: int | None = None

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Takes what it can; gives what Spark must still see to."""
        for condition in filters:
            if not self._take(condition):
                yield condition

    def _take(self, condition: Filter) -> bool:
        column = _column(condition)
        if isinstance(condition, IsNotNull):
            return column in _NEVER_NULL
        if column in ("topic", "partition"):
            self._of_partitions.append(condition)
            return True
        if self._only_partitions:
            return False
        value = getattr(condition, "value", None)
        if column == "offset" and isinstance(value, int):
            return self._take_offset(condition, value)
        if column == "timestamp" and isinstance(value, datetime):
            self._take_time(condition, value)
        return False

    def _take_offset(self, condition: Filter, value: int) -> bool:
        starts = {EqualTo: value, EqualNullSafe: value, GreaterThan: value + 1, GreaterThanOrEqual: value}
        ends = {EqualTo: value + 1, EqualNullSafe: value + 1, LessThan: value, LessThanOrEqual: value + 1}
        kind = type(condition)
        self._start_offset = max(self._start_offset, starts.get(kind, 0))
        self._end_offset = min(self._end_offset, ends.get(kind, _NO_LIMIT))
        return kind in starts or kind in ends

    def _take_time(self, condition: Filter, value: datetime) -> None:
        if isinstance(condition, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            first_ms = int(aware.timestamp() * 1000)
            self._first_time_ms = max(first_ms, self._first_time_ms or first_ms)

    def narrow(self, source: Source, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """The offsets to begin and to end at, of the partitions that are left."""
        left = [tp for tp in starts if all(_holds(condition, tp) for condition in self._of_partitions)]
        starts = {tp: max(starts[tp], self._start_offset) for tp in left}
        ends = {tp: min(ends[tp], self._end_offset) for tp in left}
        if self._first_time_ms is not None and left:
            at_time = source.records.offsets_at(left, self._first_time_ms)
            starts = {tp: max(starts[tp], at_time[tp]) for tp in left}
        return starts, {tp: max(ends[tp], starts[tp]) for tp in left}


def _column(condition: Filter) -> str:
    inner = condition.child if isinstance(condition, Not) else condition
    return ".".join(inner.attribute)  # type: ignore[attr-defined]


def _holds(condition: Filter, partition: TopicPartition) -> bool:
    if isinstance(condition, Not):
        return not _holds(condition.child, partition)
    if isinstance(condition, IsNull):
        return False
    value = partition.topic if _column(condition) == "topic" else partition.partition
    if isinstance(condition, IsNotNull):
        return True
    return _TESTS[type(condition)](value, condition.value)  # type: ignore[attr-defined]
