"""What is packed while batches come is what a snapshot of all producers at once would hold."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from core.common.filesystem import FileSystem
from core.files.producer_snapshot import ProducerSnapshotEntry, iter_producer_snapshot, pack_producer
from core.log import producer_state_manager
from core.log.producer_state import BatchMetadata, ProducerState
from core.log.producer_state_manager import PackedProducers, ProducerStateManager
from tests.support.for_each import for_each
from tests.support.logs import make_batch


@for_each("seed", range(20))
def test_random_changes(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(producer_state_manager, "_MOST_CHANGED", random.choice([1, 3, 1000]))
    packed = PackedProducers()
    states: dict[int, ProducerState] = {}
    expected: dict[int, tuple[int, int, int, int | None]] = {}
    for step in range(300):
        producer_id = random.randrange(12)
        if random.random() < 0.2 and producer_id in states:
            packed.remove(states.pop(producer_id))
            del expected[producer_id]
        else:
            state = states.setdefault(producer_id, ProducerState(producer_id))
            first = random.choice([None, step])
            state.producer_epoch, state.last_timestamp, state.current_txn_first_offset = step % 7, step, first
            state.batches.append(BatchMetadata(step, step + 1, 2, step))
            packed.note_change(state)
            expected[producer_id] = step % 7, step, step, first
        packed.check_invariants()
        if random.random() < 0.1:
            path = tmp_path / "5.snapshot"
            path.write_bytes(packed.snapshot())
            found = list(iter_producer_snapshot(path))
            assert {entry.producer_id: entry for entry in found} == {
                known: ProducerSnapshotEntry(known, epoch, last, last + 1, 2, at, -1, -1 if first is None else first)
                for known, (epoch, last, at, first) in expected.items()
            }
            assert len(found) == len(expected)


def test_a_roll_packs_no_more_than_those_who_changed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state_manager, "_MOST_CHANGED", 10)
    manager = ProducerStateManager(tmp_path, FileSystem(), producer_id_expiration_ms=lambda: 1000)
    for number in range(95):
        batch = make_batch(b"v", producer_id=number, producer_epoch=0, base_sequence=0)
        manager.update(batch, 0, 0)
    packed: list[int] = []

    def count(entry: ProducerSnapshotEntry, into: bytearray, position: int) -> None:
        packed.append(entry.producer_id)
        pack_producer(entry, into, position)

    monkeypatch.setattr(producer_state_manager, "pack_producer", count)
    manager.take_snapshot()
    assert packed == list(range(90, 95))
    (path,) = tmp_path.glob("*.snapshot")
    assert [entry.producer_id for entry in iter_producer_snapshot(path)] == list(range(95))
