"""The offsets that a group committed, packed: a broker may keep millions of them, and looks at few at a time.

Of each partition it keeps one `bytes` of 44 and the metadata, most often empty, by the number in a `dict` of
the topic. Equal names of topics and equal numbers of partitions are one object for all groups.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, MutableMapping
from functools import lru_cache

from core.common.topic_partition import TopicPartition
from core.coordinator.group_record_values import CommittedOffset

_PACKED = struct.Struct("=qiqq16s")  # offset, leader epoch, commit and expire timestamp, topic id; metadata follows


class CommittedGroupOffsets(MutableMapping[TopicPartition, CommittedOffset]):
    """Offsets by partition; owned by one task.

    I1 no topic is without partitions
    """

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, bytes]] = {}

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        packed = self._topics[partition.topic][partition.partition]
        offset, leader_epoch, committed_ms, expires_ms, topic_id = _PACKED.unpack_from(packed)
        metadata = packed[_PACKED.size :].decode() if len(packed) > _PACKED.size else ""
        return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)

    def __setitem__(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id = committed
        packed = _PACKED.pack(offset, leader_epoch, committed_ms, expires_ms, topic_id)
        offsets = self._topics.get(partition.topic)
        if offsets is None:
            offsets = self._topics[sys.intern(partition.topic)] = {}
        offsets[_shared(partition.partition)] = packed + metadata.encode() if metadata else packed

    def __delitem__(self, partition: TopicPartition) -> None:
        offsets = self._topics[partition.topic]
        del offsets[partition.partition]
        if not offsets:
            del self._topics[partition.topic]

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic in self._topics:
            yield from self.partitions_of(topic)

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def partitions_of(self, topic: str) -> Iterator[TopicPartition]:
        """Gives the topic's partitions that have offsets."""
        for number in self._topics.get(topic, ()):
            yield TopicPartition(topic, number)

    def _check_invariants(self) -> None:
        assert all(self._topics.values()), "I1"


@lru_cache(maxsize=10_000)
def _shared(number: int) -> int:
    """Gives the number as one object for all who ask."""
    return number
