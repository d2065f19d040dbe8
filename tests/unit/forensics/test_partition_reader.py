"""A folder read from outside, in every state that a stop, a crash or damage leaves it in."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from core.common import fd_limits
from core.common.errors import AccessError, CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.compaction.cleaner import Cleaner
from core.compaction.log_to_clean import find_cleanable_part, log_to_clean
from core.files.checkpoint_file import read_offset_checkpoint, write_offset_checkpoint
from core.files.directory_lock import DirectoryLock
from core.forensics import log_scanner, read_committed
from core.forensics.missing_offsets import Hole
from core.forensics.partition_reader import DirectoryReader, PartitionReader
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, settle_swap
from core.records.record_batch import HEADER_SIZE
from tests.support.compaction import compact
from tests.support.for_each import for_each
from tests.support.given_log_start import GivenLogStart
from tests.support.golden import GOLDEN, GoldenCase, golden_cases
from tests.support.logs import NOW, append, append_marker, make_batch, make_marker, open_log

FIRST = "00000000000000000000"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "t-0"


@pytest.fixture
def log(directory: Path) -> PartitionLog:
    """Ten batches of a record each, an index entry for most."""
    log = open_log(directory, index_interval_bytes=1)
    for number in range(10):
        append(log, make_batch(b"value %d" % number))
    return log


def values(reader: PartitionReader, start: int = 0, *, read_committed: bool = True) -> list[bytes]:
    batches = reader.read(start, reader.end_offset, read_committed=read_committed)
    return [r.value or b"" for batch in batches for r in batch.records() if r.offset >= start]


def expected(start: int, end: int = 10) -> list[bytes]:
    return [b"value %d" % number for number in range(start, end)]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


READABLE = [c for c in golden_cases() if not c.name.startswith("c_")]


@pytest.mark.parametrize("damage", ["none", "no indexes", "bad indexes"])
def test_kafkas_folders(damage: str, tmp_path: Path) -> None:
    """Without what can be made again, and with it broken: the records are the same."""
    for case in READABLE:
        ensure_readable(case, damage, tmp_path / case.name / "t-0")


def ensure_readable(case: GoldenCase, damage: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    for path in case.directory.iterdir():
        is_derived = path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
        if not is_derived or damage == "none" or (damage == "no indexes" and path.suffix == ".txnindex"):
            (folder / path.name).write_bytes(path.read_bytes())
        elif damage == "bad indexes":
            (folder / path.name).write_bytes(b"\x7f" * (path.stat().st_size or 8))
    log_starts = read_offset_checkpoint(GOLDEN / "_root" / "log-start-offset-checkpoint")
    start = log_starts.get(TopicPartition(case.name, 0), 0)
    reader = PartitionReader(folder, evidence=GivenLogStart(folder, start))
    for is_committed, records in ((False, case.records()), (True, case.committed_records())):
        batches = reader.read(start, reader.end_offset, read_committed=is_committed)
        found = [r for batch in batches for r in batch.records() if r.offset >= start]
        assert [r.offset for r in found] == [r.offset for r in records], case.name
        assert all(r.has_value(f.value) for r, f in zip(records, found, strict=True)), case.name
    reader.close()


TRANSACTIONAL = [case for case in READABLE if "txn" in case.name]


@pytest.mark.parametrize("most_bytes", [0, 300, 1000])
def test_a_marker_further_ahead_than_what_is_kept(most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of what is read on the way to a marker is kept, the transactions end as they do."""
    monkeypatch.setattr(read_committed, "_MOST_WAITING_BYTES", most_bytes)
    for case in TRANSACTIONAL:
        with contextlib.closing(PartitionReader(case.directory)) as reader:
            batches = reader.read(reader.start_offset, reader.end_offset, read_committed=True)
            found = [r.offset for batch in batches for r in batch.records()]
        assert found == [r.offset for r in case.committed_records()], case.name


def test_what_is_appended_is_seen_after_a_refresh(log: PartitionLog, directory: Path) -> None:
    reader = PartitionReader(directory)
    append(log, make_batch(b"value 10"))
    assert values(reader) == expected(0)
    reader.refresh()
    assert (values(reader), reader.reading.tail) == (expected(0, 11), None)


def test_a_batch_that_is_being_written_is_not_the_end_of_the_world(log: PartitionLog, directory: Path) -> None:
    path = directory / f"{FIRST}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    reader = PartitionReader(directory)
    assert values(reader) == expected(0, 9)
    assert reader.reading.tail is not None
    assert str(path) in str(reader.reading.tail)
    path.write_bytes(whole)
    reader.refresh()
    assert (values(reader), reader.reading.tail) == (expected(0), None)


@pytest.mark.parametrize("is_astray", [False, True])
def test_from_any_offset_on_though_an_index_entry_points_astray(
    log: PartitionLog, directory: Path, *, is_astray: bool
) -> None:
    log.close()
    if is_astray:
        flip(directory / f"{FIRST}.index", 7)
    reader = PartitionReader(directory)
    assert [values(reader, start) for start in range(11)] == [expected(start) for start in range(11)]


def test_an_empty_folder(directory: Path) -> None:
    directory.mkdir(parents=True)
    reader = PartitionReader(directory, evidence=GivenLogStart(directory, 7))
    assert (reader.start_offset, reader.end_offset, values(reader)) == (7, 7, [])


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="could not read"):
        PartitionReader(tmp_path / "none-0")
    with pytest.raises(AccessError) as caught:
        DirectoryReader(tmp_path / "none")
    assert caught.value.hint is not None


# --- a data directory


def test_the_partitions_of_a_directory(log: PartitionLog, directory: Path) -> None:
    root = directory.parent
    for name in ("a-b-1", "a-b-0", "__cluster_metadata-0", "t-0.0123456789abcdef0123456789abcdef-delete", "lost+found"):
        (root / name).mkdir()
        (root / name / "leader-epoch-checkpoint").touch()
    for name in (".Trash-1000", "backup-2024", "empty-0"):
        (root / name).mkdir()
        if name != "empty-0":
            (root / name / "notes.txt").touch()
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\ngone 0 7\n")
    (root / "gone-0").mkdir()  # its files are lost: a checkpoint knows it
    reader = DirectoryReader(root)
    assert reader.topics == {"a-b": [0, 1], "gone": [0], "t": [0]}
    assert values(reader.open(TopicPartition("t", 0))) == expected(0)
    with pytest.raises(AccessError, match="no partition t-1"):
        reader.open(TopicPartition("t", 1))


def test_a_single_partitions_folder(log: PartitionLog, directory: Path) -> None:
    reader = DirectoryReader(directory)
    assert reader.topics == {"t": [0]}
    assert values(reader.open(TopicPartition("t", 0))) == expected(0)


def test_kafkas_folder_of_any_name() -> None:
    reader = DirectoryReader(GOLDEN / "nulls")
    assert reader.topics == {"nulls": [0]}


@contextmanager
def locked_as_by_kafka(root: Path) -> Iterator[None]:
    """Another process holds a POSIX lock of `.lock`, which is empty."""
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.communicate()


def test_the_checkpoints_of_a_directory(log: PartitionLog, directory: Path) -> None:
    root = directory.parent
    partition = TopicPartition("t", 0)
    write_offset_checkpoint(root / "log-start-offset-checkpoint", {partition: 3}, FileSystem())
    write_offset_checkpoint(root / "replication-offset-checkpoint", {partition: 8}, FileSystem())
    opened = DirectoryReader(root).open(partition)
    assert (opened.start_offset, opened.end_offset) == (3, 10), "nobody writes: all that is there was committed"
    lock = DirectoryLock(root)
    lock.acquire(0)
    try:
        opened = DirectoryReader(root).open(partition)
        assert opened.end_offset == 10, "what plog appends is committed at once"
    finally:
        lock.release()
    with locked_as_by_kafka(root):
        opened = DirectoryReader(root).open(partition)
        assert (opened.start_offset, opened.end_offset) == (3, 8), "beside Kafka its high watermark holds"
        write_offset_checkpoint(root / "replication-offset-checkpoint", {partition: 9}, FileSystem())
        opened.refresh()
        assert opened.end_offset == 9
    opened.refresh()
    assert opened.end_offset == 10
    (root / "log-start-offset-checkpoint").write_text("nonsense")
    assert DirectoryReader(root).open(partition).start_offset == 0


# --- while segments take the places of others


def test_at_every_step_of_a_swap_the_log_is_the_old_one_or_the_new(tmp_path: Path) -> None:
    """As the broker's cleaner goes: `.cleaned`, `.swap`, the old ones away, the new one in their place."""
    log = open_log(tmp_path / "t-0", segment_bytes=1000)
    for number in range(40):
        append(log, make_batch(b"%d" % number, key=b"k%d" % (number % 30)))
    log.roll()
    log.flush()

    def read() -> list[int]:
        reader = PartitionReader(tmp_path / "t-0")
        found = [r.offset for batch in reader.read(0, reader.end_offset) for r in batch.records()]
        reader.close()
        return found

    old, new = list(range(40)), list(range(10, 40))
    log.configure(replace(log.config, segment_bytes=1 << 20))
    cleaner = Cleaner(filesystem=FileSystem(), leaves_unchanged=False)
    (cleaned,) = cleaner.clean(log_to_clean(log, find_cleanable_part(log, None, NOW)), NOW)
    assert read() == old
    begin_swap(log.directory, [cleaned.base_offset], FileSystem())
    assert read() == new
    during: list[list[int]] = []

    class Watched(FileSystem):
        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            during.append(read())

        def link(self, old: Path, new: Path) -> None:
            super().link(old, new)
            during.append(read())

    log._filesystem = Watched()
    log.replace_segments(cleaned.base_offset, cleaned.replaced)
    assert len(during) > len(cleaned.replaced) > 3
    assert all(found == new for found in during)
    settle_swap(log.directory, cleaned.base_offset, FileSystem())
    assert read() == new


def test_a_reader_goes_on_with_what_it_opened(tmp_path: Path) -> None:
    """Aborted transactions too, though the index that names them is another's by then."""
    log = open_log(tmp_path / "t-0", segment_bytes=1000, index_interval_bytes=100)
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    append(log, make_batch(b"aborted", key=b"a", base_sequence=0, **fields))
    append_marker(log, 1, is_commit=False)
    for number in range(40):
        append(log, make_batch(b"%d" % number, key=b"k%d" % (number % 30)))
    log.roll()
    log.flush()
    reader = PartitionReader(tmp_path / "t-0")
    compact(log, None, NOW)
    for path in log.directory.glob("*.txnindex"):
        path.unlink()
    for start in (0, 5, 20):
        found = [r.offset for batch in reader.read(start, 42) for r in batch.records()]
        assert [offset for offset in found if offset >= start] == list(range(max(start, 2), 42))
    reader.close()


def test_a_damaged_batch_that_claims_the_end_is_no_open_transaction(directory: Path) -> None:
    """Its wrong last offset makes it the batch that the newest snapshot is followed by; nothing was read, nor said."""
    log = open_log(directory)
    append(log, make_batch(b"lost" * 100, producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True))
    log.roll()
    append_marker(log, 4, is_commit=True)
    log.close()
    for path in directory.glob(f"{1:020}.*"):
        path.unlink()
    path = directory / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[25] ^= 0x78  # of the last offset's delta
    path.write_bytes(data)
    reader = PartitionReader(directory)
    with pytest.raises(CorruptRecordError, match=r"crc mismatch|crc-mismatch"):
        values(reader)
    reader.close()


@for_each("seed", range(30), first=15)
def test_only_what_was_committed_is_given_however_much_is_read_together(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history says what was committed. A marker may be read with its records, or long after them."""
    directory = tmp_path / "t-0"
    random = Random(seed)
    log = open_log(
        directory, segment_bytes=random.choice((600, 100_000)), index_interval_bytes=random.choice((1, 4096))
    )
    open_: dict[int, list[int]] = {}
    committed: list[int] = []
    sequences = dict.fromkeys(range(3), 0)
    for _ in range(random.randint(10, 80)):
        producer = random.randrange(4)
        offset = log.log_end_offset
        if producer == 3:
            append(log, make_batch(b"x"))
            committed.append(offset)
        elif producer in open_ and random.random() < 0.5:
            is_commit = random.random() < 0.6
            append_marker(log, producer, is_commit=is_commit)
            committed += open_.pop(producer) if is_commit else open_.pop(producer)[:0]
        else:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            append(log, make_batch(b"x" * random.choice((1, 200)), is_transactional=True, **fields))
            sequences[producer] += 1
            open_.setdefault(producer, []).append(offset)
    stable = min([offset for offsets in open_.values() for offset in offsets] + [log.log_end_offset])
    log.close()
    monkeypatch.setattr(log_scanner, "_READ_BYTES", random.choice((1, 300, 2000, 1 << 18)))
    monkeypatch.setattr(read_committed, "_MOST_WAITING_BYTES", random.choice((0, 300, 1000, 1 << 20)))
    for start in range(stable + 1):
        reader = PartitionReader(directory)
        batches = reader.read(start, reader.end_offset)
        assert [batch.base_offset for batch in batches] == [o for o in sorted(committed) if start <= o < stable]
        reader.close()


def test_a_marker_that_a_cleaner_seems_to_have_taken_makes_no_record_committed(directory: Path) -> None:
    """The producer's next epoch begins after the hole: its earlier transaction, which was aborted, had ended there."""
    log = open_log(directory)
    ends = [0]
    for batch in (
        make_batch(b"aborted", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        make_marker(7, is_commit=False),
        make_batch(b"committed", producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True),
        make_marker(7, is_commit=True, producer_epoch=1),
    ):
        log.append_as_leader(batch, 0, from_client=False)
        ends.append(log.segments.first.size_bytes)
    log.close()
    file = directory / f"{FIRST}.log"
    data = file.read_bytes()
    shutil.rmtree(directory)
    directory.mkdir()
    file.write_bytes(data[: ends[1]] + data[ends[2] :])
    write_offset_checkpoint(directory.parent / "cleaner-offset-checkpoint", {TopicPartition("t", 0): 4}, FileSystem())
    reader = PartitionReader(directory)
    with pytest.raises(CorruptRecordError):
        values(reader)
    assert values(reader, 1) == [b"committed"]
    assert values(reader, read_committed=False) == [b"aborted", b"committed"]


def test_a_search_by_time_passes_over_a_batch_that_overlaps_the_one_before(directory: Path) -> None:
    """No checksum covers its base offset, and no reader gets its records."""
    log = open_log(directory)
    for timestamp in (1000, 2000, 3000):
        append(log, make_batch(b"a", b"b", timestamp=timestamp))
    log.close()
    path = directory / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    last = len(data) // 3 * 2
    data[last : last + 8] = struct.pack(">q", 3)  # it was 4
    path.write_bytes(data)
    with contextlib.closing(PartitionReader(directory)) as reader:
        assert reader.find_offset_by_timestamp(2000) == 2
        assert reader.find_offset_by_timestamp(3000) is None


@pytest.fixture
def three_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers have three files of segments open at once."""
    monkeypatch.setattr(log_scanner, "_ALWAYS_ALLOWED", 3)
    monkeypatch.setattr(log_scanner, "_opened", log_scanner._OpenedRecords())
    monkeypatch.setattr(fd_limits, "share", lambda: fd_limits.Shares(3, 3))


@pytest.mark.usefixtures("three_files")
@pytest.mark.parametrize("is_damaged", [False, True])
def test_more_segments_than_descriptors(directory: Path, *, is_damaged: bool) -> None:
    log = open_log(directory, segment_bytes=80)
    for number in range(20):
        append(log, make_batch(b"value %d" % number, timestamp=NOW + number))
    log.close()
    if is_damaged:
        flip(directory / f"{10:020d}.log", HEADER_SIZE)
    with contextlib.closing(PartitionReader(directory)) as reader:
        holes: list[Hole] = []
        found = [batch.base_offset for batch in reader.read(0, 20, on_hole=holes.append)]
        assert found == [number for number in range(20) if number != 10 or not is_damaged]
        assert [(hole.start, hole.end) for hole in holes] == [(10, 11)] * is_damaged
        assert [reader.find_offset_by_timestamp(NOW + number) for number in (17, 2)] == [17, 2]
        assert len(reader.segments) == 20
        assert sum(one.records.find_open() is not None for one in reader.segments) == 3


@pytest.mark.usefixtures("three_files")
def test_a_file_that_was_replaced_before_it_was_opened_again(log: PartitionLog, directory: Path) -> None:
    for _ in range(3):
        log.roll()
        append(log, make_batch(b"more"))
    path, copy = directory / f"{FIRST}.log", directory / "copy"
    reader = PartitionReader(directory)
    path.rename(copy)
    shutil.copy(copy, path)
    with pytest.raises(OSError, match="replaced while it was read"):
        values(reader)
    copy.rename(path)
    assert values(reader) == expected(0) + [b"more"] * 3
