"""Transactions read from files are those that the engine, opened on the same directory, tells its clients of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from core.client.net.kafka_client import KafkaClient
from core.client.write.transaction_admin import OpenTransaction, TransactionAdmin
from core.common.topic_partition import TopicPartition
from core.log.partition_log import PartitionLog
from core.pipeline.session import Session
from core.view.groups.known_transactions import KnownTransactions, ServerTransactions, TransactionListing
from tests.support.coordinated import golden_directory, inspected, write_values
from tests.support.golden import SAMPLE_DATA
from tests.support.logs import NOW, append, append_marker, fingerprint, make_batch, open_log


def _look(transactions: KnownTransactions) -> TransactionListing:
    return list(transactions.steps())[-1]


def _append(log: PartitionLog, producer_id: int, sequence: int = 0, epoch: int = 0, at: int = NOW) -> None:
    """Two records of that producer's transaction."""
    fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    append(log, make_batch(b"x", b"y", timestamp=at, is_transactional=True, **fields))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka's open transaction, which its coordinator knows, and on `t` some that nobody knows: producer 7 began first,
    producer 8 has ended one before, and its segment was rolled since; producer 9 has none open.
    """
    directory = golden_directory(tmp_path_factory.mktemp("transactions") / "data")
    log = open_log(directory / "t-0")
    _append(log, 8)
    append_marker(log, 8, is_commit=True)
    _append(log, 7)
    log.roll()
    _append(log, 8, 2, at=NOW + 5)
    _append(log, 9)
    append_marker(log, 9, is_commit=False)
    _append(log, 7, 2, at=NOW + 9)
    log.close()
    write_values(directory, "t-1", b"a")
    return directory


@pytest.fixture(scope="module")
def client(directory: Path) -> Iterator[KafkaClient]:
    with Session(directory=directory).open_client(is_read_only=True) as client:
        yield client


def test_what_is_open_is_what_the_engine_says(directory: Path, client: KafkaClient) -> None:
    listing = _look(KnownTransactions(inspected(directory)))
    assert listing.open_transactions == TransactionAdmin(client).open_transactions()
    assert [(str(one.partition), one.producer_id, one.start_offset) for one in listing.open_transactions] == [
        ("t-0", 7, 3),
        ("t-0", 8, 5),
        ("txn_open-0", 65, 5),
    ]
    assert (listing.problems, listing.is_whole) == ([], True)


def test_who_hangs_and_who_holds_readers(directory: Path) -> None:
    found = {one.producer_id: one for one in _look(KnownTransactions(inspected(directory))).open_transactions}
    assert {producer_id: one.is_hanging for producer_id, one in found.items()} == {7: True, 8: True, 65: False}
    assert {producer_id: one.pins_last_stable_offset for producer_id, one in found.items()} == {
        7: True,
        8: False,
        65: True,
    }
    assert (found[7].since_ms, found[7].last_timestamp) == (NOW, NOW + 10)
    assert found[65].since_ms == found[65].known.started_ms  # type: ignore[union-attr]


def test_a_server_is_asked_the_same(directory: Path, client: KafkaClient) -> None:
    source = ServerTransactions(client)
    list(source.look())
    asked, read = source.listing(1, 1), _look(KnownTransactions(inspected(directory)))
    assert asked.open_transactions == read.open_transactions
    for one, other in zip(asked.ids, read.ids, strict=True):
        assert one == other or one.found.state.startswith("Complete"), "only those that are not over are asked about"
        assert asdict(one.found).items() <= asdict(other.found).items()


def test_what_is_appended_is_taken_up(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    _append(log, 1)
    transactions = KnownTransactions(inspected(tmp_path))

    def found() -> list[tuple[int, int, int]]:
        return [(o.producer_id, o.start_offset, o.last_stable_offset) for o in _look(transactions).open_transactions]

    assert found() == [(1, 0, 0)]
    _append(log, 2)
    assert found() == [(1, 0, 0), (2, 2, 0)]
    append_marker(log, 1, is_commit=True)
    assert found() == [(2, 2, 2)]
    append_marker(log, 2, is_commit=False)
    assert found() == []
    log.roll()
    _append(log, 2, 2, at=NOW + 50)
    _append(log, 3)
    assert found() == [(2, 6, 6), (3, 8, 6)]
    assert _look(transactions).open_transactions[0].first_timestamp == NOW + 50
    log.truncate_to(7)
    _append(log, 4)
    assert found() == [(4, 6, 6)], "the batch of offset 6 was cut off"
    log.close()


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "t-0")
    _append(log, 1)
    transactions = KnownTransactions(inspected(tmp_path))
    _look(transactions)
    monkeypatch.setattr("core.view.groups.known_transactions.find_open_transactions", None)
    _append(log, 1, 2, at=NOW + 7)
    _append(log, 2)
    log.close()
    found = _look(transactions).open_transactions
    assert [(one.producer_id, one.start_offset, one.last_timestamp - NOW) for one in found] == [(1, 0, 8), (2, 4, 1)]


def test_without_snapshots_the_log_itself_is_read(directory: Path, client: KafkaClient, tmp_path: Path) -> None:
    copy = tmp_path / "t-0"
    shutil.copytree(directory / "t-0", copy)
    for path in copy.glob("*.snapshot"):
        path.unlink()
    found = _look(KnownTransactions(inspected(tmp_path)))
    expected = TransactionAdmin(client).open_transactions(["t"])
    assert found.open_transactions == expected
    assert found.problems == [f"{tmp_path} has no __transaction_state: no transactional id is known"]


def test_a_damaged_snapshot_or_batch_does_not_hide_the_others(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "data")
    log = next((tmp_path / "data" / "t-0").glob("*0.log"))
    data = bytearray(log.read_bytes())
    data[80] ^= 1  # of producer 8's first transaction
    log.write_bytes(data)
    (tmp_path / "data" / "__transaction_state-1" / "00000000000000000000.log").write_bytes(b"nonsense" * 20)
    listing = _look(KnownTransactions(inspected(tmp_path / "data")))
    found = {(str(one.partition), one.producer_id) for one in listing.open_transactions}
    assert found == {("t-0", 7), ("t-0", 8), ("txn_open-0", 65)}
    assert len(listing.ids) < len(_look(KnownTransactions(inspected(directory))).ids)
    assert any(problem.startswith("__transaction_state-1: ") for problem in listing.problems)


def test_a_folder_that_goes_away_is_told_of_no_more(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory / "t-0", tmp_path / "t-0")
    shutil.copytree(directory / "t-0", tmp_path / "u-0")
    transactions = KnownTransactions(inspected(tmp_path))
    assert {one.partition.topic for one in _look(transactions).open_transactions} == {"t", "u"}
    shutil.rmtree(tmp_path / "u-0")
    assert {one.partition.topic for one in _look(transactions).open_transactions} == {"t"}


def test_the_sample_of_an_open_transaction() -> None:
    sample = SAMPLE_DATA / "open-transaction"
    before = fingerprint(sample)
    (found,) = _look(KnownTransactions(inspected(sample))).open_transactions
    assert isinstance(found, OpenTransaction)
    assert (found.partition, found.start_offset) == (TopicPartition("txn_open", 0), 5)
    assert found.known is not None
    assert (found.known.transactional_id, found.is_hanging) == ("txopen-1", False)
    assert fingerprint(sample) == before
