"""What `plog produce` is asked, and how it goes about it: how the input is read, and what becomes of its records before
they are sent."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cli.input_lines import dropping_cr, read_lines, telling_of_bom, telling_of_cr
from cli.options import InputFormat, TimestampUnit, load_function, say
from cli.records_in import (
    Batch,
    Parser,
    Rows,
    csv_parser,
    envelope_parser,
    json_parser,
    lines_parser,
    parse_headers,
    parse_lines,
    read_raw,
)
from cli.row_writer import RowWriter, WriterOptions
from core.client.kafka_client import KafkaClient
from core.client.partitioner import PARTITIONERS, FunctionPartitions, Partitioner, make_partitioner
from core.common.errors import UsageError
from core.common.filesystem import access_error
from core.records.byte_strings import ByteStrings
from core.records.record import encode_headers, read_headers

_LENGTH_PREFIXED = "%R%s"
_NO_HEADERS = encode_headers(())
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}

Prepare = Callable[[Rows], Rows]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How records stand in the input, and what is made of them; immutable."""

    files: Sequence[Path]
    format: InputFormat
    template: str | None
    delimiter: str | None
    key_separator: str | None
    key_field: str | None
    timestamp_field: str | None
    null_value: str | None
    null_key: str | None
    headers: Sequence[str]
    claim_check: Path | None
    claim_check_above: int
    schema_registry: str | None
    value_schema: str | None
    key_schema: str | None
    linger_ms: float
    timestamp_unit: TimestampUnit | None = None
    crlf: bool = False

    def ensure_consistent(self) -> None:
        """UsageError for options that do not go together."""
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
                "--template says how records stand in the input, by itself",
            ),
            (self.template is not None and self.delimiter is not None, "--template ends with its own delimiter"),
            (self.delimiter == "", "--delimiter is empty"),
            (
                self.delimiter is not None and self.format not in (InputFormat.lines, InputFormat.envelope),
                "--delimiter goes with --format lines or envelope",
            ),
            (
                self.schema_registry is None and (self.value_schema is not None or self.key_schema is not None),
                "--value-schema and --key-schema go with --schema-registry",
            ),
            (
                self.timestamp_unit is not None and self.timestamp_field is None,
                "--timestamp-unit says in what --timestamp-field counts, and goes with it",
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
        """Raises AccessError for a file that is not there or can't be read: nothing is sent then, and no topic made."""
        for path in self.files:
            try:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if not os.access(path, os.R_OK):
                    path.stat()
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            except OSError as error:
                raise access_error(error, path, "read") from error

    def batches(self) -> Iterator[Batch]:
        """The input's records, as they come."""
        linger_s = self.linger_ms / 1000
        if self.format is InputFormat.raw:
            return read_raw(self.files)
        template = _LENGTH_PREFIXED if self.format is InputFormat.length_prefixed else self.template
        if template is not None:
            from cli.input_template import Template
            from cli.template_reader import read_by_template

            return read_by_template(self.files, Template(template), linger_s)
        delimiter = unescape(self.delimiter).encode() if self.delimiter is not None else b"\n"
        lines = read_lines(self.files, delimiter, linger_s)
        if self.format is InputFormat.lines:
            lines = telling_of_bom(lines, say)
        if self.crlf:
            lines = dropping_cr(lines)
        elif self.format is InputFormat.lines and delimiter == b"\n":  # the others pass over it
            lines = telling_of_cr(lines, say)
        return parse_lines(lines, self._parser())

    def _parser(self) -> Parser:
        if self.format is InputFormat.envelope:
            return envelope_parser()
        if self.format is InputFormat.csv:
            return csv_parser(self.key_field, self.timestamp_field, self.timestamp_unit)
        if self.key_field is not None or self.timestamp_field is not None:
            return json_parser(self.key_field, self.timestamp_field, self.timestamp_unit)
        return lines_parser(None if self.key_separator is None else unescape(self.key_separator).encode())

    def preparations(self, topic: str) -> list[Prepare]:
        """What is made of rows before they are sent, one after the other."""
        steps: list[Prepare] = []
        if self.null_value is not None or self.null_key is not None:
            steps.append(self._with_nulls)
        if self.schema_registry is not None:
            from cli.schemas import Schemas

            steps.append(Schemas(self.schema_registry).encoder(topic, self.value_schema, self.key_schema))
        section = parse_headers(self.headers)
        if section is not None:
            steps.append(lambda rows: _with_headers(rows, section))
        if self.claim_check is not None:
            from cli.large_values import ClaimCheckRoom

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
    r"""`\n \t \r \0 \\` in what an option gives."""
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


def _with_headers(rows: Rows, section: bytes) -> Rows:
    """Those of --header behind those that a row has itself."""
    if rows.headers is None:
        return rows.with_columns(headers=ByteStrings.repeat(section, len(rows)))
    more = read_headers(section, 0)[0]
    sections = [encode_headers((*read_headers(own or _NO_HEADERS, 0)[0], *more)) for own in rows.headers.to_pylist()]
    return rows.with_columns(headers=ByteStrings.of_list(sections))


def find_partitioner(name: str, partitions: int, batch_bytes: int) -> Partitioner:
    """By its name, or `module:function`. UsageError where there is none."""
    if ":" in name:
        return FunctionPartitions(load_function(name, "--partitioner"), partitions)
    if name not in PARTITIONERS:
        raise UsageError(
            f"--partitioner {name}: there is none", hint=f"{', '.join(PARTITIONERS)}, or module:function of your own"
        )
    return make_partitioner(name, partitions, batch_bytes)


def produce(client: KafkaClient, topic: str, input_: InputOptions, options: WriterOptions, *, tee: bool) -> RowWriter:
    """All of the input; returns when everything is acknowledged."""
    writer = RowWriter(client, topic, options, input_.preparations(topic), find_partitioner)
    writer.write(input_.batches(), tee=_tee if tee else None)
    return writer


def _tee(text: memoryview) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def say_where_from(topic: str) -> None:
    """For input from stdin: who typed no topic, or waits for a prompt, is told."""
    if Path(topic).is_file():
        say(f"note: {topic} is the topic, records come from stdin; for the file: plog produce TOPIC {topic}")
    elif sys.stdin.isatty():
        say("note: reading records from the terminal; Ctrl-D ends")
