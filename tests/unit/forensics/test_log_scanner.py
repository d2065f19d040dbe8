"""A partition's log read along: batches and holes in order, and where it ends, each with what proves it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import UNKNOWN_RECOVERY_POINT
from core.files.directory_lock import DirectoryLock
from core.files.file_names import CLEANER_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from core.forensics.missing_offsets import Hole, HoleReason
from core.forensics.partition_reader import PartitionReader
from tests.support import crafted
from tests.support.damage import Place, places
from tests.support.for_each import for_each
from tests.support.logs import append, make_batch, open_log

BATCHES = 12
SEGMENT_BYTES = 700


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Twelve batches of two records, in several segments; stopped cleanly."""
    log = open_log(tmp_path / "t-0", segment_bytes=SEGMENT_BYTES, index_interval_bytes=100)
    for number in range(BATCHES):
        append(log, make_batch(b"a%d" % number, b"b" * 50))
    log.close()
    return tmp_path / "t-0"


@pytest.fixture
def reader(directory: Path) -> Iterator[PartitionReader]:
    reader = PartitionReader(directory)
    yield reader
    reader.close()


def patch(place: Place, at: int, data: bytes) -> None:
    with place.path.open("r+b") as file:
        file.seek(place.position + at)
        file.write(data)


def items(directory: Path, start_offset: int = 0) -> list[tuple[int, int, str]]:
    """(first offset, end, "" or why there is none)."""
    reader = PartitionReader(directory)
    try:
        return [
            (item.start, item.end, item.reason.value)
            if isinstance(item, Hole)
            else (item.base_offset, item.next_offset, "")
            for item in reader.reading.items(start_offset)
        ]
    finally:
        reader.close()


def holes(directory: Path) -> list[tuple[int, int, str]]:
    return [item for item in items(directory) if item[2]]


def test_a_sound_log_is_read_along_and_never_at_once(reader: PartitionReader) -> None:
    offsets = [item.base_offset for item in reader.reading.items(5) if not isinstance(item, Hole)]
    assert offsets == list(range(4, 2 * BATCHES, 2))
    assert "map" not in reader.reading.__dict__
    assert (reader.end_offset, reader.reading.tail) == (2 * BATCHES, None)


def test_a_hole_without_proof_is_unknown_and_with_the_cleaners_checkpoint_compacted(directory: Path) -> None:
    broken = places(directory)[3]
    data = broken.path.read_bytes()
    broken.path.write_bytes(data[: broken.position] + data[broken.end :])
    broken.path.with_suffix(".index").unlink()
    assert holes(directory) == [(broken.offset, broken.end_offset, "unknown")]
    (directory.parent / CLEANER_CHECKPOINT).write_text(f"0\n1\nt 0 {broken.end_offset}\n")
    assert holes(directory) == [(broken.offset, broken.end_offset, "compacted")]


def test_a_recovery_point_that_a_broker_did_not_know_proves_nothing(directory: Path) -> None:
    """As it is noted for a folder that came from elsewhere."""
    checkpoint = directory.parent / RECOVERY_POINT_CHECKPOINT
    for offset, end_offset in ((UNKNOWN_RECOVERY_POINT, 24), (30, 30)):
        checkpoint.write_text(f"0\n1\nt 0 {offset}\n")
        with contextlib.closing(PartitionReader(directory)) as reader:
            assert reader.end_offset == end_offset


def test_a_log_that_somebody_writes_is_never_called_damaged_at_its_end(directory: Path) -> None:
    last = places(directory)[-1]
    with last.path.open("ab") as file:
        file.write(b"garbage that is no batch, and may become one")
    lock = DirectoryLock(directory.parent)
    lock.acquire()
    try:
        reader = PartitionReader(directory)
        assert (reader.end_offset, reader.reading.tail) == (last.end_offset, None)
        assert len(list(reader.read(0, reader.end_offset))) == BATCHES
        reader.close()
    finally:
        lock.release()
    reader = PartitionReader(directory)
    assert reader.reading.tail is not None
    reader.close()


def test_a_log_that_grew_since_it_was_opened_is_not_called_damaged(directory: Path) -> None:
    last = places(directory)[-1]
    reader = PartitionReader(directory)
    with last.path.open("ab") as file:
        file.write(b"the beginning of a batch")
    assert reader.reading.is_live
    assert len(list(reader.read(0, reader.end_offset))) == BATCHES
    assert reader.reading.tail is None
    reader.close()


def test_reasons_are_the_same_along_and_at_once(directory: Path) -> None:
    patch(places(directory)[4], 70, b"\xff\xff\xff")
    reader = PartitionReader(directory)
    along = [hole.reason for hole in reader.reading.items(0) if isinstance(hole, Hole)]
    assert along == [hole.reason for hole in reader.reading.map.holes] == [HoleReason.DAMAGED]
    assert reader.reading.map.file_of(0) == 0
    reader.close()


@for_each("offsets, stated", [([2, 3], 7), ([2, 3], 2), ([1, 3], 3), ([0, 1], 2)])
def test_an_old_message_whose_offset_and_those_inside_contradict_each_other_is_damage(
    tmp_path: Path, offsets: list[int], stated: int
) -> None:
    """Or whose offsets inside go back. Headers that rise do not show it, and the last file is sound."""
    records = [(b"a", b"1"), (b"b", b"1")]
    old, end = crafted.wrapper([0, 1], records, 0), max(stated, offsets[-1]) + 1
    segments = {0: old + crafted.wrapper(offsets, records, 0, offset=stated), end: crafted.batch(end, records)}
    found = items(crafted.write_partition(tmp_path / "t-0", segments))
    assert found == [(0, 2, ""), (2, end, "damaged"), (end, end + 2, "")]


def test_a_log_ends_with_the_damaged_batches_of_a_last_file_that_has_no_others(tmp_path: Path) -> None:
    """Also if what comes before that file is missing, too."""
    first, last = (crafted.batch(at, [(b"a", b"1"), (b"b", b"1")]) for at in (0, 5))
    folder = crafted.write_partition(tmp_path / "t-0", {0: first, 5: last[:-1] + b"?"})
    assert items(folder) == [(0, 2, ""), (2, 5, "unknown"), (5, 7, "damaged")]


def test_an_empty_last_file_is_the_end_of_no_log_whose_files_changed_names(tmp_path: Path) -> None:
    """The last batch goes beyond its name, but not in the file before it."""
    of = {start: crafted.batch(start, [(b"k", b"v")] * count) for start, count in ((0, 5), (5, 4), (9, 3))}
    directory = crafted.write_partition(tmp_path / "t-0", {0: of[5] + of[9], 5: of[0], 11: b""})
    with contextlib.closing(PartitionReader(directory)) as reader:
        assert reader.reading.end_offset == 12
    assert items(directory) == [(0, 5, ""), (5, 9, ""), (9, 12, "")]


def test_the_partition_may_be_named_by_a_link(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "u-3"
    link.symlink_to(directory)
    (tmp_path / "elsewhere" / HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nu 3 99\n")
    reader = PartitionReader(link)
    assert reader.end_offset == 99
    assert str(TopicPartition("u", 3)) == link.name
    reader.close()
