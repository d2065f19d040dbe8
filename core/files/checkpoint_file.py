"""Kafka's text checkpoints: a version line (0), a line with the number of entries, then an entry a line.

In the root of a log directory an entry is `topic partition offset`; in a partition's `leader-epoch-checkpoint` it is
`epoch start_offset` (org.apache.kafka.server.common.CheckpointFile). They are replaced whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.salvaging_file import read_small_text
from core.common.topic_partition import TopicPartition

UNKNOWN_RECOVERY_POINT = (1 << 63) - 1
"""The recovery point in a checkpoint if nobody knows how far the log is safe. Kafka takes it for the log's end."""

_VERSION = 0
_NUMBER = re.compile(r"[0-9]{1,19}")


def parse_checkpoint(text: str, fields: int, path: str) -> list[list[str]]:
    """Returns the words of each entry, the last two of which are numbers. Raises CorruptRecordError, naming the line,
    if the text breaks the format.
    """
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines or lines[0] != str(_VERSION):
        raise CorruptRecordError(f"line 1: version {lines[0] if lines else ''!r}, expected {_VERSION}", path=path)
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1]):
        raise CorruptRecordError("line 2: expected the number of entries", path=path)
    count = int(lines[1])
    if len(lines) - 2 != count:
        raise CorruptRecordError(f"line 2: says {count} entries, {len(lines) - 2} follow", path=path)
    entries = [line.split() for line in lines[2:]]
    for number, words in enumerate(entries, start=3):
        if len(words) != fields or not all(_NUMBER.fullmatch(word) for word in words[-2:]):
            raise CorruptRecordError(f"line {number}: expected {fields} words, the last two numbers", path=path)
    return entries


def format_checkpoint(entries: Sequence[Iterable[object]]) -> bytes:
    lines = [str(_VERSION), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
    return ("\n".join(lines) + "\n").encode()


def parse_offset_checkpoint(text: str, path: str) -> dict[TopicPartition, int]:
    """Returns offsets by partition; raises what `parse_checkpoint` raises."""
    entries = parse_checkpoint(text, 3, path)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}


def read_offset_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Reads offsets by partition; returns an empty dict if there is no such file."""
    try:
        text = read_small_text(path)
    except FileNotFoundError:
        return {}
    return parse_offset_checkpoint(text, str(path))


def write_offset_checkpoint(path: Path, offsets: Mapping[TopicPartition, int], filesystem: FileSystem) -> None:
    entries = [(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
    filesystem.write_atomic(path, format_checkpoint(entries))
