"""`partition.metadata`: says to which topic, by id, a partition's folder belongs.

    version: 0
    topic_id: G0fpkTIoSrm35pn5auABdQ

without a newline at the end (org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile, KIP-516).
"""

from __future__ import annotations

from pathlib import Path

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.salvaging_file import read_small_text
from core.common.topic_partition import parse_uuid, uuid_text
from core.files.file_names import PARTITION_METADATA


def parse_partition_metadata(text: str, path: str) -> bytes:
    """Returns the topic id, 16 bytes; raises CorruptRecordError if the text breaks the format."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if fields.get("version") != "0":
        raise CorruptRecordError(f"version {fields.get('version')!r}, expected 0", path=path)
    try:
        return parse_uuid(fields.get("topic_id", ""))
    except ValueError as error:
        raise CorruptRecordError(f"topic_id: {error}", path=path) from error


def read_partition_metadata(directory: Path) -> bytes | None:
    """Reads the topic id of a partition's folder; None if it has no such file (topics from before Kafka 2.8)."""
    path = directory / PARTITION_METADATA
    try:
        text = read_small_text(path)
    except FileNotFoundError:
        return None
    return parse_partition_metadata(text, str(path))


def find_topic_id(directory: Path) -> bytes | None:
    """Reads the topic id; None also if the file is damaged or can't be read."""
    try:
        return read_partition_metadata(directory)
    except CorruptRecordError:
        return None


def write_partition_metadata(directory: Path, topic_id: bytes, filesystem: FileSystem) -> None:
    content = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    filesystem.write_atomic(directory / PARTITION_METADATA, content.encode(), sync=False)
