"""`plog produce`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.completion import complete_topic
from cli.open_session import session_of
from cli.options import (
    Acks,
    BootstrapServerOption,
    Codec,
    DataDirOption,
    KeyFormatOption,
    LockTimeoutOption,
    SchemaRegistryOption,
    ValueFormatOption,
    ZooKeeperOption,
    say,
)
from cli.output import OutputFormat, write_rows
from core.common.errors import UsageError
from core.pipeline.timestamp_field import InputFormat, TimestampUnit

if TYPE_CHECKING:
    from core.pipeline.produce import PartitionReport

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(help="The topic to write to.", autocompletion=complete_topic)],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to read instead of stdin.")
    ] = None,
    format_: Annotated[InputFormat, typer.Option("--format", help="The format of the input.")] = InputFormat.lines,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            metavar="PATTERN",
            help=r"What a record looks like in the input, in consume's tokens: '%k\t%h\t%s\n'.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter",
            "-D",
            metavar="S",
            help=r"What ends a record in the input; \0 is a zero byte. Default: a newline.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="S", help="What separates the key from the value in a line."),
    ] = None,
    key_field: Annotated[
        str | None, typer.Option("--key-field", metavar="F", help="The field of JSON lines to take the key from.")
    ] = None,
    timestamp_field: Annotated[
        str | None,
        typer.Option("--timestamp-field", metavar="F", help="The field of JSON lines to take the timestamp from."),
    ] = None,
    timestamp_unit: Annotated[
        TimestampUnit | None,
        typer.Option(
            "--timestamp-unit",
            help="The unit of numbers in --timestamp-field. Default: milliseconds.",
            show_default=False,
        ),
    ] = None,
    crlf: Annotated[
        bool, typer.Option("--crlf", help=r"The lines end in \r\n: leave the \r out of the records.")
    ] = False,
    null_value: Annotated[
        str | None, typer.Option("--null-value", metavar="X", help="Values that equal X are null: tombstones.")
    ] = None,
    null_key: Annotated[str | None, typer.Option("--null-key", metavar="X", help="Keys that equal X are null.")] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", metavar="N", help="Send everything to this partition. Default: as --partitioner decides."
        ),
    ] = None,
    partitioner: Annotated[
        str | None,
        typer.Option(
            "--partitioner",
            metavar="NAME",
            help="murmur2 (Java's), consistent_random (librdkafka's), crc32, murmur2_random, fnv1a_random, random, "
            "round_robin, sticky, or module:function. Default: murmur2, of records that name no partition.",
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="K=V", help="A header for every record; may be repeated."),
    ] = None,
    compression: Annotated[
        Codec, typer.Option("--compression", "--compression-codec", help="How to compress batches.")
    ] = Codec.none,
    acks: Annotated[
        Acks, typer.Option("--acks", "--request-required-acks", help="Which acknowledgement to wait for.")
    ] = Acks.all,
    batch_size: Annotated[
        int,
        typer.Option("--batch-size", metavar="BYTES", help="The size that a batch may have before compression.", min=1),
    ] = 512 * 1024,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="Send everything in one transaction: all of it becomes visible, or nothing.",
        ),
    ] = None,
    transaction_timeout_ms: Annotated[
        int,
        typer.Option("--transaction-timeout-ms", metavar="MS", help="How long the transaction may stay open.", min=1),
    ] = 900_000,
    linger: Annotated[
        float,
        typer.Option("--linger", metavar="MS", help="How long to wait for more input before a batch is sent.", min=0),
    ] = 0,
    rate: Annotated[float | None, typer.Option("--rate", metavar="N", help="At most N records a second.")] = None,
    tee: Annotated[bool, typer.Option("--tee", "-T", help="Copy the input to stdout once it is acknowledged.")] = False,
    claim_check: Annotated[
        Path | None,
        typer.Option("--claim-check", metavar="DIR", help="Store values in DIR, and send references to them."),
    ] = None,
    claim_check_above: Annotated[
        int, typer.Option("--claim-check-above", metavar="BYTES", help="With --claim-check: store only larger values.")
    ] = 0,
    schema_registry: SchemaRegistryOption = None,
    key_format: KeyFormatOption = None,
    value_format: ValueFormatOption = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            "--value-schema",
            metavar="SCHEMA",
            help="The schema of values: an id, SUBJECT[:VERSION], or a .avsc, .proto or .json file.",
        ),
    ] = None,
    key_schema: Annotated[str | None, typer.Option("--key-schema", metavar="SCHEMA", help="The same for keys.")] = None,
    chunk: Annotated[
        int | None, typer.Option("--chunk", metavar="BYTES", help="Send larger values in slices of this size.", min=1)
    ] = None,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Refuse a topic that does not exist, instead of creating it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check everything, but send nothing.")] = False,
    report: Annotated[
        OutputFormat | None,
        typer.Option(
            "--report",
            help="Print for each partition how many records it got, and the first and last offset.",
            metavar="FMT",
        ),
    ] = None,
    bootstrap_server: BootstrapServerOption = None,
    zookeeper: ZooKeeperOption = None,
    data_dir: DataDirOption = None,
    lock_timeout: LockTimeoutOption = 10.0,
) -> None:
    """Write records from stdin or files to a topic.

    Each line is a record. A bad line stops the command: everything before it is written and confirmed, nothing after it
    is sent. With --transactional-id, a bad line or Ctrl-C aborts the transaction, and nothing becomes visible.

    \b
    Example:
      zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time
    """
    from core.pipeline.input_options import InputOptions
    from core.pipeline.produce import WriterOptions
    from core.pipeline.produce import produce as run
    from core.records.compression import CompressionType
    from core.records.side_format import SideFormats

    if format_ in (InputFormat.json, InputFormat.ndjson):
        format_ = InputFormat.envelope
    if rate is not None and not rate > 0:
        raise UsageError(f"--rate {rate:g}: expected a number above 0 of records a second")
    input_ = InputOptions(
        inputs=files or [sys.stdin.buffer],
        format=format_,
        template=template,
        delimiter=delimiter,
        crlf=crlf,
        key_separator=key_separator,
        key_field=key_field,
        timestamp_field=timestamp_field,
        timestamp_unit=timestamp_unit,
        null_value=null_value,
        null_key=null_key,
        headers=headers or (),
        claim_check=None if dry_run else claim_check,
        claim_check_above=claim_check_above,
        formats=SideFormats(schema_registry, key_format, value_format),
        value_schema=value_schema,
        key_schema=key_schema,
        linger_ms=linger,
    )
    input_.ensure_consistent()
    input_.ensure_readable()
    if transactional_id == "":
        raise UsageError("--transactional-id is empty")
    if transactional_id is not None and acks is not Acks.all:
        raise UsageError("--transactional-id goes with --acks all")
    if tee and report is not None:
        raise UsageError("--tee and --report both print to stdout: one of them")
    options = WriterOptions(
        partition=partition,
        partitioner=partitioner,
        acks=acks.number,
        compression=CompressionType.parse(compression),
        batch_bytes=batch_size,
        chunk_bytes=chunk,
        rate=rate,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        is_dry_run=dry_run,
        may_create=not no_create,
        is_copy=format_ is InputFormat.envelope,
    )
    if not files:
        _say_where_from(topic)
    session = session_of(bootstrap_server, data_dir, lock_timeout, zookeeper=zookeeper)
    written = run(session, topic, input_, options, tee=_tee if tee else None)
    if report is not None:
        _print_report(written, report)


def _print_report(written: Mapping[int, PartitionReport], report: OutputFormat) -> None:
    rows = [
        {"partition": number, "records": r.records, "first_offset": r.first_offset, "last_offset": r.last_offset}
        for number, r in sorted(written.items())
    ]
    write_rows(rows, ["partition", "records", "first_offset", "last_offset"], report)


def _say_where_from(topic: str) -> None:
    """Tells users who typed no topic, or wait for a prompt, that input comes from stdin."""
    if Path(topic).is_file():
        say(f"note: {topic} is the topic, records come from stdin; for the file: plog produce TOPIC {topic}")
    elif sys.stdin.isatty():
        say("note: reading records from the terminal; Ctrl-D ends")


def _tee(text: memoryview) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
