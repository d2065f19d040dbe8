"""The sizes of partitions' replicas, as the brokers report them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from core.client.net.kafka_client import KafkaClient
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition, by_topic
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribableLogDirTopic, DescribeLogDirsRequest

_TIMEOUT_SECONDS = 5.0
_MOST_AT_ONCE = 2000
"""Partitions of one request."""

Sizes = dict[TopicPartition, dict[int, int]]
"""Partition -> broker -> the bytes of its replica there."""


class ReplicaSizes:
    """Asks again and again, on connections of its own; owned by one task. A broker that does not answer is asked only
    once in a look, and the others' answers count.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client.another(timeout_s=_TIMEOUT_SECONDS)

    def find(self, partitions: Iterable[TopicPartition]) -> Sizes:
        """Returns the known sizes: brokers that can't be reached, or may not answer, are missing."""
        wanted = sorted(partitions)
        sizes: Sizes = {partition: {} for partition in wanted}
        self._refresh()
        for node_id in self._client.node_ids:
            try:
                for start in range(0, len(wanted), _MOST_AT_ONCE):
                    self._ask(node_id, wanted[start : start + _MOST_AT_ONCE], sizes)
            except ConnectionFailedError:
                self._client.forget_connection(node_id)
            except KafkaError:
                continue  # not every client may know it
        return sizes

    def _refresh(self) -> None:
        try:
            self._client.refresh([])
        except ConnectionFailedError:
            self._client.forget_connections()
            self._client.refresh([])

    def _ask(self, node_id: int, wanted: list[TopicPartition], sizes: Sizes) -> None:
        numbers = by_topic((partition, partition.partition) for partition in sorted(wanted))
        asked = [DescribableLogDirTopic(topic, found) for topic, found in numbers.items()]
        answer = self._client.connection_to(node_id).call(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(asked))
        for result in answer.results:
            for topic in result.topics:
                for found in topic.partitions:
                    of_partition = sizes.get(TopicPartition(topic.name, found.partition_index))
                    if of_partition is not None and not found.is_future_key:
                        of_partition[node_id] = found.partition_size

    def close(self) -> None:
        self._client.close()


def largest_sizes(client: KafkaClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the bytes of each partition's largest replica; partitions without a known size are missing."""
    with closing(ReplicaSizes(client)) as sizes:
        return {partition: max(found.values()) for partition, found in sizes.find(partitions).items() if found}
