from __future__ import annotations

import struct
from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import (
    EpochEntry,
    LeaderEpochCache,
    parse_checkpoint,
    parse_offset_checkpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from core.files.producer_snapshot import (
    ENTRY_BYTES,
    ProducerSnapshotEntry,
    format_producer_snapshot,
    iter_producer_snapshot,
    pack_producer,
)
from core.records.checksum import crc32c
from tests.support.for_each import for_each


def test_offset_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert read_offset_checkpoint(path) == {}
    offsets = {TopicPartition("a-b", 3): 1 << 40, TopicPartition("x", 0): 0}
    write_offset_checkpoint(path, offsets, FileSystem())
    assert path.read_text() == f"0\n2\na-b 3 {1 << 40}\nx 0 0\n"
    assert read_offset_checkpoint(path) == offsets


@for_each(
    "text, message",
    [
        ("", "line 1: version '', expected 0"),
        ("1\n0\n", "line 1: version '1', expected 0"),
        ("0\n", "line 2: expected the number of entries"),
        ("0\nx\n", "line 2: expected the number of entries"),
        ("0\n2\na 0 1\n", "line 2: says 2 entries, 1 follow"),
        ("0\n0\na 0 1\n", "line 2: says 0 entries, 1 follow"),
        ("0\n2\na 0 1\na 1\n", "line 4: expected 3 words"),
        ("0\n1\na b 0 1\n", "line 3: expected 3 words"),
        ("0\n1\na 0 x\n", "line 3: expected 3 words, the last two numbers"),
    ],
)
def test_what_is_no_checkpoint(text: str, message: str) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        parse_checkpoint(text, 3, "some/path")
    assert str(caught.value) == f"{caught.value.cause} in some/path"
    assert caught.value.cause.startswith(message)


def test_a_partition_that_is_no_number() -> None:
    with pytest.raises(CorruptRecordError, match="line 3: expected 3 words, the last two numbers"):
        parse_offset_checkpoint("0\n1\na one 5\n", "")


# --- producer snapshots

SNAPSHOT = [
    ProducerSnapshotEntry(0x0102030405060708, 0x1112, 0x21222324, 0x3132333435363738, 0x41424344, 0x51, 0x61, -1),
    ProducerSnapshotEntry(9, 0, -1, -1, 0, -1, -1, 77),
]


def packed() -> bytearray:
    into = bytearray(len(SNAPSHOT) * ENTRY_BYTES)
    for number, entry in enumerate(SNAPSHOT):
        pack_producer(entry, into, number * ENTRY_BYTES)
    return into


def test_the_bytes_of_a_snapshot(tmp_path: Path) -> None:
    data = format_producer_snapshot(packed())
    assert (data[:2].hex(), data[6:10].hex()) == ("0001", "00000002")
    assert data[10:56].hex() == (
        "0102030405060708111221222324313233343536373841424344000000000000005100000061" + "ff" * 8
    )
    (tmp_path / "5.snapshot").write_bytes(data)
    assert list(iter_producer_snapshot(tmp_path / "5.snapshot")) == SNAPSHOT


# --- leader epochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochCache:
    cache = LeaderEpochCache(tmp_path, FileSystem())
    for epoch, offset in ((0, 0), (2, 10), (2, 15), (5, 20)):
        cache.assign(epoch, offset)
    return cache


@pytest.mark.parametrize("epoch", [-1, -5])
def test_no_epoch_changes_nothing(epochs: LeaderEpochCache, epoch: int) -> None:
    """-1 is none; whatever else is below 0 a damaged header says, as no crc covers it."""
    before = epochs.entries
    epochs.assign(epoch, 30)
    assert (epochs.entries, epochs.latest_epoch) == (before, 5)


@pytest.mark.parametrize(("text", "missing", "damaged"), [("0\n1\n", False, True), ("", True, False)])
def test_a_file_of_epochs_that_is_broken_or_that_kafka_never_wrote(
    tmp_path: Path, text: str, *, missing: bool, damaged: bool
) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text(text)
    cache = LeaderEpochCache(tmp_path, FileSystem())
    assert (cache.entries, cache.was_missing, cache.was_damaged) == ([], missing, damaged)


def test_the_epoch_of_an_offset(epochs: LeaderEpochCache, tmp_path: Path) -> None:
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 10\n5 20\n"
    assert LeaderEpochCache(tmp_path, FileSystem()).entries == epochs.entries
    assert [epochs.epoch_of(o) for o in (0, 9, 10, 19, 20, 99)] == [0, 0, 2, 2, 5, 5]
    assert epochs.latest_epoch == 5


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 20)), (4, (2, 20)), (5, (5, 33)), (6, (-1, -1))],
)
def test_the_end_offset_of_an_epoch(epochs: LeaderEpochCache, epoch: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_of(epoch, 33) == answer


def test_cutting_epochs(epochs: LeaderEpochCache, tmp_path: Path) -> None:
    epochs.truncate_from_end(20)
    assert epochs.entries == [EpochEntry(0, 0), EpochEntry(2, 10)]
    epochs.truncate_from_start(4)
    assert epochs.entries == [EpochEntry(0, 4), EpochEntry(2, 10)]
    epochs.truncate_from_start(12)
    assert epochs.entries == [EpochEntry(2, 12)]
    assert LeaderEpochCache(tmp_path, FileSystem()).entries == [EpochEntry(2, 12)]
    epochs.make_again([EpochEntry(3, 12), EpochEntry(3, 14), EpochEntry(5, 15)])
    assert epochs.entries == LeaderEpochCache(tmp_path, FileSystem()).entries == [EpochEntry(3, 12), EpochEntry(5, 15)]
    epochs.make_again([])
    assert epochs.latest_epoch == -1


def test_an_epoch_written_again_at_a_lower_offset_replaces_what_follows(epochs: LeaderEpochCache) -> None:
    epochs.assign(6, 12)
    assert epochs.entries == [EpochEntry(0, 0), EpochEntry(2, 10), EpochEntry(6, 12)]


def test_a_file_that_is_cut_or_has_a_flipped_bit_is_no_snapshot(tmp_path: Path) -> None:
    path, data = tmp_path / "5.snapshot", format_producer_snapshot(packed())
    for position in range(len(data)):
        for broken in (data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], data[:position]):
            path.write_bytes(broken)
            with pytest.raises(CorruptRecordError):
                next(iter_producer_snapshot(path))


@pytest.mark.parametrize("count", [-1, 1, 3])
def test_a_snapshot_of_another_number_of_producers_than_it_says_is_none(tmp_path: Path, count: int) -> None:
    """Its checksum is right, as if it had been written so."""
    said = struct.pack(">i", count) + format_producer_snapshot(packed())[10:]
    data = struct.pack(">hI", 1, crc32c(said)) + said
    (tmp_path / "5.snapshot").write_bytes(data)
    with pytest.raises(CorruptRecordError, match=f"says it holds {count} producers"):
        next(iter_producer_snapshot(tmp_path / "5.snapshot"))
