"""`plog dump-segment`."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.findings_out import print_findings
from cli.output import OutputFormat, Row, write_rows
from cli.plog_command import command, new_app
from cli.terminal import (
    cut,
    ensure_no_terminal,
    find_width,
    is_terminal,
    open_stdout,
    say,
    say_failures,
    show,
    text_width,
)
from core.common.command_option import argument, flag, option
from core.common.errors import AccessError, UsageError
from core.common.printable import printable
from core.inspector.check.file_kind import skip_unreadable
from core.records.side_format import (
    DUMPED_SCHEMA_JSON,
    KEY_SCHEMA,
    NO_SCHEMA_JSON,
    PLAIN,
    SCHEMA_CONTEXT,
    SCHEMA_REGISTRY,
    VALUE_SCHEMA,
    SchemaJson,
)

if TYPE_CHECKING:
    from core.inspector.dump.dump_options import DumpOptions
    from core.inspector.dump.file_dump import FileDump
    from core.inspector.dump.hex_dump import HexField

app = new_app()

SCHEMA = 1
"""The version of the rows in docs/dump-log.md: columns may be added, never removed or changed."""

_DROPS = [
    "delete_horizon_ms", "crc", "magic", "version", "leader_epoch", "producer_epoch", "coordinator_epoch",
    "timestamp_type", "base_sequence", "first_sequence", "last_sequence", "sequence", "offset_delta", "is_control",
    "batch_position", "key_size", "value_size", "size", "is_transactional", "codec", "producer_id",
    "current_txn_first_offset", "headers", "position", "count",
]  # fmt: skip
"""Columns that a table leaves out on a narrow terminal, the first to go first, for every kind of file."""

_SHOWN_CHARACTERS = 60
_TABLE_ROWS = 50_000


class DumpFormat(StrEnum):
    kafka = "kafka"
    table = "table"
    json = "json"
    ndjson = "ndjson"
    csv = "csv"
    arrow = "arrow"


@command(app, "plog dump-segment sample-data/partition/txn_multisegment-0/00000000000000000000.log --print-data-log")
def dump_segment(
    paths: list[Path] | None = argument(
        "Files, partition folders or data directories.", default=None, metavar="PATH..."
    ),
    print_data_log: bool = flag("Print records with their keys and values."),
    deep_iteration: bool = flag("Print records, not only batches, but without their keys and values."),
    verify_index_only: bool = flag("Only compare the indexes with their logs."),
    index_sanity_check: bool = flag("Only check whether the indexes are well-formed."),
    offset: int | None = option("Begin with the batch that holds this offset.", metavar="N"),
    time_: str | None = option("Begin with the first batch that is as new as T or newer.", metavar="T"),
    max_records: int | None = option("Stop after this many records.", metavar="N"),
    key: str | None = option("Only records with this key (implies --print-data-log).", metavar="KEY"),
    key_format: str | None = option(
        "How keys are shown: utf8, hex, base64, json, long, int64be, struct:>qi, ... Default: registry, if one "
        "is given, else utf8.",
        metavar="FORMAT",
        show_default=False,
    ),
    value_format: str | None = option(
        "How values are shown: a format as for keys, or your own function as module:function.",
        metavar="FORMAT",
        show_default=False,
    ),
    schema_registry: str | None = SCHEMA_REGISTRY,
    schema_context: str | None = SCHEMA_CONTEXT,
    value_schema: str | None = VALUE_SCHEMA,
    key_schema: str | None = KEY_SCHEMA,
    schema_json: SchemaJson | None = DUMPED_SCHEMA_JSON,
    max_bytes: int | None = option("Read at most this many bytes of each log.", metavar="N"),
    skip_record_metadata: bool = flag("Print only keys and values of records, in Kafka's format."),
    offsets_decoder: bool = flag("Decode records as those of __consumer_offsets, whatever the folder is called."),
    transaction_log_decoder: bool = flag("Decode records as those of __transaction_state."),
    share_group_state_decoder: bool = flag("Decode records as those of __share_group_state."),
    cluster_metadata_decoder: bool = flag("Decode records as those of __cluster_metadata."),
    files: str | None = option("The paths, with commas between them, as for Kafka's tool.", metavar="A,B"),
    show_secrets: bool = flag("Show users' keys and settings' values in metadata, instead of [hidden]."),
    hex_: bool = flag("Print every byte, with the field that it belongs to."),
    format_: DumpFormat | None = option(
        "The format: kafka is the text of Kafka's own tool. Default: kafka in a pipe, table on a terminal.",
        "--output",
        "--format",
    ),
) -> None:
    """Print what is in a segment, index, snapshot or checkpoint.

    It only reads. Problems of the files go to stderr, and make the exit code 1.
    """
    from core.common.time_text import parse_time
    from core.inspector.dump.dump_options import DumpOptions
    from core.inspector.dump.file_dump import find_dumps
    from core.inspector.dump.value_format import ValueAccount, parse_value_format, side_formats

    paths = [*(paths or []), *(Path(path) for path in (files or "").split(",") if path)]
    if not paths:
        raise UsageError("name at least one file or directory")
    if verify_index_only or index_sanity_check:
        raise typer.Exit(_check_indexes(paths, sanity_only=index_sanity_check))
    decoders = {
        "__consumer_offsets": offsets_decoder,
        "__transaction_state": transaction_log_decoder,
        "__share_group_state": share_group_state_decoder,
        "__cluster_metadata": cluster_metadata_decoder,
    }
    decoded_as = next((topic for topic, is_given in decoders.items() if is_given), None)
    with_data = print_data_log or key is not None or decoded_as is not None or format_ is DumpFormat.arrow
    formats, registry = PLAIN, None
    if any((schema_registry, key_format, value_format, key_schema, value_schema, schema_context)):
        from core.client.schemas.key_value_decoder import open_registry

        formats = side_formats(schema_registry, key_format, value_format, key_schema, value_schema, schema_context)
        formats = formats._replace(schema_json=schema_json)
        registry = open_registry(formats)
    if schema_json is not None and not formats.have_schemas():
        raise UsageError(NO_SCHEMA_JSON)
    counts = registry is not None or {key_format, value_format, key_schema, value_schema} - {None, "utf8", "none"}
    account = ValueAccount(say) if counts else None
    options = DumpOptions(
        with_records=with_data or deep_iteration,
        with_data=with_data,
        start_offset=offset or 0,
        start_timestamp=None if time_ is None else parse_time(time_, time.time_ns() // 1_000_000),
        max_records=max_records,
        max_bytes=max_bytes,
        decoded_as=decoded_as,
        skips_metadata=skip_record_metadata,
        key=None if key is None else key.encode("utf-8", "surrogateescape"),
        key_format=parse_value_format(key_format, "key", account, formats, registry),
        value_format=parse_value_format(value_format, "value", account, formats, registry),
        account=account,
        shows_secrets=show_secrets,
        is_secret_config=_is_secret_config,
    )
    failures: list[AccessError] = []
    dumps = skip_unreadable(paths, lambda path: find_dumps(path, options), failures)
    if hex_:
        _ensure_whole(options)
    plain = DumpFormat.table if is_terminal() else DumpFormat.kafka
    code = _print(dumps, None if hex_ else format_ or plain)
    if account is not None and account.report():
        code = code or 1
    for note in registry.notes if registry is not None else ():
        say(note)
    raise typer.Exit(say_failures(failures) or code)


def _ensure_whole(options: DumpOptions) -> None:
    """Raises UsageError for an option that would hide bytes, with --hex."""
    for name, is_given in {
        "--offset": options.start_offset,
        "--time": options.start_timestamp is not None,
        "--max-records": options.max_records is not None,
        "--max-bytes": options.max_bytes is not None,
        "--key": options.key is not None,
    }.items():
        if is_given:
            raise UsageError(f"--hex shows every byte of a file, and {name} leaves some out: one of them")


def _is_secret_config(resource_type: int, name: str) -> bool:
    from core.broker.config.config_sources import is_secret_config  # which few files ask for

    return is_secret_config(resource_type, name)


def _print(dumps: Iterator[FileDump], format_: DumpFormat | None) -> int:
    """Prints everything, without a format as --hex does, and then the findings; returns the exit code."""
    findings = []
    if format_ is DumpFormat.arrow:
        from core.records.arrow_strings import ensure_arrow

        ensure_arrow("--format arrow")
        dumps = _print_arrow(dumps)
    elif format_ is DumpFormat.json:
        dumps = _print_json(dumps)
    for dump in dumps:
        try:
            if dump.is_readable:
                _print_one(dump, format_)
        except AccessError as error:
            if dump.path.exists():
                raise
            say(f"warning: {error}; its broker deleted it meanwhile")
        findings += dump.findings
    sys.stdout.flush()
    return print_findings(findings)


def _print_one(dump: FileDump, format_: DumpFormat | None) -> None:
    match format_:
        case DumpFormat.kafka:
            out = open_stdout()
            for piece in dump.kafka_text():
                out.write(piece)
            out.flush()
        case DumpFormat.table:
            rows = dump.rows()
            shown = list(islice(rows, _TABLE_ROWS))
            show(f"{dump.path}: {dump.kind.value}" + ("" if shown else ", empty"))
            while shown:  # a large file is several tables
                readable = [_readable(row) for row in shown]
                write_rows(readable, list(shown[0]), OutputFormat.table, drops=_DROPS, whole="--format ndjson")
                shown = list(islice(rows, _TABLE_ROWS))
        case DumpFormat.ndjson:
            for text in _json_rows(dump):
                sys.stdout.write(text + "\n")
        case DumpFormat.csv:
            _print_csv(dump)
        case None:
            _print_hex(dump)


def _json_rows(dump: FileDump) -> Iterator[str]:
    from core.inspector.dump.value_format import JsonText

    encode = json.JSONEncoder().encode
    for row in dump.rows():
        row = {"schema": SCHEMA, "file": str(dump.path), "kind": dump.kind.value, **row}
        texts = {name: value for name, value in row.items() if isinstance(value, JsonText)}
        if not texts:
            yield encode(row)
            continue
        fields = [f"{encode(name)}: {texts.get(name) or encode(value)}" for name, value in row.items()]
        yield f"{{{', '.join(fields)}}}"


def _print_json(dumps: Iterator[FileDump]) -> Iterator[FileDump]:
    """Prints one list of the rows of all files; complete even if one of them can't be read to its end."""
    separator = "[\n"
    try:
        for dump in dumps:
            for text in _json_rows(dump) if dump.is_readable else ():
                sys.stdout.write(separator + text)
                separator = ",\n"
            yield dump
    finally:
        sys.stdout.write("\n]\n" if separator != "[\n" else "[]\n")


def _print_hex(dump: FileDump) -> None:
    """Prints position, bytes, field and value; sixteen bytes a line, or fewer on a narrow terminal."""
    width = find_width(sys.stdout)
    show(f"{dump.path}: {dump.kind.value}")
    for field in dump.hex_fields():
        for line in _hex_lines(field, width):
            print(line)


def _hex_lines(field: HexField, width: int | None) -> Iterator[str]:
    size = 16 if width is None or width >= 110 else 8 if width >= 70 else 4
    value = field.value if isinstance(field.value, str) else json.dumps(field.value)
    shown = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
    text = f"{'  ' * field.depth}{field.name}: {printable(shown, keeps='')}"
    for start in range(0, max(len(field.data), 1), size):
        where = "        " if field.position < 0 else f"{field.position + start:08x}"
        line = f"{where}  {field.data[start : start + size].hex(' ')}"
        if start == 0:
            line = f"{line:<{9 + 3 * size}}  {text}"
            if width is not None and text_width(line) > width:
                line = f"{cut(line, width - 3)}..."
        yield line


def _print_csv(dump: FileDump) -> None:
    text = StringIO()
    out = open_stdout()
    writer = csv.writer(text, lineterminator="\n")
    header: list[str] = []
    for row in dump.rows():
        if not header:
            header = list(row)
            writer.writerow(["file", *header])
        writer.writerow([str(dump.path), *_readable(row).values()])
        out.write(text.getvalue().encode("utf-8", "surrogateescape"))
        text.seek(0)
        text.truncate()


def _readable(row: Row) -> Row:
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _print_arrow(dumps: Iterator[FileDump]) -> Iterator[FileDump]:
    """Writes one Arrow IPC stream of every log's records; skips files of other kinds."""
    import pyarrow as pa

    from core.inspector.dump.arrow_batch import ARROW_SCHEMA

    ensure_no_terminal("--format arrow")
    with pa.ipc.new_stream(sys.stdout.buffer, ARROW_SCHEMA) as stream:
        for dump in dumps:
            if dump.is_log:
                if dump.is_readable:
                    for batch in dump.arrow():
                        stream.write_batch(batch)
                yield dump


def _check_indexes(paths: list[Path], *, sanity_only: bool) -> int:
    from core.inspector.check.findings import Code
    from core.inspector.check.verify import verify

    codes = {Code.INDEX_CORRUPT, Code.TIME_INDEX_CORRUPT, Code.TRANSACTION_INDEX_CORRUPT}
    if not sanity_only:
        codes |= {Code.INDEX_MISSING, Code.INDEX_MISMATCH, Code.TIME_INDEX_MISSING, Code.TIME_INDEX_MISMATCH}
        codes |= {Code.TRANSACTION_INDEX_MISMATCH}
    codes |= {Code.UNREADABLE}
    failures: list[AccessError] = []
    found = skip_unreadable(paths, verify, failures)
    return print_findings([finding for finding in found if finding.code in codes]) or say_failures(failures)
