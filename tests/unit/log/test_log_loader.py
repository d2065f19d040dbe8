from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.common.task import finish
from core.files.checkpoint_file import EpochEntry
from core.files.log_config import LogConfig
from core.forensics.damage import DamagedRange
from core.index.offset_index import OffsetPosition
from core.index.transaction_index import AbortedTransaction
from core.inspector.check.findings import Code
from core.inspector.check.verify import verify
from core.log.log_loader import LoadedLog, LogSettings, load_log
from core.log.partition_log import PartitionLog
from core.records.batches import iter_whole_batches
from core.records.record import encode_records
from core.records.record_batch_builder import build_batch
from tests.support.damage import places
from tests.support.for_each import for_each
from tests.support.golden import case
from tests.support.logs import NOW, PARTITION, append, append_marker, make_batch, open_log, read_all
from tests.support.manual_clock import ManualClock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Five segments of two batches of two records; producer 3 wrote them, and one transaction was aborted."""
    log = open_log(tmp_path / "t-0", segment_bytes=360, index_interval_bytes=0)
    for number in range(9):
        batch = make_batch(b"%d" % number, b"x" * 60, producer_id=3, producer_epoch=0, base_sequence=2 * number)
        append(log, batch, leader_epoch=number // 4)
    append(log, make_batch(b"t", producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 4, is_commit=False)
    assert [s.base_offset for s in log.segments] == [0, 4, 8, 12, 16]
    assert log.log_end_offset == 20
    assert log.segments.active.transaction_index.entries() == [AbortedTransaction(4, 18, 19, 20)]
    log.close()
    return tmp_path / "t-0"


EPOCHS = [EpochEntry(0, 0), EpochEntry(1, 8), EpochEntry(2, 16)]


def load(directory: Path, **options: int) -> LoadedLog:
    config, settings = LogConfig(segment_bytes=360, index_interval_bytes=0), LogSettings(ManualClock(NOW), FileSystem())
    return load_log(directory, PARTITION, config, settings, high_watermark=1 << 40, **options)


def open_unclean(directory: Path, recovery_point: int = 0) -> tuple[PartitionLog, bool]:
    loaded = load(directory, had_clean_shutdown=False, recovery_point=recovery_point)
    return loaded.log, loaded.was_cut


def last_segment(directory: Path) -> Path:
    return sorted(directory.glob("*.log"))[-1]


def test_recovery_from_the_recovery_point_leaves_the_rest_unread(directory: Path) -> None:
    damaged = directory / "00000000000000000000.log"
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    log, was_cut = open_unclean(directory, recovery_point=16)
    assert not was_cut
    assert log.log_end_offset == 20
    assert damaged.read_bytes() == data


def tear(data: bytes) -> bytes:
    return data[:-5]


def flip(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def zeros(data: bytes) -> bytes:
    return data + bytes(5000)


def garbage(data: bytes) -> bytes:
    return data + bytes(range(200))


@pytest.mark.parametrize(
    ("damage", "end"),
    [(tear, 19), (flip, 19), (zeros, 20), (garbage, 20)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_first_bad_batch_ends_the_log_and_its_bytes_are_kept(
    directory: Path, damage: Callable[[bytes], bytes], end: int
) -> None:
    """Under this name only: a backup of hard links stays as it is."""
    path, backup = last_segment(directory), directory.parent / "backup.log"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    backup.hardlink_to(path)
    log, was_cut = open_unclean(directory)
    assert was_cut
    assert log.log_end_offset == end
    assert [r.offset for r in read_all(log)] == list(range(end))
    (aside,) = directory.glob("*.cut-at-*")
    position = int(aside.name.rpartition("-")[2])
    assert aside.name == f"{path.name}.cut-at-{position}"
    assert path.read_bytes() + aside.read_bytes() == damaged
    assert path.stat().st_size == position
    again, was_cut = open_unclean(directory)
    assert (again.log_end_offset, was_cut) == (end, False)
    assert append(log, make_batch(b"new"), leader_epoch=5).base_offset == end
    assert backup.read_bytes() == damaged


def test_a_wrong_length_that_leads_into_a_sound_batch_costs_its_own_batch_only(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", index_interval_bytes=1 << 20)
    for number in range(10):
        append(log, make_batch(b"%d" % number * 40, producer_id=3, producer_epoch=0, base_sequence=number))
    log.close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    broken, other = places(tmp_path / "t-0")[3], places(tmp_path / "t-0")[5]
    with broken.path.open("r+b") as file:
        file.seek(broken.position + 8)
        file.write((other.position + 30 - broken.position - 12).to_bytes(4, "big"))
    segment = open_log(tmp_path / "t-0", recovery_point=10).segments.active
    segment.gaps = []
    gap = segment.find_gap(other.position + 30, segment.reading(OffsetPosition(10, segment.size_bytes)))
    assert gap[:2] == (3, 4)


def test_damage_in_an_early_segment_puts_the_later_ones_aside(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = directory / "00000000000000000004.log"
    contents = {p.name: p.read_bytes() for p in directory.glob("*.log")}
    path.write_bytes(flip(path.read_bytes()))
    log, was_cut = open_unclean(directory)
    assert was_cut
    assert log.log_end_offset == 6
    assert f"t-0: damage: {path}" in caplog.text
    for offset in (8, 12, 16):
        name = f"{offset:020d}.log"
        assert (directory / f"{name}.cut-at-0").read_bytes() == contents[name]
        assert not (directory / name).exists()
    assert log.leader_epochs.entries == [EpochEntry(0, 0)]
    result = append(log, make_batch(b"3", b"x" * 60, producer_id=3, producer_epoch=0, base_sequence=6))
    assert (result.base_offset, result.is_duplicate) == (6, False)
    assert open_log(directory).log_end_offset == 8


@for_each(
    "epochs",
    [
        [EpochEntry(0, 0), EpochEntry(7, 8)],
        [EpochEntry(0, 0), EpochEntry(7, 8), EpochEntry(9, 20)],
        [EpochEntry(0, 0), EpochEntry(7, 12), EpochEntry(9, 14)],
        [EpochEntry(0, 0), EpochEntry(7, 30)],
    ],
)
def test_epochs_after_a_truncation_that_a_power_cut_took_back_are_those_of_the_batches(
    directory: Path, epochs: list[EpochEntry]
) -> None:
    """The log was cut below offset 14 and went on in later epochs, as the file says; the disk has it as it was before.
    Otherwise the broker would say of its records that they are of those epochs, and keep them beside others of the
    leader's.
    """
    lines = [f"{one.epoch} {one.start_offset}" for one in epochs]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(epochs)), *lines, ""]))
    log, _ = open_unclean(directory, recovery_point=8)
    assert log.leader_epochs.entries == EPOCHS


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("content", [None, b"", b"\xff" * 24, bytes(7), (99).to_bytes(4) + (5).to_bytes(4)])
def test_an_index_that_cannot_be_is_made_again(directory: Path, suffix: str, content: bytes | None) -> None:
    path = directory / f"00000000000000000004.{suffix}"
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log = open_log(directory, index_interval_bytes=0)
    assert [r.offset for r in read_all(log)] == list(range(20))
    found = finish(log.find_offset_by_timestamp(NOW))
    assert found is not None
    if content != b"" and not (suffix == "timeindex" and content == (99).to_bytes(4) + (5).to_bytes(4)):
        assert path.read_bytes() == before


def test_a_log_that_ends_below_a_snapshot_is_told_of(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / f"{25:020}.snapshot").write_bytes(b"")
    log = open_log(directory)
    assert log.log_end_offset == 20
    assert "the log ends at offset 20; offsets 20 to 24 were in it before and are lost" in caplog.text


def test_what_is_wrong_beside_the_log_is_made_again_from_it(directory: Path) -> None:
    stray = directory / "00000000000000000900.index"
    stray.write_bytes(bytes(8))
    (directory / "leader-epoch-checkpoint").write_text("0\n9\n1 1\n")
    newest = max(directory.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1])
    log = open_log(directory)
    assert not stray.exists()
    assert log.leader_epochs.entries == EPOCHS
    assert append(log, make_batch(b"8", b"x" * 60, producer_id=3, producer_epoch=0, base_sequence=16)).is_duplicate


# --- what compaction leaves


def test_a_swap_that_was_cut_short_is_finished(directory: Path) -> None:
    """A cleaner that had renamed its result to .swap before it was stopped."""
    merged = b"".join((directory / f"{offset:020d}.log").read_bytes() for offset in (0, 4))
    (directory / "00000000000000000000.log.swap").write_bytes(merged)
    (directory / "00000000000000000000.index.swap").write_bytes(b"")
    (directory / "00000000000000000000.timeindex.swap").write_bytes(b"")
    log = open_log(directory, index_interval_bytes=0)
    assert [s.base_offset for s in log.segments] == [0, 8, 12, 16]
    assert [r.offset for r in read_all(log)] == list(range(20))
    assert not list(directory.glob("*.swap"))


def test_cleaned_files_say_that_the_swap_had_not_begun(directory: Path) -> None:
    shutil.copy(directory / "00000000000000000000.log", directory / "00000000000000000000.log.cleaned")
    (directory / "00000000000000000004.log.swap").write_bytes(b"half")
    (directory / "00000000000000000004.log.deleted").write_bytes(b"")
    log = open_log(directory)
    assert [r.offset for r in read_all(log)] == list(range(20))
    assert not [p for p in directory.iterdir() if p.suffix in (".swap", ".cleaned", ".deleted")]


def test_a_log_that_a_compaction_made_and_somebody_took_is_not_called_deleted(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for suffix in ("log", "index"):
        path = directory / f"{4:020d}.{suffix}"
        shutil.copy(path, path.with_name(f"{path.name}.deleted"))
    (directory / f"{4:020d}.log").unlink()
    open_log(directory).close()
    assert "t-0: segment 4 is missing, an index of it is here" in caplog.text


def test_a_crash_after_a_deletion_of_records_is_nothing_to_report(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The batches below the start are still there; they say no more than the checkpoints where the log begins."""
    for start in range(1, 20):
        before = load(directory, log_start_offset=start - 1, had_clean_shutdown=False).log
        before.increment_log_start_offset(start)
        again = load(directory, log_start_offset=start, had_clean_shutdown=False).log
        assert again.leader_epochs.entries == before.leader_epochs.entries
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_segment_that_is_cut_at_its_first_batch_keeps_no_index_entry(directory: Path, suffix: str) -> None:
    path = directory / f"{8:020d}.log"
    path.write_bytes(b"\xff" * 40 + path.read_bytes()[40:])
    assert (directory / f"{8:020d}.{suffix}").stat().st_size > 0
    log, was_cut = open_unclean(directory)
    assert (was_cut, log.log_end_offset, log.segments.active.base_offset) == (True, 8, 8)
    assert (directory / f"{8:020d}.{suffix}").read_bytes() == b""
    append(log, make_batch(b"new", timestamp=NOW + 9))
    found = finish(log.find_offset_by_timestamp(NOW + 5))
    assert found is not None and found.offset == 8


# --- starts


def test_a_log_start_after_everything_begins_again_and_keeps_aside_what_was_there(directory: Path) -> None:
    """No checksum covers the checkpoint that says where logs begin: one wrong digit must not cost what is sound."""
    logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    log = load(directory, log_start_offset=50).log
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log, make_batch(b"a")).base_offset == 50
    suffix = ".cut-at-0"
    assert {p.name.removesuffix(suffix): p.read_bytes() for p in directory.glob(f"*.log{suffix}")} == logs


def test_damage_that_hides_what_was_safe_stays_as_it_is(directory: Path) -> None:
    path = directory / "00000000000000000016.log"
    data = bytearray(path.read_bytes())
    data[16] = 9  # the magic of the first batch: where the next one begins must be looked for
    path.write_bytes(data)
    log, was_cut = open_unclean(directory, recovery_point=18)
    assert not was_cut
    assert [str(gap) for gap in log.gaps] == ["16-17"]
    assert path.read_bytes() == data


@pytest.mark.parametrize("flipped", [4, 7], ids=["down", "up"])
def test_a_start_forgets_no_damage_whose_checksum_is_right(directory: Path, flipped: int) -> None:
    """The base offset is in no checksum. An earlier start found it wrong; a clean one does not look for that."""
    path = directory / "00000000000000000004.log"
    data = bytearray(path.read_bytes())
    (position,) = (one.position for one in places(directory) if one.offset == 6)  # and 7
    data[position + 7] = flipped
    path.write_bytes(data)
    log, _ = open_unclean(directory, recovery_point=20)
    log.note_damage(DamagedRange(6, 8, 4, position, len(data)))
    log.close()
    assert [str(gap) for gap in open_log(directory).gaps] == ["6-7"]
    data[position + 7] = 6
    path.write_bytes(data)
    mended = open_log(directory)
    assert not mended.gaps
    assert not (directory / "damaged-ranges").exists()
    assert [record.offset for record in read_all(mended)] == list(range(20))


# --- holes between segments


def test_a_segment_that_a_power_cut_took_ends_the_log(directory: Path) -> None:
    (directory / "00000000000000000008.log").unlink()
    log, was_cut = open_unclean(directory)
    assert was_cut
    assert log.log_end_offset == 8


def test_a_hole_that_the_cleaner_left_is_kept_whatever_the_policy_is_now(directory: Path) -> None:
    """A batch that lacks a record shows who was there."""
    (directory / "00000000000000000008.log").unlink()
    first = directory / "00000000000000000000.log"
    whole, *others = iter_whole_batches(memoryview(first.read_bytes()))
    section = encode_records(whole.records()[1:], 0, NOW)
    thinned = build_batch(section, count=1, base_timestamp=NOW, max_timestamp=NOW + 1, last_offset_delta=1)
    first.write_bytes(thinned + b"".join(bytes(b.buffer[b.start : b.start + b.size_bytes]) for b in others))
    log, was_cut = open_unclean(directory)
    assert not was_cut
    assert log.log_end_offset == 20
    assert [r.offset for r in read_all(log)][:3] == [1, 2, 3]


@for_each("name", ["compacted_zstd", "v1_gzip_compacted", "v0_snappy_compacted"])
def test_what_kafkas_cleaner_left_is_whole_without_a_word_of_the_policy(name: str, tmp_path: Path) -> None:
    """Messages of magic 0 and 1 do not show who was there."""
    shutil.copytree(case(name).directory, tmp_path / "t-0")
    log, was_cut = open_unclean(tmp_path / "t-0")
    assert (log.log_end_offset, was_cut) == (case(name).truth["high_watermark"], False)


@pytest.mark.parametrize(
    ("tail", "clean", "said"),
    [
        (b"cut", False, "torn tail: {path} position {end}: torn-tail"),
        (bytes(700), False, "torn tail: {path} position {end}: zeroed"),
        (b"?" * 700, False, "wrong tail: {path} position {end}: garbage"),
        (bytes(700), True, "wrong tail: {path} position {end}: zeroed"),
    ],
    ids=["half a batch", "zeros", "garbage", "zeros after a clean stop"],
)
def test_a_start_says_whether_the_tail_is_torn_or_wrong(
    directory: Path, caplog: pytest.LogCaptureFixture, tail: bytes, said: str, *, clean: bool
) -> None:
    path = last_segment(directory)
    whole = path.read_bytes()
    added = bytes(make_batch(b"new", base_offset=20).buffer)[:50] if tail == b"cut" else tail
    path.write_bytes(whole + added)
    if not clean:  # a snapshot at the log's end is what a clean stop leaves
        (directory / f"{20:020d}.snapshot").unlink()
    assert load(directory, had_clean_shutdown=clean).log.log_end_offset == 20
    assert "t-0: " + said.format(path=path, end=len(whole)) in caplog.text
    assert (directory / f"{path.name}.cut-at-{len(whole)}").read_bytes() == added


@pytest.mark.parametrize("is_cleaned", [False, True], ids=["as written", "without its records"])
def test_a_damaged_commit_marker_does_not_make_its_records_aborted_with_those_of_the_next_transaction(
    tmp_path: Path, is_cleaned: bool
) -> None:
    """The index that is made again keeps from its old entry where the aborted one began."""
    directory = tmp_path / "t-0"
    log = open_log(directory)
    segment, ends = log.segments.active, []
    for number, is_commit in enumerate((True, False)):
        append(log, make_batch(b"t", producer_id=4, producer_epoch=0, base_sequence=number, is_transactional=True))
        ends.append(segment.size_bytes)
        append_marker(log, 4, is_commit=is_commit)
        ends.append(segment.size_bytes)
    append(log, make_batch(b"after"))
    before = segment.transaction_index.entries()
    assert before == [AbortedTransaction(4, 2, 3, 4)]
    log.close()
    path = last_segment(directory)
    data = bytearray(path.read_bytes())
    data[ends[1] - 1] ^= 1  # of the commit marker
    if is_cleaned:
        del data[ends[1] : ends[2]]
    path.write_bytes(data)
    log, was_cut = open_unclean(directory, recovery_point=5)
    assert not was_cut
    assert [(gap.position, gap.end_position) for gap in log.segments.first.gaps] == [(ends[0], ends[1])]
    assert log.segments.first.transaction_index.entries() == before


# --- what a start sets aside


def test_nothing_that_was_set_aside_is_written_over(directory: Path) -> None:
    """Starts that cut the log at the same place, or set a later segment aside: a kill came before the first record
    after it was whole.
    """
    path = last_segment(directory)
    size = path.stat().st_size
    whole = path.read_bytes()
    for number in range(3):
        path.write_bytes(whole + bytes([number + 1]) * (30 - 10 * number))
        open_unclean(directory)[0].close()
    cut = [directory / f"{path.name}.cut-at-{size}{more}" for more in ("", "-2", "-3")]
    assert [one.read_bytes() for one in cut] == [b"\1" * 30, b"\2" * 20, b"\3" * 10]
    first, later = directory / f"{4:020d}.log", directory / f"{8:020d}.log"
    sound, contents = first.read_bytes(), [later.read_bytes(), later.read_bytes() + b"\0"]
    for content in contents:
        later.write_bytes(content)
        first.write_bytes(flip(sound))
        open_unclean(directory)[0].close()
        first.write_bytes(sound)
    assert [(directory / f"{later.name}.cut-at-0{more}").read_bytes() for more in ("", "-2")] == contents


@pytest.mark.parametrize("base", [0, 8])
def test_the_index_of_a_lost_segment_stays_as_its_proof(directory: Path, base: int) -> None:
    (directory / f"{base:020d}.log").unlink()
    index = (directory / f"{base:020d}.index").read_bytes()
    open_log(directory).close()
    assert (directory / f"{base:020d}.index").read_bytes() == index
    missing = [f for f in verify(directory) if f.code is Code.SEGMENT_MISSING]
    assert [(f.offset, f.last_offset) for f in missing] == [(base, base + 3)]


@pytest.mark.parametrize(
    ("is_compacted", "with_index", "told"),
    [
        (False, False, "offsets 8 to 11 are not in the log: no batch holds them, and nothing proves that the cleaner"),
        (False, True, "offsets 8 to 11 are not in the log: segment 8 is missing: offsets 8 to 11, 4 records"),
        (True, False, None),
        (True, True, "offsets 8 to 11 are not in the log: segment 8 is missing: offsets 8 to 11, at most 4 records"),
    ],
)
def test_a_clean_start_says_which_segments_are_missing(
    directory: Path, caplog: pytest.LogCaptureFixture, told: str | None, *, is_compacted: bool, with_index: bool
) -> None:
    for path in directory.glob(f"{8:020d}.*"):
        if path.suffix == ".log" or not with_index:
            path.unlink()
    open_log(directory, cleanup_policy=frozenset({"compact" if is_compacted else "delete"})).close()
    texts = [record.getMessage() for record in caplog.records]
    assert [text for text in texts if "not in the log" in text] == [text for text in texts if told and told in text]
    assert any("not in the log" in text for text in texts) == (told is not None)


@pytest.mark.parametrize("is_last", [True, False])
def test_a_segment_of_more_batches_than_its_index_may_hold_now_is_indexed_as_far_as_that_goes(
    tmp_path: Path, *, is_last: bool
) -> None:
    """As where somebody lowered `segment.index.bytes` before a crash: an index may lack entries."""
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for number in range(12):
        append(log, make_batch(b"%d" % number, timestamp=NOW + number))
    if not is_last:
        log.roll()
    log.close()
    settings = {"index_interval_bytes": 0, "segment_index_bytes": 60}
    again = open_log(tmp_path / "t-0", had_clean_shutdown=False, **settings)  # type: ignore[arg-type]
    assert [record.value for record in read_all(again)] == [b"%d" % number for number in range(12)]
    assert all((tmp_path / "t-0" / f"{0:020d}{suffix}").stat().st_size <= 60 for suffix in (".index", ".timeindex"))
    assert append(again, make_batch(b"12", timestamp=NOW + 12)).base_offset == 12
    assert len(again.segments) == 2
