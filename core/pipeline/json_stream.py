"""Finds values of JSON in input that has not one on each line: printed prettily, one after another, or in an array.

Each input is looked at once: if its first line is one value, and no array, its lines are taken as they are. Otherwise a
scanner of brackets and strings finds where values end, and gives each as a line of its own: a value of several lines
without its spaces, numbers as they are. Whether it is JSON, the parser of the lines says.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from core.common.lenient_json import compact, read_json
from core.pipeline.input_lines import BadLineError, Chunk, Input, Lines, Quiet, read_chunks, utf16_error

_PART = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}"]', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR_END = re.compile(rb"[ \t\r\n,\]]")
_OPEN, _CLOSE = b"{[", b"}]"


def read_json_values(inputs: Sequence[Input], linger_s: float = 0.0) -> Iterator[Lines]:
    """Gives the values of all inputs as lines, as `read_lines` gives lines. Raises what that raises."""
    row = 0
    splitter: _Splitter | None = None
    is_lines: bool | None = None
    is_first = True
    for chunk in read_chunks(inputs, linger_s, is_text=True):
        if is_lines is None and chunk.quiet is not Quiet.LONG:
            is_lines, splitter = _has_lines(chunk), _Splitter()
            is_first = True
        if is_lines:
            chunk.used = len(chunk.data) if chunk.is_end else chunk.data.rfind(b"\n") + 1
            start = len(codecs.BOM_UTF8) if is_first and chunk.data.startswith(codecs.BOM_UTF8) else 0
            lines = Lines(memoryview(chunk.data)[start : chunk.used], row, chunk.quiet)
        elif is_lines is None or splitter is None:
            lines = Lines(memoryview(b""), row, chunk.quiet)
        else:
            lines = splitter.split(chunk, row)
        if len(lines) or lines.bad is not None or chunk.quiet is Quiet.LONG:
            yield lines
            row += len(lines)
        is_first = is_first and not chunk.used
        if chunk.is_end:
            is_lines = None


def _has_lines(chunk: Chunk) -> bool | None:
    """Says whether each line is a value; None if there is no whole line yet."""
    if chunk.data[:1] and b"\0" in chunk.data[:2]:
        raise utf16_error("the input")
    data = chunk.data.removeprefix(codecs.BOM_UTF8).lstrip()
    line, newline, _ = data.partition(b"\n")
    if not newline and not chunk.is_end:
        return None
    try:
        return not isinstance(read_json(bytes(line)), list)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return False
    except ValueError:
        pass
    return bytes(line[:1]) not in (b"{", b"[") or _find_end(line, 0, is_end=False) is not None


class _Splitter:
    """Finds the values of one input; owned by one task."""

    def __init__(self) -> None:
        self._is_begun = self._is_in_array = self._has_value = False

    def split(self, chunk: Chunk, row: int) -> Lines:
        """Takes the whole values of the chunk."""
        data, position = chunk.data, 0
        if not self._is_begun and data.startswith(codecs.BOM_UTF8):
            position = len(codecs.BOM_UTF8)
        self._is_begun = True
        texts: list[bytes] = []
        problem = None
        while problem is None:
            space = _SPACE.match(data, position)
            position = space.end() if space is not None else position
            sign = bytes(data[position : position + 1])
            if not sign:
                problem = "the array does not end" if chunk.is_end and self._is_in_array else None
                break
            if self._is_sign(sign):
                position += 1
                continue
            if self._is_in_array and self._has_value:
                problem = f"expected a comma or the array's end before {bytes(data[position : position + 20])!r}"
                break
            end = _find_end(data, position, is_end=chunk.is_end)
            if end is None:
                problem = "the value does not end" if chunk.is_end else None
                break
            texts.append(_in_one_line(bytes(data[position:end])))
            position, self._has_value = end, True
        chunk.used = len(data) if chunk.is_end else position
        text = b"".join(chain.from_iterable((one, b"\n") for one in texts))
        bad = None if problem is None else BadLineError(row + len(texts), f"not JSON: {problem}", thing="value")
        return Lines(memoryview(text), row, chunk.quiet, thing="value", bad=bad)

    def _is_sign(self, sign: bytes) -> bool:
        """Says whether it is the begin or end of the array around values, or a comma in it."""
        if not self._is_in_array and sign == b"[":
            self._is_in_array, self._has_value = True, False
        elif self._is_in_array and sign == b"]":
            self._is_in_array = False
        elif self._is_in_array and self._has_value and sign == b",":
            self._has_value = False
        else:
            return False
        return True


def _find_end(data: bytes | bytearray, start: int, *, is_end: bool) -> int | None:
    """Finds where the value ends that begins there; None if that does not come."""
    if bytes(data[start : start + 1]) not in (b"{", b"[", b'"'):
        match = _SCALAR_END.search(data, start + 1)
        return match.start() if match is not None else len(data) if is_end else None
    depth = 0
    for match in _PART.finditer(data, start):
        part = match[0]
        if part == b'"':
            return None
        depth += part in (b"{", b"[")
        depth -= part in (b"}", b"]")
        if depth <= 0:
            return match.end()
    return None


def _in_one_line(text: bytes) -> bytes:
    if b"\n" not in text and b"\r" not in text:
        return text
    try:
        read_json(text)
    except ValueError:
        return re.sub(rb"[\r\n]", b" ", text)  # the parser says what is wrong with it
    return compact(text).encode("utf-8", "surrogatepass")
