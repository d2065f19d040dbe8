"""The records of a cluster, over the wire."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

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
