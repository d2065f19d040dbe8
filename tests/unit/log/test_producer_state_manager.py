from __future__ import annotations

from pathlib import Path

import pytest

from core.common.errors import KafkaError
from core.common.filesystem import FileSystem
from core.index.transaction_index import AbortedTransaction
from core.log.producer_state_manager import ProducerStateManager
from core.records.record_batch import RecordBatch, set_base_offset_and_leader_epoch
from tests.support.logs import NOW, make_batch, make_marker

DAY_MS = 86_400_000


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return ProducerStateManager(tmp_path, FileSystem(), producer_id_expiration_ms=lambda: DAY_MS)


def add(manager: ProducerStateManager, batch: RecordBatch, offset: int) -> AbortedTransaction | None:
    set_base_offset_and_leader_epoch(batch, offset, 0)
    return manager.update(batch, 0, offset * 100)


def begin(producer_id: int) -> RecordBatch:
    return make_batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


def snapshots(directory: Path) -> list[int]:
    return sorted(int(p.stem) for p in directory.glob("*.snapshot"))


def test_the_first_unstable_offset(manager: ProducerStateManager) -> None:
    assert manager.first_unstable_offset is None
    add(manager, begin(1), 0)
    add(manager, begin(2), 1)
    assert manager.first_unstable_offset == (0, 0, 0)
    add(manager, make_marker(1, is_commit=True), 2)
    assert manager.first_unstable_offset == (0, 0, 0)  # its end is not replicated yet
    manager.on_high_watermark(2)
    assert manager.first_unstable_offset == (0, 0, 0)
    manager.on_high_watermark(3)
    assert manager.first_unstable_offset == (1, 0, 100)


def test_an_abort_is_returned_with_the_last_stable_offset_after_it(manager: ProducerStateManager) -> None:
    assert [add(manager, begin(producer), producer) for producer in (1, 2, 3)] == [None] * 3
    assert add(manager, make_marker(1, is_commit=False), 4) == AbortedTransaction(1, 1, 4, 2)
    assert add(manager, make_marker(2, is_commit=True), 5) is None
    assert add(manager, make_marker(3, is_commit=False), 6) == AbortedTransaction(3, 3, 6, 7)
    assert add(manager, make_marker(3, is_commit=False), 7) is None, "nothing was written in it"


def test_what_expires(manager: ProducerStateManager) -> None:
    add(manager, make_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0), 0)
    add(manager, begin(2), 1)
    manager.remove_expired(0)
    manager.remove_expired(DAY_MS - 1)
    assert set(manager.producers) == {1, 2}
    manager.remove_expired(DAY_MS)
    assert set(manager.producers) == {2}  # an open transaction is never forgotten


def test_a_producer_that_writes_does_not_expire_whatever_its_records_say(manager: ProducerStateManager) -> None:
    for number in range(4):
        batch = make_batch(b"x", timestamp=0, producer_id=1, producer_epoch=0, base_sequence=number)
        add(manager, batch, number)
        manager.remove_expired(number * (DAY_MS - 1))
    assert set(manager.producers) == {1}
    manager.remove_expired(4 * DAY_MS)
    assert not manager.producers


def test_what_a_stop_forgets(manager: ProducerStateManager) -> None:
    """Who is a day older than the newest, though its records may be old; not whoever a clock that was set makes old."""
    for producer_id, timestamp in enumerate((NOW - DAY_MS, NOW - DAY_MS + 1, NOW), start=1):
        add(manager, make_batch(b"x", timestamp=timestamp, producer_id=producer_id, producer_epoch=0), producer_id)
    manager.take_snapshot()
    for now_ms in (NOW, NOW + DAY_MS, NOW + 1000 * DAY_MS):
        manager.load(0, 4, now_ms)
        assert set(manager.producers) == {2, 3}
    manager.load(0, 4, NOW - 1)  # the newest is ahead of the clock
    assert set(manager.producers) == {1, 2, 3}


def test_snapshots_are_loaded_newest_first_and_in_range(manager: ProducerStateManager, tmp_path: Path) -> None:
    for offset in range(3):
        add(manager, make_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=offset), offset)
        manager.take_snapshot()
    manager.take_snapshot()
    assert snapshots(tmp_path) == [1, 2, 3]
    assert manager.load(0, 2, NOW) == 2
    found = manager.find(1)
    assert found is not None
    assert found.last_sequence == 1
    (tmp_path / f"{2:020d}.snapshot").write_bytes(b"broken")
    assert manager.load(0, 2, NOW) == 1
    assert snapshots(tmp_path) == [1, 3]  # what is broken goes, what is out of range stays
    assert manager.load(2, 2, NOW) == 2
    assert manager.find(1) is None


def test_an_open_transaction_survives_the_snapshot(manager: ProducerStateManager) -> None:
    add(manager, begin(2), 0)
    add(manager, begin(1), 1)
    manager.take_snapshot()
    manager.load(0, 2, NOW + 2 * DAY_MS)
    unstable = manager.first_unstable_offset
    assert unstable is not None
    assert unstable.offset == 0
    assert manager.latest_producer_id == 2


def test_which_snapshots_are_kept(manager: ProducerStateManager, tmp_path: Path) -> None:
    for offset in range(6):
        add(manager, make_batch(b"x"), offset)
        manager.take_snapshot()
    assert snapshots(tmp_path) == [1, 2, 3, 4, 5, 6]
    manager.remove_stray_snapshots({0, 2}, 5)
    assert snapshots(tmp_path) == [2, 5]
    manager.remove_snapshots_from(5)
    assert snapshots(tmp_path) == [2]


def test_transactions_that_never_begin_are_forgotten_in_time(manager: ProducerStateManager) -> None:
    later = make_batch(b"x", producer_id=0, producer_epoch=0, base_sequence=1, is_transactional=True)
    manager.await_first(begin(0))
    manager.await_first(later)
    with pytest.raises(KafkaError, match="1, its transaction begins with 0 here"):
        manager.ensure_none_awaited(later)
    for producer_id in range(1, 1001):
        manager.await_first(begin(producer_id))
    manager.ensure_none_awaited(later)


def test_a_later_epoch_says_what_its_transaction_begins_with(manager: ProducerStateManager) -> None:
    def batch(epoch: int, sequence: int) -> RecordBatch:
        return make_batch(b"x", producer_id=1, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)

    for epoch, sequence in ((2, 7), (1, 0), (3, 9), (2, 1)):
        manager.await_first(batch(epoch, sequence))
    manager.ensure_none_awaited(batch(3, 9))
    with pytest.raises(KafkaError, match="10, its transaction begins with 9 here"):
        manager.ensure_none_awaited(batch(3, 10))
