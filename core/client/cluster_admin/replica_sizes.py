"""The sizes of partitions' replicas, as the brokers report them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from core.client.admin.admin import Admin, Sizes
from core.client.net.kafka_client import KafkaClient
from core.common.errors import ConnectionFailedError
from core.common.topic_partition import TopicPartition

_TIMEOUT_SECONDS = 5.0


class ReplicaSizes:
    """Asks again and again, on connections of its own; owned by one task. A broker that does not answer is asked only
    once in a look, and the others' answers count.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client.another(timeout_s=_TIMEOUT_SECONDS)

    def find(self, partitions: Iterable[TopicPartition]) -> Sizes:
        """As `Admin.replica_sizes`, of the brokers that are there now."""
        try:
            self._client.refresh([])
        except ConnectionFailedError:
            self._client.forget_connections()
            self._client.refresh([])
        return Admin(self._client).replica_sizes(partitions)

    def close(self) -> None:
        self._client.close()


def largest_sizes(client: KafkaClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """As `Admin.log_sizes`, without a long wait for a broker that does not answer."""
    with closing(ReplicaSizes(client)) as sizes:
        return {partition: max(found.values()) for partition, found in sizes.find(partitions).items() if found}
