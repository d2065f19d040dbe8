"""Makes records of CSV: a row becomes a JSON object, whose names are in the first row of its input.

A cell in quotes may hold newlines. If a chunk ends in the midst of a row, the row comes again with the next chunk.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from core.common.lenient_json import describe_error
from core.pipeline.input_lines import BadLineError, Chunk, Input, Lines, read_chunks
from core.pipeline.input_rows import Batch, Rows, rows_of
from core.pipeline.line_parsers import json_parser
from core.pipeline.timestamp_field import TimestampField

_LONGEST_CELL = 64 * 1024 * 1024
"""In characters. What seems longer is rather a quote that does not end."""
_CUT_OFF = "unexpected end of data"
"""What Python's reader says of quotes that do not end."""
_FIRST_ROW = re.compile(rb'(?:"(?:[^"]|"")*"|[^"\n])*')


def read_csv(
    inputs: Sequence[Input], key_field: str | None, timestamp_field: TimestampField | None, linger_s: float = 0.0
) -> Iterator[Batch]:
    """Gives the rows of all inputs; the number of a row is that of the line where it begins. Raises what `read_chunks`
    raises.
    """
    csv.field_size_limit(_LONGEST_CELL)
    parse = json_parser(key_field, timestamp_field)

    def parsed(objects: list[bytes], numbers: list[int]) -> Rows:
        if not objects:
            return rows_of([], line)
        found = parse(Lines(memoryview(b"\n".join(objects)), 0))
        return found.with_columns(numbers=np.array(numbers[: len(objects)], np.int64))

    line, table = 0, _Table()
    for chunk in read_chunks(inputs, linger_s, is_text=True):
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
            line += chunk.used > 0 and not chunk.data.endswith(b"\n")
            table = _Table()


class _Table:
    """The rows of one input; owned by one task. If the first has no comma, something else separates the cells."""

    def __init__(self) -> None:
        self._names: list[str] | None = None
        self._separator = ","

    def take(self, chunk: Chunk, line: int) -> tuple[list[bytes], list[int], BadLineError | None]:
        """Takes the whole rows of the chunk, which begins with that line: objects, the line of each, and what is wrong
        after them.
        """
        end = len(chunk.data) if chunk.is_end else chunk.data.rfind(b"\n") + 1
        skipped = len(codecs.BOM_UTF8) if self._names is None and chunk.data.startswith(codecs.BOM_UTF8) else 0
        lines = list(io.BytesIO(chunk.data[skipped:end]))
        if self._names is None and lines:
            self._separator = _find_separator(chunk.data[skipped:end])
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
        chunk.used = skipped + sum(map(len, lines[:taken])) if taken else 0
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
