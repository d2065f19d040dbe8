"""`meta.properties`: says whose log directory this is.

    #
    #Sat Nov 21 08:23:53 UTC 2026
    node.id=1
    directory.id=itIKB-l__7ND_CfsJclg1g
    version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qk

Version 0 has broker.id, and no directory.id; Kafka's brokers with ZooKeeper refuse any other
(org.apache.kafka.metadata.properties.MetaProperties, MetaPropertiesEnsemble.verify).
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.common.errors import CorruptRecordError, UsageError
from core.common.filesystem import FileSystem
from core.common.properties_file import parse_properties
from core.common.salvaging_file import read_small_text
from core.common.topic_partition import parse_uuid, random_uuid, uuid_text
from core.files.file_names import META_PROPERTIES, is_cluster

_MOST_BYTES = 1024 * 1024
"""A real one has some hundred; parsing takes 150 times the size in memory."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: bytes
    version: int = 1


def parse_meta_properties(text: str, path: str) -> MetaProperties:
    """Parses them; raises CorruptRecordError if the text breaks the format."""
    try:
        fields = parse_properties(text)
    except UsageError as error:
        raise CorruptRecordError(error.message, path=path) from error
    version = fields.get("version", "")
    if version not in ("0", "1"):
        raise CorruptRecordError(f"version {version!r}, expected 0 or 1", path=path)
    node_id = fields.get("node.id", fields.get("broker.id", ""))
    if not node_id.isdecimal():
        raise CorruptRecordError(f"node.id {node_id!r} is no number", path=path)
    try:
        directory_id = parse_uuid(fields["directory.id"]) if "directory.id" in fields else random_uuid()
    except ValueError as error:
        raise CorruptRecordError(f"directory.id: {error}", path=path) from error
    return MetaProperties(fields.get("cluster.id", ""), int(node_id), directory_id, int(version))


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Reads the properties, or returns None if the folder has no such file."""
    path = directory / META_PROPERTIES
    try:
        text = read_small_text(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    return parse_meta_properties(text, str(path))


def is_of_cluster(directory: Path) -> bool:
    """Returns whether it is the directory of a whole cluster, or of a member of one with ZooKeeper."""
    with suppress(CorruptRecordError, OSError):
        meta = read_meta_properties(directory)
        return is_cluster(directory) or (meta is not None and meta.version == 0)
    return False


def write_meta_properties(directory: Path, meta: MetaProperties, filesystem: FileSystem) -> None:
    whose = [f"broker.id={meta.node_id}"]
    if meta.version:
        whose = [f"node.id={meta.node_id}", f"directory.id={uuid_text(meta.directory_id)}"]
    lines = [
        "#",
        time.strftime("#%a %b %d %H:%M:%S UTC %Y", time.gmtime()),  # noqa: TID251  a comment, which nothing reads
        *whose,
        f"version={meta.version}",
        f"cluster.id={meta.cluster_id}",
    ]
    filesystem.write_atomic(directory / META_PROPERTIES, ("\n".join(lines) + "\n").encode())
