"""`plog produce`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cli.data_location import Place
from cli.options import Acks, Codec, say
from cli.output import OutputFormat, write_rows
from cli.plog_command import command, new_app
from core.common.command_option import Argument, Option
from core.common.errors import UsageError
from core.pipeline.timestamp_field import InputFormat, TimestampUnit
from core.records.side_format import KeyFormatOption, SchemaRegistryOption, ValueFormatOption

if TYPE_CHECKING:
    from core.pipeline.produce import PartitionReport

app = new_app()


@command(app)
def produce(
    topic: Annotated[str, Argument("The topic to write to.", completes="topic")],
    files: Annotated[list[Path] | None, Argument("Files to read instead of stdin.", metavar="[FILE]...")] = None,
    format_: Annotated[InputFormat, Option("The format of the input.")] = InputFormat.lines,
    template: Annotated[
        str | None,
        Option(r"What a record looks like in the input, in consume's tokens: '%k\t%h\t%s\n'.", metavar="PATTERN"),
    ] = None,
    delimiter: Annotated[
        str | None,
        Option(r"What ends a record in the input; \0 is a zero byte. Default: a newline.", "-D", metavar="S"),
    ] = None,
    key_separator: Annotated[
        str | None, Option("What separates the key from the value in a line.", "-K", metavar="S")
    ] = None,
    key_field: Annotated[str | None, Option("The field of JSON lines to take the key from.", metavar="F")] = None,
    timestamp_field: Annotated[
        str | None, Option("The field of JSON lines to take the timestamp from.", metavar="F")
    ] = None,
    timestamp_unit: Annotated[
        TimestampUnit | None,
        Option("The unit of numbers in --timestamp-field. Default: milliseconds.", show_default=False),
    ] = None,
    crlf: Annotated[bool, Option(r"The lines end in \r\n: leave the \r out of the records.")] = False,
    null_value: Annotated[str | None, Option("Values that equal X are null: tombstones.", metavar="X")] = None,
    null_key: Annotated[str | None, Option("Keys that equal X are null.", metavar="X")] = None,
    partition: Annotated[
        int | None, Option("Send everything to this partition. Default: as --partitioner decides.", metavar="N")
    ] = None,
    partitioner: Annotated[
        str | None,
        Option(
            "murmur2 (Java's), consistent_random (librdkafka's), crc32, murmur2_random, fnv1a_random, random, "
            "round_robin, sticky, or module:function. Default: murmur2, of records that name no partition.",
            metavar="NAME",
        ),
    ] = None,
    headers: Annotated[
        list[str] | None, Option("A header for every record; may be repeated.", "--header", "-H", metavar="K=V")
    ] = None,
    compression: Annotated[
        Codec, Option("How to compress batches.", "--compression", "--compression-codec")
    ] = Codec.none,
    acks: Annotated[Acks, Option("Which acknowledgement to wait for.", "--acks", "--request-required-acks")] = Acks.all,
    batch_size: Annotated[
        int, Option("The size that a batch may have before compression.", metavar="BYTES", min=1)
    ] = 512 * 1024,
    transactional_id: Annotated[
        str | None, Option("Send everything in one transaction: all of it becomes visible, or nothing.", metavar="ID")
    ] = None,
    transaction_timeout_ms: Annotated[
        int, Option("How long the transaction may stay open.", metavar="MS", min=1)
    ] = 900_000,
    linger: Annotated[
        float, Option("How long to wait for more input before a batch is sent.", metavar="MS", min=0)
    ] = 0,
    rate: Annotated[float | None, Option("At most N records a second.", metavar="N")] = None,
    tee: Annotated[bool, Option("Copy the input to stdout once it is acknowledged.", "-T")] = False,
    claim_check: Annotated[
        Path | None, Option("Store values in DIR, and send references to them.", metavar="DIR")
    ] = None,
    claim_check_above: Annotated[int, Option("With --claim-check: store only larger values.", metavar="BYTES")] = 0,
    schema_registry: SchemaRegistryOption = None,
    key_format: KeyFormatOption = None,
    value_format: ValueFormatOption = None,
    value_schema: Annotated[
        str | None,
        Option("The schema of values: an id, SUBJECT[:VERSION], or a .avsc, .proto or .json file.", metavar="SCHEMA"),
    ] = None,
    key_schema: Annotated[str | None, Option("The same for keys.", metavar="SCHEMA")] = None,
    chunk: Annotated[int | None, Option("Send larger values in slices of this size.", metavar="BYTES", min=1)] = None,
    no_create: Annotated[bool, Option("Refuse a topic that does not exist, instead of creating it.")] = False,
    dry_run: Annotated[bool, Option("Read and check everything, but send nothing.")] = False,
    report: Annotated[
        OutputFormat | None,
        Option("Print for each partition how many records it got, and the first and last offset.", metavar="FMT"),
    ] = None,
    place: Place = Place(),
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
    session = place.session()
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
