"""Decides which segments a log deletes: those before its start, those too old, and those beyond its size limit.

Segments are deleted whole and from the front only, and never one that consumers may not have seen yet. Source:
org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog

_log = logging.getLogger("plog.log")


def delete_old_segments(log: PartitionLog, now_ms: int) -> list[Path]:
    """Removes the segments that the log's configuration does not keep. Returns their files, already renamed to
    `.deleted`, for the caller to delete. Raises the disk's OSError.
    """
    deleted = _delete_while(log, _is_before_start(log), f"the log starts at {log.log_start_offset}")
    if "delete" in log.config.cleanup_policy:
        retention_bytes, retention_ms = log.config.retention_bytes, log.config.retention_ms
        if retention_bytes >= 0:
            deleted += _delete_while(log, _is_too_much(log), f"retention.bytes is {retention_bytes}")
        if retention_ms >= 0:
            deleted += _delete_while(log, _is_too_old(log, now_ms), f"retention.ms is {retention_ms}")
    return deleted


def _is_before_start(log: PartitionLog) -> Callable[[LogSegment], bool]:
    return lambda segment: log.end_offset_of(segment) <= log.log_start_offset and segment is not log.segments.active


def _is_too_old(log: PartitionLog, now_ms: int) -> Callable[[LogSegment], bool]:
    return lambda segment: now_ms - segment.largest_timestamp > log.config.retention_ms


def _is_too_much(log: PartitionLog) -> Callable[[LogSegment], bool]:
    excess = log.size_bytes - log.config.retention_bytes

    def is_too_much(segment: LogSegment) -> bool:
        nonlocal excess
        excess -= segment.size_bytes
        return excess >= 0

    return is_too_much


def _delete_while(log: PartitionLog, is_deletable: Callable[[LogSegment], bool], why: str) -> list[Path]:
    found: list[LogSegment] = []
    for segment in log.segments:
        is_empty = segment is log.segments.active and segment.size_bytes == 0
        if is_empty or log.end_offset_of(segment) > log.high_watermark or not is_deletable(segment):
            break
        found.append(segment)
    if not found:
        return []
    deleted = log.delete_oldest(found)
    _log.info(
        "%s: deleted %d segments, %d bytes, up to offset %d: %s",
        log.partition,
        len(found),
        sum(segment.size_bytes for segment in found),
        log.log_start_offset,
        why,
    )
    return deleted
