"""`plog trace`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import DataDirOption, default_data_dir, each_of, say, say_failures
from cli.output import OutputFormat, OutputOption, write_fields, write_rows
from cli.table import Row
from core.common.errors import AccessError, CorruptRecordError, UsageError

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.inspector.trace import Trace
    from core.log.directory_reader import DirectoryReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PLACE = re.compile(r"(?P<topic>[^@:]+)(:(?P<partition>\d+))?(@(?P<offset>\d+))?")


@app.command()
def trace(
    place: Annotated[str, typer.Argument(metavar="TOPIC[:PARTITION]@OFFSET", help="The record.")],
    data_dir: DataDirOption = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The newest record with this key, instead of @OFFSET.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell the life of a record: its batch, producer and transaction, who has read it, and what will remove it.

    It reads the files of a data directory, Kafka's or plog's. If the offset has no record, it says why.

    \b
    Example:
      plog trace txn_multisegment@3 --data-dir sample-data/partition
    """
    from core.inspector.trace import Tracer
    from core.log.directory_reader import DirectoryReader
    from core.log.hole import wrong_start_hole

    match = _PLACE.fullmatch(place)
    if match is None or (match["offset"] is None) == (key is None):
        raise UsageError(f"{place!r}: expected TOPIC@OFFSET, TOPIC:PARTITION@OFFSET, or TOPIC with --key")
    reader = DirectoryReader(data_dir or default_data_dir())
    tracer = Tracer(reader, time.time_ns() // 1_000_000)
    failures: list[AccessError] = []
    damaged: list[CorruptRecordError] = []
    missing: list[str] = []

    def tell_missing(partition: TopicPartition) -> Callable[[str], None]:
        return lambda text: missing.append(f"{partition}: a later record with this key may be lost: {text}")

    def look_at(partition: TopicPartition) -> Iterator[Trace]:
        try:
            if key is None:
                yield tracer.trace(partition, int(match["offset"]))
            elif (newest := tracer.find_key(partition, key.encode(), tell_missing(partition))) is not None:
                yield tracer.trace(partition, newest)
        except CorruptRecordError as error:
            damaged.append(error)

    traces = list(each_of(_partitions(reader, match["topic"], match["partition"]), look_at, failures))
    if output is OutputFormat.json:
        print(json.dumps([_as_json(trace) for trace in traces], indent=2))
    else:
        for found in traces:
            if output is OutputFormat.table:
                write_fields(_lines(found))
            else:
                write_rows(_rows(found), ["what", "value"], output)
    damaged += [wrong_start_hole(one.wrong_start, one.offset).error() for one in traces if one.wrong_start is not None]
    is_found = any(trace.record is not None for trace in traces)
    if key is not None and not is_found and not damaged and not failures:
        say(f"no record with key {key!r} in {match['topic']}")
    for text in missing:
        say(f"warning: {text}")
    raise typer.Exit(say_failures([*failures, *damaged]) or (0 if is_found and not missing else 1))


def _partitions(reader: DirectoryReader, topic: str, number: str | None) -> list[Any]:
    from core.common.error_code import ErrorCode
    from core.common.errors import KafkaError
    from core.common.topic_partition import TopicPartition

    numbers = reader.topics.get(topic, [])
    wanted = numbers if number is None else [n for n in numbers if n == int(number)]
    if not wanted:
        what = f"no topic {topic!r}" if number is None else f"no partition {number} of {topic!r}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} in {reader.directory}")
    return [TopicPartition(topic, n) for n in wanted]


def _rows(trace: Trace) -> list[Row]:
    return [{"what": what, "value": value} for what, value in _lines(trace)]


def _lines(trace: Trace) -> list[tuple[str, Any]]:
    from core.common.time_text import time_text

    found = _as_json(trace)
    lines: list[tuple[str, Any]] = [("record", f"{trace.partition} offset {trace.offset}")]
    if trace.record is None:
        gap = trace.gap
        why = "none there yet" if gap is None else f"{gap.reason.value}: {gap.evidence}"
        lines.append(("no record", why))
    for name, value in (found["record"] or {}).items():
        lines.append((name, time_text(value) if name == "timestamp" else _shown(value)))
    for name, value in (found["batch"] or {}).items():
        if value is not None:
            lines.append((f"batch {name}", value))
    if trace.transaction is not None:
        transaction = trace.transaction
        state = "aborted or not can't be told" if transaction.state == "unknown" else transaction.state
        text = f"{state}, from offset {transaction.first_offset}"
        if transaction.marker_offset is not None and transaction.marker_timestamp is not None:
            text += f", marker at offset {transaction.marker_offset} ({time_text(transaction.marker_timestamp)})"
        elif transaction.evidence is not None:
            text += f": {transaction.evidence}"
        lines.append(("transaction", text))
    for group in trace.groups:
        passed = (
            f"read it by {time_text(group.passed_timestamp)}"
            if group.passed_timestamp is not None
            else "has not read it"
        )
        lines.append((f"group {group.group}", f"{passed}; committed offset {group.committed_offset}"))
    lines += [("groups", f"a commit may be missing: {text}") for text in trace.doubts]
    lines += [("fate", text) for text in trace.fate]
    return lines


def _shown(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list | dict) else value


def _as_json(trace: Trace) -> dict[str, Any]:
    from core.inspector.segment_dump import batch_row
    from core.records.envelope import encode_bytes, encode_headers_json

    record, transaction, gap = trace.record, trace.transaction, trace.gap
    return {
        "topic": trace.partition.topic,
        "partition": trace.partition.partition,
        "offset": trace.offset,
        "missing": None if gap is None else {"reason": gap.reason.value, "evidence": gap.evidence},
        "record": None
        if record is None
        else {
            "timestamp": record.timestamp,
            "key": json.loads(encode_bytes(record.key)),
            "value": json.loads(encode_bytes(record.value)),
            "headers": json.loads(encode_headers_json(record.headers)),
            "sequence": trace.sequence,
        },
        "batch": None if trace.batch is None else {"file": str(trace.file), **batch_row(trace.batch)},
        "transaction": None
        if transaction is None
        else {
            "state": transaction.state,
            "first_offset": transaction.first_offset,
            "marker_offset": transaction.marker_offset,
            "marker_timestamp": transaction.marker_timestamp,
            "coordinator_epoch": transaction.coordinator_epoch,
            "evidence": transaction.evidence,
        },
        "groups": [
            {
                "group": group.group,
                "committed_offset": group.committed_offset,
                "committed_timestamp": group.committed_timestamp,
                "passed_offset": group.passed_offset,
                "passed_timestamp": group.passed_timestamp,
            }
            for group in trace.groups
        ],
        "doubts": trace.doubts,
        "fate": trace.fate,
    }
