"""Limits how fast throttled partitions are replicated (KIP-73): the rate that an operator set, and the recent bytes.

A broker has two quotas: one for the bytes that it sends as a leader, one for those that it fetches as a follower. Both
need two settings: the rate of the broker, and the list of a topic's throttled replicas. Code that replicates checks two
things: is the partition throttled (`leads_throttled`, `follows_throttled`), and is the quota exceeded now
(`is_exceeded`)? A replica in the ISR is never held back, but its bytes count.

Bytes are counted in samples. One begins with the first bytes after the end of the previous one:

    |-- 1 s --|   |-- 1 s --|..|-- 1 s --|     rate = bytes of all samples / time since the oldest one began,
    ^ oldest                        now ^      which counts as at least the length of one sample

A sample counts until its last bytes are as old as all samples together are long, and then starts again as an empty one:
so idle time counts as well. A follower gets whole responses, which may be many bytes at once, and waits afterwards.

Source: kafka.server.ReplicationQuotaManager, org.apache.kafka.common.metrics.stats.SimpleRate of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from core.common.clock import Clock
from core.common.java_limits import LONG_MAX
from core.files.log_config import ALL_REPLICAS, LogConfig

NO_LIMIT = LONG_MAX


def leads_throttled(config: LogConfig, partition: int, node_id: int) -> bool:
    """Returns whether the leader's quota applies to what that broker sends of a partition of the topic."""
    listed = config.leader_replication_throttled_replicas
    return ALL_REPLICAS in listed or f"{partition}:{node_id}" in listed


def follows_throttled(config: LogConfig, partition: int, node_id: int) -> bool:
    """Returns whether the follower's quota applies to what that broker fetches of a partition of the topic."""
    listed = config.follower_replication_throttled_replicas
    return ALL_REPLICAS in listed or f"{partition}:{node_id}" in listed


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    size_bytes: int = 0

    def begin(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size_bytes = 0


class ReplicationQuota:
    """Owned by the broker's task.

    I1 there is at most one sample more than configured: the oldest one may have begun before the others' time
    I2 no sample began after the present one, except empty ones
    """

    def __init__(self, find_limit: Callable[[], int], clock: Clock, *, samples: int, sample_ms: int) -> None:
        """`find_limit` returns the bytes per second that are allowed now, or NO_LIMIT."""
        self._find_limit = find_limit
        self._clock = clock
        self._most_samples = samples + 1
        self._sample_ms = sample_ms
        self._kept_ms = samples * sample_ms
        self._samples: list[_Sample] = []  # a ring
        self._present = -1

    @property
    def is_limited(self) -> bool:
        """Whether a rate is set: all that a request must check if nothing is throttled."""
        return self._find_limit() != NO_LIMIT

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit."""
        return self.byte_rate > self._find_limit()

    @property
    def byte_rate(self) -> float:
        """The counted bytes per second of throttled partitions."""
        now_ms = self._clock.monotonic_ms()
        if not self._samples:
            self._begin_sample(now_ms)
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._kept_ms:
                sample.begin(now_ms)
        elapsed_ms = max(now_ms - min(sample.start_ms for sample in self._samples), self._sample_ms)
        return sum(sample.size_bytes for sample in self._samples) * 1000 / elapsed_ms

    def record(self, size_bytes: int) -> None:
        """Counts bytes of throttled partitions, even above the limit."""
        now_ms = self._clock.monotonic_ms()
        if not self._samples or now_ms - self._samples[self._present].start_ms >= self._sample_ms:
            self._begin_sample(now_ms)
        sample = self._samples[self._present]
        sample.last_ms = now_ms
        sample.size_bytes += size_bytes

    def _begin_sample(self, now_ms: int) -> None:
        self._present = (self._present + 1) % self._most_samples
        if self._present == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._present].begin(now_ms)

    def check_invariants(self) -> None:
        assert len(self._samples) <= self._most_samples, "I1"
        if self._samples:
            latest_ms = self._samples[self._present].start_ms
            assert all(sample.start_ms <= latest_ms or not sample.size_bytes for sample in self._samples), "I2"


class ReplicationQuotas(NamedTuple):
    """The quotas of a broker."""

    leader: ReplicationQuota
    follower: ReplicationQuota
