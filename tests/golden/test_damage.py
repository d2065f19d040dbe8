"""Small damage to directories that real Kafka wrote, one kind a folder, and what every command should make of it.

`CASES` says what is right: which records are still there, which offsets are lost and why, what `verify` finds, and how
many records `recover` counts as lost. The numbers were worked out by hand from the folders, before any of the commands
gave them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from core.inspector.recover.recovery_plan import Action
from tests.support import doors
from tests.support.damage import places
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import Server, call_plog

DAMAGE = Path(__file__).resolve().parent / "damage"


def offsets(*ranges: tuple[int, int]) -> list[int]:
    """Of ranges that include their last offset."""
    return list(chain.from_iterable(range(first, last + 1) for first, last in ranges))


@dataclass(frozen=True)
class Case:
    """`first` of the `records` come before the damage; None if nothing keeps a reader from the rest. `says` is on
    stderr of `plog consume`. `gaps` are (first, last, reason), without what transactions explain. `codes` are all that
    `verify` finds; `at` is the position of the first.
    """

    topic: str
    records: list[int]
    first: int | None = None
    exit_code: int = 1
    says: str = ""
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    at: int = -1
    lost: int = 0
    """Records that the plan of `recover` calls lost."""
    mended: bool = True
    """Whether `recover --apply` leaves nothing to find."""
    fixed: list[int] | None = None
    """The records after `recover --apply --fix-bits`, if that gives other ones."""


WRONG_START = ["log-start-wrong"]
NO_INDEXES = ["index-missing", "time-index-missing"]
ALL_330 = offsets((0, 329))
CASES = {
    "00-one-bit-of-length-silent-loss": Case(
        "t", offsets((0, 13), (35, 44)), 14, says="offsets 14 to 34: bad-length: ", gaps=[(14, 34, "damaged")],
        codes=["bad-length"], at=1261, lost=21, fixed=offsets((0, 44)),
    ),
    "00b-one-bit-of-magic-silent-loss": Case(
        "t", offsets((0, 2), (23, 44)), 3, says="offsets 3 to 22: bad-magic: ", gaps=[(3, 22, "damaged")],
        codes=["bad-magic"], at=232, lost=20, fixed=offsets((0, 44)),
    ),
    "01-consume-exit4": Case("multisegment", ALL_330, exit_code=0, codes=["index-mismatch"], at=144),
    "02a-garbage-tail": Case("t", offsets((0, 39)), 40, says=": garbage: ", codes=["garbage"], at=4565),
    "02b-zero-tail": Case("t", offsets((0, 39)), 40, says=": zeroed: ", codes=["zeroed"], at=4222),
    "02c-12-zeros": Case("multisegment", ALL_330, 330, says=": zeroed: ", codes=["zeroed"], at=10351),
    "03-base-offset-flip": Case(
        "multisegment", offsets((0, 248), (252, 329)), 249,
        says="bit 7 of the byte at position 2081 is flipped (in the base offset)", gaps=[(249, 251, "damaged")],
        codes=["offsets-not-rising"], at=2081, lost=3, fixed=ALL_330,
    ),
    "03b-base-offset-up": Case(
        "multisegment", offsets((0, 248), (252, 329)), 249,
        says="bit 0 of the byte at position 2083 is flipped (in the base offset)", gaps=[(249, 251, "damaged")],
        codes=["offsets-not-rising"], at=2081, lost=3, fixed=ALL_330,
    ),
    "04-gaps-says-compacted": Case(
        "codec_none_rdkafka",
        offsets((0, 9), (26, 44)),
        says="warning: codec_none_rdkafka-0: offsets 10 to 25 are not in the log: no batch holds them, and nothing",
        gaps=[(10, 25, "unknown")],
        codes=["offsets-missing", *NO_INDEXES],
        mended=False,
    ),
    "05-abort-marker-cut": Case(
        "txn_interleaved",
        [*offsets((1, 5), (8, 10), (13, 14), (17, 19), (25, 26), (29, 32), (39, 42), (44, 46)), 52, 59, 60,
         *offsets((62, 64), (66, 67))],
        29, says="offset 61: crc-mismatch: ", gaps=[(61, 61, "damaged")], codes=["crc-mismatch"], at=7022, lost=0,
    ),
    "06-log-start-checkpoint": Case(
        "t", offsets((0, 25), (28, 39)), 26, says="offsets 26 to 27: crc-mismatch: ", gaps=[(26, 27, "damaged")],
        codes=["checkpoint-corrupt", "crc-mismatch"], at=2740, lost=2, fixed=offsets((0, 39)),
    ),
    "07-torn-undercounted": Case(
        "codec_none_rdkafka", [], 0, says="offsets 0 to 44: torn-tail: ", gaps=[(0, 44, "damaged")],
        codes=["torn-tail"], at=0, lost=45,
    ),
    "08-missing-middle-log": Case(
        "multisegment", offsets((0, 114), (229, 329)), 115,
        says="segment 115 is missing: offsets 115 to 228, 114 records", gaps=[(115, 228, "missing")],
        codes=["segment-missing"], mended=False,
    ),
    "09-swapped-batches": Case("multisegment", ALL_330, exit_code=0, codes=["batch-out-of-order"], at=1378),
    "10-stray-batch": Case("multisegment", ALL_330, exit_code=0, codes=["batch-repeated"], at=656),
    "11-undecodable-batch": Case(
        "t", offsets((0, 199), (204, 403)), 200, says="the records of offsets 200 to 203 do not decode",
        gaps=[(200, 203, "damaged")], codes=["bad-batch", *NO_INDEXES], at=5250,
    ),
    "13-legacy-offset-flip": Case(
        "t", offsets((0, 10), (12, 49)), 11, says="expected offset 11: bit 6 of the byte at position 798 is flipped",
        gaps=[(11, 11, "damaged")], codes=["offsets-not-rising"], at=798, lost=1, fixed=offsets((0, 49)),
    ),
    "14-overlapping-segment": Case("t", offsets((0, 3)), exit_code=0, codes=["batch-repeated"], at=0),
    "15-one-epoch-flip": Case("t", offsets((0, 59)), exit_code=0, codes=["epochs-not-rising"], at=898),
    "16-base-offset-plus-1": Case(
        "t", offsets((0, 21), (25, 44)), 22, says="bit 0 of the byte at position 986 is flipped (in the base offset)",
        gaps=[(22, 24, "damaged")], codes=["offsets-not-rising"], at=979, lost=3, fixed=offsets((0, 44)),
    ),
    "20-directory-named-log": Case(
        "multisegment", ALL_330, 330, says="unreadable: could not be read: is a directory (errno 21)",
        codes=["unreadable"], mended=False,
    ),
    "21-dangling-symlink-log": Case(
        "multisegment", ALL_330, 330,
        says="unreadable: could not be read: a link to nowhere.log, which is not there (errno 2)",
        codes=["unreadable"], mended=False,
    ),
    "21-fifo-log": Case(
        "multisegment", ALL_330, 330, says="unreadable: could not be read: is a named pipe, no regular file (errno 22)",
        codes=["unreadable"], mended=False,
    ),
    "22-null-header-key": Case(
        "t", offsets((0, 3), (6, 9)), 4, says="the records of offsets 4 to 5 do not decode",
        gaps=[(4, 5, "damaged")], codes=["bad-batch", *NO_INDEXES], at=105,
    ),
    "23-40MB-batch-is-sound": Case("t", offsets((0, 11)), exit_code=0, codes=NO_INDEXES),
    "24-length-flip-no-snapshot": Case(
        "t", offsets((0, 24), (29, 39)), 25, says="offsets 25 to 28: bad-length: ", gaps=[(25, 28, "damaged")],
        codes=["bad-length"], at=2199, lost=4, fixed=offsets((0, 39)),
    ),
    "25-zero-sector": Case(
        "t", offsets((20, 29)), 0, says="offsets 0 to 19: garbage: ", gaps=[(0, 19, "damaged")], codes=["garbage"],
        at=0, lost=20,
    ),
    "26-log-start-beyond-the-end": Case(
        "idempotent", offsets((0, 36)), 37, says="line 3: idempotent-0 begins at offset 75, it says, but the log was",
        codes=["log-start-wrong"], at=4,
    ),
    "27-log-start-within-the-log": Case(
        "idempotent", offsets((0, 36)), 37, says="line 3: idempotent-0 begins at offset 15, it says, but leader-epoch",
        codes=["log-start-wrong"], at=4,
    ),
}  # fmt: skip
UNDECODABLE = {"11-undecodable-batch", "22-null-header-key"}
"""Their batches' bytes are right: `verify` finds these with --deep, and `recover` takes them as they are."""

SPECIAL: dict[str, Callable[[Path], None]] = {
    "20-directory-named-log": lambda path: path.mkdir(exist_ok=True),
    "21-dangling-symlink-log": lambda path: path.symlink_to("nowhere.log"),
    "21-fifo-log": os.mkfifo,
}
"""What no version control keeps, and where the next segment's log would be."""


def copy_of(name: str, folder: Path) -> Path:
    """A data directory with the damage, which may be written to."""
    directory = folder / name
    source = "21-dangling-symlink-log" if name == "21-fifo-log" else name
    shutil.copytree(DAMAGE / source, directory, symlinks=True)
    if name in SPECIAL:
        SPECIAL[name](directory / "multisegment-0" / "00000000000000000400.log")
    return directory


def consume(directory: Path, topic: str, *options: str) -> tuple[list[int], int, str]:
    """(offsets, exit code, stderr)."""
    done = call_plog("consume", topic, "--data-dir", str(directory), "--format", r"%o\n", *options)
    return [int(line) for line in done.stdout.split()], done.returncode, done.stderr.decode()


def gaps(directory: Path, *options: str) -> tuple[list[tuple[int, int, str]], int]:
    """(first, last, reason) of what transactions do not explain, and the exit code."""
    done = call_plog("gaps", str(directory), "--output", "json", *options)
    rows = json.loads(done.stdout)
    explained = {"aborted", "control record"}
    found = [(r["start_offset"], r["end_offset"] - 1, r["reason"]) for r in rows if r["reason"] not in explained]
    return found, done.returncode


def findings(directory: Path) -> list[dict[str, object]]:
    done = call_plog("verify", "--deep", "--output", "json", str(directory))
    rows = json.loads(done.stdout)
    assert done.returncode == (1 if rows else 0)
    return list(rows)


def losses(codes: Iterable[str]) -> list[str]:
    return sorted(code for code in codes if code not in NO_INDEXES)


# --- reading


@for_each("name", CASES)
def test_what_comes_before_the_damage_is_given_and_with_the_option_all_that_is_sound(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    found, exit_code, told = consume(directory, case.topic)
    assert found == (case.records if case.first is None else case.records[: case.first])
    assert exit_code == case.exit_code
    assert case.says in told
    if case.first is not None:
        assert told.startswith("error: ")
        assert str(directory) in told
        assert "hint: " in told
    elif not case.says:
        assert told == ""
    found, exit_code, told = consume(directory, case.topic, "--no-exit-on-error")
    assert found == case.records
    assert exit_code == case.exit_code
    assert case.says in told
    assert told.count("warning: ") == case.exit_code
    assert told.count("hint: plog verify") == case.exit_code


@for_each("name", CASES.keys() - UNDECODABLE)  # of which tests/golden/test_undecodable.py asks a server
def test_a_read_only_broker_gives_the_same(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    explained = doors.hidden(doors.gaps(directory / f"{case.topic}-0", read_committed=True))
    found = doors.served(directory / f"{case.topic}-0")
    assert sorted(set(found) - set(chain.from_iterable(explained))) == case.records


@pytest.mark.longer
@for_each(
    "name, offsets_left_out, first",
    [
        ("08-missing-middle-log", "offsets 115 to 228", 115),
        ("00-one-bit-of-length-silent-loss", "offsets 14 to 34", 14),
    ],
)
def test_a_server_calls_nothing_damaged_that_may_be_missing(
    name: str, offsets_left_out: str, first: int, tmp_path: Path
) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    with Server(directory, "--read-only") as server:
        where = ["consume", case.topic, "--format", r"%o\n", "--bootstrap-server", server.address]
        done, passing = call_plog(*where), call_plog(*where, "--no-exit-on-error")
    assert (
        f"could not read {case.topic}-0: offset {first} is damaged or missing, says the broker" in done.stderr.decode()
    )
    told = f"{case.topic}-0: passed over: {offsets_left_out}: damaged or missing, says the broker"
    assert told in passing.stderr.decode()


@pytest.mark.longer
@for_each("name", ["20-directory-named-log", "21-dangling-symlink-log", "21-fifo-log"])
def test_a_segment_after_the_end_that_cant_be_read_is_no_silence_of_a_server(name: str, tmp_path: Path) -> None:
    """As from the files: all records come, and then an error."""
    directory = copy_of(name, tmp_path)
    with Server(directory, "--read-only") as server:
        done = call_plog("consume", "multisegment", "--format", r"%o\n", "--bootstrap-server", server.address)
    assert [int(line) for line in done.stdout.split()] == ALL_330
    assert done.returncode == 1
    assert "error: multisegment-0: the broker says that after the log's end lie bytes" in done.stderr.decode()


WRONG_STARTS = ["26-log-start-beyond-the-end", "27-log-start-within-the-log"]


@pytest.mark.longer
@for_each("wrong", WRONG_STARTS)
def test_a_server_that_only_reads_does_not_believe_a_wrong_log_start(wrong: str, tmp_path: Path) -> None:
    directory = copy_of(wrong, tmp_path)
    with Server(directory, "--read-only") as server:
        where = ["consume", "idempotent", "--format", r"%o\n", "--bootstrap-server", server.address]
        done, passing = call_plog(*where), call_plog(*where, "--no-exit-on-error")
    for one, how in ((done, "error: "), (passing, "warning: ")):
        assert [int(line) for line in one.stdout.split()] == offsets((0, 36))
        assert one.returncode == 1
        assert f"{how}idempotent-0: the broker ignores log-start-offset-checkpoint" in one.stderr.decode()


@pytest.mark.longer
@for_each("wrong", WRONG_STARTS)
def test_an_owner_does_not_believe_it_either_and_mends_it(wrong: str, tmp_path: Path) -> None:
    directory = copy_of(wrong, tmp_path)
    log = (directory / "idempotent-0" / f"{0:020d}.log").read_bytes()
    with Server(directory) as server:
        done = call_plog("consume", "idempotent", "--format", r"%o\n", "--bootstrap-server", server.address)
    assert ([int(line) for line in done.stdout.split()], done.returncode) == (offsets((0, 36)), 0)
    assert (directory / "idempotent-0" / f"{0:020d}.log").read_bytes() == log
    assert not list((directory / "idempotent-0").glob("*.cut-at-*"))
    assert "idempotent" not in (directory / "log-start-offset-checkpoint").read_text()
    assert findings(directory) == []


@for_each("start", [37, 38])
def test_a_log_start_at_the_end_is_believed_and_after_a_crash_one_beyond_it(start: int, tmp_path: Path) -> None:
    """DeleteRecords up to the end; and what it deleted, when the machine lost power and the log its tail."""
    directory = copy_of("26-log-start-beyond-the-end", tmp_path)
    (directory / "log-start-offset-checkpoint").write_text(f"0\n1\nidempotent 0 {start}\n")
    (directory / "idempotent-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {min(start, 37)}\n")
    if start > 37:
        (directory / ".kafka_cleanshutdown").unlink()
    assert findings(directory) == []
    assert consume(directory, "idempotent") == ([], 0, "")


@pytest.mark.longer
def test_after_a_crash_a_log_start_within_the_log_is_believed_with_a_note_until_the_next_start(tmp_path: Path) -> None:
    """Kafka writes the leader epochs in the background after DeleteRecords. Its start raises them, as does plog's."""
    directory = copy_of("27-log-start-within-the-log", tmp_path)
    (directory / ".kafka_cleanshutdown").unlink()
    assert findings(directory) == []
    given, code, says = consume(directory, "idempotent")
    assert (given, code) == (offsets((15, 36)), 0)
    assert "note: idempotent-0: the log begins at offset 15 by log-start-offset-checkpoint; leader-epoch-check" in says
    with Server(directory):
        pass
    assert (directory / "idempotent-0" / "leader-epoch-checkpoint").read_text().splitlines()[2] == "0 15"
    assert findings(directory) == []
    assert consume(directory, "idempotent") == (offsets((15, 36)), 0, "")


def test_a_high_watermark_above_the_end_of_a_log_that_was_stopped_is_a_wrong_number_and_no_loss(tmp_path: Path) -> None:
    directory = copy_of("26-log-start-beyond-the-end", tmp_path)
    (directory / "log-start-offset-checkpoint").write_text("0\n0\n")
    watermarks = directory / "replication-offset-checkpoint"
    watermarks.write_text("0\n2\nother 0 7\nidempotent 0 97\n")
    (found,) = findings(directory)
    assert (found["code"], found["severity"], found["path"]) == ("high-watermark-wrong", "warning", str(watermarks))
    assert (found["position"], found["end_position"], found["records"]) == (14, 29, 0)
    assert consume(directory, "idempotent") == (offsets((0, 36)), 0, "")
    assert gaps(directory) == ([], 0)
    plan = call_plog("recover", str(directory)).stdout.decode()
    assert "replication-offset-checkpoint" in plan
    assert ".log" not in plan
    assert call_plog("recover", "--apply", str(directory)).returncode == 0
    assert watermarks.read_text() == "0\n2\nother 0 7\nidempotent 0 37\n"
    assert findings(directory) == []
    assert call_plog("recover", "--undo", str(directory)).returncode == 0
    assert "idempotent 0 97" in watermarks.read_text()


@for_each("cut", [False, True], ids=lambda cut: "its records" if cut else "the recovery point")
def test_a_high_watermark_that_others_bear_out_proves_records(cut: bool, tmp_path: Path) -> None:
    """Nothing is disbelieved where the log does not end at the recovery point, or no clean stop made them agree."""
    directory = copy_of("26-log-start-beyond-the-end", tmp_path)
    (directory / "log-start-offset-checkpoint").write_text("0\n0\n")
    (directory / "replication-offset-checkpoint").write_text("0\n1\nidempotent 0 97\n")
    if cut:
        log = directory / "idempotent-0" / f"{0:020d}.log"
        log.write_bytes(log.read_bytes()[: last_batch_position(log)])
    else:
        (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert [found["code"] for found in findings(directory)] == ["log-short"]


@pytest.mark.longer
@for_each("known_by", ["snapshot", "recovery point", "high watermark"])
def test_a_lost_end_that_a_start_took_up_is_told_until_it_is_given_up(known_by: str, tmp_path: Path) -> None:
    """The offsets are given again, so that only a file beside the log tells."""
    directory = copy_of("26-log-start-beyond-the-end", tmp_path)
    folder = directory / "idempotent-0"
    (directory / "log-start-offset-checkpoint").write_text("0\n0\n")
    log = folder / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[: last_batch_position(log)])
    left = 1 + int.from_bytes(log.read_bytes()[(last := last_batch_position(log)) : last + 8], "big")
    left += int.from_bytes(log.read_bytes()[last + 23 : last + 27], "big")
    if known_by != "snapshot":
        (folder / f"{37:020d}.snapshot").unlink()
    if known_by == "high watermark":
        (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (before,) = findings(directory)
    assert (before["code"], before["offset"], before["last_offset"]) == ("log-short", left, 36)
    for _ in range(2):  # told by every start on
        with Server(directory):
            (after,) = findings(directory)
            assert (after["code"], after["offset"], after["last_offset"]) == ("cut-off", left, 36)
            assert after["records"] == 37 - left
            assert f"ended at offset {left} when a start took it up" in str(after["message"])
            assert call_plog("gaps", str(directory)).returncode == 1
    assert call_plog("produce", "idempotent", "--data-dir", str(directory), stdin=b"new\n").returncode == 0
    (after,) = findings(directory)
    assert f"offset {left} is in the log since, as other records" in str(after["message"])
    done = call_plog("recover", "--apply", str(directory))
    assert findings(directory) == [after]
    assert b"--accept-missing gives them up, until then this file stays" in done.stdout
    assert call_plog("recover", "--apply", "--accept-missing", str(directory)).returncode == 0
    assert findings(directory) == []
    assert call_plog("recover", "--undo", str(directory)).returncode == 0
    assert findings(directory) == [after]


def last_batch_position(log: Path) -> int:
    data, position, last = log.read_bytes(), 0, 0
    while position < len(data):
        last, position = position, position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return last


@pytest.mark.parametrize("is_served", [False, pytest.param(True, marks=pytest.mark.longer)], ids=["files", "server"])
def test_damage_that_ends_the_reading_names_the_partitions_that_were_not_read_to_their_ends(
    is_served: bool, tmp_path: Path
) -> None:
    """t-1 is damaged. A server was asked for all of them at once, so perhaps only that is left."""
    directory = copy_of("26-log-start-beyond-the-end", tmp_path)
    for path in [directory / ".kafka_cleanshutdown", *directory.glob("*-checkpoint"), *directory.glob("*/partition.*")]:
        path.unlink()
    (directory / "idempotent-0").rename(directory / "t-0")
    for number in (1, 2, 3):
        shutil.copytree(directory / "t-0", directory / f"t-{number}")
    log = directory / "t-1" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[last_batch_position(log) + 70] ^= 1
    log.write_bytes(data)
    with contextlib.ExitStack() as stack:
        where = ["--data-dir", str(directory)]
        if is_served:
            where = ["--bootstrap-server", stack.enter_context(Server(directory, "--read-only")).address]
        for options in ([], ["--merge"], ["--max-messages", "1000", "--per-partition"], ["--latest-per-key"]):
            done = call_plog("consume", "t", *where, "--format", r"%p\n", *options)
            assert done.returncode == 1
            given = Counter(done.stdout.decode().split())
            whole = max(given.values()) if "--latest-per-key" in options else 37
            left = {f"t-{number}" for number in range(4) if given[f"{number}"] < whole}
            _, _, named = done.stderr.decode().partition("warning: damage ends the reading; not read to their ends: ")
            assert set(named.partition("\n")[0].split(", ")) - {""} == (left if len(left) > 1 else set()), options
            assert is_served or len(left) == 3 or "--merge" in options


@pytest.mark.longer
def test_a_server_s_damage_is_one_warning(tmp_path: Path) -> None:
    """Though it refuses each of the offsets 14 to 34."""
    with Server(copy_of("00-one-bit-of-length-silent-loss", tmp_path)) as server:
        where = ["--format", r"%o\n", "--no-exit-on-error", "--from", "beginning", "--bootstrap-server", server.address]
        for options in ([], ["--until", "25"], ["--group", "g", "--max-messages", "24"]):
            done = call_plog("consume", "t", *where, *options)
            is_cut = "--until" in options
            given = offsets((0, 13)) + ([] if is_cut else offsets((35, 44)))
            assert ([int(line) for line in done.stdout.split()], done.returncode) == (given, 1), options
            told = done.stderr.decode()
            assert told.count("warning: ") == 1
            assert f"t-0: passed over: offsets 14 to {24 if is_cut else 34}: damaged or missing" in told


def test_no_record_is_given_under_another_ones_offset(tmp_path: Path) -> None:
    """Against the same log without damage."""
    truth = doors.consume(copy_of("01-consume-exit4", tmp_path / "whole") / "multisegment-0")  # its log is sound
    assert list(truth) == ALL_330
    for name, case in CASES.items():
        if case.topic == "multisegment":
            found = doors.consume(copy_of(name, tmp_path) / "multisegment-0")
            assert found == {offset: truth[offset] for offset in case.records}


@for_each("name", CASES)
def test_gaps_names_each_lost_offset_once_and_its_reason(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    found, exit_code = gaps(directory)
    assert found == case.gaps
    assert exit_code == int(
        bool(case.gaps) or bool({"unreadable", "garbage", "zeroed", *WRONG_START} & set(case.codes))
    )


@for_each("name", CASES)
def test_trace_says_the_same_of_an_offset(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    asked = {*case.records[:1], *case.records[-1:], *(offset for gap in case.gaps for offset in gap[:2])}
    for offset in sorted(asked):
        done = call_plog("trace", f"{case.topic}@{offset}", "--data-dir", str(directory), "--output", "json")
        reasons = [reason for first, last, reason in case.gaps if first <= offset <= last]
        if reasons and reasons != ["unknown"]:
            assert (done.returncode, case.says.split(": ", 1)[-1] in done.stderr.decode()) == (1, True)
            ((first, last, _),) = case.gaps
            whole = f"offset {first}: " if first == last else f"offsets {first} to {last}"
            assert whole in done.stderr.decode()  # as the others name it
            continue
        (traced,) = json.loads(done.stdout)
        assert (traced["missing"] or {}).get("reason") == (reasons[0] if reasons else None)
        assert (traced["record"] is None) == bool(reasons)
        is_said = case.codes == WRONG_START and case.says in done.stderr.decode()
        assert bool(done.returncode) == (bool(reasons) or is_said)


# --- verify and recover


@for_each("name", CASES)
def test_verify_finds_the_damage_and_nothing_else(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    found = findings(directory)
    assert sorted(str(finding["code"]) for finding in found) == sorted(case.codes)
    if case.at >= 0:
        assert case.at in {finding["position"] for finding in found}
    if case.first is not None:
        assert "error" in {finding["severity"] for finding in found}
    at_stake = [(f["offset"], f["last_offset"]) for f in found if f["records"]]
    is_marker = name == "05-abort-marker-cut"  # an offset that holds no record
    assert at_stake == [(first, last) for first, last, _ in case.gaps if not is_marker]


@for_each("name", CASES)
def test_the_plan_counts_what_is_lost_once(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    before = doors.contents(directory / f"{case.topic}-0")
    done = call_plog("recover", str(directory), "--output", "json")
    steps = json.loads(done.stdout)
    assert sum(step["records_lost"] for step in steps) == case.lost
    assert sum(step["records_given_up"] for step in steps) == 0
    assert all(number is None or number >= 0 for s in steps for number in (s["position"], s["offset"]))
    assert f"{case.lost} record{'s' * (case.lost != 1)} lost" in done.stderr.decode()
    stay = sum(last + 1 - first for first, last, _ in case.gaps) if not case.mended else 0
    assert (f", {stay} offsets stay missing; " in done.stderr.decode()) == bool(stay)
    assert done.returncode == 1
    assert doors.contents(directory / f"{case.topic}-0") == before


@for_each("name", CASES)
def test_recovering_keeps_every_sound_record_and_can_be_taken_back(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    folder = directory / f"{case.topic}-0"
    before = doors.contents(folder)
    done = call_plog("recover", str(directory), "--apply")
    assert done.returncode == int(not case.mended), done.stderr
    if name not in UNDECODABLE:
        left = losses(str(finding["code"]) for finding in findings(directory))
        assert left == ([] if case.mended else losses(case.codes))
        found, exit_code, _ = consume(directory, case.topic, "--no-exit-on-error")
        assert found == case.records
        assert exit_code == (case.exit_code if not case.mended else 0)
    is_end_lost = name == "07-torn-undercounted"  # what is appended from now on takes those offsets
    if case.mended and case.gaps and case.lost > 1:
        truncated = [(first, last, "truncated") for first, last, _ in case.gaps]
        assert gaps(directory)[0] == ([] if is_end_lost else truncated)
        assert f"clean; {case.lost} records lost" in done.stderr.decode()
    assert call_plog("recover", str(directory), "--undo").returncode == 0
    assert doors.contents(folder) == before


@for_each("name", [name for name, case in CASES.items() if case.fixed is not None])
def test_a_bit_that_is_known_can_be_put_right(name: str, tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    done = call_plog("recover", str(directory), "--apply", "--fix-bits")
    assert (done.returncode, b"clean; 0 records lost" in done.stderr) == (0, True)
    assert findings(directory) == []
    assert consume(directory, case.topic)[:2] == (case.fixed, 0)
    assert gaps(directory) == ([], 0)


def test_what_shows_only_when_a_bit_is_put_right_is_said_to(tmp_path: Path) -> None:
    """No checksum covers a batch's leader epoch: it is looked at in batches that are sound."""
    folder, log, intact = damage_twice(tmp_path, 13)
    done = call_plog("recover", str(folder), "--apply", "--fix-bits")
    said = "2 findings left, some of which show only now: run the same command again to go on with them"
    assert (done.returncode, said in done.stderr.decode()) == (1, True), done.stderr.decode()
    done = call_plog("recover", str(folder), "--apply", "--fix-bits")
    assert (done.returncode, b"clean; 0 records lost" in done.stderr) == (0, True)
    assert log.read_bytes() == intact


@for_each("position", [0, 6, 7])
def test_a_base_offset_is_mended_with_the_bit_that_hides_it(tmp_path: Path, position: int) -> None:
    folder, log, intact = damage_twice(tmp_path / str(position), position)
    done = call_plog("recover", str(folder), "--apply", "--fix-bits")
    assert (done.returncode, b"clean; 0 records lost" in done.stderr) == (0, True)
    assert log.read_bytes() == intact


def damage_twice(directory: Path, position: int) -> tuple[Path, Path, bytes]:
    """Flips a bit there in a batch's header, and another one in its records; gives the folder, the log and its bytes
    before that.
    """
    folder = directory / "multisegment-0"
    shutil.copytree(GOLDEN / "multisegment", folder)
    log = folder / f"{118:020d}.log"
    intact = log.read_bytes()
    content = bytearray(intact)
    content[position] ^= 0x80
    content[100] ^= 0x10
    log.write_bytes(content)
    return folder, log, intact


def test_what_stays_missing_is_said_beside_what_was_mended(tmp_path: Path) -> None:
    shutil.copytree(DAMAGE / "08-missing-middle-log", tmp_path / "disk")
    log = tmp_path / "disk" / "multisegment-0" / f"{229:020d}.log"
    log.write_bytes(b"\xff" * 100 + log.read_bytes()[100:])
    told = call_plog("recover", str(tmp_path / "disk"), "--apply").stderr.decode()
    assert re.search(r"disk: recovered, \d records? lost, 114 offsets stay missing; 1 finding left", told), told
    assert f"the files of before are in {tmp_path / 'disk' / 'multisegment-0'}, *" in told
    assert f"plog recover {tmp_path / 'disk'} --undo takes it back" in told
    traced = call_plog("trace", "multisegment@230", "--data-dir", str(tmp_path / "disk")).stdout.decode()
    assert re.search("no record: truncated: ", traced), traced


@for_each("name, traces", [("04-gaps-says-compacted", []), ("08-missing-middle-log", ["00000000000000000115.index"])])
def test_what_is_missing_is_given_up_only_if_somebody_says_so(name: str, traces: list[str], tmp_path: Path) -> None:
    case, directory = CASES[name], copy_of(name, tmp_path)
    folder = directory / f"{case.topic}-0"
    told = call_plog("recover", str(directory), "--apply").stderr.decode()
    assert "this plan does not mend" in told and "hint: if no replica has what is missing, --accept-missing" in told
    assert all((folder / trace).exists() for trace in traces)
    assert gaps(directory) == (case.gaps, 1)
    assert call_plog("recover", str(directory), "--apply", "--accept-missing").returncode == 0
    ((first, last, _),) = case.gaps
    assert gaps(directory) == ([(first, last, "truncated")], 1)
    found, exit_code, told = consume(directory, case.topic)
    assert (found, exit_code) == (case.records, 0)
    assert f"note: {case.topic}-0: offsets {first} to {last} are not in the log: recovery-journal" in told
    assert call_plog("verify", str(directory)).returncode == 0


def test_aborted_records_stay_invisible_whatever_becomes_of_their_marker(tmp_path: Path) -> None:
    """`.txnindex` proves that the records 53 and 55 are aborted: the marker is written again."""
    directory = copy_of("05-abort-marker-cut", tmp_path)
    (plan,) = (plan for plan in doors.recover(directory / "txn_interleaved-0") if plan.is_needed)
    assert Action.WRITE_MARKER in {step.action for step in plan.steps}
    visible = consume(directory, "txn_interleaved")[0]
    assert visible == CASES["05-abort-marker-cut"].records
    assert not {53, 55} & set(visible)
    uncommitted = consume(directory, "txn_interleaved", "--isolation", "read_uncommitted")[0]
    assert {53, 55} <= set(uncommitted)


def test_an_emptied_log_is_one_finding(tmp_path: Path) -> None:
    """What its indexes say is a part of that, and they are made again when its offsets are given up."""
    directory = copy_of("01-consume-exit4", tmp_path)
    folder = directory / "multisegment-0"
    for index in folder.glob("00000000000000000000.*index"):
        index.unlink()  # one of them is damaged there
    call_plog("recover", str(directory), "--apply")
    (folder / "00000000000000000115.log").write_bytes(b"")
    (found,) = findings(directory)
    assert (found["code"], found["offset"], found["last_offset"]) == ("offsets-missing", 115, 228)
    done = call_plog("recover", str(directory), "--apply", "--accept-missing")
    assert (done.returncode, findings(directory)) == (0, []), done.stderr
    assert gaps(directory) == ([(115, 228, "truncated")], 1)


def test_a_file_that_is_made_again_is_one_step(tmp_path: Path) -> None:
    directory = copy_of("01-consume-exit4", tmp_path)
    index = directory / "multisegment-0" / "00000000000000000229.index"
    index.write_bytes(index.read_bytes()[8:])  # without its first entry, and the rest shifted
    index.write_bytes(bytes(byte ^ 1 if number % 8 == 7 else byte for number, byte in enumerate(index.read_bytes())))
    steps = json.loads(call_plog("recover", str(directory), "--output", "json").stdout)
    (step,) = (step for step in steps if step["path"] == str(index))
    assert step["action"] == "rebuild"
    assert re.search(r"entry 0 \(.*; and \d findings more$", step["why"])


# --- what a crash leaves is no damage


def torn(folder: Path) -> Path:
    """A log of which the last write was cut short, without any file that knows of more."""
    directory = folder / "torn"
    shutil.copytree(DAMAGE / "24-length-flip-no-snapshot", directory)
    log = directory / "t-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[: 2199 + 100])
    (directory / "t-0" / "00000000000000000000.index").unlink()
    (directory / "t-0" / "00000000000000000000.timeindex").unlink()
    return directory


@for_each("options", [[], ["--no-exit-on-error"], ["--exit-on-error"]])
def test_a_torn_tail_is_a_note(options: list[str], tmp_path: Path) -> None:
    directory = torn(tmp_path)
    found, exit_code, told = consume(directory, "t", *options)
    assert (found, exit_code) == (offsets((0, 24)), 0)
    (line,) = told.splitlines()
    assert line.startswith(f"note: t-0: {directory}/t-0/00000000000000000000.log position 2199: torn-tail: ")


def test_the_same_after_a_clean_stop_is_damage(tmp_path: Path) -> None:
    directory = torn(tmp_path)
    (directory / ".kafka_cleanshutdown").write_text('{"version":0}')
    found, exit_code, told = consume(directory, "t")
    assert (found, exit_code, "torn-tail" in told) == (offsets((0, 24)), 1, True)


# --- what is held back


OPEN = DAMAGE.parents[2] / "sample-data" / "open-transaction"
HELD = "note: txn_open-0: 13 offsets from 5 on wait for an open transaction; plog transaction find-hanging --all\n"
"""A transaction begins at offset 5 of 18, and nobody ended it."""


HELD_BACK: list[tuple[list[str], int]] = [
    ([], 5), (["--merge"], 5), (["--from", "end"], 0), (["--exit-on-error"], 5), (["--no-exit-on-error"], 5)
]  # fmt: skip


@for_each("options, count", HELD_BACK)
def test_records_of_an_open_transaction_are_a_note(options: list[str], count: int) -> None:
    assert consume(OPEN, "txn_open", *options) == (list(range(count)), 0, HELD)


@pytest.mark.longer
def test_a_server_notes_them_as_well(tmp_path: Path) -> None:
    shutil.copytree(OPEN, tmp_path / "data")
    with Server(tmp_path / "data", "--read-only") as server:
        for options, count in HELD_BACK:
            done = call_plog("consume", "txn_open", "--format", r"%o\n", *options, "--bootstrap-server", server.address)
            assert (len(done.stdout.split()), done.returncode, done.stderr.decode()) == (count, 0, HELD), options


@for_each("options", [["--isolation", "read_uncommitted"], ["--until", "2"], ["--max-messages", "1"]])
def test_nothing_is_said_of_what_nobody_asked_for(options: list[str]) -> None:
    assert consume(OPEN, "txn_open", *options)[2] == ""


def test_a_group_alone_is_told_too(tmp_path: Path) -> None:
    shutil.copytree(OPEN, tmp_path / "data")
    found, exit_code, told = consume(tmp_path / "data", "txn_open", "--group", "g", "--from", "beginning")
    assert (found, exit_code) == (list(range(5)), 0)
    assert HELD in told


# --- how ranges are named


RANGE = re.compile(r"\b(offsets?|offset:|records?|bytes?|position|segment|from|lsn) (-?\d+)(?: to |-)(-?\d+|the end)\b")
NEGATIVE = re.compile(r"\b(?:offsets?|positions?|bytes|records|lost|missing):? -\d")
IMPOSSIBLE = re.compile(r"\b(?:2147483647|9223372036854775807)\b")


@pytest.mark.longer
@for_each("name", CASES)
def test_ranges_are_never_of_one_offset_or_turned_round(name: str, tmp_path: Path) -> None:
    """One offset is `offset 7`, never `offsets 7 to 7` or `offsets 7 to the end`; no number is negative."""
    case, directory = CASES[name], copy_of(name, tmp_path)
    folder = directory / f"{case.topic}-0"
    edges = {0, *case.records[-1:], *(edge for first, last, _ in case.gaps for edge in (first, last, last + 1))}
    where = ["--data-dir", str(directory)]
    said = [call_plog("dump-segment", str(path)) for path in sorted(folder.glob("*.*")) if path.suffix in DUMPED]
    said += [call_plog("trace", f"{case.topic}@{offset}", *where) for offset in sorted(edges)]
    for options in ([], ["--no-exit-on-error"], ["--isolation", "read_uncommitted", "--no-exit-on-error"]):
        said.append(call_plog("consume", case.topic, *where, "--format", r"%o\n", *options))
    for command in ("verify", "recover", "gaps", "stats"):
        for options in OPTIONS[command]:
            said.append(call_plog(command, str(directory), *options))
    for done in said:
        assert done.returncode in (0, 1, 3), (done.args, done.stderr)
        shown = b"" if done.args[0] == "dump-segment" else done.stdout  # which shows what is stored
        for line in (shown + done.stderr).decode().splitlines():
            assert not wrong_ranges(line), (done.args, line)


DUMPED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
OPTIONS: dict[str, list[list[str]]] = {
    "verify": [[], ["--deep"]],
    "recover": [[], ["--like-kafka"], ["--fix-bits"], ["--accept-missing"]],
    "gaps": [[], ["--isolation", "read_uncommitted"]],
    "stats": [[]],
}


def wrong_ranges(line: str) -> list[str]:
    found = [match[0] for match in RANGE.finditer(line) if not is_rising(*match.groups())]
    return found + NEGATIVE.findall(line) + IMPOSSIBLE.findall(line)


def is_rising(what: str, first: str, last: str) -> bool:
    if last == "the end":
        return False
    is_of_bytes = what.startswith(("byte", "position"))
    return 0 <= int(first) < int(last) or (is_of_bytes and 0 <= int(first) == int(last))


@for_each(
    "line, is_wrong",
    [
        ("offsets 7 to 7", True),
        ("offsets 8 to the end", True),
        ("offsets 9 to 7", True),
        ("bytes 68 to -2", True),
        ("-1 records lost, at offset -1", True),
        ("2147483647 records lost", True),
        ("offsets 7 to 8, bytes 5 to 5, offset 9", False),
    ],
)
def test_what_the_test_above_looks_for(line: str, *, is_wrong: bool) -> None:
    assert bool(wrong_ranges(line)) == is_wrong


@pytest.mark.longer
def test_what_an_owners_start_cut_off_is_named_and_put_back(tmp_path: Path) -> None:
    """From the crash to the mended log: two starts of a broker, and a recovery between them."""
    directory = tmp_path / "disk"
    shutil.copytree(DAMAGE / "26-log-start-beyond-the-end", directory)
    for name in (".kafka_cleanshutdown", "log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (directory / name).unlink()
    (directory / "idempotent-0" / f"{37:020d}.snapshot").unlink()
    (directory / "recovery-point-offset-checkpoint").write_text("0\n1\nidempotent 0 0\n")
    log = directory / "idempotent-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    truth = doors.consume(directory / "idempotent-0")
    place = next(place for place in places(directory / "idempotent-0") if place.offset >= 10)
    log.write_bytes(whole[: place.end - 3] + bytes([whole[place.end - 3] ^ 1]) + whole[place.end - 2 :])
    kept = {offset: record for offset, record in truth.items() if offset not in place.offsets}
    with Server(directory):
        pass
    assert sorted(doors.consume(directory / "idempotent-0")) == [n for n in truth if n < place.offset]
    (found,) = findings(directory)
    assert (found["code"], found["offset"], found["last_offset"]) == ("cut-off", place.end_offset, max(truth))
    assert call_plog("recover", str(directory), "--apply").returncode == 0
    assert findings(directory) == []
    with Server(directory) as server:
        where = ["idempotent", "--bootstrap-server", server.address]
        assert call_plog("produce", *where, stdin=b"new\n").returncode == 0
        done = call_plog("consume", *where, "--format", r"%o\n")
    assert [int(line) for line in done.stdout.split()] == [*kept, max(truth) + 1]
    assert findings(directory) == []
