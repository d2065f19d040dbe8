"""Makes columns of records that stand in the input as `--template` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from core.pipeline.input_lines import BadLineError, Input, Lines, read_chunks, read_lines
from core.pipeline.input_template import Template, TemplateError
from core.pipeline.line_parsers import Batch, Parser, Rows, parse_lines, rows_of
from core.records.byte_strings import ByteStrings
from core.records.envelope import InputRecord


def read_by_template(inputs: Sequence[Input], template: Template, linger_s: float) -> Iterator[Batch]:
    """Gives the records of all inputs. Raises AccessError if one can't be read."""
    if not template.is_by_lines:
        return _read_by_lengths(inputs, template, linger_s)
    return parse_lines(read_lines(inputs, template.end, linger_s), _parser(template))


def _read_by_lengths(inputs: Sequence[Input], template: Template, linger_s: float) -> Iterator[Batch]:
    """Gives records that say how long they are."""
    row = 0
    for chunk in read_chunks(inputs, linger_s):
        data = bytes(chunk.data)
        records: list[InputRecord] = []
        bad: BadLineError | None = None
        try:
            while chunk.used < len(data) and (found := template.read_one(data, chunk.used)) is not None:
                records.append(found[0])
                chunk.used = found[1]
        except TemplateError as error:
            bad = BadLineError(row + len(records), str(error), thing="record")
        if chunk.is_end and chunk.used < len(data) and bad is None:
            bad = BadLineError(row + len(records), "the input ends in the middle of it", thing="record")
        yield Batch(rows_of(records, row), bad, chunk.quiet, memoryview(data)[: chunk.used])
        row += len(records)


def _parser(template: Template) -> Parser:
    """Reads lines as the template says; by columns if its fields are no more than their bytes."""
    plain = template.plain_parts
    if plain is not None:
        return _plain_parser(plain)

    def parse(lines: Lines) -> Rows:
        records = []
        for row, line in enumerate(lines, lines.first_row):
            try:
                records.append(template.read_line(line))
            except TemplateError as error:
                raise BadLineError(row, str(error)) from error
        return rows_of(records, lines.first_row)

    return parse


def _plain_parser(parts: list[str | bytes]) -> Parser:
    def parse(lines: Lines) -> Rows:
        starts, lengths = lines.texts.positions, lines.texts.lengths
        found: dict[str, ByteStrings] = {}
        for number, part in enumerate(parts):
            if isinstance(part, bytes):
                if number == 0:
                    _ensure(
                        pc.starts_with(ByteStrings(lines.text, starts, lengths).to_arrow(), part),
                        lines,
                        f"expected {part!r} first",
                    )
                starts, lengths = starts + len(part), lengths - len(part)
                continue
            size = lengths
            if number + 1 < len(parts):
                following = parts[number + 1]
                rest = ByteStrings(lines.text, starts, lengths).to_arrow()
                size = np.asarray(pc.find_substring(rest, following)).astype(np.int64)
                _ensure(size >= 0, lines, f"no {following!r}")
            found[part] = ByteStrings(lines.text, starts, size)
            starts, lengths = starts + size, lengths - size
        _ensure(lengths == 0, lines, "more stands after the last field")
        values = found.get("s", ByteStrings.repeat(None, len(lines)))
        return Rows(values=values, keys=found.get("k"), numbers=lines.numbers)

    return parse


def _ensure(good: Any, lines: Lines, problem: str) -> None:
    mask = np.asarray(good)
    if len(mask) and not mask.all():
        raise BadLineError(lines.first_row + int(np.argmin(mask)), problem)
