from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest

from core.common.errors import CorruptRecordError
from core.common.task import finish
from core.common.topic_partition import TopicPartition
from core.compaction import cleaner_reader
from core.compaction.cleaned_segment import CleanedSegment
from core.compaction.cleaner import Cleaner, _Cleaning
from core.compaction.log_to_clean import find_cleanable_part, log_to_clean
from core.inspector.check.findings import Code
from core.inspector.check.verify import verify
from core.inspector.stats.offline_compaction import CompactionOptions, OfflineCompaction
from core.log.partition_log import PartitionLog
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support import crafted
from tests.support.compaction import RandomWriter, compact, log_files
from tests.support.for_each import for_each
from tests.support.golden import case
from tests.support.logs import NOW, append, append_marker, fingerprint, iter_batches, make_batch, open_log

Wanted = list[tuple[int, bytes | None, bytes | None]]


def add(log: PartitionLog, *records: tuple[bytes | None, bytes | None], timestamp: int = NOW, **fields: object) -> None:
    batch = batch_of([Record(0, timestamp + n, key, value) for n, (key, value) in enumerate(records)], **fields)
    append(log, RecordBatch(memoryview(bytearray(batch))))


def clean(log: PartitionLog, checkpoint: int | None = None, now_ms: int = NOW, **options: int) -> PartitionLog:
    """The log, cleaned and opened again."""
    compact(log, checkpoint, now_ms, **options)
    log.close()
    return open_log(
        log.directory, **{name: getattr(log.config, name) for name in ("segment_bytes", "delete_retention_ms")}
    )


def batches(log: PartitionLog) -> list[Batch]:
    return [batch for segment in log.segments for batch in segment.batches(0)]


def content(log: PartitionLog) -> Wanted:
    return [(r.offset, r.key, r.value) for batch in batches(log) for r in batch.records()]


@for_each("compression", list(CompressionType))
def test_a_batch_that_keeps_all_is_copied_and_another_keeps_its_offsets(
    tmp_path: Path, compression: CompressionType
) -> None:
    log = open_log(tmp_path / "t-0")
    add(log, (b"a", b"1"), (b"b", b"1"), compression=compression)
    add(log, (b"a", b"2"), (b"c", b"2"), compression=compression, timestamp=NOW + 9)
    before = [bytes(b.buffer[b.start : b.start + b.size_bytes]) for b in batches(log)]
    log.roll()
    log = clean(log)
    first, second = batches(log)
    assert bytes(second.buffer[second.start : second.start + second.size_bytes]) == before[1]
    assert isinstance(first, RecordBatch)
    assert (first.base_offset, first.last_offset, first.count) == (0, 1, 1)
    assert first.base_timestamp == NOW + 1
    assert first.compression is compression
    assert content(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"2")]


def test_a_tombstone_goes_when_its_time_has_come(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", delete_retention_ms=1000)
    add(log, (b"a", b"1"))
    add(log, (b"a", None), timestamp=NOW + 5)
    add(log, (b"b", b"1"))
    log.roll()
    log = clean(log)
    tombstone = batches(log)[0]
    assert tombstone.delete_horizon_ms == NOW + 1000
    assert tombstone.records() == [Record(1, NOW + 5, b"a", None)]
    log = clean(log, 0, NOW + 999)
    assert content(log) == [(1, b"a", None), (2, b"b", b"1")]
    assert content(clean(log, 0, NOW + 1000)) == [(2, b"b", b"1")]


def test_the_last_batch_of_a_producer_stays_without_records(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(3):
        add(log, (b"a", b"%d" % number), producer_id=7, producer_epoch=2, base_sequence=number)
    add(log, (b"a", b"x"))
    log.roll()
    log = clean(log)
    found = [(b.base_offset, b.count, b.base_sequence) for b in batches(log) if isinstance(b, RecordBatch)]
    assert found == [(2, 0, 2), (3, 1, -1)]
    add(log, (b"a", b"y"), producer_id=7, producer_epoch=2, base_sequence=3)


@pytest.mark.parametrize("is_one_by_one", [False, True])
def test_a_producers_only_batch_stays_at_offset_0_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_one_by_one: bool
) -> None:
    if is_one_by_one:
        monkeypatch.setattr(cleaner_reader, "_plain_headers", lambda *_: None)
    log = open_log(tmp_path / "t-0")
    add(log, (b"a", b"0"), producer_id=7, producer_epoch=2, base_sequence=0)
    add(log, (b"a", b"x"))
    log.roll()
    log = clean(log)
    found = [(b.base_offset, b.count, b.base_sequence) for b in batches(log) if isinstance(b, RecordBatch)]
    assert found == [(0, 0, 0), (1, 1, -1)]


@pytest.mark.parametrize("is_one_by_one", [False, True])
def test_a_rounds_last_batch_stays_so_that_the_end_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_one_by_one: bool
) -> None:
    if is_one_by_one:
        monkeypatch.setattr(cleaner_reader, "_plain_headers", lambda *_: None)
    log = open_log(tmp_path / "t-0")
    add(log, (b"a", b"1"))
    add(log, (None, b"x"))
    log.roll()
    log = clean(log)
    assert [(b.base_offset, b.count) for b in batches(log) if isinstance(b, RecordBatch)] == [(0, 1), (1, 0)]


def test_log_append_time_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime", delete_retention_ms=1000)
    add(log, (b"a", b"1"), (b"b", None), (b"a", b"2"), timestamp=5)
    log.roll()
    log = clean(log)
    assert [r.timestamp for b in batches(log) for r in b.records()] == [NOW, NOW]
    (batch,) = batches(log)
    assert batch.is_log_append_time
    assert batch.delete_horizon_ms == NOW + 1000


def test_aborted_records_go_at_once_and_their_marker_with_its_horizon(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", delete_retention_ms=1000)
    add(log, (b"a", b"1"))
    add(log, (b"a", b"never"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 7, is_commit=False)
    add(log, (b"b", b"1"), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 8, is_commit=True)
    log.producers.producers.pop(7)  # expired
    log.producers.producers.pop(8)
    log.roll()
    log = clean(log)
    assert [(b.base_offset, b.is_control) for b in batches(log)] == [(0, False), (2, True), (3, False), (4, True)]
    assert len(log.segments.first.transaction_index.entries()) == 1
    log.producers.producers.clear()
    log = clean(log, 0)
    assert [b.delete_horizon_ms for b in batches(log)] == [None, NOW + 1000, None, None]
    assert not log.segments.first.transaction_index.entries()
    log.producers.producers.clear()
    log = clean(log, 0, NOW + 999)
    assert [b.base_offset for b in batches(log)] == [0, 2, 3, 4]
    log.producers.producers.clear()
    log = clean(log, 0, NOW + 1000)
    assert [b.base_offset for b in batches(log)] == [0, 3, 4]


def test_a_cleaned_segments_time_index_ends_with_its_newest_record(tmp_path: Path) -> None:
    """As that of a segment that was rolled: nobody reads the segment to know how old it is."""
    log = open_log(tmp_path / "t-0")
    add(log, (b"a", b"1"), (b"a", b"2"))
    add(log, (b"b", b"1"), timestamp=NOW + 70)
    log.roll()
    log = clean(log)
    assert struct.unpack(">qi", (tmp_path / "t-0" / f"{0:020d}.timeindex").read_bytes()) == (NOW + 70, 2)


def test_what_goes_is_counted_by_its_reason(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    add(log, (b"a", b"1"), (b"a", b"2"))
    add(log, (b"b", b"never"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    append_marker(log, 7, is_commit=False)
    log.roll()
    _, cleaner = compact(log, None, NOW)
    assert (cleaner.stats.superseded, cleaner.stats.aborted) == (1, 1)


def test_keys_that_do_not_fit_are_cleaned_in_rounds(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(40):
        add(log, (b"k%d" % (number % 20), b"%d" % number))
    log.roll()
    checkpoint, rounds = None, 0
    while checkpoint != 40:
        before = checkpoint or 0
        checkpoint, _ = compact(log, checkpoint, NOW, dedupe_buffer_bytes=8 * 32)
        assert checkpoint > before
        rounds += 1
        log.close()
        log = open_log(log.directory)
    assert rounds == 6  # of 7 keys each, 0.9 of the slots
    assert content(log) == [(20 + n, b"k%d" % n, b"%d" % (20 + n)) for n in range(20)]


def test_a_record_without_a_key_counts_in_the_round_that_drops_it(tmp_path: Path) -> None:
    """It lies in a batch whose keys do not fit in one round, after them."""
    log = open_log(tmp_path / "t-0")
    add(log, *((b"k%d" % number, b"") for number in range(20)), (None, b"nobody's"))
    log.roll()
    checkpoint, counts = None, []
    while checkpoint != 21:
        checkpoint, cleaner = compact(log, checkpoint, NOW, dedupe_buffer_bytes=8 * 32)
        counts.append(cleaner.stats.without_key)
        log.close()
        log = open_log(log.directory)
    assert len(counts) > 2
    assert (counts[-1], sum(counts)) == (1, 1)


def test_small_segments_are_put_together(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=400)
    for number in range(20):
        add(log, (b"k%d" % number, b"x"))
    log.roll()
    assert len(log.segments) == 5
    log = open_log(tmp_path / "t-0", segment_bytes=900)
    log = clean(log)
    assert [s.base_offset for s in log.segments] == [0, 10, 20]
    assert [r[0] for r in content(log)] == list(range(20))


def clean_nothing(log: PartitionLog) -> tuple[list[CleanedSegment], Cleaner]:
    """What would be cleaned, without a file system to write to."""
    cleaner = Cleaner(filesystem=None)
    return list(cleaner.clean(log_to_clean(log, find_cleanable_part(log, None, NOW)), NOW)), cleaner


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20], ids=["small segments that are read together", "one segment"])
@pytest.mark.parametrize(
    ("position", "data", "said"),
    [(65, b"\xff", "crc mismatch"), (0, (3).to_bytes(8), "offset 3 where")],
    ids=["a corrupt batch", "an offset, which is in no checksum"],
)
def test_damage_is_named_by_its_own_file_and_nothing_changes(
    tmp_path: Path, segment_bytes: int, position: int, data: bytes, said: str
) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=segment_bytes)
    for number in range(20):
        add(log, (b"k%d" % number, b"1"))
    log.roll()
    segments = list(log.segments)
    damaged = segments[4] if segment_bytes == 200 else segments[0]
    start = 0 if segment_bytes == 200 else list(damaged.batches(0))[9].position
    with damaged.records.path.open("r+b") as file:
        file.seek(start + position)
        file.write(data)
    before = log_files(log.directory)
    with pytest.raises(CorruptRecordError, match=said) as caught:
        clean_nothing(log)
    assert (caught.value.path, caught.value.position) == (str(damaged.records.path), start)
    assert log_files(log.directory) == before


@for_each("offsets, stated", [([2, 3], 7), ([2, 3], 2), ([1, 3], 3)])
def test_an_old_message_whose_offset_and_those_inside_contradict_each_other_is_not_cleaned(
    tmp_path: Path, offsets: list[int], stated: int
) -> None:
    """Or whose offsets inside go back. The damage comes after the start, which would have set it aside."""
    records = [(b"a", b"1"), (b"b", b"1")]
    start, end = crafted.wrapper([0, 1], records, 0), {4: crafted.batch(4, [(b"z", b"3")])}
    log = open_log(crafted.write_partition(tmp_path / "t-0", {0: start + crafted.wrapper([2, 3], records, 0)} | end))
    crafted.write_partition(tmp_path / "t-0", {0: start + crafted.wrapper(offsets, records, 0, offset=stated)} | end)
    with pytest.raises(CorruptRecordError, match="the batch before it ends at 2") as caught:
        clean_nothing(log)
    assert caught.value.position == len(start)


@pytest.mark.parametrize("read_bytes", [100, 5000, 12000])
def test_small_segments_read_together_or_alone_are_cleaned_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    """With tombstones and records without a key, and a map that fills in the midst of them."""
    log = open_log(tmp_path / "one" / "t-0", segment_bytes=2000)
    writer = RandomWriter(log, Random(read_bytes), NOW, codecs=[CompressionType.NONE], with_transactions=False, keys=40)
    writer.write(200)
    log.roll()
    log.flush()
    other = open_log(shutil.copytree(log.directory, tmp_path / "other" / "t-0"), segment_bytes=2000)
    for buffer_bytes in (20 * 32, 1 << 20):
        end, cleaner = compact(log, None, NOW, dedupe_buffer_bytes=buffer_bytes)
        with monkeypatch.context() as patched:
            patched.setattr(cleaner_reader, "READ_BYTES", read_bytes)
            other_end, other_cleaner = compact(other, None, NOW, dedupe_buffer_bytes=buffer_bytes)
        assert end == other_end
        stats, other_stats = (replace(one.stats, map_bytes=0, map_records=0) for one in (cleaner, other_cleaner))
        assert stats == other_stats
        assert log_files(log.directory) == log_files(other.directory)
        log, other = (open_log(one.directory, segment_bytes=2000) for one in (log, other))


def test_without_a_filesystem_nothing_is_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(5):
        add(log, (b"a", b"1"), (None, b"2"))
    log.roll()
    log.flush()
    before = fingerprint(log.directory)
    stats = clean_nothing(log)[1].stats
    assert fingerprint(log.directory) == before
    assert (stats.records_before, stats.records_after, stats.superseded, stats.without_key) == (10, 1, 4, 5)


def test_a_segment_that_stays_as_it_is_is_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=200)
    for number in range(6):
        add(log, (b"k%d" % min(number, 4), b"x"))
    log.roll()
    assert [segment.replaced for segment in clean_nothing(log)[0]] == [(4,)]


@for_each(
    "name",
    [
        "v0_lz4_java",
        "v1_multisegment",
        "grouped",
        "txn_multisegment",
        "compacted_txn",
        "compacted_zstd",
        "v1_gzip_compacted",
    ],
)
def test_what_kafka_wrote_is_cleaned_as_a_replay_says(tmp_path: Path, name: str) -> None:
    shutil.copytree(case(name).directory, tmp_path / "t-0")
    log = open_log(tmp_path / "t-0")
    log.roll()
    latest = {r.key: (r.offset, r.value) for r in case(name).committed_records() if r.key is not None}
    log = clean(log)
    left = {r.key: (r.offset, r.value) for b in batches(log) if not b.is_control for r in b.records()}
    assert left == latest
    assert sum(b.count for b in batches(log) if isinstance(b, RecordBatch) and not b.is_control) in (0, len(latest))


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.longer) for seed in (0, 4, 5))])
def test_batches_all_at_once_and_one_by_one_leave_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Of plain and idempotent producers, in three rounds, the second with a map that fills."""
    log = open_log(tmp_path / "many" / "t-0", segment_bytes=30_000, delete_retention_ms=50)
    writer = RandomWriter(
        log, Random(seed), NOW, codecs=[CompressionType.NONE], keys=(5, 60, 3000)[seed % 3], with_transactions=False
    )
    checkpoint: int | None = None
    taken = 0
    copy_dirty = _Cleaning._copy_dirty

    def count(self: _Cleaning, headers: BatchHeaders, out: CleanedSegment) -> bool:
        nonlocal taken
        taken += len(headers) > 40
        return copy_dirty(self, headers, out)

    monkeypatch.setattr(_Cleaning, "_copy_dirty", count)
    for turn, buffer_bytes in enumerate((1 << 20, 30 * 32, 1 << 20)):
        writer.write(300)
        log.roll()
        log.flush()
        other = shutil.copytree(log.directory, tmp_path / f"one-{turn}" / "t-0")
        options = {"now_ms": NOW + 100 * turn, "dedupe_buffer_bytes": buffer_bytes}
        with monkeypatch.context() as patched:
            patched.setattr(cleaner_reader, "_plain_headers", lambda *_: None)
            slow = open_log(other, segment_bytes=30_000, delete_retention_ms=50)
            slow_end, slow_cleaner = compact(slow, checkpoint, **options)
            slow.close()
        checkpoint, cleaner = compact(log, checkpoint, **options)
        log.close()
        assert log_files(log.directory) == log_files(other)
        assert (checkpoint, cleaner.stats) == (slow_end, slow_cleaner.stats)
        log = open_log(log.directory, segment_bytes=30_000, delete_retention_ms=50)
        writer.continue_on(log)
    assert taken > 3


def test_indexes_of_a_cleaned_segment_find_what_is_there(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", index_interval_bytes=100)
    for number in range(200):
        append(log, make_batch(b"x" * 50, key=b"k%d" % (number % 90), timestamp=NOW + number))
    log.roll()
    log = clean(log)
    segment = log.segments.first
    assert len(segment.offset_index) > 10
    assert len(segment.time_index) > 10
    for offset in range(200):
        found = segment.translate_offset(offset)
        assert found is not None
        assert next(iter(segment.batches(found[0]))).last_offset == max(offset, 110)
    at = finish(log.find_offset_by_timestamp(NOW + 150))
    assert at is not None
    assert at.offset == 150
    data = log_files(log.directory)["00000000000000000000.log"]
    assert len(list(iter_batches(memoryview(data)))) == 90


OLD = [(0, None), (1, None), (0, crafted.GZIP), (1, crafted.SNAPPY), (1, crafted.LZ4)]


@for_each("old, place", product(OLD, range(3)))
def test_messages_of_old_magics_are_cleaned_wherever_they_stand(
    tmp_path: Path, old: tuple[int, int | None], place: int
) -> None:
    """A short message may end before a header of magic 2 would. Of each key the last record stays."""
    magic, codec = old
    batches: list[bytes] = []
    for number in range(3):
        pair, offsets = [(b"a", b"%d" % number), (b"%d" % number, None)], [2 * number, 2 * number + 1]
        if number != place:
            batches.append(crafted.batch(offsets[0], pair))
        elif codec is None:
            batches += [crafted.message(o, *record, magic) for o, record in zip(offsets, pair, strict=True)]
        else:
            batches.append(crafted.wrapper(offsets, pair, magic, codec=codec))
    last = crafted.batch(6, [(b"z", b"9")])
    crafted.write_partition(tmp_path / "t-0", {0: b"".join(batches), 6: last})
    log = clean(open_log(tmp_path / "t-0"))
    assert content(log) == [(1, b"0", None), (3, b"1", None), (4, b"a", b"2"), (5, b"2", None), (6, b"z", b"9")]


@for_each("magic", [0, 1])
def test_an_index_names_the_last_record_that_stays_of_an_old_message(tmp_path: Path, magic: int) -> None:
    """Of each compressed message but the last one the first record stays, and the message ends with it now."""
    messages = [crafted.wrapper([o, o + 1], [(b"%d" % o, b"1"), (b"z", b"2")], magic) for o in range(0, 20, 2)]
    crafted.write_partition(tmp_path / "t-0", {0: b"".join(messages), 20: crafted.batch(20, [(b"z", b"3")])})
    log = clean(open_log(tmp_path / "t-0", index_interval_bytes=100))
    assert [offset for offset, _, _ in content(log)] == [*range(0, 20, 2), 19, 20]
    assert len(log.segments.first.offset_index) > 3
    assert {one.code for one in verify(tmp_path / "t-0")} == {Code.OFFSETS_MISSING}, "no checkpoint is there"


def test_a_segment_of_the_same_size_has_changed(tmp_path: Path) -> None:
    """A tombstone's horizon takes as many bytes as the record that went."""
    crafted.write_partition(
        tmp_path / "t-0",
        {
            0: crafted.batch(0, [(b"a", None), (b"c", b"1"), (b"d", b"11")]) + crafted.batch(3, [(b"d", b"2")]),
            10: crafted.batch(10, [(b"z", b"3")]),
        },
    )
    before = (tmp_path / "t-0" / f"{0:020}.log").read_bytes()
    compaction = OfflineCompaction(tmp_path / "t-0", CompactionOptions({"cleanup.policy": "compact"}))
    plan = compaction.apply(TopicPartition("t", 0))
    assert plan.stats is not None
    assert (plan.stats.superseded, plan.stats.bytes_before) == (1, plan.stats.bytes_after)
    after = (tmp_path / "t-0" / f"{0:020}.log").read_bytes()
    assert after != before
    assert content(open_log(tmp_path / "t-0"))[:2] == [(0, b"a", None), (1, b"c", b"1")]


@for_each("is_clean", [False, True])
def test_a_batch_that_does_not_decode_is_named_and_nothing_is_mended(tmp_path: Path, *, is_clean: bool) -> None:
    """Also below what an earlier cleaning has done."""
    crafted.write_partition(
        tmp_path / "t-0",
        {
            0: crafted.batch(0, [(b"a", b"1")]) + crafted.batch(1, [(b"b", b"1")], codec=crafted.GZIP),
            2: crafted.batch(2, [(b"a", b"2")]),
            10: crafted.batch(10, [(b"z", b"3")]),
        },
    )
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    if is_clean:
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    compaction = OfflineCompaction(tmp_path / "t-0", CompactionOptions(settings))
    for ask in (compaction.plan, compaction.apply):
        refusal = ask(TopicPartition("t", 0)).refusal or ""
        assert "the records of offset 1 do not decode: gzip data does not begin" in refusal
        assert "its checksum is right, so there is nothing to mend" in refusal
        assert "plog recover" not in refusal


def test_what_was_done_before_a_batch_that_does_not_decode_is_told_with_it(tmp_path: Path) -> None:
    segments = {offset: crafted.batch(offset, [(b"%d" % offset, b"1")]) for offset in range(30)}
    segments[30] = crafted.batch(30, [(b"b", b"1")], codec=crafted.GZIP)
    crafted.write_partition(tmp_path / "t-0", segments | {31: crafted.batch(31, [(b"z", b"2")])})
    options = CompactionOptions({"cleanup.policy": "compact"}, dedupe_buffer_bytes=300)
    plan = OfflineCompaction(tmp_path / "t-0", options).apply(TopicPartition("t", 0))
    assert plan.stats is not None
    assert 0 < plan.end_offset <= 30
    assert "the records of offset 30 do not decode" in (plan.refusal or "")


def test_no_snapshot_stays_where_a_cleaning_has_left_no_segment(tmp_path: Path) -> None:
    """A broker that stopped left one there; plog verify would take it for the trace of a lost segment."""
    segments = {0: [(b"a", b"1"), (b"b", b"1")], 10: [(b"a", b"2")], 20: [(b"z", b"3")]}
    folder = crafted.write_partition(tmp_path / "t-0", {at: crafted.batch(at, rs) for at, rs in segments.items()})
    for offset in (10, 15, 20):
        (folder / f"{offset:020}.snapshot").write_bytes(b"\0\1\x7e\xb5\xfe\x8c\0\0\0\0")  # of no producer
    plan = OfflineCompaction(folder, CompactionOptions({"cleanup.policy": "compact"})).apply(TopicPartition("t", 0))
    assert plan.stats is not None
    assert [int(path.stem) for path in sorted(folder.glob("*.snapshot"))] == [20]
