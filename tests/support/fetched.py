"""What a leader's log may hold, as a follower fetches it: any batches in order, holes between them, transactions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch
from tests.support.logs import NOW, make_batch, make_marker


def as_leader(batch: RecordBatch, offset: int, epoch: int) -> bytes:
    """The batch with what a leader sets in it."""
    set_base_offset_and_leader_epoch(batch, offset, epoch)
    return bytes(batch.buffer[: batch.size_bytes])


def joined(batches: Iterable[bytes]) -> memoryview:
    """An answer's records: the batches end to end."""
    return memoryview(bytearray(b"".join(batches)))


@dataclass
class LeaderLog:
    """Makes batches of random sizes, epochs, times and producers, with offsets that rise."""

    rng: random.Random
    end_offset: int = 0
    epoch: int = 0
    now_ms: int = NOW

    def __post_init__(self) -> None:
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def batches(self, count: int) -> list[bytes]:
        return [self._next() for _ in range(count)]

    def _next(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.1:
            self.epoch += rng.randint(1, 3)
        if rng.random() < 0.1:
            self.end_offset += rng.choice([1, 5, 1000])
        self.now_ms += rng.choice([0, 0, 1, 50, 2000, -30])
        batch = self._marker() if self._open and rng.random() < 0.2 else self._records()
        data = as_leader(batch, self.end_offset, self.epoch)
        self.end_offset = batch.next_offset
        return data

    def _marker(self) -> RecordBatch:
        producer_id = self.rng.choice(sorted(self._open))
        self._open.remove(producer_id)
        return make_marker(producer_id, is_commit=self.rng.random() < 0.5)

    def _records(self) -> RecordBatch:
        values = [bytes(self.rng.choice([1, 10, 100])) for _ in range(self.rng.choice([1, 1, 2, 5]))]
        producer_id = self.rng.choice([-1, -1, 1, 2, 3])
        if producer_id < 0:
            return make_batch(*values, timestamp=self.now_ms)
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        if producer_id > 1:
            self._open.add(producer_id)
        return make_batch(
            *values,
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=producer_id > 1,
        )
