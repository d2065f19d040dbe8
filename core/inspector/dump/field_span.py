"""One field of a buffer's bytes, its value as people read it, and how fields are read one after the other."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from core.common.varint import read_varlong
from core.inspector.dump.value_format import as_utf8
from core.records.batches import codec_text

_SHOWN = 4096
"""The most bytes of a key or value that are shown as text, too; all of them are shown in hex."""

_LONGEST_CHARACTER = 4

HasSecrets = Callable[[bytes], bool]
"""Says whether to hide the value of a record."""


class Span(NamedTuple):
    """Bytes [start, end) of a buffer, and the field that they are. `depth` is 0 in a batch, message or entry, 1 in a
    record. `number` is the meaning of a number: a delta's sum with its base.
    """

    start: int
    end: int
    name: str
    value: Any
    depth: int = 0
    number: int | None = None


def value_text(value: Any) -> str:
    """Writes a field's value: text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else json.dumps(value)


def is_secret(name: str, data: bytes, has_secrets: HasSecrets) -> bool:
    """Says whether to hide a field of a metadata log; bytes that can't be told apart are hidden with their secrets."""
    return name in ("records", "damaged") or (name == "value" and has_secrets(data))


def _text_of(data: bytes) -> Any:
    """Shows the beginning of a key or value; not half a character of it."""
    if len(data) <= _SHOWN:
        return as_utf8(data)
    shown = data[:_SHOWN]
    for left_out in range(_LONGEST_CHARACTER):
        text = as_utf8(shown[: len(shown) - left_out])
        if isinstance(text, str):
            return text
    return as_utf8(shown)


def codec_name(attributes: int) -> str:
    """Names the codec of a batch or message, whatever number it has."""
    text = codec_text(attributes)
    return f"codec {text}" if text.isdigit() else text


def shown_number(name: str, value: int) -> Any:
    """Formats a number as its field requires: a checksum in hex, attributes with their meaning."""
    if name == "crc":
        return f"{value:08x}"
    if name != "attributes":
        return value
    words = [codec_name(value)]
    for bit, word in ((3, "LogAppendTime"), (4, "transactional"), (5, "control"), (6, "delete horizon")):
        if value >> bit & 1:
            words.append(word)
    return f"{value} ({', '.join(words)})"


class FieldCursor:
    """Walks bytes [at, end) of a buffer, field by field. Raises IndexError for a field that goes beyond the end."""

    def __init__(self, data: bytes | memoryview, at: int, end: int, depth: int) -> None:
        self._data = data
        self.at = at
        self._end = end
        self._depth = depth

    def _pass(self, end: int) -> int:
        if not self.at <= end <= self._end:
            raise IndexError(end)
        start, self.at = self.at, end
        return start

    def fixed(self, name: str, format_: str) -> Span:
        """Reads a number of fixed size."""
        start = self._pass(self.at + struct.calcsize(format_))
        (value,) = struct.unpack_from(format_, self._data, start)
        return Span(start, self.at, name, shown_number(name, value), self._depth, value)

    def varint(self, name: str, base: int | None = None) -> Span:
        """Reads a varint or varlong; with `base`, shows its sum with that too."""
        start = self.at
        value, end = read_varlong(self._data, start)
        if end > self._end:
            raise IndexError(end)
        self.at = end
        if base is None:
            return Span(start, end, name, value, self._depth, value)
        return Span(start, end, name, f"{value} ({base + value})", self._depth, base + value)

    def raw(self, name: str, size: int) -> Span:
        """Reads bytes, and shows them as text."""
        start = self._pass(self.at + size)
        text = _text_of(bytes(self._data[start : start + min(size, _SHOWN + 1)]))
        return Span(start, self.at, name, text, self._depth)

    def sized(self, name: str) -> Iterator[Span]:
        """Reads a varint and as many bytes."""
        length = self.varint(f"{name} length")
        size: int = length.value
        yield length if size >= 0 else length._replace(value=f"{size} (null)")
        if size > 0:
            yield self.raw(name, size)
