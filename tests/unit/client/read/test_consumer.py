"""The consumer against a broker in the same process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count, product
from typing import Any

import pytest

from core.client.net import kafka_client, retry
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import Consumer, _fetch_topic_report
from core.client.read.record_source import ReadOptions
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, CorruptRecordError, KafkaError, MalformedMessageError, PlogError
from core.common.topic_partition import TopicPartition
from core.forensics.damage import DamagedRange
from core.log.log_segment import LogSegment
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.frame import Endpoint, decode_response, read_request_start
from core.protocol.schema.fetch import FETCH, FetchResponse, PartitionData
from core.records.record_batch import RecordBatch
from tests.support.broker import SteeredNode, add_topic, delete_topic, produce_values
from tests.support.fetched import as_leader, joined
from tests.support.for_each import for_each
from tests.support.logs import append, append_marker, make_batch, make_marker
from tests.support.manual_clock import ManualTime
from tests.support.refusals import refused

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(broker: SteeredNode, **options: Any) -> Consumer:
    client = KafkaClient([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))
    return Consumer(client, max_wait_ms=0, **options)


def read(
    broker: SteeredNode, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], **options: int
) -> dict[TopicPartition, list[tuple[int, bytes | None]]]:
    found: dict[TopicPartition, list[tuple[int, bytes | None]]] = {tp: [] for tp in starts}
    for partition, batches in consumer(broker, **options).read(starts, ends):
        records = [r for batch in batches for r in batch.records()]
        found[partition] += [(r.offset, r.value) for r in records if starts[partition] <= r.offset < ends[partition]]
    return found


def segment_of(broker: SteeredNode) -> LogSegment:
    return broker.services.replicas.partitions[A].log.segments.active


def change(broker: SteeredNode, offset: int, at: int, edit: Callable[[bytes], bytes], size: int = 1) -> None:
    """Changes so many bytes on the disk, from byte `at` of the batch on that holds the offset."""
    segment = segment_of(broker)
    found = segment.translate_offset(offset)
    assert found is not None
    data, start = bytearray(segment.records.path.read_bytes()), found[0] + at
    data[start : start + size] = edit(bytes(data[start : start + size]))
    segment.records.path.write_bytes(data)


def reorder(broker: SteeredNode, *numbers: int) -> int:
    """Writes the batches of t-0 in another order; gives the size of the first."""
    segment = segment_of(broker)
    data = segment.records.path.read_bytes()
    batches = [data[one.position : one.position + one.size_bytes] for one in segment.records.iter_batches()]
    segment.records.path.write_bytes(b"".join(batches[number] for number in numbers))
    return len(batches[0])


def read_patiently(broker: SteeredNode, end: int, **options: int) -> tuple[list[int], list[str]]:
    """The base offsets of the batches that come, and what is told of those that are passed over."""
    told: list[str] = []
    reader = consumer(broker, options=ReadOptions(skips_damage=True, tell_left_out=told.append), **options)
    return [batch.base_offset for _, batches in reader.read({A: 0}, {A: end}) for batch in batches], told


def test_up_to_the_end_offsets(broker: SteeredNode) -> None:
    produce_values(broker, b"a", b"b", b"c")
    produce_values(broker, b"x", partition=1)
    assert read(broker, {A: 1, B: 0}, {A: 3, B: 1}) == {A: [(1, b"b"), (2, b"c")], B: [(0, b"x")]}
    assert read(broker, {A: 3, B: 1}, {A: 3, B: 1}) == {A: [], B: []}
    assert read(broker, {A: 0}, {A: 1}) == {A: [(0, b"a")]}


def test_a_partition_larger_than_a_fetch(broker: SteeredNode) -> None:
    values = [b"%d" % n * 100_000 for n in range(10)] * 3
    produce_values(broker, *values)
    produce_values(broker, *values, partition=1)
    found = read(broker, {A: 0, B: 0}, {A: 30, B: 30})
    assert [v for _, v in found[A]] == values == [v for _, v in found[B]]


def test_records_that_compaction_took_from_the_very_end(broker: SteeredNode) -> None:
    """In both partitions: neither waits for what will not come."""
    for partition in (A, B):
        produce_values(broker, b"a", b"b", b"c", partition=partition.partition)
        log = broker.services.replicas.partitions[partition].log
        segment = log.segments.active
        log.roll()
        last = segment.translate_offset(2)
        assert last is not None
        segment.records.truncate(last[0])
    expected = [(0, b"a"), (1, b"b")]
    assert read(broker, {A: 0, B: 0}, {A: 3, B: 3}) == {A: expected, B: expected}


def test_isolation(broker: SteeredNode) -> None:
    log = broker.services.replicas.partitions[A].log
    append(log, make_batch(b"gone", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 9, is_commit=False)
    append(log, make_batch(b"kept", producer_id=9, producer_epoch=0, base_sequence=1, is_transactional=True))
    append_marker(log, 9, is_commit=True)
    assert read(broker, {A: 0}, {A: 4}) == {A: [(2, b"kept")]}
    both = [(0, b"gone"), (2, b"kept")]
    assert read(broker, {A: 0}, {A: 4}, options=ReadOptions(read_committed=False)) == {A: both}


def test_a_transaction_after_an_aborted_one_and_a_hole_is_read(broker: SteeredNode) -> None:
    """The answer after the hole begins with the abort marker before it, for which it names the aborted transaction."""

    def of_producer(value: bytes, sequence: int) -> RecordBatch:
        return make_batch(value, producer_id=9, producer_epoch=0, base_sequence=sequence, is_transactional=True)

    log = broker.services.replicas.partitions[A].log
    placed = {
        0: make_batch(b"plain"),
        2: of_producer(b"gone", 0),
        3: make_marker(9, is_commit=False),
        5: of_producer(b"kept", 1),
        6: make_marker(9, is_commit=True),
    }
    log.append_as_follower(joined(as_leader(batch, offset, 0) for offset, batch in placed.items()), 0)
    log.update_high_watermark(log.log_end_offset)
    for partition_bytes in range(100, 600, 20):  # an answer ends after each of the batches
        found = read(broker, {A: 0}, {A: 7}, partition_bytes=partition_bytes)
        assert found == {A: [(0, b"plain"), (5, b"kept")]}, partition_bytes


def test_a_transaction_after_an_aborted_one_whose_marker_is_damaged_is_read(broker: SteeredNode) -> None:
    """As of a broker that does not know of the damage: from behind it, it names the aborted transaction no more."""
    log = broker.services.replicas.partitions[A].log
    for value, sequence in ((b"gone", 0), (b"kept", 1)):
        fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        append(log, make_batch(value, **fields))
        append_marker(log, 9, is_commit=value == b"kept")
    change(broker, 1, 70, lambda byte: bytes([byte[0] ^ 1]))
    found, told = read_patiently(broker, 4)
    assert (found, [text.partition(": crc")[0] for text in told]) == ([2], ["t-0: offset 1 passed over"])


def test_an_offset_out_of_range(broker: SteeredNode) -> None:
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE, "could not read t-0"):
        read(broker, {A: 5}, {A: 9})


def test_no_such_partition(broker: SteeredNode) -> None:
    missing = TopicPartition("t", 7)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no partition t-7"):
        read(broker, {missing: 0}, {missing: 1})


def test_a_batch_that_went_bad_on_the_disk(broker: SteeredNode) -> None:
    produce_values(broker, b"good", b"bad")
    change(broker, 1, 61, lambda byte: bytes([byte[0] ^ 1]))
    with pytest.raises(CorruptRecordError, match=r"crc mismatch.* of t-0 \(offset 1\)"):
        list(consumer(broker).read({A: 0}, {A: 2}))


@pytest.mark.parametrize("position", [8, 16], ids=["its length", "its magic"])
def test_a_frame_that_went_bad_on_the_disk(broker: SteeredNode, position: int) -> None:
    """What is before it comes first; whoever passes over damage gets what is after it, too."""
    produce_values(broker, b"a", b"b", b"c")
    change(broker, 1, position, lambda byte: bytes([byte[0] ^ 0x80]))
    found_before = consumer(broker).read({A: 0}, {A: 3})
    assert [batch.base_offset for batch in next(found_before)[1]] == [0]
    with refused(ErrorCode.CORRUPT_MESSAGE):
        next(found_before)
    assert read_patiently(broker, 3)[0] == [0, 2]


@pytest.mark.parametrize(
    ("base_offset", "told"),
    [
        (1 << 29, "offsets lie after the log's end, which is 5"),
        (2, "offsets are the next batch's"),
        (0, "offsets do not rise"),
    ],
)
def test_a_batch_whose_offsets_cannot_be_its_own(broker: SteeredNode, base_offset: int, told: str) -> None:
    """No checksum covers the base offset, and a broker that trusts its log sends it as it lies. Whoever believed it
    would go on after it, and leave out what is sound.
    """
    produce_values(broker, b"a", b"b", b"c")
    append(broker.services.replicas.partitions[A].log, make_batch(b"d", b"e"))
    change(broker, 1, 0, lambda _: base_offset.to_bytes(8, "big"), 8)
    batches = consumer(broker).read({A: 0}, {A: 5})
    assert [batch.base_offset for batch in next(batches)[1]] == [0]
    with pytest.raises(PlogError):
        next(batches)
    assert read_patiently(broker, 5) == ([0, 2, 3], [f"t-0: offset 1 passed over: {told}"])


@pytest.mark.parametrize("skips_damage", [False, True])
@pytest.mark.parametrize("position", [3, 1])
def test_a_high_watermark_that_is_older_than_the_records(
    broker: SteeredNode, position: int, skips_damage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka's, which is read first, while somebody produces: nothing is wrong with the log."""
    log = broker.services.replicas.partitions[A].log
    for value in (b"a", b"b", b"c", b"d"):
        append(log, make_batch(value))
    receive = Consumer._receive
    is_old = [True]

    def receive_older(self: Consumer, sent: Any) -> Iterator[tuple[TopicPartition, Any]]:
        for partition, data in receive(self, sent):
            if is_old:
                is_old.pop()
                data.high_watermark = data.last_stable_offset = 3
            if position == 1 and data.records:  # after a hole, as compaction leaves it: of three batches the last
                data.records = data.records[-len(data.records) // 3 :]
            yield partition, data

    monkeypatch.setattr(Consumer, "_receive", receive_older)
    left_out: list[str] = []
    reader = consumer(broker, options=ReadOptions(skips_damage=skips_damage, tell_left_out=left_out.append))
    found = next(batches for polled in reader.follow({A: position}) if polled is not None for batches in polled[1:])
    assert [batch.base_offset for batch in found] == [3]
    assert left_out == []


def test_a_batch_after_a_hole_that_reaches_into_the_next_one(broker: SteeredNode) -> None:
    """It would fill the hole with its right offsets: it is the wrong one of the two."""
    for values in ((b"a", b"b"), (b"c", b"d"), (b"e", b"f")):
        append(broker.services.replicas.partitions[A].log, make_batch(*values))
    change(broker, 2, 0, lambda _: (3).to_bytes(8, "big"), 8)
    told = ["t-0: offsets 2 to 3 passed over: offsets are the next batch's"]
    assert read_patiently(broker, 6) == ([0, 4], told)


@pytest.mark.parametrize(
    ("order", "found", "told"),
    [
        ((0, 2, 1, 3, 4), [0, 1, 3, 4], ["t-0: offset 2 passed over: offsets are the next batch's"]),
        ((0, 2, 3, 1, 4), [0, 2, 3, 4], ["t-0: offset 1 passed over: offsets do not rise"]),
        ((0, 3, 1, 2, 4), [0, 1, 2, 3, 4], []),
    ],
)
def test_batches_that_stand_out_of_order(
    broker: SteeredNode, order: tuple[int, ...], found: list[int], told: list[str]
) -> None:
    """What does not come because another batch came first is told."""
    produce_values(broker, b"a", b"b", b"c", b"d", b"e")
    reorder(broker, *order)
    with pytest.raises(PlogError):
        read(broker, {A: 0}, {A: 5})
    assert read_patiently(broker, 5) == (found, told)


def test_a_batch_that_stands_between_two_answers_is_told(broker: SteeredNode) -> None:
    """The broker begins each answer with the first batch that ends after the offset that it is asked for."""
    produce_values(broker, b"a", b"b", b"c", b"d", b"e", b"f")
    size = reorder(broker, 0, 2, 3, 1, 4, 5)
    for batches_an_answer, reads_ahead in product((2, 3, 4, 6), (False, True)):
        options = {"partition_bytes": batches_an_answer * size, "reads_ahead": reads_ahead}
        with pytest.raises(CorruptRecordError, match="offsets do not rise of t-0"):
            read(broker, {A: 0}, {A: 6}, **options)
        found, told = read_patiently(broker, 6, **options)
        assert found == [0, 2, 3, 4, 5], options
        assert set(told) == {"t-0: offset 1 passed over: offsets do not rise"}, options


def test_a_later_batch_that_was_written_over_others(broker: SteeredNode) -> None:
    """Its offsets would lead the reader past everything between; what follows it shows that it is not theirs."""
    log = broker.services.replicas.partitions[A].log
    for value in (b"a", b"b", b"c", b"d", b"e" * 40, b"f"):
        append(log, make_batch(value))
    segment = log.segments.active
    batches = list(segment.records.iter_batches())
    data = bytearray(segment.records.path.read_bytes())
    stray = data[batches[4].position : batches[5].position]
    data[batches[1].position : batches[1].position + len(stray)] = stray  # and a part of the next
    segment.records.path.write_bytes(data)
    with pytest.raises(PlogError):
        read(broker, {A: 0}, {A: 6})
    told = ["t-0: passed over: offsets 1 to 2: damaged or missing, says the broker"]
    assert read_patiently(broker, 6) == ([0, 3, 4, 5], told)


def test_a_damaged_batch_that_claims_what_is_sound(broker: SteeredNode) -> None:
    """Its last offset is covered by the checksum that does not fit: where the next batch begins tells more."""
    produce_values(broker, b"a", b"b", b"c", b"d")
    change(broker, 1, 26, lambda byte: bytes([byte[0] | 2]))  # the last offset's delta
    found, told = read_patiently(broker, 4)
    assert found == [0, 2, 3]
    assert [text.partition(": crc")[0] for text in told] == ["t-0: offset 1 passed over"]


@pytest.mark.parametrize("byte", [23, 24, 25])
def test_a_damaged_last_batch_that_claims_offsets_beyond_the_end(broker: SteeredNode, byte: int) -> None:
    """A follower that believed it would miss what is appended there later."""
    produce_values(broker, b"a", b"b")
    change(broker, 1, byte, lambda was: bytes([was[0] | 1]))  # the last offset's delta
    left_out: list[str] = []
    reader = consumer(broker, options=ReadOptions(skips_damage=True, tell_left_out=left_out.append)).follow({A: 0})
    assert [b.base_offset for b in next(found for found in reader if found)[1]] == [0]
    assert next(reader) is None
    assert [text.partition(": crc")[0] for text in left_out] == ["t-0: offset 1 passed over"]
    produce_values(broker, b"c")
    assert [b.base_offset for b in next(found for found in reader if found and found[1])[1]] == [2]


def test_damage_that_the_broker_knows_is_passed_over_at_once(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that it is asked for one offset after the other: Kafka's answer does not say how far damage goes."""
    log = broker.services.replicas.partitions[A].log
    at = []
    for values in ([b"a"], [b"x"] * 500, [b"y"] * 500, [b"z"]):
        at.append(log.size_bytes)
        append(log, make_batch(*values))
    log.note_damage(DamagedRange(1, 501, 0, at[1], at[2]))
    log.note_damage(DamagedRange(501, 1001, 0, at[2], at[3]))
    asked: list[int] = []
    send = Consumer._send

    def count(self: Consumer, positions: Mapping[TopicPartition, int]) -> object:
        asked.append(positions[A])
        return send(self, positions)

    monkeypatch.setattr(Consumer, "_send", count)
    found, told = read_patiently(broker, 1002)
    assert found == [0, 1001]
    assert asked == [0, 1, 501, 1001]
    assert told == ["t-0: passed over: offsets 1 to 1000: damaged or missing, says the broker"]


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_what_came_with_an_error_is_given_before_it(broker: SteeredNode, reads_ahead: bool) -> None:
    produce_values(broker, b"a", b"b")
    reader = consumer(broker, reads_ahead=reads_ahead).read({A: 0, B: 999}, {A: 2, B: 2000})
    assert next(reader)[0] == A
    assert next(reader) == (A, [])  # its end
    with pytest.raises(KafkaError, match="could not read t-1"):
        next(reader)


def test_a_topic_that_was_made_anew_in_between(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is another one; the client looks again."""
    monkeypatch.setattr(kafka_client, "_LEADER_TIMEOUT_SECONDS", 0.0)
    produce_values(broker, b"old")
    reader = consumer(broker).follow({A: 0})
    assert next(reader)[0] == A
    delete_topic(broker, "t")
    add_topic(broker, partitions=2)
    produce_values(broker, b"n0", b"n1")
    _, batches = next(found for found in reader if found is not None)
    assert [r.value for r in batches[0].records()] == [b"n1"]
    delete_topic(broker, "t")
    with pytest.raises(KafkaError, match="no topic 't'"):
        next(found for found in reader if found is not None)


def test_a_broker_that_is_away_when_more_is_looked_for(broker: SteeredNode) -> None:
    """As at any other moment: it is tried again, and what it had to say is asked for again."""
    produce_values(broker, b"a")
    produce_values(broker, b"x", partition=1)
    told: list[str] = []
    answers = [ConnectionFailedError("gone"), ConnectionFailedError("gone"), {B: 0}]

    def find_more() -> Mapping[TopicPartition, int]:
        answer = answers.pop(0) if answers else {}
        if isinstance(answer, ConnectionFailedError):
            raise answer
        return answer

    options = ReadOptions(60.0, tell=told.append, note=told.append)
    reader = consumer(broker, options=options).follow({A: 0}, find_more)
    found = [next(f for f in reader if f is not None) for _ in range(2)]
    assert [partition for partition, _ in found] == [A, B]
    assert told[0] == "gone; it is tried again for 60 s"
    assert told[-1].startswith("reading goes on, after ")
    impatient = consumer(broker).follow({A: 0}, never_answered)
    assert next(impatient) is not None
    with pytest.raises(ConnectionFailedError):
        next(impatient)


def never_answered() -> Mapping[TopicPartition, int]:
    raise ConnectionFailedError("gone")


def test_what_lies_after_the_ends_is_asked_once_for_a_topic(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each of its partitions, of which there may be thousands; and what is said reaches each of them."""
    produce_values(broker, b"a")
    produce_values(broker, b"x", partition=1)
    broker.services.log_manager.with_wrong_tail.add(B)
    asked: list[TopicPartition] = []

    def count(client: KafkaClient, partition: TopicPartition, *names: str) -> object:
        asked.append(partition)
        return _fetch_topic_report(client, partition, *names)

    monkeypatch.setattr("core.client.read.consumer._fetch_topic_report", count)
    told: list[str] = []
    client = KafkaClient([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))
    found = Consumer(client, options=ReadOptions(skips_damage=True, tell_left_out=told.append)).read(
        {A: 0, B: 0}, {A: 1, B: 1}
    )
    assert sum(len(batches) for _, batches in found) == 2
    assert asked == [A]
    assert [text.partition(":")[0] for text in told] == ["t-1"]


def test_what_lies_after_an_end_fails_who_passes_over_no_damage(broker: SteeredNode) -> None:
    """Once all records have come."""
    produce_values(broker, b"a")
    broker.services.log_manager.with_wrong_tail.add(A)
    found = consumer(broker).read({A: 0}, {A: 1})
    assert [r.value for r in next(found)[1][0].records()] == [b"a"]
    assert next(found) == (A, [])  # its end
    with pytest.raises(CorruptRecordError, match="t-0: the broker says that after the log's end lie bytes"):
        next(found)


# --- answers that do not move on


class Tampering(EmbeddedTransport):
    """Changes each answer to a Fetch before it is read."""

    def __init__(self, broker: SteeredNode, change: Callable[[FetchResponse], None]) -> None:
        super().__init__(broker.dispatcher)
        self._change = change
        self._asked: deque[tuple[int, int]] = deque()
        self.fetches = 0

    def send(self, frame: bytearray) -> None:
        key, version, _ = read_request_start(memoryview(frame)[4:])
        self._asked.append((key, version))
        super().send(frame)

    def receive(self) -> memoryview:
        key, version = self._asked.popleft()
        frame = super().receive()
        if key != FETCH.key:
            return frame
        self.fetches += 1
        correlation_id, response = decode_response(FETCH, version, frame)
        self._change(response)
        return memoryview(b"".join(Endpoint(FETCH, version).encode_response(correlation_id, response)))[4:]  # type: ignore[arg-type]


def tampered(
    broker: SteeredNode, change: Callable[[FetchResponse], None], **options: Any
) -> tuple[Consumer, Tampering]:
    transport = Tampering(broker, change)
    return Consumer(KafkaClient([("embedded", 0)], lambda _host, _port: transport), max_wait_ms=0, **options), transport


def only(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


def cut(response: FetchResponse) -> None:
    """As brokers before Kafka 0.10.1 did with a batch that is larger than what was asked for."""
    only(response).records = bytes(only(response).records or b"")[:-1]


def earlier(response: FetchResponse) -> None:
    batch = make_batch(b"old", base_offset=0)
    only(response).records = bytes(batch.buffer[batch.start : batch.start + batch.size_bytes])


def headers_alone(response: FetchResponse) -> None:
    only(response).records = bytes(only(response).records or b"")[:10]


def nothing(response: FetchResponse) -> None:
    response.responses = []


STUCK = [cut, earlier, headers_alone, nothing]


@pytest.mark.parametrize("change", STUCK)
@pytest.mark.parametrize("way", ["read", "follow", "skips damage"])
def test_answers_that_never_move_on_end_with_an_error(
    broker: SteeredNode, change: Callable[[FetchResponse], None], way: str
) -> None:
    produce_values(broker, b"a", b"b")
    reader, transport = tampered(broker, change, options=ReadOptions(skips_damage=way == "skips damage"))
    found = reader.follow({A: 1}) if way == "follow" else reader.read({A: 1}, {A: 2})
    with pytest.raises(MalformedMessageError, match="from offset 1 on: the broker's answers do not"):
        deque(found, maxlen=0)
    assert transport.fetches < 30


def test_a_few_of_them_are_no_error(broker: SteeredNode) -> None:
    produce_values(broker, b"a", b"b")
    times = iter(range(8))
    reader, _ = tampered(broker, lambda response: cut(response) if next(times, None) is not None else None)
    assert [batch.base_offset for _, batches in reader.read({A: 0}, {A: 2}) for batch in batches] == [0, 1]


def test_following_the_end_of_a_log_is_none(broker: SteeredNode) -> None:
    """The batch before is asked for again and again, as a hole was passed there."""
    produce_values(broker, b"a", b"b", b"c")
    change(broker, 1, 61, lambda byte: bytes([byte[0] ^ 1]))
    reader = consumer(broker, options=ReadOptions(skips_damage=True))
    rounds = reader.follow({A: 0})
    came = [one for one in (next(rounds) for _ in range(60)) if one is not None]
    assert [batch.base_offset for _, batches in came for batch in batches] == [0, 2]


def other(response: FetchResponse) -> None:
    only(response).partition_index = 1


def twice(response: FetchResponse) -> None:
    response.responses[0].partitions.append(only(response))


@pytest.mark.parametrize("change", [other, twice])
def test_an_answer_to_another_question(broker: SteeredNode, change: Callable[[FetchResponse], None]) -> None:
    produce_values(broker, b"a", b"b")
    reader, _ = tampered(broker, change)
    with pytest.raises(MalformedMessageError, match="a Fetch answer has a partition twice, or one not asked for"):
        list(reader.read({A: 0}, {A: 2}))


@pytest.mark.parametrize(
    ("code", "high_watermark", "raised", "message"),
    [
        (0, 1, MalformedMessageError, "could not read t-0 up to offset 2: its log ends at 1 now, says the broker"),
        (6, 2, KafkaError, "could not read t-0 from offset 1 on: "),
    ],
)
def test_what_stays_refused_or_behind_ends_after_a_while(
    broker: SteeredNode,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    high_watermark: int,
    raised: type[PlogError],
    message: str,
) -> None:
    clock = ManualTime()
    monkeypatch.setattr(retry, "time", clock)
    produce_values(broker, b"a", b"b")

    def change(response: FetchResponse) -> None:
        clock.now_s += 10
        data = only(response)
        data.error_code, data.records = code, b""
        data.high_watermark = data.last_stable_offset = high_watermark

    reader, _ = tampered(broker, change)
    with pytest.raises(raised, match=message):
        list(reader.read({A: 1}, {A: 2}))
    assert 40 <= clock.now_s < 41, "30 s after the first such answer, and the pauses"


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
@pytest.mark.parametrize("way", ["read", "follow"])
def test_partitions_that_are_refused_are_asked_for_again_after_one_pause(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, way: str, code: ErrorCode
) -> None:
    """The pauses are those of `Retry`, once a round for both partitions; the first records end them."""
    clock = ManualTime()
    monkeypatch.setattr(retry, "time", clock)
    monkeypatch.setattr("random.uniform", lambda _least, _most: 1.0)
    monkeypatch.setattr(KafkaClient, "has_other_replicas", lambda _client, _partition: True)
    numbers = count()
    first = broker.services.replicas.partitions[A].log.log_end_offset
    for _ in range(2):
        produce_values(broker, b"a")

    def change(response: FetchResponse) -> None:
        """Refuses four requests, gives records in the fifth, and refuses two more."""
        if next(numbers) not in (4, 7):
            for data in response.responses[0].partitions:
                data.error_code, data.records = code, b""

    reader, transport = tampered(broker, change, options=ReadOptions(seconds=30), partition_bytes=1)
    starts, ends = {A: first, B: 0}, {A: first + 2, B: 1}
    found = reader.follow(starts) if way == "follow" else reader.read(starts, ends)
    offsets = (batch.base_offset for one in found if one is not None for batch in one[1])
    assert [next(offsets), next(offsets)] == [first, first + 1]
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 0.1, 0.2]
    assert transport.fetches == 8


def test_a_partition_that_is_refused_does_not_delay_another(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualTime()
    monkeypatch.setattr(retry, "time", clock)
    first = broker.services.replicas.partitions[A].log.log_end_offset
    for _ in range(9):
        produce_values(broker, b"a")

    def change(response: FetchResponse) -> None:
        for data in response.responses[0].partitions:
            if data.partition_index == B.partition:
                data.error_code, data.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""

    reader, _ = tampered(broker, change, partition_bytes=1)
    found = (
        batch.base_offset for _, batches in reader.read({A: first, B: 0}, {A: first + 9, B: 1}) for batch in batches
    )
    assert [next(found) for _ in range(9)] == list(range(first, first + 9))
    assert clock.slept == []


@for_each("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_partition_that_is_refused_or_behind_now_and_then_is_read_on(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """Each second answer is a refusal, or says that the log has ended, and 20 s pass before each answer."""
    clock = ManualTime()
    monkeypatch.setattr(retry, "time", clock)
    monkeypatch.setattr(KafkaClient, "has_other_replicas", lambda _client, _partition: True)
    numbers = count()
    first = broker.services.replicas.partitions[A].log.log_end_offset
    for _ in range(4):
        produce_values(broker, b"a")

    def change(response: FetchResponse) -> None:
        clock.now_s += 20
        if next(numbers) % 2 == 0:
            data = only(response)
            data.error_code, data.records = code, b""
            data.high_watermark = data.last_stable_offset = 0

    reader, _ = tampered(broker, change, options=ReadOptions(seconds=30), partition_bytes=1)
    batches = [batch for _, found in reader.read({A: first}, {A: first + 4}) for batch in found]
    assert [batch.base_offset for batch in batches] == [first, first + 1, first + 2, first + 3]
    assert clock.now_s >= 160
