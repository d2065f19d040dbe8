"""What a start cut off a log's end: the commands name its sound records, and `recover` puts them back if it may."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.files.log_config import LogConfig
from core.inspector.check.findings import Code, Finding, Severity
from core.inspector.check.verify import verify
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import Action, RecoveryOptions, Step
from core.inspector.recover.recovery_planner import plan_recovery
from core.log.log_loader import LogSettings, load_log
from core.records.record_batch import set_base_offset_and_leader_epoch
from tests.support import doors
from tests.support.damage import places
from tests.support.logs import NOW, PARTITION, append, append_marker, make_batch, open_log
from tests.support.manual_clock import ManualClock
from tests.support.server import call_plog


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Ten transactions of two records and a marker each, the first of every three aborted, in segments that begin at
    offsets 0, 12 and 24; no snapshot knows of the end.
    """
    folder = tmp_path / "t-0"
    log = open_log(folder, index_interval_bytes=64, segment_bytes=1 << 20)
    for number in range(10):
        if number in (4, 8):
            log.roll()
        values = [b"%d" % (3 * number + n) for n in range(2)]
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number, "is_transactional": True}
        append(log, make_batch(*values, timestamp=NOW + number, **fields))  # type: ignore[arg-type]
        append_marker(log, 7, is_commit=number % 3 != 0)
    log.close()
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    for path in folder.glob("*.snapshot"):
        path.unlink()
    return folder


RECORDS = [offset for offset in range(30) if offset % 3 < 2]


def flip(directory: Path, offset: int, *, is_wrecked: bool = False) -> None:
    """One bit of the batch that begins at that offset; or more, so that nothing tells what it was."""
    place = next(p for p in places(directory) if p.offset == offset)
    data = bytearray(place.path.read_bytes())
    data[place.end - 3] ^= 1
    if is_wrecked:
        data[place.end - 9 : place.end] = b"\x55" * 9
    place.path.write_bytes(data)


def take_back(directory: Path) -> None:
    with Recovery(directory.parent) as recovery:
        recovery.undo([directory])


def start(directory: Path, *values: bytes) -> int:
    """A broker's start after a crash, which appends those; where the log ended at the start."""
    log = open_log(directory, had_clean_shutdown=False)
    end_offset = log.log_end_offset
    for value in values:
        append(log, make_batch(value, timestamp=NOW + 99), leader_epoch=3)
    log.close()
    return end_offset


def cut_off(directory: Path) -> list[Finding]:
    return [finding for finding in verify(directory) if finding.code is Code.CUT_OFF]


def recover(directory: Path, *, accepts_missing: bool = False) -> list[Step]:
    with Recovery(directory.parent) as recovery:
        options = RecoveryOptions(accepts_missing=accepts_missing)
        plans = list(plan_recovery(directory, options, is_locked=True))
        recovery.apply(plans)
    return [step for plan in plans for step in plan.steps]


def summed(findings: Iterable[Finding]) -> list[tuple[str, int, int, int | None]]:
    return [(Path(f.path).name, f.offset, f.last_offset, f.records) for f in findings]


def test_a_torn_tail_that_was_cut_off_and_a_segment_that_was_not_begun_are_nothing_to_find(directory: Path) -> None:
    """A crash came before the next segment's log was made."""
    for suffix in ("index", "timeindex"):
        (directory / f"{30:020d}.{suffix}").write_bytes(b"")
    assert start(directory) == 30
    assert (set_aside(directory), cut_off(directory)) == ({}, [])
    last = max(directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    start(directory)
    assert list(directory.glob("*.cut-at-*"))
    assert list(verify(directory)) == []


def test_logs_that_changed_names_before_the_start_are_put_back_in_order(directory: Path) -> None:
    second, third = sorted(directory.glob("*.log"))[1:]
    contents = second.read_bytes(), third.read_bytes()
    second.write_bytes(contents[1])
    third.write_bytes(contents[0])
    assert start(directory) == 12
    assert summed(cut_off(directory)) == [
        (f"{12:020d}.log.cut-at-0", 24, 29, 4),
        (f"{24:020d}.log.cut-at-0", 12, 23, 8),
    ]
    assert sum(step.records or 0 for step in recover(directory)) == 0
    assert list(verify(directory)) == []
    assert (second.read_bytes(), third.read_bytes()) == contents


def test_sound_records_that_were_cut_off_are_named_with_what_became_of_their_place(directory: Path) -> None:
    flip(directory, 15)
    assert start(directory) == 15
    found = cut_off(directory)
    (position,) = {int(p.name.rpartition("-")[2]) for p in directory.glob(f"{12:020d}.log.cut-at-*")}
    names = [f"{12:020d}.log.cut-at-{position}", f"{24:020d}.log.cut-at-0"]
    assert summed(found) == [(names[0], 17, 23, 4), (names[1], 24, 29, 4)]
    assert {f.severity for f in found} == {Severity.ERROR}
    assert all(f.message.endswith("nothing was appended in their place since") for f in found)
    assert found[0].message.startswith("a start cut off 4 sound records, offsets 17 to 23: ")
    start(directory, *[b"new"] * 5)
    first, second = cut_off(directory)
    assert first.message.endswith("offsets 17 to 19 are in the log with other records since")
    assert second.message.endswith("nothing was appended in their place since")
    done = call_plog("gaps", str(directory))
    assert done.returncode == 1
    assert done.stderr.decode().count("cut-off: a start cut off 4 sound records") == 2


@pytest.mark.parametrize("offset", [3, 12, 15, 26, 29])
def test_recover_puts_back_what_nothing_was_appended_over_and_takes_it_back(directory: Path, offset: int) -> None:
    flip(directory, offset)
    truth = shutil.copytree(directory, directory.parent / "truth" / "t-0")
    kept = doors.consume(truth)
    committed = doors.consume(truth, read_committed=True)
    start(directory)
    before = doors.contents(directory)
    steps = recover(directory)
    assert sum(step.given_up for step in steps) == 0
    assert doors.consume(directory) == kept
    assert doors.consume(directory, read_committed=True).items() <= committed.items()
    assert list(verify(directory)) == []
    take_back(directory)
    assert doors.contents(directory) == before


@pytest.mark.parametrize("offset", [14, 20, 26])
def test_the_plan_that_puts_records_back_writes_the_marker_that_stays_lost(directory: Path, offset: int) -> None:
    """One flipped bit tells what it was; without it the producer's next marker would end its transaction."""
    committed = doors.consume(directory, read_committed=True)
    flip(directory, offset)
    assert start(directory) == offset
    steps = recover(directory)
    assert [step.marker.offset for step in steps if step.marker is not None] == [offset]
    assert {step.action for step in steps} >= {Action.PUT_BACK, Action.WRITE_MARKER}
    assert sum(step.records or 0 for step in steps) == 0, "a marker is no record"
    assert list(verify(directory)) == []
    assert doors.consume(directory, read_committed=True) == committed
    assert doors.served(directory, read_committed=True) == committed
    assert doors.served(directory, read_committed=True, is_owner=True) == committed
    assert list(plan_recovery(directory, RecoveryOptions(), is_locked=True)) == []


@pytest.mark.parametrize("offset", [14, 20, 26])
def test_records_whose_lost_marker_nothing_tells_are_not_shown_unasked(directory: Path, offset: int) -> None:
    committed = doors.consume(directory, read_committed=True)
    flip(directory, offset, is_wrecked=True)
    assert start(directory) == offset
    before = doors.contents(directory)
    done = call_plog("recover", str(directory), "--apply")
    assert (done.returncode, doors.contents(directory)) == (1, before)
    assert f"records {offset - 2} to {offset - 1}: aborted or not can't be told" in done.stderr.decode()
    done = call_plog("recover", str(directory), "--apply", "--accept-visible")
    assert (done.returncode, list(verify(directory))) == (0, [])
    shown = set(committed) | {offset - 2, offset - 1}
    assert doors.consume(directory, read_committed=True).keys() == shown
    assert doors.served(directory, read_committed=True, is_owner=True).keys() == shown


def test_the_log_goes_on_after_what_was_put_back(directory: Path) -> None:
    flip(directory, 15)
    start(directory)
    recover(directory)
    log = open_log(directory)
    assert log.log_end_offset == 30
    assert append(log, make_batch(b"new"), leader_epoch=4).base_offset == 30
    log.close()
    assert list(verify(directory)) == []


def test_what_was_appended_over_stays_where_it_is(directory: Path) -> None:
    flip(directory, 15)
    start(directory, *[b"new"] * 3)
    before = doors.contents(directory)
    steps = recover(directory)
    assert {step.action for step in steps} == {Action.NONE}
    assert all("plog help 3am" in step.why for step in steps)
    assert doors.contents(directory) == before


def test_files_of_an_earlier_cut_keep_those_of_the_last_one_from_nothing(directory: Path) -> None:
    flip(directory, 15)
    start(directory, *[b"new"] * 20)
    flip(directory, 31)
    start(directory)
    assert sum(step.action is Action.PUT_BACK for step in recover(directory)) == 1
    assert sorted(doors.consume(directory)) == [n for n in RECORDS if n < 15] + [n for n in range(15, 35) if n != 31]


def test_a_tail_stays_where_it_is_if_what_stood_before_it_is_lost(directory: Path) -> None:
    """Offsets 12 to 14 stood at the start of its segment, and no snapshot knows of them."""
    flip(directory, 15)
    assert start(directory) == 15
    for path in [*directory.glob(f"{12:020d}.*"), directory / f"{15:020d}.snapshot"]:
        if ".cut-at-" not in path.name:
            path.unlink()
    before = {path.name for path in directory.glob("*.log*")}
    assert {step.action for step in recover(directory) if ".cut-at-" in step.path.name} == {Action.NONE}
    assert {path.name for path in directory.glob("*.log*")} == before


def test_batches_after_a_hole_are_not_in_the_place_of_what_was_cut_off(directory: Path) -> None:
    flip(directory, 15)
    assert start(directory) == 15
    log, batch = open_log(directory), make_batch(b"new")
    set_base_offset_and_leader_epoch(batch, 40, 0)
    log.append_as_follower(batch.buffer, 0)
    log.close()
    assert [finding.message.rpartition(": ")[2] for finding in cut_off(directory)] == [
        "nothing was appended in their place since"
    ] * 2


def test_the_log_is_mended_first(directory: Path) -> None:
    flip(directory, 15)
    start(directory)
    flip(directory, 6)
    assert Action.PUT_BACK not in {step.action for step in recover(directory)}
    assert Action.PUT_BACK in {step.action for step in recover(directory)}
    assert sorted(doors.consume(directory)) == [offset for offset in RECORDS if offset not in (6, 7, 15, 16)]


@pytest.mark.parametrize("accepts_missing", [False, True])
@pytest.mark.parametrize("gone", [6, 8, 9], ids=["records", "a marker", "records of an aborted one"])
def test_a_hole_before_the_end_keeps_nothing_from_being_put_back(
    directory: Path, gone: int, *, accepts_missing: bool
) -> None:
    """Nothing mends it, so nobody would ever come to put the rest back."""
    flip(directory, 21)
    truth = shutil.copytree(directory, directory.parent / "truth" / "t-0")
    start(directory)
    for folder in (directory, truth):
        place = next(p for p in places(folder) if p.offset == gone)
        data = place.path.read_bytes()
        place.path.write_bytes(data[: place.position] + data[place.end :])
    kept, committed = doors.consume(truth), doors.consume(truth, read_committed=True)
    before = doors.contents(directory)
    assert Action.PUT_BACK in {step.action for step in recover(directory, accepts_missing=accepts_missing)}
    assert doors.consume(directory) == kept
    assert doors.consume(directory, read_committed=True).items() <= committed.items()
    assert {f.code for f in verify(directory)} - {Code.SEQUENCE_GAP} == (
        set() if accepts_missing else {Code.OFFSETS_MISSING}
    )
    take_back(directory)
    assert doors.contents(directory) == before


def test_the_same_records_in_the_log_again_are_no_loss(directory: Path) -> None:
    whole = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    flip(directory, 15)
    start(directory)
    for name, data in whole.items():
        (directory / name).write_bytes(data)
    assert cut_off(directory) == []


def test_dump_segment_shows_the_records_of_a_file_that_was_set_aside(directory: Path) -> None:
    flip(directory, 15)
    start(directory)
    aside = next(directory.glob(f"{24:020d}.log.cut-at-0"))
    done = call_plog("dump-segment", str(aside), "--print-data-log", "--format", "ndjson")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["offset"] for row in rows if not row["is_control"]] == [24, 25, 27, 28]
    assert done.returncode == 0


def test_what_was_appended_over_is_read_as_a_log_of_its_own(directory: Path) -> None:
    """As plog help 3am says; what comes out goes to plog produce."""
    flip(directory, 15)
    start(directory, *[b"new"] * 3)
    (aside,) = directory.glob(f"{12:020d}.log.cut-at-*")
    again = directory.parent / "again" / "t-0"
    again.mkdir(parents=True)
    shutil.copyfile(aside, again / f"{12:020d}.log")
    done = call_plog(
        "consume", "t", "--data-dir", str(again.parent), "--no-exit-on-error", "--format", "envelope"
    )  # fmt: skip
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(record["offset"], record["value"]) for record in records] == [
        (offset, str(offset)) for offset in (21, 22)
    ], "18 and 19 were aborted"
    new = ["--data-dir", str(directory.parent / "new")]
    assert call_plog("topic", "create", "again", "--set", "retention.ms=-1", *new).returncode == 0
    sent = call_plog(
        "produce", "again", "--data-dir", str(directory.parent / "new"), "--format", "envelope", stdin=done.stdout
    )
    assert (sent.returncode, b"2 records written" in sent.stderr) == (0, True)


def test_what_lies_below_the_logs_start_is_a_warning_and_stays(directory: Path) -> None:
    """A crash after DeleteRecords whose last records were not synced; or a wrong digit, which nothing tells then."""
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 50\n")
    settings = LogSettings(ManualClock(NOW), FileSystem())
    load_log(directory, PARTITION, LogConfig(), settings, log_start_offset=50, had_clean_shutdown=False).log.close()
    found = cut_off(directory)
    assert summed(found) == [
        (f"{base:020d}.log.cut-at-0", base, last, records)
        for base, last, records in ((0, 11, 8), (12, 23, 8), (24, 29, 4))
    ]
    assert {f.severity for f in found} == {Severity.WARNING}
    assert all(f.message.endswith("they lie below the log's start at offset 50") for f in found)
    assert {step.action for step in recover(directory)} == {Action.NONE}


@pytest.mark.parametrize("is_segment_lost", [False, True], ids=["a hole", "a lost segment"])
def test_records_that_are_at_hand_are_not_given_up_unawares(directory: Path, *, is_segment_lost: bool) -> None:
    """Somebody put the last segment back by hand: what is before it is missing, and lies aside for the most part."""
    flip(directory, 15)
    start(directory)
    (directory / f"{24:020d}.log.cut-at-0").rename(directory / f"{24:020d}.log")
    if is_segment_lost:
        (directory / f"{18:020d}.index").write_bytes(struct.pack(">ii", 2, 100))
    before = doors.consume(directory)
    (aside,) = directory.glob(f"{12:020d}.log.cut-at-*")
    options = RecoveryOptions(accepts_missing=True)
    (plan,) = plan_recovery(directory, options, is_locked=True)
    steps = [step for step in plan.steps if step.missing]
    assert {step.action for step in steps} == ({Action.NONE, Action.MISSING} if is_segment_lost else {Action.NONE})
    assert (min(step.offset for step in steps), max(step.last_offset for step in steps)) == (15, 23)
    at_hand = f"at hand in {aside.name} (offsets 17 to 23): plog dump-segment shows its records"
    assert all(at_hand in step.why for step in steps)
    assert Action.GIVE_UP not in {step.action for step in plan.steps}
    with Recovery(directory.parent) as recovery:
        recovery.apply([plan])
    assert (doors.consume(directory), aside.exists()) == (before, True)
    aside.rename(directory.parent / aside.name)
    (plan,) = plan_recovery(directory, options, is_locked=True)
    steps = [step for step in plan.steps if step.action is Action.GIVE_UP]
    assert sum(step.last_offset + 1 - step.offset for step in steps) == 9


# --- the last segment's log is gone, and a start came


def lose_last(directory: Path) -> dict[str, bytes]:
    """Its log; what its indexes hold, by the names that a start will give them."""
    (directory / f"{24:020d}.log").unlink()
    indexes = sorted(p for p in directory.glob(f"{24:020d}.*") if p.suffix.endswith("index"))
    assert {p.suffix for p in indexes} == {".index", ".timeindex", ".txnindex"}
    return {f"{path.name}.cut-at-0": path.read_bytes() for path in indexes}


def set_aside(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.cut-at-0")}


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_keeps_what_tells_of_a_lost_last_segment(
    directory: Path, caplog: pytest.LogCaptureFixture, *, is_clean: bool
) -> None:
    indexes = lose_last(directory)
    log = open_log(directory, had_clean_shutdown=is_clean)
    assert log.log_end_offset == 24
    assert "segment 24 is missing, an index of it is here" in caplog.text
    assert set_aside(directory) == indexes
    log.close()
    caplog.clear()
    open_log(directory).close()
    assert "missing" not in caplog.text
    (found,) = cut_off(directory)
    assert summed([found]) == [(f"{24:020d}.index.cut-at-0", 24, 29, 6)]
    assert found.severity is Severity.ERROR
    assert found.message == (
        "segment 24 was missing when a start set its indexes aside: at least offsets 24 to 29; none of them was given "
        "again since"
    )
    done = call_plog("gaps", str(directory))
    assert done.returncode == 1
    assert done.stderr.decode().count("cut-off: segment 24 was missing") == 1
    start(directory, *[b"new"] * 3)
    (found,) = cut_off(directory)
    assert "offsets 24 to 26 are in the log since, as other records" in found.message


def test_recover_leaves_the_trace_of_a_lost_segment_until_it_is_given_up(directory: Path) -> None:
    indexes = lose_last(directory)
    start(directory, *[b"new"] * 3)
    before = doors.contents(directory)
    (step,) = recover(directory)
    assert (step.action, step.offset, step.last_offset) == (Action.NONE, 24, 29)
    assert "--accept-missing" in step.why
    flip(directory, 3)
    recover(directory)
    assert set_aside(directory) == indexes
    done = call_plog("recover", str(directory), "--apply", "--accept-missing")
    assert (done.returncode, set_aside(directory), list(verify(directory))) == (0, {}, [])
    assert sorted(doors.consume(directory)) == [n for n in RECORDS if n < 24 and n not in (3, 4)] + [24, 25, 26]
    for _ in range(2):
        assert call_plog("recover", str(directory), "--undo").returncode == 0
    flip(directory, 3)
    assert doors.contents(directory) == before


def test_a_cut_keeps_what_tells_of_lost_segments_after_it(directory: Path) -> None:
    """But nothing of the indexes of segments that are set aside whole."""
    log = open_log(directory)
    log.roll()
    append(log, make_batch(b"new", timestamp=NOW + 99))
    log.close()
    indexes = lose_last(directory)
    flip(directory, 15)
    assert start(directory) == 15
    names = {path.name for path in directory.glob("*index*")}
    assert {name for name in names if not name.startswith(("0" * 20, f"{12:020d}"))} == indexes.keys()
    assert [(f.offset, f.last_offset) for f in cut_off(directory)] == [(24, 29), (17, 23), (30, 30)]


def test_a_reader_only_sets_nothing_aside(directory: Path) -> None:
    lose_last(directory)
    before = doors.contents(directory)
    doors.served(directory)
    assert doors.contents(directory) == before
