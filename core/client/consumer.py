"""Reads partitions of a cluster: whole batches, checked, in order of offsets within a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from core.client.kafka_client import RETRIABLE, KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.topic_partition import TopicPartition
from core.index.transaction_index import AbortedTransaction
from core.log.aborted_filter import AbortedFilter
from core.protocol.api import FETCH
from core.protocol.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from core.records.batches import Batch, iter_whole_batches

_FETCH_BYTES = 50 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024
_CONSUMER = -1
_FIRST_VERSION_WITH_IDS = 13
_SESSIONLESS_EPOCH = -1

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Consumer:
    """Owned by one task."""

    def __init__(self, client: KafkaClient, *, isolation_level: int = READ_COMMITTED, max_wait_ms: int = 500) -> None:
        self._client = client
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms

    def read(
        self,
        start_offsets: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int] | None = None,
    ) -> Iterator[tuple[TopicPartition, list[Batch]]]:
        """Batches as they come, until every partition has reached its end offset; for ever where there are none.

        The first batch may begin before the start offset, the last end behind the end offset. No control batches and,
        for read_committed, none of aborted transactions. KafkaError with the broker's code; CorruptRecordError for a
        batch whose checksum is wrong.
        """
        positions = {
            partition: offset
            for partition, offset in start_offsets.items()
            if end_offsets is None or offset < end_offsets[partition]
        }
        while positions:
            got_nothing = True
            without_more = []
            for partition, data in self._fetch(positions):
                batches, next_offset = self._batches(partition, data, positions[partition])
                got_nothing = got_nothing and not len(data.records or b"")
                positions[partition] = next_offset
                if end_offsets is not None and next_offset >= end_offsets[partition]:
                    del positions[partition]
                elif end_offsets is not None and self._end_offset(data) >= end_offsets[partition]:
                    without_more.append(partition)
                if batches:
                    yield partition, batches
            if got_nothing:
                for partition in without_more:
                    del positions[partition]

    def poll(self, positions: dict[TopicPartition, int]) -> Iterator[tuple[TopicPartition, int, list[Batch]]]:
        """One round: what there is from the positions on, with the offset from which on it is wanted; moves them on.

        All answers are there before the first is given: the connections may be used for other requests meanwhile.
        """
        for partition, data in list(self._fetch(positions)) if positions else ():
            start = positions[partition]
            batches, positions[partition] = self._batches(partition, data, start)
            if batches:
                yield partition, start, batches

    def _fetch(self, positions: Mapping[TopicPartition, int]) -> Iterator[tuple[TopicPartition, PartitionData]]:
        """One round: a request to each leader, all sent before the first answer is read."""
        by_leader: dict[int, dict[str, list[FetchPartition]]] = {}
        for partition, offset in positions.items():
            wanted = FetchPartition(partition.partition, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES)
            leader = self._client.leader_of(partition)
            by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(wanted)
        for leader, topics in by_leader.items():
            self._client.connection_to(leader).send(FETCH, self._request(topics))
        for leader, topics in by_leader.items():
            response: FetchResponse = self._client.connection_to(leader).receive()
            if response.error_code:
                raise KafkaError(ErrorCode.of(response.error_code))
            names = {self._client.topic(name).topic_id: name for name in topics}
            uses_ids = self._client.connection_to(leader).version_of(FETCH) >= _FIRST_VERSION_WITH_IDS
            for topic in response.responses:
                name = names[topic.topic_id] if uses_ids else topic.topic
                for data in topic.partitions:
                    partition = TopicPartition(name, data.partition_index)
                    if self._is_sound(partition, data):
                        yield partition, data

    def _request(self, topics: dict[str, list[FetchPartition]]) -> FetchRequest:
        wanted = [FetchTopic(name, self._client.topic(name).topic_id, parts) for name, parts in topics.items()]
        return FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=self._isolation_level,
            session_epoch=_SESSIONLESS_EPOCH,
            topics=wanted,
        )

    def _is_sound(self, partition: TopicPartition, data: PartitionData) -> bool:
        """False where it must be asked again; KafkaError where that would not help."""
        if not data.error_code:
            return True
        code = ErrorCode.of(data.error_code)
        if code in RETRIABLE:
            self._client.forget_topic(partition.topic)
            return False
        raise KafkaError(code, f"could not read {partition}: {code.text}")

    def _end_offset(self, data: PartitionData) -> int:
        """What is below it, and does not come when nothing else does, is not there: compaction removed it."""
        return data.last_stable_offset if self._isolation_level == READ_COMMITTED else data.high_watermark

    def _batches(self, partition: TopicPartition, data: PartitionData, position: int) -> tuple[list[Batch], int]:
        """The batches that a reader gets, and the offset to go on from."""
        aborted = [AbortedTransaction(a.producer_id, a.first_offset, -1, -1) for a in data.aborted_transactions or ()]
        hidden = AbortedFilter(sorted(aborted, key=lambda a: a.first_offset))
        records = data.records
        assert records is None or isinstance(records, memoryview)
        batches = []
        for batch in iter_whole_batches(records or memoryview(b"")):
            if batch.last_offset < position:
                continue
            try:
                batch.ensure_valid()
            except CorruptRecordError as error:
                raise CorruptRecordError(f"{error.cause} of {partition}", offset=error.offset) from None
            position = batch.next_offset
            if not hidden.hides(batch):
                batches.append(batch)
        return batches, position
