"""`plog produce`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import BootstrapServerOption, DataDirOption, LockTimeoutOption
from cli.session import open_client
from core.common.errors import UsageError

if TYPE_CHECKING:
    from cli.records_in import Parser

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class InputFormat(StrEnum):
    lines = "lines"
    envelope = "envelope"
    raw = "raw"
    csv = "csv"


class Acks(StrEnum):
    none = "0"
    one = "1"
    all = "all"


class Codec(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="Where to.")],
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE]...", help="Instead of stdin.")] = None,
    format_: Annotated[InputFormat, typer.Option("--format", help="What the input is.")] = InputFormat.lines,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", metavar="S", help="A line is a key, this, and a value.")
    ] = None,
    key_field: Annotated[
        str | None, typer.Option("--key-field", metavar="F", help="Lines are JSON; this field is the key.")
    ] = None,
    timestamp_field: Annotated[
        str | None, typer.Option("--timestamp-field", metavar="F", help="Lines are JSON; this field is the timestamp.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", help="All to this one; else by the key's hash.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="K=V", help="On every record; may be repeated.")
    ] = None,
    compression: Annotated[
        Codec, typer.Option("--compression", "--compression-codec", help="Of the batches.")
    ] = Codec.none,
    acks: Annotated[
        Acks, typer.Option("--acks", "--request-required-acks", help="Whose word is waited for.")
    ] = Acks.all,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="BYTES", help="The largest batch, before compression.", min=1)
    ] = 128 * 1024,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="All of it is one transaction: it counts whole, or not."),
    ] = None,
    transaction_timeout_ms: Annotated[
        int,
        typer.Option("--transaction-timeout-ms", metavar="MS", help="How long it may be open.", min=1),
    ] = 900_000,
    rate: Annotated[float | None, typer.Option("--rate", metavar="N", help="At most N records a second.")] = None,
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
    lock_timeout: LockTimeoutOption = 10.0,
) -> None:
    """Write records from stdin or files to a topic.

    Each line is a record. A bad line stops it: what came before is written and acknowledged, nothing after is sent.
    With --transactional-id a bad line or Ctrl-C aborts it: nothing becomes visible.

    \b
    Example:
      zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time
    """
    from cli.records_in import parse_headers, read_lines, read_raw
    from cli.row_writer import RowWriter
    from core.records.compression import CompressionType

    uses_fields = key_field is not None or timestamp_field is not None
    if uses_fields and (key_separator is not None or format_ in (InputFormat.envelope, InputFormat.raw)):
        raise UsageError("--key-field and --timestamp-field go with lines of JSON, or with --format csv")
    if key_separator is not None and format_ is not InputFormat.lines:
        raise UsageError("--key-separator goes with --format lines")
    if key_separator == "":
        raise UsageError("--key-separator is empty")
    if transactional_id == "":
        raise UsageError("--transactional-id is empty")
    if transactional_id is not None and acks is not Acks.all:
        raise UsageError("--transactional-id goes with --acks all")
    header_section = parse_headers(headers or [])
    with open_client(bootstrap_server, data_dir, lock_timeout_s=lock_timeout) as client:
        writer = RowWriter(
            client,
            topic,
            partition=partition,
            acks={Acks.none: 0, Acks.one: 1, Acks.all: -1}[acks],
            compression=CompressionType.parse(compression),
            batch_bytes=batch_size,
            header_section=header_section,
            rate=rate,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        if format_ is InputFormat.raw:
            writer.write_all(read_raw(files or []))
        else:
            parser = _parser(format_, key_separator, key_field, timestamp_field)
            writer.write_lines(read_lines(files or []), parser)


def _parser(
    format_: InputFormat, key_separator: str | None, key_field: str | None, timestamp_field: str | None
) -> Parser:
    from cli.records_in import csv_parser, envelope_parser, json_parser, lines_parser

    if format_ is InputFormat.envelope:
        return envelope_parser()
    if format_ is InputFormat.csv:
        return csv_parser(key_field, timestamp_field)
    if key_field is not None or timestamp_field is not None:
        return json_parser(key_field, timestamp_field)
    return lines_parser(None if key_separator is None else key_separator.encode())
