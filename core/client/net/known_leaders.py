"""Finds leaders while some partitions have none, so that a client goes on with the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from core.client.net.kafka_client import KafkaClient
from core.common.topic_partition import TopicPartition

_LOOK_SECONDS = 1.0


class KnownLeaders:
    """Owned by one task. A partition without a leader is reported once, until it has one."""

    def __init__(self, client: KafkaClient, report: Callable[[str], None]) -> None:
        self._client = client
        self._report = report
        self._leaderless: set[TopicPartition] = set()
        self._next_look_s = 0.0  # when the metadata may be asked for again

    def find(
        self,
        partitions: Iterable[TopicPartition],
        may_wait: Callable[[list[TopicPartition]], bool],
        *,
        must_find: bool = True,
    ) -> dict[TopicPartition, int]:
        """Finds the leaders of the partitions, for one round of requests. Partitions without a leader are left out if
        they `may_wait`; otherwise, or with `must_find` if no partition has a leader, this waits for the leader of one
        of them and returns it alone.

        Raises what `KafkaClient.leader_of` raises; LEADER_NOT_AVAILABLE after a wait in vain.
        """
        leaders = {partition: self._client.find_leader(partition) for partition in partitions}
        found = {partition: leader for partition, leader in leaders.items() if leader is not None}
        if len(found) == len(leaders):
            self._leaderless.clear()
            return found
        missing = [partition for partition, leader in leaders.items() if leader is None]
        if (must_find and not found) or not may_wait(missing):
            return {missing[0]: self._client.leader_of(missing[0])}
        if found:
            self._report_new(missing)
        self._look_again(missing)
        return found

    def _report_new(self, missing: list[TopicPartition]) -> None:
        for partition in missing:
            if partition not in self._leaderless:
                self._report(f"partition {partition} has no leader; the other partitions do not wait for it")
        self._leaderless = set(missing)

    def _look_again(self, missing: list[TopicPartition]) -> None:
        """Lets the client ask for metadata again, once in a while."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_SECONDS
            for topic in {partition.topic for partition in missing}:
                self._client.forget_topic(topic)
