"""Damage below the recovery point: kept, known, and in nobody's way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.files.log_config import LogConfig
from core.forensics.damage import DamagedRange
from core.log.damaged_ranges import log_damage, read_damaged_ranges
from core.log.log_loader import LoadedLog, LogSettings, load_log
from core.log.partition_log import PartitionLog
from core.log.retention import delete_old_segments
from core.records.batches import iter_whole_batches
from core.records.record import Record
from tests.support.for_each import for_each
from tests.support.logs import NOW, PARTITION, append, make_batch, open_log, read_all
from tests.support.manual_clock import ManualClock

LOG = f"{0:020d}.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ten batches of two records in one segment, each of the same size, closed."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=200)
    for number in range(10):
        append(log, make_batch(b"a%d" % number, b"b%d" % number))
    log.close()
    return tmp_path / "t-0"


def batch_size(directory: Path) -> int:
    return (directory / LOG).stat().st_size // 10


def damage(directory: Path, position: int, data: bytes) -> None:
    with (directory / LOG).open("r+b") as file:
        file.seek(position)
        file.write(data)


def load(directory: Path, *, recovery_point: int = 20, clean: bool = False) -> LoadedLog:
    loaded = load_log(
        directory,
        PARTITION,
        LogConfig(index_interval_bytes=200),
        LogSettings(ManualClock(NOW), FileSystem()),
        recovery_point=recovery_point,
        had_clean_shutdown=clean,
    )
    loaded.log.update_high_watermark(loaded.log.log_end_offset)
    return loaded


def read_around(log: PartitionLog) -> tuple[dict[int, Record], list[DamagedRange]]:
    """Every record that can be read, by reading on behind each gap, and the gaps."""
    records: dict[int, Record] = {}
    gaps = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        try:
            region = log.read(offset, 1 << 20, log.high_watermark).region
        except CorruptRecordError:
            gap = next(gap for gap in log.gaps if gap.start_offset <= offset < gap.end_offset)
            gaps.append(gap)
            offset = gap.end_offset
            continue
        assert region is not None
        data = region.read()
        batches = list(iter_whole_batches(memoryview(data)))
        assert sum(batch.size_bytes for batch in batches) == len(data)
        for batch in batches:
            batch.ensure_valid()
            records |= {r.offset: r for r in batch.records()}
        offset = batches[-1].next_offset
    return records, gaps


def test_offsets_without_bytes_are_called_missing(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(directory)
    log_damage(log.segments.active, DamagedRange(8, 10, 0, 400, 400), log.partition)
    assert f"t-0: offsets 8 to 9 are missing after position 400 of {directory}" in caplog.text
    assert "bytes 400 to 400" not in caplog.text


@pytest.mark.parametrize("where", [16, 9, 25, 70], ids=["magic", "length", "attributes", "record"])
def test_a_damaged_batch_is_a_gap(directory: Path, where: int, caplog: pytest.LogCaptureFixture) -> None:
    size = batch_size(directory)
    before = read_all(open_log(directory))
    damage(directory, 4 * size + where, b"\xfe")
    loaded = load(directory)
    assert not loaded.was_cut
    log = loaded.log
    expected = DamagedRange(8, 10, 0, 4 * size, 5 * size)
    assert log.gaps == [expected] == read_damaged_ranges(directory)
    assert "t-0: offsets 8 to 9 are damaged" in caplog.text
    assert log.log_end_offset == 20
    records, gaps = read_around(log)
    assert gaps == [expected]
    assert list(records.values()) == [r for r in before if r.offset not in (8, 9)]
    assert append(log, make_batch(b"next")).base_offset == 20
    log.close()

    caplog.clear()
    again = load(directory, clean=True).log
    assert again.gaps == [expected]
    assert "damaged" not in caplog.text, "it is known already"
    assert read_around(again)[1] == [expected]


def test_a_gap_to_the_end_leaves_the_end_where_it_was(directory: Path) -> None:
    size = batch_size(directory)
    damage(directory, 8 * size, bytes(2 * size))
    loaded = load(directory)
    assert not loaded.was_cut
    log = loaded.log
    assert log.gaps == [DamagedRange(16, 20, 0, 8 * size, 10 * size)]
    assert log.log_end_offset == 20
    assert append(log, make_batch(b"next")).base_offset == 20, "no offset is given twice"
    records, _ = read_around(log)
    assert sorted(records) == [*range(16), 20]
    log.close()
    again = load(directory, clean=True).log
    assert (again.log_end_offset, sorted(read_around(again)[0])) == (21, [*range(16), 20])


def test_damage_across_the_recovery_point(directory: Path) -> None:
    """What was safe is a gap; the log ends behind it, as nothing above was ever promised."""
    size = batch_size(directory)
    damage(directory, 4 * size + 16, b"\xfe")
    damage(directory, 5 * size + 16, b"\xfe")
    loaded = load(directory, recovery_point=10)
    assert loaded.was_cut
    assert loaded.log.gaps == [DamagedRange(8, 10, 0, 4 * size, 6 * size)]
    assert loaded.log.log_end_offset == 10
    assert (directory / f"{LOG}.cut-at-{6 * size}").stat().st_size == 4 * size
    assert append(loaded.log, make_batch(b"next")).base_offset == 10
    assert sorted(read_around(loaded.log)[0]) == [*range(8), 10]


def test_a_log_in_a_value_is_not_taken_for_the_log(tmp_path: Path) -> None:
    """A topic that somebody keeps segments in: the damaged batch holds a sound one, of fitting offsets."""
    inner = bytes(make_batch(b"not of this log", base_offset=1).buffer)
    log = open_log(tmp_path / "t-0")
    for value in (b"a", inner, b"c"):
        append(log, make_batch(value))
    first, second = [b.size_bytes for b in log.segments.first.batches(0)][:2]
    log.close()
    damage(tmp_path / "t-0", first + 30, b"\xfe")
    again = load(tmp_path / "t-0", recovery_point=3).log
    assert again.gaps == [DamagedRange(1, 2, 0, first, first + second)]
    assert sorted(read_around(again)[0]) == [0, 2]


@for_each("indexed", [True, False])
@for_each("number", [8, 9])
@for_each("bit", [1, 3, 20, 47])
def test_a_flipped_bit_in_an_offset_does_not_move_the_end_of_a_clean_log(
    tmp_path: Path, number: int, bit: int, *, indexed: bool
) -> None:
    """What is appended goes on from 20; the flipped batch, which lies after the last index entry, is damaged."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=250 if indexed else 1 << 20)
    for count in range(10):
        append(log, make_batch(b"a%d" % count, b"b%d" % count))
    log.close()
    directory = tmp_path / "t-0"
    base_offset = 2 * number
    damage(directory, batch_size(directory) * number, (base_offset ^ 1 << bit).to_bytes(8, "big"))
    log = load(directory, clean=True).log
    assert log.log_end_offset == 20
    assert [(gap.start_offset, gap.end_offset) for gap in log.gaps] == [(base_offset, base_offset + 2)]
    append(log, make_batch(b"more"))
    log.update_high_watermark(log.log_end_offset)
    records, _ = read_around(log)
    assert sorted(records) == [*range(base_offset), *range(base_offset + 2, 21)]


def test_damage_behind_the_last_timestamp_of_the_index(tmp_path: Path) -> None:
    """Appending goes on from the newest timestamp, which is looked for at the first append."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=100)
    append(log, make_batch(b"x", timestamp=NOW + 5000))
    for _ in range(9):
        append(log, make_batch(b"x"))
    size = log.segments.active.size_bytes // 10
    log.close()
    damage(tmp_path / "t-0", 3 * size + 16, b"\xfe")
    again = load(tmp_path / "t-0", recovery_point=10, clean=True).log
    assert again.gaps == [DamagedRange(3, 4, 0, 3 * size, 4 * size)]
    assert append(again, make_batch(b"next")).base_offset == 10
    assert sorted(read_around(again)[0]) == [0, 1, 2, *range(4, 11)]


def test_damage_in_front_of_the_producers_state(tmp_path: Path) -> None:
    """What lies behind the newest snapshot is read at every start."""
    log = open_log(tmp_path / "t-0")
    for number in range(6):
        append(log, make_batch(b"x", producer_id=5, producer_epoch=0, base_sequence=number))
    log.close()
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    size = (tmp_path / "t-0" / LOG).stat().st_size // 6
    damage(tmp_path / "t-0", 2 * size + 16, b"\xfe")
    again = load(tmp_path / "t-0", recovery_point=6, clean=True).log
    assert again.gaps == [DamagedRange(2, 3, 0, 2 * size, 3 * size)]
    assert append(again, make_batch(b"x", producer_id=5, producer_epoch=0, base_sequence=6)).base_offset == 6


def test_gaps_go_with_their_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=100, retention_ms=1)
    for _ in range(3):
        append(log, make_batch(b"x"))
    log.note_damage(DamagedRange(0, 1, 0, 0, log.segments.first.size_bytes))
    log.note_damage(DamagedRange(2, 3, 2, 0, log.segments.first.size_bytes))
    log.truncate_to(2)
    assert [gap.start_offset for gap in log.gaps] == [0]
    delete_old_segments(log, NOW + 10_000)
    assert log.gaps == []
    assert not (tmp_path / "t-0" / "damaged-ranges").exists()


def test_a_ledger_that_does_not_parse_is_made_again(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(directory, 4 * batch_size(directory) + 70, b"\xfe")
    (directory / "damaged-ranges").write_text("0\n1\nnonsense\n")
    assert [str(gap) for gap in load(directory).log.gaps] == ["8-9"]
    assert "damage will be noted again" in caplog.text


def test_any_damage_below_the_recovery_point_costs_only_what_it_hit(directory: Path, tmp_path: Path) -> None:
    """Each run of bytes overwritten: what lies in other batches is read as it was, what is missing is in a gap."""
    size = batch_size(directory)
    whole = (directory / LOG).read_bytes()
    before = {r.offset: r for r in read_all(open_log(directory))}
    rng = random.Random(7)
    for _ in range(150):
        start = rng.randrange(len(whole))
        junk = rng.randbytes(rng.choice((1, 3, size, 3 * size)))[: len(whole) - start]
        if rng.random() < 0.3:
            junk = bytes(len(junk))
        (directory / "damaged-ranges").unlink(missing_ok=True)
        (directory / LOG).write_bytes(whole[:start] + junk + whole[start + len(junk) :])
        hit = set()
        for at in range(start, start + len(junk)):
            if whole[at] != junk[at - start]:
                hit |= {at // size * 2, at // size * 2 + 1}
        loaded = load(directory)
        assert not loaded.was_cut
        assert loaded.log.log_end_offset == 20
        records, gaps = read_around(loaded.log)
        missing = {o for gap in gaps for o in range(gap.start_offset, gap.end_offset)}
        assert set(records) | missing == set(before)
        for offset, record in records.items():
            if offset in before and offset not in hit:
                assert record == before[offset]
        assert missing <= hit, (start, len(junk))
        # a base offset or a leader epoch is in no checksum: such a record is read, with what the bytes say
        assert set(before) - hit <= set(records)
