"""Traces the records of some places."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.group_offset_reset import outside_text
from core.common.errors import AccessError, CorruptRecordError, KafkaError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.inspector.check.file_kind import skip_unreadable
from core.inspector.dump.segment_dump import batch_row
from core.inspector.stats.trace import Trace, Tracer, is_settled_by, server_groups
from core.pipeline.log_places import LogPlace, LogPlaces, OnBytes, without_file
from core.pipeline.session import Session
from core.records.batches import Batch
from core.records.json_envelope import encode_bytes, encode_headers_json

if TYPE_CHECKING:
    from core.inspector.stats.server_copy import ServerCopy


@dataclass(frozen=True, slots=True)
class TraceAccount:
    traces: list[Trace] = field(default_factory=list)
    failures: list[AccessError] = field(default_factory=list)
    damaged: list[CorruptRecordError] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Reasons why a later record with the key may be lost."""

    def look_at(self, place: LogPlace, key: str | None) -> None:
        tracer = Tracer(place.reader, time.time_ns() // 1_000_000, place.settings)

        def look_at(partition: TopicPartition) -> Iterator[Trace]:
            offset = place.offset if key is None else self._find_key(tracer, partition, key)
            if offset is not None:
                yield tracer.trace(partition, offset)

        for partition in place.partitions:
            try:
                for one in skip_unreadable([partition], look_at, self.failures):
                    if place.client is not None:
                        one.groups = server_groups(place.client, partition, one.offset, one.doubts)
                        one.bounds = _bounds(place.client, partition)
                        one.file = None
                        if one.gap is not None:
                            one.gap = one.gap._replace(evidence=without_file(one.gap.evidence))
                    self.traces.append(one)
            except CorruptRecordError as error:
                self.damaged.append(error)

    def _find_key(self, tracer: Tracer, partition: TopicPartition, key: str) -> int | None:
        def tell(text: str) -> None:
            self.missing.append(f"{partition}: a later record with this key may be lost: {text}")

        return tracer.find_key(partition, key.encode(), tell)


def trace_places(texts: Sequence[str], session: Session, key: str | None) -> TraceAccount:
    """Traces the record at each place's offset, or the newest with the key. Raises UsageError for a text that is not a
    place, AccessError and KafkaError as `LogPlaces` does.
    """
    found = TraceAccount()
    with LogPlaces(session, _copy).opened() as find:
        for place in skip_unreadable(texts, lambda text: [find(text)], found.failures):
            found.look_at(place, key)
    return found


def _copy(copy: ServerCopy, partition: TopicPartition, offset: int | None, on_bytes: OnBytes) -> None:
    if offset is None or copy.is_compacted(partition.topic):
        copy.add(partition, lambda start, _end: offset or start, on_bytes=on_bytes)
    else:
        copy.add(partition, lambda _start, _end: offset, is_enough=is_settled_by(offset), on_bytes=on_bytes)


def trace_figures(trace: Trace) -> dict[str, Any]:
    """Returns all known facts, as JSON."""
    record, gap = trace.record, trace.gap
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
        "transaction": None if trace.transaction is None else asdict(trace.transaction),
        "groups": [
            {**asdict(group), "note": outside_text(group.committed_offset, *trace.bounds)} for group in trace.groups
        ],
        "doubts": trace.doubts,
        "fate": trace.fate,
    }


def _bounds(client: KafkaClient, partition: TopicPartition) -> tuple[int | None, int | None]:
    """Returns the start and end of a server's log, or None for both if it does not answer."""
    admin = Admin(client)
    try:
        return admin.list_offsets({partition: EARLIEST})[partition], admin.list_offsets({partition: LATEST})[partition]
    except KafkaError:
        return None, None


def _batch_json(batch: Batch, file: Path | None) -> dict[str, Any]:
    """Returns the batch as JSON; for a copy of a server's log without file and position, which are not known there."""
    row = batch_row(batch)
    return {"file": str(file), **row} if file is not None else {**row, "position": None}


def life_lines(trace: Trace) -> list[tuple[str, Any]]:
    """Returns the lines that `plog trace` prints of it: names, each with its value."""
    found = trace_figures(trace)
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
        note = outside_text(group.committed_offset, *trace.bounds)
        if note is not None and group.passed_offset is not None:
            passed = "whether it has read it can't be told"
        committed = f"committed offset {group.committed_offset}" + (f", {note}" if note is not None else "")
        lines.append((f"group {group.group}", f"{passed}; {committed}"))
    lines += [("groups", f"a commit may be missing: {text}") for text in trace.doubts]
    lines += [("fate", text) for text in trace.fate]
    return lines


def _shown(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list | dict) else value
