"""Converts the field of `--timestamp-field` to a record's timestamp in milliseconds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from core.common.time_text import parse_iso_time
from core.pipeline.input_lines import BadLineError

_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
_EXACT = Context(prec=100, rounding=ROUND_FLOOR)
_END_OF_RANGE = 1 << 63
_END_OF_JANUARY_1970 = 31 * 24 * 3_600_000
"""Seconds of today look like milliseconds below it (1,700,000,000 is the 20th)."""
_YEAR_5138 = 10**14
"""Microseconds since 1973 look like milliseconds from here on."""
_NANOSECONDS = 10**17

_POWERS = {"s": 3, "ms": 0, "us": -3, "ns": -6}


class TimestampField:
    """Reads numbers in its unit; a text is a number or an ISO 8601 time. Owned by one task.

    Without a unit whole numbers are milliseconds, and it warns of the first that looks like another unit.
    """

    def __init__(self, name: str, unit: str | None, tell: Callable[[str], None]) -> None:
        self.name = name
        self._unit = unit
        self._tell: Callable[[str], None] | None = tell if unit is None else None

    def milliseconds(self, value: Any, row: int) -> int:  # whatever JSON may hold
        """Returns milliseconds, rounded down. Raises BadLineError for values that can't be a record's time."""
        found = self._find(value)
        if found is None:
            what = f"{'milliseconds' if self._unit is None else self._unit} since 1970 or an ISO 8601 time"
            hint = ""
            if self._unit is None and isinstance(value, float):
                hint = "; --timestamp-unit s takes seconds with a fraction"
            raise BadLineError(row, f"field {self.name!r} is {_shown(value)}, expected {what}{hint}")
        if not -_END_OF_RANGE <= found < _END_OF_RANGE:
            raise BadLineError(row, f"field {self.name!r} is {_shown(value)}, which is out of range for a timestamp")
        return found

    def _find(self, value: Any) -> int | None:
        if isinstance(value, bool):
            return None
        if isinstance(value, str):
            return self._of_text(value)
        if isinstance(value, int):
            return self._of_number(value)
        if isinstance(value, float) and self._unit is not None:
            return self._in_milliseconds(Decimal(repr(value)))
        return None

    def _of_text(self, text: str) -> int | None:
        is_number = _NUMBER.fullmatch(text) is not None
        if not is_number or self._unit is None:  # 20130115 is a day, unless a unit says otherwise
            try:
                return parse_iso_time(text)
            except ValueError:
                pass
        if not is_number or (self._unit is None and "." in text):
            return None
        return self._of_number(int(text)) if "." not in text else self._in_milliseconds(Decimal(text))

    def _of_number(self, number: int) -> int:
        if self._unit is None:
            if self._tell is not None and not _END_OF_JANUARY_1970 <= number < _YEAR_5138 and number >= 0:
                self._warn_of(number)
            return number
        if self._unit == "s":
            return number * 1000
        return int(number // 10 ** -_POWERS[self._unit])

    def _in_milliseconds(self, number: Decimal) -> int | None:
        if not number.is_finite():
            return None
        scaled = number.scaleb(_POWERS[self._unit or "ms"], _EXACT)
        if abs(scaled) >= _END_OF_RANGE:
            return _END_OF_RANGE
        return int(_EXACT.to_integral_value(scaled))

    def _warn_of(self, number: int) -> None:
        assert self._tell is not None
        when, unit = "in January 1970", "s"
        if number >= _YEAR_5138:
            when, unit = "after the year 5138", "us" if number < _NANOSECONDS else "ns"
        self._tell(
            f"warning: field {self.name!r} is {number}: as milliseconds that is {when}; if it is meant as {unit}, say "
            f"--timestamp-unit {unit}"
        )
        self._tell = None


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # more digits, or levels, than json writes
        return "very long"
    return text if len(text) <= 60 else f"{text[:57]}..."
