"""The life of a record in lines: its batch, its transaction, who has read it, and what will take it."""

from __future__ import annotations

import json
from typing import Any

from core.common.errors import AccessError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition
from core.inspector.trace import Trace, Tracer
from core.log.directory_reader import DirectoryReader
from core.pipeline.trace_account import trace_figures, trace_places
from core.view.inspected import Inspected


def trace_of(inspected: Inspected, topic: str, partition: int, offset: int, now_ms: int) -> Trace:
    """Traces the record as `plog trace` does, with files or a client of its own, so that any task may call it. Raises
    AccessError, KafkaError and CorruptRecordError if it can't be read.
    """
    if inspected.reader is not None:
        tracer = Tracer(DirectoryReader(inspected.reader.directory), now_ms)
        return tracer.trace(TopicPartition(topic, partition), offset)
    found = trace_places([f"{topic}:{partition}@{offset}"], inspected.session, None)
    for error in (*found.failures, *found.damaged):
        raise error
    if not found.traces:
        raise AccessError(f"nothing is known of {topic}-{partition} offset {offset}", where=topic)
    return found.traces[0]


def life_lines(trace: Trace) -> list[tuple[str, Any]]:
    """Gives what `plog trace` prints of it: names, each with its value."""
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
        lines.append((f"group {group.group}", f"{passed}; committed offset {group.committed_offset}"))
    lines += [("groups", f"a commit may be missing: {text}") for text in trace.doubts]
    lines += [("fate", text) for text in trace.fate]
    return lines


def _shown(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list | dict) else value
