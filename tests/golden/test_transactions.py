"""Transactions as Kafka wrote them: its coordinator's records, and the logs they end in, made again byte by byte."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.broker.coordinators.coordinator_log import partition_of
from core.common.errors import KafkaError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.coordinator.coordinator_environment import TransactionConfig
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.coordinator.transaction_record_values import read_transaction, transaction_key, transaction_value
from core.coordinator.transaction_state import TransactionMetadata, TransactionState
from core.files.file_records import FileRecords
from core.files.log_config import LogConfig, stored_topic_values
from core.log.log_loader import LogSettings, load_log
from core.protocol.schema.transaction_states import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from core.records.record import Record
from core.records.record_batch import ProducerIdAndEpoch, RecordBatch
from tests.golden.test_kafka_directories import content, for_ever_ms
from tests.support.broker import ask, open_broker
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, case
from tests.support.manual_clock import ManualClock

FOLDERS = sorted(path.name for path in GOLDEN.glob("__transaction_state-?"))
LINE = re.compile(r"\| offset: (\d+) .*? key: (\{.*?\}) payload: (\{.*\})$")
SMALL_SEGMENTS = ("txn_multisegment", "v2_txn_tv1")
"""Rolled by a segment.bytes that no user may ask for any more."""

AT_THE_TIME_MS = 1_795_249_440_000
"""When the fixtures were made."""

LOGS = (
    "txn_committed", "txn_aborted", "txn_interleaved", "txn_multisegment", "txn_empty_and_offsets",
    "txn_roll_by_marker", "txn_open", "v2_txn_tv1",
)  # fmt: skip


def records_of(folder: str) -> list[Record]:
    records = FileRecords(GOLDEN / folder / f"{0:020d}.log", FileSystem().open_read)
    return [record for batch in records.iter_batches() for record in batch.records()]


def said_by_kafka(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in (GOLDEN / f"{folder}.decoded.txt").read_text().splitlines():
        found = LINE.match(line)
        if found is not None:
            yield json.loads(found[2])["data"]["transactionalId"], json.loads(found[3])["data"]


@for_each("folder", FOLDERS)
def test_every_record_says_what_kafka_says_of_it(folder: str) -> None:
    records, said = records_of(folder), list(said_by_kafka(folder))
    assert len(records) == len(said) > 50
    for record, (transactional_id, theirs) in zip(records, said, strict=True):
        assert record.key == transaction_key(transactional_id)
        read = read_transaction(record.key, record.value)
        assert read is not None
        assert read[0] == transactional_id
        assert partition_of(transactional_id, len(FOLDERS)) == int(folder[-1])
        ours = read[1]
        assert ours is not None
        value = transaction_value(ours, 2)
        assert value == record.value or is_of_several_topics(value, record.value or b"")
        assert (ours.producer_id, ours.producer_epoch, ours.state) == (
            theirs["producerId"],
            theirs["producerEpoch"],
            theirs["transactionStatus"],
        )
        assert (ours.last_update_ms, ours.start_ms, ours.timeout_ms) == (
            theirs["transactionLastUpdateTimestampMs"],
            theirs["transactionStartTimestampMs"],
            theirs["transactionTimeoutMs"],
        )
        partitions = theirs["transactionPartitions"] or ()
        assert ours.partitions == {TopicPartition(t["topic"], n) for t in partitions for n in t["partitionIds"]}


def is_of_several_topics(value: bytes, other: bytes) -> bool:
    """Kafka writes them in the order of a hash table."""
    return value.count(b"txn_") + value.count(b"__") > 1 and sorted(value) == sorted(other)


class Retold:
    """As of `TransactionEnvironment`: the time is that of the record which Kafka wrote next."""

    def __init__(self, told: list[Record]) -> None:
        self.config = TransactionConfig()
        self.transaction_version = 2
        self.told = told
        self.written: list[tuple[bytes, bytes | None]] = []
        self.markers: list[TransactionMetadata] = []

    def next(self) -> TransactionMetadata:
        record = self.told[len(self.written)]
        read = read_transaction(record.key or b"", record.value)
        assert read is not None
        assert read[1] is not None
        return read[1]

    def now_ms(self) -> int:
        return self.next().last_update_ms

    def monotonic_ms(self) -> int:
        return 0

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> Any:
        raise AssertionError("nothing is done later")

    def next_producer_id(self) -> int:
        return self.next().producer_id

    def ensure_loaded(self, transactional_id: str) -> None:
        pass

    def write(self, transactional_id: str, value: bytes | None) -> None:
        self.written.append((transaction_key(transactional_id), value))

    def call_when_committed(self, transactional_id: str, then: Callable[[KafkaError | None], None], /) -> None:
        then(None)

    def write_markers(
        self,
        prepared: TransactionMetadata,
        partitions: frozenset[TopicPartition],
        then: Callable[[frozenset[TopicPartition]], None],
        /,
    ) -> None:
        assert partitions == prepared.partitions
        self.markers.append(prepared)
        then(frozenset())


@for_each("folder", FOLDERS)
def test_what_kafkas_coordinator_wrote_plogs_writes_when_it_is_asked_the_same(folder: str) -> None:
    """Id by id: those of one partition were written between each other."""
    by_id: dict[bytes, list[Record]] = {}
    for record in records_of(folder):
        by_id.setdefault(record.key or b"", []).append(record)
    assert by_id
    for told in by_id.values():
        world = Retold(told)
        coordinator = TransactionCoordinator(world)
        producer = ProducerIdAndEpoch(-1, -1)
        known: frozenset[TopicPartition] = frozenset()
        while len(world.written) < len(told):
            wanted = world.next()
            name = wanted.transactional_id
            if wanted.state is TransactionState.EMPTY:
                producer = coordinator.init_producer_id(name, wanted.timeout_ms)
            elif wanted.state is TransactionState.ONGOING:
                added = wanted.partitions - known
                coordinator.add_partitions(name, producer, added, wanted.client_transaction_version)
                known = wanted.partitions
            else:
                ended = coordinator.end(
                    name,
                    producer,
                    is_commit=wanted.is_commit,
                    transaction_version=wanted.client_transaction_version,
                )
                assert isinstance(ended, ProducerIdAndEpoch)
                producer = ended
                known = frozenset()
        assert len(world.written) == len(told)
        for (key, value), record in zip(world.written, told, strict=True):
            assert key == record.key
            assert read_transaction(key, value) == read_transaction(key, record.value)
            assert value == record.value or is_of_several_topics(value or b"", record.value or b"")


@for_each("name", LOGS)
def test_the_same_batches_make_the_same_log(name: str, tmp_path: Path) -> None:
    """Records, markers, transaction indexes, snapshots; the clock is the markers'."""
    golden = case(name)
    config = LogConfig.from_values(stored_topic_values(golden.config))
    clock = ManualClock(AT_THE_TIME_MS)
    directory = tmp_path / name
    directory.mkdir()
    if (golden.directory / "partition.metadata").exists():
        shutil.copy(golden.directory / "partition.metadata", directory)
    settings = LogSettings(clock, FileSystem(), for_ever_ms)
    log = load_log(directory, TopicPartition(name, 0), config, settings, had_clean_shutdown=False).log
    for path in sorted(golden.directory.glob("*.log")):
        for batch in FileRecords(path, FileSystem().open_read).iter_batches():
            assert isinstance(batch, RecordBatch)
            copy = RecordBatch(memoryview(bytearray(batch.buffer[batch.start : batch.start + batch.size_bytes])))
            if batch.is_control:
                clock.advance(max(0, batch.max_timestamp - clock.now_ms()))
            if name in SMALL_SEGMENTS and batch.base_offset and path.name == f"{batch.base_offset:020d}.log":
                log.roll()
            log.append_as_leader(copy, batch.partition_leader_epoch, from_client=not batch.is_control)
            log.update_high_watermark(log.log_end_offset)
    log.close()
    found, expected = content(directory), content(golden.directory)
    assert {n: d for n, d in found.items() if not n.endswith("index") or n.endswith(".txnindex")} == {
        n: d for n, d in expected.items() if not n.endswith("index") or n.endswith(".txnindex")
    }


def test_a_broker_on_the_directory_says_of_each_id_what_kafka_wrote_last(tmp_path: Path) -> None:
    for folder in FOLDERS:
        shutil.copytree(GOLDEN / folder, tmp_path / "data" / folder)
    broker = open_broker(tmp_path / "data")
    last = {name: said for folder in FOLDERS for name, said in said_by_kafka(folder)}
    listed = ask(broker, LIST_TRANSACTIONS, ListTransactionsRequest())
    assert {t.transactional_id: t.producer_id for t in listed.transaction_states} == {
        name: said["producerId"] for name, said in last.items()
    }
    described = ask(broker, DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(list(last)))
    for found in described.transaction_states:
        said = last[found.transactional_id]
        assert (found.producer_epoch, found.transaction_timeout_ms, found.transaction_start_time_ms) == (
            said["producerEpoch"],
            said["transactionTimeoutMs"],
            said["transactionStartTimestampMs"],
        )
        assert found.transaction_state == TransactionState(said["transactionStatus"]).text
    assert broker.services.transaction_log.next_producer_id() > max(said["producerId"] for said in last.values())
    broker.close()
