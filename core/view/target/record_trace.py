"""The life of a record in lines: its batch, its transaction, who has read it, and what will take it."""

from __future__ import annotations

from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.forensics.directory_reader import DirectoryReader
from core.inspector.stats.trace import Trace, Tracer
from core.pipeline.trace_account import trace_places
from core.view.target.inspect_target import InspectTarget


def trace_of(inspected: InspectTarget, topic: str, partition: int, offset: int, now_ms: int) -> Trace:
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
