"""Names how records stand in the input."""

from __future__ import annotations

from enum import StrEnum


class InputFormat(StrEnum):
    """`json` and `ndjson` are other names of `envelope`."""

    lines = "lines"
    envelope = "envelope"
    raw = "raw"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    length_prefixed = "length-prefixed"


class TimestampUnit(StrEnum):
    """What the numbers of a field with timestamps count."""

    s = "s"
    ms = "ms"
    us = "us"
    ns = "ns"
