"""`plog trace`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.log_places import PLACES, PLACES_HELP, LogPlace, LogPlaces, OnBytes, split_offset, without_file
from cli.options import BootstrapServerOption, DataDirOption, each_of, say, say_failures
from cli.output import OutputFormat, OutputOption, write_fields, write_rows
from cli.table import Row
from core.common.errors import AccessError, CorruptRecordError, UsageError

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.inspector.server_copy import ServerCopy
    from core.inspector.trace import Trace, Tracer
    from core.records.batches import Batch

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def trace(
    context: typer.Context,
    places: Annotated[list[str], typer.Argument(metavar=f"{PLACES}...", help=f"{PLACES_HELP} Which records.")],
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The newest record with this key, instead of @OFFSET.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell the life of a record: its batch, producer and transaction, who has read it, and what will remove it.

    It reads the files of a data directory, Kafka's or plog's, or asks a server. If the offset has no record, it says
    why.

    \b
    Example:
      plog trace txn_multisegment@3 --data-dir sample-data/partition
    """
    for place in places:
        if (split_offset(place)[1] is None) == (key is None):
            expected = "TOPIC@OFFSET, TOPIC:PARTITION@OFFSET or PATH@OFFSET, or a place without an offset with --key"
            raise UsageError(f"{place!r}: expected {expected}")
    found = _Found()

    def copy(copy: ServerCopy, partition: TopicPartition, offset: int | None, on_bytes: OnBytes) -> None:
        from core.inspector.trace import is_settled_by

        if offset is None or copy.is_compacted(partition.topic):
            copy.add(partition, lambda start, _end: offset or start, on_bytes=on_bytes)
        else:
            copy.add(partition, lambda _start, _end: offset, is_enough=is_settled_by(offset), on_bytes=on_bytes)

    with LogPlaces(context, bootstrap_server, data_dir, copy).opened() as find:
        for log in each_of(places, lambda text: [find(text)], found.failures):
            found.look_at(log, key)
    if output is OutputFormat.json:
        print(json.dumps([_as_json(trace) for trace in found.traces], indent=2))
    else:
        for one in found.traces:
            if output is OutputFormat.table:
                write_fields(_lines(one))
            else:
                write_rows(_rows(one), ["what", "value"], output)
    raise typer.Exit(found.say_rest(", ".join(places), key))


class _Found:
    """What was found, and what went wrong; owned by one task."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.failures: list[AccessError] = []
        self._damaged: list[CorruptRecordError] = []
        self._missing: list[str] = []

    def look_at(self, place: LogPlace, key: str | None) -> None:
        from core.inspector.trace import Tracer, server_groups

        tracer = Tracer(place.reader, time.time_ns() // 1_000_000, place.settings)

        def look_at(partition: TopicPartition) -> Iterator[Trace]:
            offset = place.offset if key is None else self._find_key(tracer, partition, key)
            if offset is not None:
                yield tracer.trace(partition, offset)

        for partition in place.partitions:
            try:
                for one in each_of([partition], look_at, self.failures):
                    if place.client is not None:
                        one.groups = server_groups(place.client, partition, one.offset, one.doubts)
                        one.file = None
                        if one.gap is not None:
                            one.gap = one.gap._replace(evidence=without_file(one.gap.evidence))
                    self.traces.append(one)
            except CorruptRecordError as error:
                self._damaged.append(error)

    def _find_key(self, tracer: Tracer, partition: TopicPartition, key: str) -> int | None:
        def tell(text: str) -> None:
            self._missing.append(f"{partition}: a later record with this key may be lost: {text}")

        return tracer.find_key(partition, key.encode(), tell)

    def say_rest(self, where: str, key: str | None) -> int:
        """Says what was not found, and why; the exit code."""
        from core.log.hole import wrong_start_hole

        wrong = [wrong_start_hole(one.wrong_start, one.offset).error() for one in self.traces if one.wrong_start]
        damaged = [*self._damaged, *wrong]
        is_found = any(one.record is not None for one in self.traces)
        if key is not None and not is_found and not damaged and not self.failures:
            say(f"no record with key {key!r} in {where}")
        for text in self._missing:
            say(f"warning: {text}")
        return say_failures([*self.failures, *damaged]) or (0 if is_found and not self._missing else 1)


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
        passed = "has not read it" if group.passed_offset is None else "has read it"
        if group.passed_timestamp is not None:
            passed = f"read it by {time_text(group.passed_timestamp)}"
        lines.append((f"group {group.group}", f"{passed}; committed offset {group.committed_offset}"))
    lines += [("groups", f"a commit may be missing: {text}") for text in trace.doubts]
    lines += [("fate", text) for text in trace.fate]
    return lines


def _shown(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list | dict) else value


def _as_json(trace: Trace) -> dict[str, Any]:
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
        "batch": None if trace.batch is None else _batch_json(trace.batch, trace.file),
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


def _batch_json(batch: Batch, file: Path | None) -> dict[str, Any]:
    """Of a copy of a server's log, without a file: nobody knows where it lies there."""
    from core.inspector.segment_dump import batch_row

    row = batch_row(batch)
    return {"file": str(file), **row} if file is not None else {**row, "position": None}
