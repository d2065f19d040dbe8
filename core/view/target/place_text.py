"""Places in logs, as people type them: `flights:2@2013-01-15`.

TOPIC            the topic's first partition
TOPIC:P, TOPIC-P that partition; `-P` only if no topic is called so
:P               that partition of the topic that is looked at
...@WHERE        an offset, a time (ISO 8601, -2h), @EPOCH_MS, -N (N before the end), beginning or end
WHERE            that place of the partition that is looked at
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from core.common.did_you_mean import did_you_mean
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.files.file_names import parse_partition_directory_name

EXPECTED = "TOPIC[:P][@OFFSET or @TIME], or an offset, a time, -N, beginning or end"


class Place(NamedTuple):
    """A partition, and where in it, as it was typed; None if that was not said."""

    partition: TopicPartition
    where: str | None = None


def parse_place(text: str, topics: Mapping[str, Sequence[int]], current: TopicPartition | None = None) -> Place:
    """Parses what somebody typed who looks at `current`. Raises UsageError for a text that names nothing."""
    text = text.strip()
    if not text:
        raise UsageError(f"nothing was typed: expected {EXPECTED}")
    name, separator, where = text.partition("@")
    if not name and separator and current is not None:
        return Place(current, _bare(where))
    found = _find(name, topics, current)
    if found is not None:
        return Place(found, _bare(where) if separator else None)
    if current is not None and not separator and _is_where(text):
        return Place(current, text)
    raise UsageError(
        f"{text!r} names no topic, and no place in one: expected {EXPECTED}", hint=did_you_mean(name, topics)
    )


def _bare(where: str) -> str | None:
    return where or None


def _find(name: str, topics: Mapping[str, Sequence[int]], current: TopicPartition | None) -> TopicPartition | None:
    """Finds the partition of a name; raises UsageError for one that the topic does not have."""
    topic, separator, number = name.partition(":")
    if not topic and current is not None:
        topic = current.topic
    if topic in topics:
        partitions = topics[topic]
        if not separator:
            return TopicPartition(topic, partitions[0] if partitions else 0)
        if number.isdecimal() and int(number) in partitions:
            return TopicPartition(topic, int(number))
        raise UsageError(f"no partition {number!r} of {topic}", hint=f"it has {_listed(partitions)}")
    folder = None if separator else parse_partition_directory_name(name)
    if folder is not None and folder.partition in topics.get(folder.topic, ()):
        return folder
    return None


def _listed(partitions: Sequence[int]) -> str:
    if len(partitions) > 8:
        return f"{len(partitions)} partitions, {partitions[0]} to {partitions[-1]}"
    return f"partition{'s' * (len(partitions) != 1)} {', '.join(map(str, partitions))}"


def _is_where(text: str) -> bool:
    return text in ("beginning", "earliest", "end", "latest") or text[0].isdigit() or text[0] in "-@"
