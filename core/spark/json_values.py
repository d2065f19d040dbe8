"""Checks that each value that becomes columns is a single JSON value: Spark would take the first one and drop the rest.
Spark itself checks whether the value is JSON of the schema; it allows more than other parsers do.
"""

from __future__ import annotations

import msgspec

from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.records.columns import RecordColumns

_SPACE = b" \t\r\n"
_SHOWN = 40


def ensure_one_value_each(partition: TopicPartition, records: RecordColumns) -> None:
    """Raises PlogError, with the offset, for a value with text after its JSON."""
    decode = msgspec.json.Decoder(msgspec.Raw).decode
    for row, value in enumerate(records.values().to_pylist()):
        if not value:
            continue
        try:
            decode(value)
        except (msgspec.DecodeError, RecursionError):  # a value with too many levels; Spark counts them itself
            end = _end_of_value(value)
            if value[end:].strip(_SPACE):
                shown = value[end:].strip(_SPACE)[:_SHOWN].decode("utf-8", "replace")
                raise PlogError(
                    f"{partition}: the value of offset {records.offsets[row]} has text after its JSON, at byte {end}: "
                    f"{shown!r}",
                    hint="without --schema values are written as they are",
                ) from None


def _end_of_value(text: bytes) -> int:
    """Finds the end of the first JSON value; the text's end if the value is open, or no object, list or string."""
    depth, quote, escaped = 0, 0, False
    for position, byte in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif byte == ord("\\"):
                escaped = True
            elif byte == quote:
                quote = 0
                if not depth:
                    return position + 1
        elif byte in b"\"'":
            quote = byte
        elif byte in b"{[":
            depth += 1
        elif byte in b"}]":
            depth -= 1
            if depth <= 0:
                return position + 1
        elif not depth and byte not in _SPACE:
            return _end_of_word(text, position)
    return len(text)


def _end_of_word(text: bytes, start: int) -> int:
    """Finds the end of a number, or of true, false, null."""
    for position in range(start, len(text)):
        if text[position] in b" \t\r\n{[\"'":
            return position
    return len(text)
