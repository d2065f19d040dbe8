"""Points in time in the user's notation: epoch milliseconds, ISO 8601, or a time ago (-2h)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from core.common.errors import UsageError

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_iso_time(text: str) -> int:
    """Reads an ISO 8601 date or time, UTC without a zone, as milliseconds since the epoch; else raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MILLISECOND


def find_time(text: str, now_ms: int) -> int | None:
    """Reads `-2h` or an ISO 8601 time as milliseconds since the epoch, or returns None for other text. Raises what
    `ensure_milliseconds` raises.
    """
    match = _AGO.fullmatch(text)
    if match:
        return ensure_milliseconds(now_ms - round(Fraction(match[1]) * _UNIT_MS[match[2]]), text)
    try:
        return parse_iso_time(text) if not text.lstrip("-").isdecimal() else None
    except ValueError:
        return None


def ensure_milliseconds(timestamp_ms: int, text: str) -> int:
    """Returns the number. Raises UsageError if it can't be a record's timestamp. `text`: the user's input."""
    if not -(1 << 63) <= timestamp_ms < 1 << 63:
        raise UsageError(
            f"{text!r} is out of range", hint="a time is a number of milliseconds since 1970, less than 2^63"
        )
    return timestamp_ms


def parse_time(text: str, now_ms: int) -> int:
    """Reads what `find_time` reads, and epoch milliseconds too; raises UsageError for anything else."""
    found = ensure_milliseconds(int(text), text) if text.isdecimal() else find_time(text, now_ms)
    if found is None:
        raise UsageError(
            f"{text!r} is no time", hint="epoch milliseconds, 2013-01-15T00:00:00Z, or -2h for two hours ago"
        )
    return found


def time_text(timestamp_ms: int) -> str:
    """Formats ISO 8601 in UTC, with milliseconds; the number itself if it is beyond the calendar."""
    try:
        moment = _EPOCH + timestamp_ms * _MILLISECOND
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(milliseconds: int) -> str:
    """Formats the two largest units: `3d 4h`, `12m 5s`, `250ms`."""
    rest, parts = abs(milliseconds), list[str]()
    if rest < 1000:
        return f"{milliseconds}ms" if rest else "0s"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return ("-" if milliseconds < 0 else "") + " ".join(filter(None, parts))
