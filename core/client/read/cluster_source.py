"""The records of a cluster, over the wire. A `Subscription` knows the topics of a reader: by name, or all that match a
pattern, also new ones.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence

from core.client.admin.admin import EARLIEST, LATEST, Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer
from core.client.read.record_source import FindMore, Offsets, ReadOptions, Watermarks, waiting_text
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.records.batches import Batch


class ClusterSource:
    """Reads over the wire; owned by one task."""

    def __init__(
        self, client: KafkaClient, options: ReadOptions, *, watermarks: dict[TopicPartition, Watermarks] | None = None
    ) -> None:
        """Has the parameters of `Consumer`."""
        self._client = client
        self._admin = Admin(client)
        self._options = options
        self._watermarks = watermarks
        self.leave_out = options.leave_out

    def topics(self) -> list[str]:
        return sorted(self._client.refresh())

    def partitions(self, topic: str) -> list[int]:
        return sorted(self._client.topic(topic).partitions)

    def starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        isolation_level = READ_COMMITTED if self._options.read_committed else READ_UNCOMMITTED
        return self._admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=isolation_level)

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        if timestamp < 0:  # ListOffsets takes negative numbers for words: -1 is the end, -2 the beginning, and others
            return self.starts(partitions)
        found = self._admin.list_offsets(dict.fromkeys(partitions, timestamp))
        missing = [partition for partition, offset in found.items() if offset < 0]
        return found | (self.ends(missing) if missing else {})

    def read(self, starts: Offsets, ends: Offsets) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        client = self._client.another()  # its answers come while others are asked for
        try:
            yield from Consumer(client, self._options, watermarks=self._watermarks, reads_ahead=True).read(starts, ends)
        finally:
            client.close()
        self.note_held_back(ends)

    def note_held_back(self, ends: Offsets) -> None:
        """Calls `ReadOptions.note` for partitions that were read up to these ends, if open transactions set these."""
        if not self._options.read_committed:
            return
        with contextlib.suppress(PlogError):  # everything was read: a broker that is gone by now spoils nothing
            stable = self.ends(list(ends))
            high = self._admin.list_offsets(dict.fromkeys(ends, LATEST), isolation_level=READ_UNCOMMITTED)
            for partition, end in ends.items():
                if end == stable[partition] < high[partition]:  # else the transaction ended meanwhile
                    self._options.note(f"{partition}: {waiting_text(end, high[partition])}")

    def follow(
        self, starts: Offsets, find_more: FindMore = dict
    ) -> Iterator[tuple[TopicPartition, list[Batch]] | None]:
        return Consumer(self._client, self._options, watermarks=self._watermarks).follow(starts, find_more)


_REFRESH_SECONDS = 10.0


class Subscription:
    """Owned by one task. Topics that are gone at a refresh are gone from here too."""

    def __init__(self, client: KafkaClient, names: Sequence[str], pattern: re.Pattern[str] | None = None) -> None:
        """Takes either names or a pattern, which must match whole names; it matches no internal topic. Raises
        KafkaError if a named topic does not exist.
        """
        self._client = client
        self._names = list(names)
        self._pattern = pattern
        self._partitions = self._look()
        self._next_s = time.monotonic() + _REFRESH_SECONDS

    def _look(self) -> dict[str, int]:
        if self._pattern is None:
            return {name: len(self._client.topic(name).partitions) for name in self._names}
        found = self._client.refresh().values()
        return {t.name: len(t.partitions) for t in found if not t.is_internal and self._pattern.fullmatch(t.name)}

    def partitions(self) -> Mapping[str, int]:
        """Returns the partition count of each topic, refreshed every now and then."""
        if time.monotonic() >= self._next_s:
            for name in self._names:
                self._client.forget_topic(name)
            self._partitions = self._look()
            self._next_s = time.monotonic() + _REFRESH_SECONDS
        return self._partitions

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, number) for name, count in self.partitions().items() for number in range(count)]
