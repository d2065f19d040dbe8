"""Each dead letter goes back once, whatever ends a run in the middle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import Consumer
from core.client.read.record_source import ReadOptions
from core.client.write import redrive as redrive_module
from core.client.write.producer import Producer, RecordsToSend
from core.client.write.redrive import PartitionProgress, Redriven, redrive
from core.client.write.redrive_request import RedriveRequest
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.pipeline.embedded_transport import EmbeddedTransport
from core.records.byte_strings import ByteStrings
from core.records.record import Record, encode_headers
from tests.support.broker import SteeredNode, add_topic, open_broker
from tests.support.logs import NOW

DLQ = TopicPartition("dlq", 0)
TO_A = ((b"__connect.errors.topic", b"a"),)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteeredNode]:
    with closing(open_broker(tmp_path, log_retention_ms="-1")) as broker:
        for name in ("dlq", "a"):
            add_topic(broker, name)
        yield broker


@pytest.fixture(autouse=True)
def _clock_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(time_ns=lambda: (NOW + 1000) * 1_000_000, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(redrive_module, "time", now)


def client_of(broker: SteeredNode) -> KafkaClient:
    return KafkaClient([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))


def fill(broker: SteeredNode, *numbers: int, headers: tuple[tuple[bytes, bytes | None], ...] = TO_A) -> None:
    producer = Producer(client_of(broker), "dlq")
    values = ByteStrings.of_list([b"%d" % number for number in numbers])
    sections = ByteStrings.repeat(encode_headers(headers), len(numbers))
    times = np.full(len(numbers), NOW)
    producer.send(RecordsToSend(0, times, None, values, sections, np.array(numbers)))
    producer.flush()


def records(broker: SteeredNode, topic: str = "a") -> list[Record]:
    """The committed ones."""
    place = TopicPartition(topic, 0)
    client = client_of(broker)
    end = broker.services.replicas.partitions[place].log.log_end_offset
    found = Consumer(client, ReadOptions(read_committed=True)).read({place: 0}, {place: end})
    return [record for _, batches in found for batch in batches for record in batch.records()]


def values(broker: SteeredNode, topic: str = "a") -> list[int]:
    return [int(record.value or b"-1") for record in records(broker, topic)]


def run(broker: SteeredNode, undivided: Callable[[], object] = nullcontext, **options: object) -> Redriven:
    redriven = Redriven()
    request = RedriveRequest(topic="dlq", **options)  # type: ignore[arg-type]
    with closing(client_of(broker)) as client:
        redrive(request, client, redriven, say=lambda _: None, undivided=undivided)  # type: ignore[arg-type]
    return redriven


def at_commit(number: int, act: Callable[[], object]) -> Callable[[], object]:
    """Acts after all records of that transaction were sent, before it is committed."""
    calls = iter(range(number + 1000))

    @contextmanager
    def undivided() -> Iterator[None]:
        if next(calls) == number:
            act()
        yield

    return undivided


class Killed(BaseException):
    pass


def kill() -> None:
    raise Killed


def test_a_run_that_was_killed_goes_on(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "_MOST_AT_ONCE", 10)
    fill(broker, *range(45))
    with suppress(Killed):
        run(broker, at_commit(2, kill))
    assert values(broker) == list(range(20))
    assert run(broker).sent == 25
    assert values(broker) == list(range(45))
    assert run(broker).sent == 0
    assert run(broker, again=True).sent == 45


def test_a_second_run_fences_the_first(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "_MOST_AT_ONCE", 10)
    fill(broker, *range(25))
    second: list[Redriven] = []
    with pytest.raises(KafkaError, match="another redrive of dlq has begun, and goes on with what is left") as caught:
        run(broker, at_commit(1, lambda: second.append(run(broker))))
    assert caught.value.code is ErrorCode.PRODUCER_FENCED
    assert second[0].sent == 15
    assert values(broker) == list(range(25))


def test_records_that_stay_are_looked_at_again_and_no_others(broker: SteeredNode) -> None:
    fill(broker, 0, 1)
    fill(broker, 2, 3, headers=())
    fill(broker, 4)
    first = run(broker)
    assert (first.sent, first.stays) == (3, 2)
    found = GroupAdmin(client_of(broker)).offsets("plog-redrive.dlq")[DLQ]
    assert (found.offset, found.metadata) == (2, "1 5 0+2")
    fill(broker, 5)
    assert (run(broker, limit=1, to="a").sent, values(broker)) == (1, [0, 1, 4, 2])
    assert run(broker, to="a").sent == 2
    assert values(broker) == [0, 1, 4, 2, 3, 5]
    found = GroupAdmin(client_of(broker)).offsets("plog-redrive.dlq")[DLQ]
    assert (found.offset, found.metadata) == (6, "1 6")


def test_a_filter_leaves_the_others_for_later(broker: SteeredNode) -> None:
    fill(broker, *range(10))
    found = run(broker, filters=["value.x is null and offset >= 3 and offset < 6"])
    assert (found.sent, found.filtered, found.stays) == (3, 7, 0)
    assert run(broker).sent == 7
    assert sorted(values(broker)) == list(range(10))


def test_too_much_that_stays_between_others(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive_module, "_MOST_METADATA", 20)
    monkeypatch.setattr(redrive_module, "_MOST_AT_ONCE", 1)
    for number in range(12):
        fill(broker, number, headers=TO_A if number % 2 else ())
    with pytest.raises(KafkaError, match="stay between others") as caught:
        run(broker)
    assert caught.value.hint is not None and "--park" in caught.value.hint
    add_topic(broker, "parked")
    assert run(broker, park="parked").parked == 6
    assert (values(broker), values(broker, "parked")) == ([1, 3, 5, 7, 9, 11], [0, 2, 4, 6, 8, 10])


def test_a_record_that_the_topic_refuses_stays(broker: SteeredNode) -> None:
    add_topic(broker, "narrow", max_message_bytes="300")
    to = ((b"original_topic", b"narrow"),)
    fill(broker, 1, headers=to)
    fill(broker, 2, headers=(*to, (b"own", b"x" * 400)))
    fill(broker, 3, headers=to)
    found = run(broker)
    assert (found.sent, found.stays) == (2, 1)
    assert values(broker, "narrow") == [1, 3]
    assert [row["problem"] for row in found.rows.values() if row["problem"]] == [
        "refused by narrow: " + ErrorCode.MESSAGE_TOO_LARGE.text
    ]


def test_a_run_that_was_killed_while_it_sent_one_by_one_goes_on(broker: SteeredNode) -> None:
    """As it does after a record was refused."""
    add_topic(broker, "narrow", max_message_bytes="300")
    to = ((b"original_topic", b"narrow"),)
    fill(broker, 1, 2, headers=to)
    fill(broker, 3, headers=(*to, (b"own", b"x" * 400)))
    with suppress(Killed):
        run(broker, at_commit(2, kill))  # after that of all three, and the first record's
    assert values(broker, "narrow") == [1]
    assert run(broker).sent == 1
    assert values(broker, "narrow") == [1, 2]


def test_tries(broker: SteeredNode) -> None:
    fill(broker, 1)
    fill(broker, 2, headers=(*TO_A, (b"plog.redrive.tries", b"3")))
    found = run(broker, max_tries=3)
    assert (found.sent, found.stays) == (1, 1)
    assert records(broker)[0].headers == ((b"plog.redrive.tries", b"1"), (b"plog.redrive.from", b"dlq-0@0"))
    assert run(broker, max_tries=4).sent == 1
    assert records(broker)[1].headers == ((b"plog.redrive.tries", b"4"), (b"plog.redrive.from", b"dlq-0@1"))


def test_timestamps(broker: SteeredNode) -> None:
    fill(broker, 1)
    fill(broker, 2, headers=((b"kafka_dlt-original-topic", b"a"), (b"kafka_dlt-original-timestamp", b"\0" * 7 + b"\5")))
    run(broker, keep_timestamp=True)
    assert [record.timestamp for record in records(broker)] == [NOW, 5]
    run(broker, again=True)
    assert {record.timestamp for record in records(broker)[2:]} == {NOW + 1000}


def test_the_same_partition_or_none(broker: SteeredNode) -> None:
    add_topic(broker, "wide", partitions=3)
    for partition in (b"2", b"3"):
        fill(broker, 1, headers=((b"__connect.errors.topic", b"wide"), (b"__connect.errors.partition", partition)))
    found = run(broker, same_partition=True)
    assert (found.sent, found.stays) == (1, 1)
    assert [row["problem"] for row in found.rows.values() if row["problem"]] == ["wide has no partition 3"]
    assert broker.services.replicas.partitions[TopicPartition("wide", 2)].log.log_end_offset > 0


def test_a_share_groups_reference_is_no_tombstone(broker: SteeredNode) -> None:
    names = {b"topic": b"a", b"partition": b"0", b"offset": b"0"}
    reference = encode_headers([(b"__dlq.errors." + name, value) for name, value in names.items()])
    for topic, text, section in (("a", b"7", encode_headers(((b"o", b""),))), ("dlq", None, reference)):
        producer, column = Producer(client_of(broker), topic), ByteStrings.of_list([text])
        producer.send(RecordsToSend(0, np.array([NOW]), column, column, ByteStrings.of_list([section]), np.array([0])))
        producer.flush()
    assert (run(broker).stays, len(records(broker))) == (1, 1)
    assert run(broker, fetch_original=True).sent == 1
    sent = records(broker)[1]
    assert (sent.key, sent.value, sent.headers[0]) == (b"7", b"7", (b"o", b""))


@given(
    st.integers(0, 1 << 40), st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), max_size=20), st.integers(0, 9)
)
def test_what_stays_is_read_as_it_was_committed(offset: int, runs: list[tuple[int, int]], more: int) -> None:
    left: list[int] = []
    for gap, count in runs:
        offset += gap
        left += range(offset, offset + count)
        offset += count
    progress = PartitionProgress(offset + more, left)
    assert PartitionProgress.parse(progress.offset, progress.metadata, offset + more) == progress


def test_offsets_that_somebody_else_committed() -> None:
    for metadata in ("", "note", "1 5 x", "1 6"):
        assert PartitionProgress.parse(7, metadata, 7) == PartitionProgress(7)


def test_offsets_that_fit_no_partition_do_not_fill_the_memory() -> None:
    huge = 10**15
    assert PartitionProgress.parse(2, f"1 {huge} 0+{huge}", 9) == PartitionProgress(huge)
    for metadata in (f"1 5 {'9' * 5000}+1", f"1 {'9' * 5000}"):
        assert PartitionProgress.parse(2, metadata, 9) == PartitionProgress(2)
    assert PartitionProgress.parse(2, f"1 5 0+{huge}", 9).left == [2, 3, 4]
