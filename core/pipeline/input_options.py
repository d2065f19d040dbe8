"""Options of `plog produce` for reading its input, and for preparing the records before they are sent."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.common.errors import UsageError
from core.common.filesystem import access_error
from core.pipeline.input_lines import Input, dropping_cr, read_lines, warning_of_bom, warning_of_cr, warning_of_json
from core.pipeline.line_parsers import (
    Batch,
    Parser,
    Rows,
    envelope_parser,
    json_parser,
    lines_parser,
    parse_lines,
    read_raw,
)
from core.pipeline.session import Session
from core.pipeline.timestamp_field import InputFormat, TimestampField, TimestampUnit
from core.records.byte_strings import ByteStrings
from core.records.record import encode_headers, read_headers
from core.records.side_format import PLAIN, SideFormat, SideFormats

_LENGTH_PREFIXED = "%R%s"
_NO_HEADERS = encode_headers(())
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}

Prepare = Callable[[Rows], Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """The format of records in the input, and how they are prepared; immutable."""

    inputs: Sequence[Input]
    format: InputFormat = InputFormat.lines
    template: str | None = None
    delimiter: str | None = None
    crlf: bool = False
    key_separator: str | None = None
    key_field: str | None = None
    timestamp_field: str | None = None
    timestamp_unit: TimestampUnit | None = None
    null_value: str | None = None
    null_key: str | None = None
    headers: Sequence[str] = ()
    claim_check: Path | None = None
    claim_check_above: int = 0
    formats: SideFormats = PLAIN
    value_schema: str | None = None
    key_schema: str | None = None
    linger_ms: float = 0

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together."""
        uses_fields = self.key_field is not None or self.timestamp_field is not None
        is_lines = self.format is InputFormat.lines
        for is_wrong, problem in (
            (
                uses_fields and (self.key_separator is not None or self.format not in _WITH_FIELDS),
                "--key-field and --timestamp-field go with lines of JSON, or with --format csv",
            ),
            (self.key_separator is not None and not is_lines, "--key-separator goes with --format lines"),
            (self.key_separator == "", "--key-separator is empty"),
            (
                self.template is not None and (not is_lines or uses_fields or self.key_separator is not None),
                (
                    "--template alone describes the input: not with --format, --key-separator, --key-field or "
                    "--timestamp-field"
                ),
            ),
            (self.template is not None and self.delimiter is not None, "--template ends with its own delimiter"),
            (self.delimiter == "", "--delimiter is empty"),
            (
                self.delimiter is not None and self.format not in (InputFormat.lines, InputFormat.envelope),
                "--delimiter goes with --format lines or envelope",
            ),
            (
                self.formats.url is None and (self.value_schema is not None or self.key_schema is not None),
                "--value-schema and --key-schema go with --schema-registry",
            ),
            (
                self.value_schema is not None and self.formats.find("value") is not SideFormat.registry,
                f"--value-schema goes with --value-format registry, not with --value-format {self.formats.value}",
            ),
            (
                self.key_schema is not None and self.formats.find("key") is not SideFormat.registry,
                f"--key-schema goes with --key-format registry, not with --key-format {self.formats.key}",
            ),
            (
                self.timestamp_unit is not None and self.timestamp_field is None,
                "--timestamp-unit is the unit of --timestamp-field, and goes with it",
            ),
            (
                self.crlf and (self.format not in _BY_LINES or self.delimiter is not None),
                "--crlf goes with lines that end in \\n: with --format lines, envelope or csv, and without --delimiter",
            ),
            (self.crlf and self.template is not None, r"--crlf goes without --template: end the template in \r\n"),
            (self.claim_check_above < 0, "--claim-check-above: a number of bytes"),
        ):
            if is_wrong:
                raise UsageError(problem)

    def ensure_readable(self) -> None:
        """Raises AccessError for a missing or unreadable file, before anything is sent or a topic created."""
        for path in self.inputs:
            if not isinstance(path, Path):
                continue
            try:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if not os.access(path, os.R_OK):
                    path.stat()
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            except OSError as error:
                raise access_error(error, path, "read") from error

    def batches(self, say: Callable[[str], None]) -> Iterator[Batch]:
        """Yields the input's records, as they come."""
        linger_s = self.linger_ms / 1000
        if self.format is InputFormat.raw:
            return read_raw(self.inputs)
        if self.format is InputFormat.csv:
            from core.pipeline.json_stream import read_csv

            return read_csv(self.inputs, self.key_field, self._timestamp_field(say), linger_s)
        template = _LENGTH_PREFIXED if self.format is InputFormat.length_prefixed else self.template
        if template is not None:
            from core.pipeline.input_template import Template, read_by_template

            return read_by_template(self.inputs, Template(template), linger_s)
        delimiter = unescape(self.delimiter).encode() if self.delimiter is not None else b"\n"
        if self._is_json and delimiter == b"\n":
            from core.pipeline.json_stream import read_json_values

            lines = read_json_values(self.inputs, linger_s)
        else:
            lines = read_lines(self.inputs, delimiter, linger_s)
            if self.format is InputFormat.lines:
                lines = warning_of_bom(warning_of_json(lines, say), say)
        if self.crlf:
            lines = dropping_cr(lines)
        elif self.format is InputFormat.lines and delimiter == b"\n":  # the other parsers skip a \r
            lines = warning_of_cr(lines, say)
        return parse_lines(lines, self._parser(say))

    @property
    def _is_json(self) -> bool:
        """Returns whether the input is JSON values: envelopes, or objects that are the records' values."""
        if self.format is not InputFormat.lines or self.key_separator is not None:
            return self.format is InputFormat.envelope
        has_fields = self.key_field is not None or self.timestamp_field is not None
        return has_fields or self.value_schema is not None or self.formats.value is SideFormat.json

    def _parser(self, say: Callable[[str], None]) -> Parser:
        if self.format is InputFormat.envelope:
            return envelope_parser()
        timestamp_field = self._timestamp_field(say)
        if self.key_field is not None or timestamp_field is not None:
            return json_parser(self.key_field, timestamp_field)
        return lines_parser(None if self.key_separator is None else unescape(self.key_separator).encode())

    def _timestamp_field(self, say: Callable[[str], None]) -> TimestampField | None:
        name = self.timestamp_field
        return None if name is None else TimestampField(name, self.timestamp_unit, say)

    def preparations(self, topic: str, session: Session) -> list[Prepare]:
        """Returns the steps that rows go through before they are sent, in order."""
        steps: list[Prepare] = []
        if self.null_value is not None or self.null_key is not None:
            steps.append(self._with_nulls)
        if not self.formats.are_plain:
            from core.pipeline.key_value_text import Schemas

            schemas = Schemas(self.formats, session.find_settings())
            steps.append(schemas.encoder(topic, self.value_schema, self.key_schema))
        section = _header_section(self.headers)
        if section is not None:
            steps.append(lambda rows: _with_headers(rows, section))
        if self.claim_check is not None:
            from core.pipeline.large_values import ClaimCheckRoom

            steps.append(ClaimCheckRoom(self.claim_check, self.claim_check_above).leave)
        return steps

    def _with_nulls(self, rows: Rows) -> Rows:
        return rows.with_columns(
            values=_null_where(rows.values, self.null_value),
            keys=None if rows.keys is None else _null_where(rows.keys, self.null_key),
        )


_BY_LINES = (InputFormat.lines, InputFormat.envelope, InputFormat.csv)
_WITH_FIELDS = (InputFormat.lines, InputFormat.csv)


def unescape(text: str) -> str:
    r"""Replaces `\n \t \r \0 \\` in the text of an option."""
    return re.sub(r"\\([ntr0\\])", lambda match: _ESCAPES[match[1]], text)


def _null_where(texts: ByteStrings, text: str | None) -> ByteStrings:
    if text is None:
        return texts
    wanted = unescape(text).encode()
    lengths = texts.lengths.copy()
    for row in np.flatnonzero(lengths == len(wanted)).tolist():
        start = int(texts.positions[row])
        if texts.buffer[start : start + len(wanted)] == wanted:
            lengths[row] = -1
    return ByteStrings(texts.buffer, texts.positions, lengths)


def _header_section(options: Sequence[str]) -> bytes | None:
    """Returns the headers section of `--header K=V` options, or None."""
    pairs = []
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise UsageError(f"--header {option}: expected NAME=VALUE")
        pairs.append((name.encode(), value.encode()))
    return encode_headers(pairs) if pairs else None


def _with_headers(rows: Rows, section: bytes) -> Rows:
    """Appends the headers of --header to the row's own."""
    if rows.headers is None:
        return rows.with_columns(headers=ByteStrings.repeat(section, len(rows)))
    more = read_headers(section, 0)[0]
    sections = [encode_headers((*read_headers(own or _NO_HEADERS, 0)[0], *more)) for own in rows.headers.to_pylist()]
    return rows.with_columns(headers=ByteStrings.of_list(sections))
