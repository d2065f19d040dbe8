"""Replicas that differ are found, and those that may differ are let be: brokers are lists of batches here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.cluster_admin import replica_check
from core.client.cluster_admin.replica_check import ReplicaCheck, ReplicaComparison, ReplicaReader
from core.client.net import retry
from core.client.net.kafka_client import PartitionInfo, TopicInfo
from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FetchRequest, PartitionData
from core.records.record import Record, encode_records
from core.records.record_batch_builder import build_batch
from tests.support.manual_clock import ManualTime

T0 = TopicPartition("t", 0)
SIZE = 3  # records of a batch


def batch(first: int, *, value: bytes = b"v", epoch: int = 0, offsets: Sequence[int] | None = None) -> bytes:
    """A batch of three records, or of those with these offsets."""
    records = [Record(offset, 1000, b"k", value, ()) for offset in offsets or range(first, first + SIZE)]
    made = bytearray(
        build_batch(
            encode_records(records, first, 1000),
            count=len(records),
            base_timestamp=1000,
            max_timestamp=1000,
            base_offset=first,
            last_offset_delta=SIZE - 1,
        )
    )
    made[12:16] = epoch.to_bytes(4, "big")
    return bytes(made)


@dataclass
class Replica:
    """What a broker has; `fails` is raised at the next request."""

    batches: list[tuple[int, bytes]]
    start: int = 0
    high_watermark: int = 6 * SIZE
    at_once: int = 2
    fails: Exception | None = None
    after_receive: Callable[[], None] = lambda: None
    receives: int = field(default=0)


class Reader(ReplicaReader):
    """Reads a `Replica` in place of a broker."""

    replicas: dict[int, Replica] = {}  # noqa: RUF012 - one test after the other sets it

    @property
    def replica(self) -> Replica:
        return self.replicas[self.broker]

    def find_start(self) -> int:
        self._fail()
        return self.replica.start

    def _fail(self) -> None:
        if self.replica.fails is not None:
            raise self.replica.fails

    def send(self, *, is_leader: bool) -> None:
        self._fail()

    def receive(self) -> None:
        replica = self.replica
        if self.position < replica.start:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        here = [b for first, b in replica.batches if self.position < first + SIZE and first < replica.high_watermark]
        self.high_watermark = replica.high_watermark
        self._take(PartitionData(0, 0, self.high_watermark, records=memoryview(b"".join(here[: replica.at_once]))))
        replica.receives += 1
        replica.after_receive()


class Client:
    node_ids = (1, 2, 3)

    def topic(self, name: str) -> TopicInfo:
        return TopicInfo(name, bytes(16), is_internal=False, partitions={0: PartitionInfo(1, 0, (1, 2, 3), (1, 2, 3))})

    def forget_connection(self, node_id: int) -> None: ...


@pytest.fixture(autouse=True)
def _readers(monkeypatch: pytest.MonkeyPatch) -> None:
    use_readers(monkeypatch)


def use_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "time", ManualTime())
    monkeypatch.setattr(replica_check, "ReplicaReader", Reader)


def compare(*replicas: Replica, is_compacted: bool = False) -> ReplicaComparison:
    Reader.replicas = dict(enumerate(replicas, 1))
    brokers = tuple(Reader.replicas)
    client: Any = Client()
    return ReplicaCheck(client).compare(ReplicatedPartition(T0, 1, 0, brokers, brokers), is_compacted=is_compacted)


def log(count: int = 6) -> list[tuple[int, bytes]]:
    return [(n * SIZE, batch(n * SIZE)) for n in range(count)]


# --- whatever differs


@st.composite
def differing(draw: st.DrawFn) -> tuple[list[Replica], set[int]]:
    """Three replicas, and the batches in which one differs, by their numbers."""
    count = draw(st.integers(1, 12))
    replicas, bad = [], set()
    start = 0
    for _ in range(3):
        batches = log(count)
        for number in draw(st.sets(st.integers(0, count - 1), max_size=3)):
            bad.add(number)
            first = number * SIZE
            other = draw(
                st.sampled_from([None, batch(first, value=b"w"), batch(first, epoch=1), flipped(batch(first))])
            )
            batches[number] = (first, other or b"")
        kept = draw(st.integers(0, count - 1))
        start = max(start, kept * SIZE)
        have = [(first, content) for first, content in batches if content and first >= kept * SIZE]
        replicas.append(Replica(have, kept * SIZE, count * SIZE, at_once=draw(st.integers(1, 4))))
    lowest = draw(st.integers(0, 2))
    replicas[lowest].high_watermark = draw(st.integers(0, count)) * SIZE
    end = min(replicas[lowest].high_watermark, count * SIZE)
    in_range = {number for number in bad if start <= number * SIZE < end}
    return replicas, {n for n in in_range if is_different(replicas, n * SIZE)}


def flipped(content: bytes) -> bytes:
    """A bit of a record is another, and the crc is not."""
    return content[:-1] + bytes([content[-1] ^ 4])


def is_different(replicas: Sequence[Replica], first: int) -> bool:
    found = [dict(replica.batches).get(first) for replica in replicas]
    return len(set(found)) > 1 or found[0] is None or found[0] == flipped(batch(first))


@given(differing())
def test_every_difference_between_start_and_high_watermark_is_found(case: tuple[list[Replica], set[int]]) -> None:
    replicas, bad = case
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_readers(monkeypatch)
        found = compare(*replicas)
    gone_everywhere = {n for n in bad if all(n * SIZE not in dict(replica.batches) for replica in replicas)}
    runs = [
        [number for _, number in group]
        for _, group in groupby(enumerate(sorted(bad - gone_everywhere)), key=lambda pair: pair[1] - pair[0])
    ]
    expected = [(run[0] * SIZE, run[-1] * SIZE + SIZE - 1) for run in runs]
    merged = [(one.first, one.last) for one in found.differences]
    assert not found.not_compared
    assert covered(merged) == covered(expected)


def covered(ranges: Sequence[tuple[int, int]]) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, last + 1, SIZE)}


def test_a_difference_says_who_has_what() -> None:
    one, two, three = log(), log(), log()
    two[2] = (6, batch(6, epoch=4))
    three[4] = (12, flipped(batch(12)))
    del two[5], three[5]
    found = compare(Replica(one), Replica(two), Replica(three))
    assert [(d.first, d.last) for d in found.differences] == [(6, 8), (12, 17)]
    assert found.differences[0].text.endswith("; broker 2: a batch, leader epoch 4")
    assert found.differences[0].text.startswith("brokers 1, 3: a batch, to offset 8, leader epoch 0, crc ")
    assert "; broker 3: a damaged batch (crc mismatch: stored" in found.differences[1].text


def test_of_two_that_differ_the_leaders_is_the_usual_one() -> None:
    two = log()
    del two[1]
    (difference,) = compare(Replica(log()), Replica(two)).differences
    assert (difference.first, difference.last) == (3, 5)
    assert difference.text.startswith("broker 1: a batch, to offset 5")
    assert difference.text.endswith("; broker 2: nothing")


def test_a_batch_that_is_damaged_everywhere_is_named() -> None:
    damaged = [*log()[:2], (6, flipped(batch(6))), *log()[3:]]
    (difference,) = compare(Replica(damaged), Replica(list(damaged))).differences
    assert (difference.first, difference.last) == (6, 8)
    assert difference.text.startswith("brokers 1, 2: a damaged batch (crc mismatch")


# --- what is no difference


def test_what_is_above_the_lowest_high_watermark_is_not_compared() -> None:
    two = log()
    two[4] = (12, batch(12, value=b"not committed"))
    found = compare(Replica(log()), Replica(two, high_watermark=12))
    assert (found.start, found.end, found.compared, found.differences) == (0, 12, 4, [])


def test_retention_meanwhile_is_no_difference() -> None:
    going = Replica(log(10), high_watermark=30, at_once=1)

    def retain() -> None:
        if going.receives == 3:
            going.start, going.batches = 18, [one for one in going.batches if one[0] >= 18]

    going.after_receive = retain
    found = compare(Replica(log(10), high_watermark=30), going)
    assert (found.differences, found.not_compared) == ([], {})
    assert (found.start, found.end) == (0, 30)
    assert found.compared == 3 + 4


def test_compacted_logs_are_compared_where_both_have_records() -> None:
    one = [(0, batch(0, offsets=[0, 2])), (6, batch(6))]
    two = [(0, batch(0)), (3, batch(3, offsets=[5])), (6, batch(6, offsets=[6, 7]))]
    found = compare(Replica(one, high_watermark=9), Replica(two, high_watermark=9), is_compacted=True)
    assert (found.compared, found.only_in_some, found.differences) == (4, 3, [])
    two[0] = (0, batch(0, value=b"another"))
    found = compare(Replica(one, high_watermark=9), Replica(two, high_watermark=9), is_compacted=True)
    assert [(d.first, d.last, d.text) for d in found.differences] == [
        (0, 2, "broker 1: a record; broker 2: another record")
    ]


# --- what can't be compared


def test_a_replica_that_refuses_is_named_and_the_others_are_compared() -> None:
    two = log()
    del two[1]
    refused = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    found = compare(Replica(log()), Replica(two), Replica(log(), fails=refused))
    assert found.brokers == [1, 2]
    assert found.not_compared == {3: refused}
    assert (found.start, found.end, found.has_range) == (0, 18, True)
    assert len(found.differences) == 1


def test_a_broker_that_is_lost_is_not_waited_for_again() -> None:
    lost = ConnectionFailedError("no answer")
    Reader.replicas = {1: Replica(log()), 2: Replica(log(), fails=lost)}
    client: Any = Client()
    check = ReplicaCheck(client)
    placed = ReplicatedPartition(T0, 1, 0, (1, 2), (1, 2))
    found = check.compare(placed, is_compacted=False)
    assert (found.not_compared, found.has_range) == ({2: lost}, False)
    Reader.replicas[2].fails = AssertionError("asked again")
    assert check.compare(placed, is_compacted=False).not_compared == {2: lost}


def test_a_log_that_ends_before_what_it_had_committed_is_named() -> None:
    short = Replica(log(6), at_once=2)

    def lose() -> None:
        short.batches, short.high_watermark = short.batches[:2], 6

    short.after_receive = lose
    found = compare(Replica(log(6)), short)
    assert "its high watermark went back to 6" in found.not_compared[2].message


def test_only_what_is_known_to_come_is_waited_for() -> None:
    """An empty replica has nothing to wait for, which its first answer says."""
    waits: list[int] = []

    class Broker(Client):
        def connection_to(self, _broker: int) -> Broker:
            return self

        def version_of(self, _api: object) -> int:
            return 12

        def send(self, _api: object, request: FetchRequest) -> None:
            waits.append(request.max_wait_ms)

    client: Any = Broker()
    reader = ReplicaReader(client, 1, T0, is_compacted=False)
    reader.send(is_leader=True)
    reader.high_watermark = 3
    reader.send(is_leader=True)
    assert waits[0] == 0 < waits[1]
