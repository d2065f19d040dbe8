"""Finds topics from partition folders alone, without metadata."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.salvaging_file import read_small_text
from core.common.topic_partition import TopicPartition, ensure_valid_topic_name, random_uuid
from core.files.checkpoint_file import find_topic_id, parse_leader_epochs
from core.files.file_names import LEADER_EPOCH_CHECKPOINT

_log = logging.getLogger("plog.metadata")


class FoundTopic(NamedTuple):
    name: str
    topic_id: bytes


def find_topics(
    folders: Mapping[TopicPartition, Path], *, goes_by_name: bool = False
) -> dict[FoundTopic, dict[int, int]]:
    """Returns, for each topic, the leader epoch for each partition: above all epochs in its log.

    If folders of one name have different ids, the most frequent id is right; the other folders belong to a deleted
    topic. Folders whose name no topic can have are left out, with a warning. With `goes_by_name` no folder is left out
    for its id, which may be damaged, or a copy's: a topic without an id, or with another topic's, gets one that is
    derived from its name.
    """
    names: dict[str, dict[int, Path]] = {}
    for partition, path in sorted(folders.items()):
        names.setdefault(partition.topic, {})[partition.partition] = path
    found: dict[FoundTopic, dict[int, int]] = {}
    for name, paths in names.items():
        ids = {number: find_topic_id(path) for number, path in paths.items()}
        counted = Counter(topic_id for topic_id in ids.values() if topic_id is not None).most_common(1)
        topic = FoundTopic(name, counted[0][0] if counted else _new_id(name, goes_by_name=goes_by_name))
        try:
            ensure_valid_topic_name(name)
            twin = next((other.name for other in found if other.topic_id == topic.topic_id), None)
            if twin is not None and goes_by_name:
                topic = topic._replace(topic_id=_new_id(name, goes_by_name=True))
            elif twin is not None:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{twin} has the same topic id")
        except KafkaError as error:
            _log.warning("the folders of %s are left alone: %s", name, error)
            continue
        found[topic] = {
            number: find_latest_epoch(path) + 1
            for number, path in paths.items()
            if goes_by_name or ids[number] in (None, topic.topic_id)
        }
    return found


def _new_id(name: str, *, goes_by_name: bool) -> bytes:
    if not goes_by_name:
        return random_uuid()
    from uuid import NAMESPACE_DNS, uuid5  # which most directories do without

    raw = uuid5(NAMESPACE_DNS, f"{name}.topic").bytes
    return bytes([raw[0] & 0x7F]) + raw[1:]  # whose text does not begin with '-'


def find_latest_epoch(path: Path) -> int:
    """Returns the latest leader epoch, or -1 if the folder has none that is readable: the log itself is read later."""
    epochs = path / LEADER_EPOCH_CHECKPOINT
    try:
        entries = parse_leader_epochs(read_small_text(epochs), str(epochs))
    except (FileNotFoundError, CorruptRecordError):
        return -1
    return entries[-1].epoch if entries else -1
