"""Makes one JSON value a line of input that has not: JSON printed prettily, one after another or in an array; and CSV.

Each input is looked at once: if its first line is one value, and no array, its lines are taken as they are. Otherwise a
scanner of brackets and strings finds where values end, and gives each as a line of its own: a value of several lines
without its spaces, numbers as they are. Whether it is JSON, the parser of the lines says.

A row of CSV becomes a JSON object, whose names are in the first row of its input. A cell in quotes may hold newlines:
if a chunk ends in the midst of a row, the row comes again with the next chunk.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from core.common.lenient_json import compact, describe_error, read_json
from core.pipeline.input_lines import BadLineError, Chunk, Input, Lines, Quiet, read_chunks, utf16_error
from core.pipeline.line_parsers import Batch, Rows, json_parser, rows_of
from core.pipeline.timestamp_field import TimestampField

_LONGEST_CELL = 64 * 1024 * 1024
"""In characters. In a longer cell the closing quote is probably missing."""
_CUT_OFF = "unexpected end of data"
"""The message of Python's reader about quotes that do not end."""
_FIRST_ROW = re.compile(rb'(?:"(?:[^"]|"")*"|[^"\n])*')


def read_csv(
    inputs: Sequence[Input],
    key_field: str | None,
    timestamp_field: TimestampField | None,
    topic_field: str | None = None,
    linger_s: float = 0.0,
) -> Iterator[Batch]:
    """Yields the rows of all inputs; the number of a row is that of the line where it begins. Raises what `read_chunks`
    raises.
    """
    csv.field_size_limit(_LONGEST_CELL)
    parse = json_parser(key_field, timestamp_field, topic_field)

    def parsed(objects: list[bytes], numbers: list[int]) -> Rows:
        if not objects:
            return rows_of([], line)
        found = parse(Lines(memoryview(b"\n".join(objects)), 0))
        return found.with_columns(numbers=np.array(numbers[: len(objects)], np.int64))

    line, table = 0, _Table()
    for chunk in read_chunks(inputs, linger_s, is_text=True, drops_bom=True):
        start = chunk.used
        objects, numbers, bad = table.take(chunk, line)
        try:
            rows = parsed(objects, numbers)
        except BadLineError as error:
            bad = BadLineError(numbers[error.row], error.problem)
            rows = parsed(objects[: error.row], numbers)
        text = memoryview(chunk.data)[: chunk.used]
        yield Batch(rows, bad, chunk.quiet, text)
        line += bytes(text).count(b"\n")
        if chunk.is_end:
            line += chunk.used > start and not chunk.data.endswith(b"\n")
            table = _Table()


class _Table:
    """The rows of one input; owned by one task. If the first row has no comma, another character separates cells."""

    def __init__(self) -> None:
        self._names: list[str] | None = None
        self._separator = ","

    def take(self, chunk: Chunk, line: int) -> tuple[list[bytes], list[int], BadLineError | None]:
        """Takes the whole rows of the chunk, which begins with that line; returns objects, the line of each, and the
        error after them, or None.
        """
        whole = chunk.data[chunk.used : len(chunk.data) if chunk.is_end else chunk.data.rfind(b"\n") + 1]
        lines = list(io.BytesIO(whole))
        if self._names is None and lines:
            self._separator = _find_separator(whole)
        reader = csv.reader((text.decode() for text in lines), strict=True, delimiter=self._separator)
        objects: list[bytes] = []
        numbers: list[int] = []
        bad = None
        taken = 0
        try:
            for cells in reader:
                if self._names is None:
                    _ensure_names(cells, line)
                    self._names = cells
                elif len(cells) != len(self._names):
                    raise BadLineError(
                        line + taken, f"{len(cells)} cells, the first line names {len(self._names)} columns"
                    )
                else:
                    objects.append(json.dumps(dict(zip(self._names, cells, strict=True)), ensure_ascii=False).encode())
                    numbers.append(line + taken)
                taken = reader.line_num
        except BadLineError as error:
            bad = error
        except (UnicodeDecodeError, csv.Error) as error:
            if str(error) != _CUT_OFF or chunk.is_end:
                bad = BadLineError(line + taken, f"not CSV: {_describe(error)}")
        chunk.used += sum(map(len, lines[:taken]))
        return objects, numbers, bad


def _describe(error: UnicodeDecodeError | csv.Error) -> str:
    if isinstance(error, UnicodeDecodeError):
        return describe_error(error)
    if str(error) == _CUT_OFF or str(error).startswith("field larger"):
        return "the quotes of a cell do not end"
    if str(error).startswith("new-line character"):
        return r"a \r stands alone: lines end in \n or \r\n"
    return str(error)


def _find_separator(text: bytes | bytearray) -> str:
    first = _FIRST_ROW.match(text)
    outside = re.sub(rb'"(?:[^"]|"")*"', b"", first[0] if first is not None else b"")
    return next((one for one in (",", ";", "\t", "|") if one.encode() in outside), ",")


def _ensure_names(names: list[str], line: int) -> None:
    if names and names[0].lower().startswith("sep="):
        raise BadLineError(line, "this line is Excel's and no names of columns: take it out")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadLineError(line, f"the name {twice[0]!r} is there twice: each column needs one of its own")


_PART = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}"]', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR_END = re.compile(rb"[ \t\r\n,\]]")
_OPEN, _CLOSE = b"{[", b"}]"


def read_json_values(inputs: Sequence[Input], linger_s: float = 0.0) -> Iterator[Lines]:
    """Yields the values of all inputs as lines, as `read_lines` does, and raises what that raises."""
    row = 0
    splitter: _Splitter | None = None
    is_lines: bool | None = None
    for chunk in read_chunks(inputs, linger_s, is_text=True, drops_bom=True):
        if is_lines is None and chunk.quiet is not Quiet.LONG:
            is_lines, splitter = _has_lines(chunk), _Splitter()
        if is_lines:
            start, chunk.used = chunk.used, len(chunk.data) if chunk.is_end else chunk.data.rfind(b"\n") + 1
            lines = Lines(memoryview(chunk.data)[start : chunk.used], row, chunk.quiet)
        elif is_lines is None or splitter is None:
            lines = Lines(memoryview(b""), row, chunk.quiet)
        else:
            lines = splitter.split(chunk, row)
        if len(lines) or lines.bad is not None or chunk.quiet is Quiet.LONG:
            yield lines
            row += len(lines)
        if chunk.is_end:
            is_lines = None


def _has_lines(chunk: Chunk) -> bool | None:
    """Returns whether each line is a value, or None before the first whole line."""
    if chunk.data[:1] and b"\0" in chunk.data[:2]:
        raise utf16_error("the input")
    data = chunk.data[chunk.used :].lstrip()
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
        self._is_in_array = self._has_value = False

    def split(self, chunk: Chunk, row: int) -> Lines:
        """Takes the whole values of the chunk."""
        data, position = chunk.data, chunk.used
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
        """Returns whether it begins or ends the array around values, or is a comma in it."""
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
    """Returns the end of the value that begins there, or None if it has not come."""
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
        return re.sub(rb"[\r\n]", b" ", text)  # the parser reports its error
    return compact(text).encode("utf-8", "surrogatepass")
