"""The topics of a reader: by name, or all that match a pattern, also new ones."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from core.client.net.kafka_client import KafkaClient
from core.common.topic_partition import TopicPartition

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
