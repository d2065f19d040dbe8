"""`plog compact`, and `plog consume --latest-per-key`, as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from core.inspector.recover.recovery import Recovery
from core.inspector.stats.offline_compaction import CompactionOptions, OfflineCompaction
from tests.cli.conftest import ok
from tests.support import crafted
from tests.support.broker import add_topic, open_broker
from tests.support.compaction import RandomWriter
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, append_marker, fingerprint, make_batch, open_log
from tests.support.server import Server, call_plog, read_json

ROOT = Path(__file__).parents[2]
TEXTBOOK = ROOT / "sample-data" / "textbook"
COMPACT = ["--set", "cleanup.policy=compact"]


@pytest.fixture
def textbook(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TEXTBOOK, tmp_path / "textbook"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Topic t, compacted, random; u is not."""
    broker = open_broker(tmp_path / "data")
    add_topic(broker, "t", cleanup_policy="compact", internal_segment_bytes="3000", delete_retention_ms="60000")
    add_topic(broker, "u")
    log = broker.services.replicas.find("t", 0).log
    writer = RandomWriter(log, Random(5), NOW, with_nulls=False)
    writer.write(80)
    writer.end_all()
    log.roll()
    broker.close()
    return tmp_path / "data"


def values(*arguments: str) -> list[str]:
    return ok("consume", *arguments, "--format", "%o %k %s\\n").decode(errors="replace").splitlines()


def test_the_textbook_planned_and_done(textbook: Path) -> None:
    before = fingerprint(textbook)
    (plan,) = read_json(0, "compact", str(textbook), *COMPACT)
    assert (plan["what"], plan["records_before"], plan["records_after"], plan["superseded"]) == ("compact", 11, 6, 5)
    assert fingerprint(textbook) == before
    (done,) = read_json(0, "compact", str(textbook / "textbook-0"), *COMPACT, "--apply")
    assert done | {"what": "compact"} == plan
    left = ["3 K1 V4", "4 K3 V5", "6 K4 V7", "8 K5 V9", "9 K2 V10", "10 K6 V11"]
    assert values("textbook", "--data-dir", str(textbook)) == left
    assert ok("verify", str(textbook)) == b""


def test_a_log_that_grows_is_not_said_to_shrink(tmp_path: Path) -> None:
    """A tombstone's horizon makes the timestamp of its record longer."""
    segments = {0: crafted.batch(0, [(b"a", None)]), 1: crafted.batch(1, [(b"b", b"1")])}
    folder = crafted.write_partition(tmp_path / "t-0", segments)
    for arguments, taken, gone in ([], b"would be", b"would be removed"), (["--apply"], b"are", b"are gone"):
        said = call_plog("compact", str(folder), *COMPACT, *arguments).stderr
        assert b" B more %s taken, for new headers; 0 records and 0 B %s" % (taken, gone) in said


def test_a_topic_whose_policy_is_not_known_is_refused(textbook: Path) -> None:
    done = call_plog("compact", str(textbook / "textbook-0"), "--apply")
    assert done.returncode == 1
    assert b"--set cleanup.policy=compact" in done.stdout


@pytest.mark.parametrize("more", [[], ["--apply"], ["--set", "min.cleanable.dirty.ratio=0"]])
@pytest.mark.parametrize(("is_damaged", "code"), [(True, 1), (False, 3)])
def test_topics_whose_settings_cant_be_read_are_refused_by_name(
    directory: Path, more: list[str], *, is_damaged: bool, code: int
) -> None:
    (log,) = (directory / "__cluster_metadata-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.unlink()
    if is_damaged:
        log.write_bytes(data)
    else:
        log.mkdir()
    before = fingerprint(directory / "t-0")
    done = call_plog("compact", str(directory), *more, "--output", "json")
    rows = json.loads(done.stdout)
    assert (done.returncode, done.stderr.count(b"error: the metadata log can't be read: ")) == (code, 1)
    assert {(row["partition"], row["what"]) for row in rows} == {("t-0", "refused"), ("u-0", "refused")}
    assert all("--set cleanup.policy=compact" in row["why"] for row in rows)
    assert fingerprint(directory / "t-0") == before
    assert call_plog("compact", str(directory / "t-0"), "--explain", "--all").returncode == code
    assert call_plog("compact", str(directory), "--what-if", "segment.ms=1").returncode == code
    (plan,) = read_json(0, "compact", str(directory / "t-0"), *COMPACT)
    assert plan["what"] == "compact"


def test_a_data_directory_knows_which_topics_are_compacted(directory: Path) -> None:
    latest = values("t", "--data-dir", str(directory), "--latest-per-key")
    (plan,) = read_json(0, "compact", str(directory))
    assert plan["partition"] == "t-0"
    (done,) = read_json(0, "compact", str(directory), "--apply")
    assert done["records_after"] == plan["records_after"]
    assert f"t 0 {done['clean_up_to']}" in (directory / "cleaner-offset-checkpoint").read_text()
    assert values("t", "--data-dir", str(directory), "--latest-per-key") == latest
    assert ok("verify", str(directory)) == b""
    (waits,) = read_json(0, "compact", str(directory))
    assert (waits["what"], waits["records_after"]) == ("waits", None)
    assert "active segment" in waits["why"]
    (refused,) = read_json(1, "compact", str(directory / "u-0"))
    assert "cleanup.policy of u is delete" in refused["why"]


@pytest.mark.longer
def test_it_refuses_a_directory_in_use(directory: Path) -> None:
    with Server(directory):
        done = call_plog("compact", str(directory), "--apply")
    assert done.returncode == 3
    assert b"in use" in done.stderr


def test_two_at_once_are_refused_on_a_lone_folder(textbook: Path) -> None:
    """Whether the folder is named or the one around it; and beside a recovery too."""
    before = fingerprint(textbook)
    folder = textbook / "textbook-0"
    with OfflineCompaction(folder, CompactionOptions({})).locked():
        for path in (folder, textbook):
            done = call_plog("compact", str(path), *COMPACT, "--apply")
            assert done.returncode == 3
            assert f"{textbook} is being worked on by another process" in done.stderr.decode()
        assert call_plog("compact", str(folder), *COMPACT).returncode == 0  # a plan needs no lock
    with Recovery(textbook, folder=folder):
        assert call_plog("compact", str(folder), *COMPACT, "--apply").returncode == 3
    assert fingerprint(textbook) == before
    assert call_plog("compact", str(folder), *COMPACT, "--apply").returncode == 0


def test_it_refuses_a_log_that_is_damaged(directory: Path) -> None:
    path = next(p for p in sorted((directory / "t-0").glob("*.log")) if p.stat().st_size > 500)
    with path.open("r+b") as file:
        file.seek(80)
        file.write(b"\xff\xff")
    before = fingerprint(directory)
    (plan,) = read_json(1, "compact", str(directory))
    assert plan["what"] == "refused"
    assert path.name in plan["why"]
    assert "plog recover" in plan["why"]
    (plan,) = read_json(1, "compact", str(directory), "--apply")
    assert plan["what"] == "refused"
    after = fingerprint(directory)
    assert {k: v for k, v in after.items() if ".log" in k} == {k: v for k, v in before.items() if ".log" in k}


def test_it_refuses_a_log_that_lost_a_segment(directory: Path) -> None:
    """Once it were compacted, nothing would tell what was lost from what was superseded."""
    lost = sorted((directory / "t-0").glob("*.log"))[1]
    lost.unlink()
    for code in ([], ["--apply"]):
        (plan,) = read_json(1, "compact", str(directory), *code)
        assert plan["what"] == "refused"
        assert f"segment {int(lost.stem)} is missing" in plan["why"]
        assert "plog recover" in plan["why"]


def test_it_refuses_a_log_of_which_an_offset_is_wrong(directory: Path) -> None:
    path = next(p for p in sorted((directory / "t-0").glob("*.log")) if p.stat().st_size > 500)
    with path.open("r+b") as file:
        file.seek(5)
        byte = file.read(1)[0]
        file.seek(5)
        file.write(bytes([byte ^ 0x10]))
    (plan,) = read_json(1, "compact", str(directory))
    assert plan["what"] == "refused"
    assert "in the base offset" in plan["why"]


def test_keys_that_do_not_fit_are_done_in_rounds(directory: Path, tmp_path: Path) -> None:
    other = shutil.copytree(directory, tmp_path / "other")
    (small,) = read_json(0, "compact", str(directory), "--apply", "--dedupe-buffer-size", "200")
    (large,) = read_json(0, "compact", str(other), "--apply")
    assert small | {"bytes_after": large["bytes_after"]} == large
    assert values("t", "--data-dir", str(directory)) == values("t", "--data-dir", str(other))


def test_a_copied_folder_on_its_own_is_done_in_rounds_too(tmp_path: Path) -> None:
    """Without a data directory's checkpoints round about it."""
    log = open_log(tmp_path / "t-0", segment_bytes=500)
    for number in range(60):
        append(log, make_batch(b"%d" % number, key=b"k%d" % (number % 30)))
    log.close()
    small = [str(tmp_path / "t-0"), *COMPACT, "--roll", "--dedupe-buffer-size", "300"]
    (plan,) = read_json(0, "compact", *small)
    assert plan["clean_up_to"] < 60
    assert plan["why"] == (
        "this is the first round of about 8, as the keys up to offset 60 don't fit --dedupe-buffer-size; "
        "--apply does all rounds, and 2250 bytes would do it in one"
    )
    (done,) = read_json(0, "compact", *small, "--apply")
    assert (done["records_after"], done["clean_up_to"], done["why"]) == (30, 60, None)
    assert values("t", "--data-dir", str(tmp_path)) == [f"{n} k{n % 30} {n}" for n in range(30, 60)]
    assert ok("verify", str(tmp_path)) == b""


def test_the_active_segment_is_compacted_once_it_is_rolled(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(3):
        append(log, make_batch(b"%d" % number, key=b"k"))
    log.close()
    (plan,) = read_json(0, "compact", str(tmp_path), *COMPACT)
    assert plan["what"] == "waits"
    (done,) = read_json(0, "compact", str(tmp_path), *COMPACT, "--roll", "--apply")
    assert (done["records_before"], done["records_after"]) == (3, 1)
    assert values("t", "--data-dir", str(tmp_path)) == ["2 k 2"]
    assert ok("verify", str(tmp_path)) == b""
    assert open_log(tmp_path / "t-0").log_end_offset == 3


# --- explain, what-if


def reasons(path: Path, key: str, *arguments: str) -> list[tuple[int, str, str]]:
    rows = read_json(0, "compact", str(path), *COMPACT, "--explain", "--key", key, *arguments)
    return [(row["offset"], row["fate"], row["reason"]) for row in rows]


@pytest.fixture
def explained(tmp_path: Path) -> Path:
    """Of every reason one."""
    log = open_log(tmp_path / "t-0", delete_retention_ms=1 << 50)
    append(log, make_batch(b"1", key=b"a"))
    append(log, make_batch(b"1", key=b"b"))
    append(log, make_batch(b"2", key=b"b"))
    append(log, make_batch(b"x", key=b"gone", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 7, is_commit=False)
    append(log, make_batch(b"x", key=None))
    append(log, make_batch(b"1", key=b"late"))
    log.roll()
    append(log, make_batch(b"o", key=b"open", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))
    append(log, make_batch(b"3", key=b"b"))
    log.roll()
    append(log, make_batch(b"2", key=b"late"))
    append(log, make_batch(b"2", key=b"late", timestamp=NOW + 1))
    log.close()
    return tmp_path


def test_explain_says_why_a_record_is_there(explained: Path) -> None:
    assert reasons(explained, "a") == [(0, "stays", "newest")]
    assert reasons(explained, "b") == [
        (1, "goes", "superseded"),
        (2, "stays", "above the last stable offset"),
        (8, "stays", "newest"),
    ]
    assert reasons(explained, "gone") == [(3, "goes", "aborted")]
    assert reasons(explained, "late") == [
        (6, "stays", "active segment"),  # where its successor is
        (9, "stays", "active segment"),
        (10, "stays", "newest"),
    ]
    below = reasons(explained, "b", "--set", "min.cleanable.dirty.ratio=1")
    assert below[0] == (1, "stays", "below dirty ratio")
    rows = read_json(0, "compact", str(explained), *COMPACT, "--explain", "--all")
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert next(row for row in rows if row["offset"] == 5)["reason"] == "without a key"
    rows = read_json(0, "compact", str(explained / "t-0"), "--explain", "--key", "b")
    assert {row["reason"] for row in rows} == {"cleanup.policy is delete", "newest"}


def test_explain_says_how_long_a_tombstone_waits(tmp_path: Path) -> None:
    lines = b'{"key": "a", "value": "1"}\n{"key": "a", "value": null}\n{"key": "b", "value": "1"}\n'
    home = tmp_path / "home"
    ok("topic", "create", "s", "--set", "cleanup.policy=compact", "--data-dir", str(home))
    ok("produce", "s", "--format", "envelope", "--data-dir", str(home), stdin=lines)
    roll = ["--roll", "--set", "min.cleanable.dirty.ratio=0"]
    rows = read_json(0, "compact", str(home), *roll, "--explain", "--key", "a")
    assert [(row["fate"], row["reason"]) for row in rows] == [("goes", "superseded"), ("stays", "tombstone waiting")]
    assert "counted from its first cleaning" in rows[1]["detail"]
    ok("compact", str(home), *roll, "--apply")
    (row,) = read_json(0, "compact", str(home), "--explain", "--key", "a")
    assert (row["offset"], row["fate"], row["reason"]) == (1, "stays", "tombstone waiting")
    assert row["detail"].startswith("until 20")
    assert values("s", "--data-dir", str(home), "--latest-per-key") == ["2 b 1"]


def test_what_if_says_what_a_setting_would_save(directory: Path) -> None:
    before = fingerprint(directory)
    lag = "min.compaction.lag.ms=1000000000000"
    now, then = read_json(0, "compact", str(directory), "--set", lag, "--what-if", "min.compaction.lag.ms=0")
    assert (now["what"], now["saved_bytes"]) == ("waits", 0)
    assert then["settings"] == "min.compaction.lag.ms=0"
    (plan,) = read_json(0, "compact", str(directory))
    saved = plan["bytes_before"] - plan["bytes_after"]  # a horizon, that is the time, is in what is compressed
    assert then["saved_bytes"] == pytest.approx(saved, abs=50)
    assert saved > 1000
    assert fingerprint(directory) == before


@for_each(
    "arguments",
    [
        ["--explain"],
        ["--key", "a"],
        ["--explain", "--key", "a", "--all"],
        ["--apply", "--what-if", "retention.ms=1"],
        ["--set", "no.such.key=1"],
        ["--set", "min.cleanable.dirty.ratio=2"],
        ["--what-if", "x"],
    ],
)
def test_what_makes_no_sense_is_said(textbook: Path, arguments: list[str]) -> None:
    done = call_plog("compact", str(textbook), *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr


# --- consume


def test_the_latest_of_each_key_without_compacting(where: list[str]) -> None:
    ok("topic", "create", "latest", "--partitions", "2", *where)
    lines = "".join(f"k{n % 9}:{n}\n" for n in range(100)).encode()
    ok("produce", "latest", "--key-separator", ":", *where, stdin=lines)
    ok("produce", "latest", *where, stdin=b"without a key\n")
    ok("produce", "latest", "--format", "envelope", *where, stdin=b'{"key": "k4", "value": null}\n')
    done = call_plog("consume", "latest", "--latest-per-key", "--format", "%k %s\n", *where)
    assert done.returncode == 0
    assert sorted(done.stdout.decode().split("\n")[:-1]) == sorted(
        f"k{key} {max(n for n in range(100) if n % 9 == key)}" for key in range(9) if key != 4
    )
    assert b"1 records without a key are left out" in done.stderr


def test_the_topic_as_it_was(textbook: Path) -> None:
    where = ["textbook", "--data-dir", str(textbook)]
    assert values(*where, "--as-of", "5") == ["1 K2 V2", "3 K1 V4", "4 K3 V5"]
    assert values(*where, "--as-of", "2023-11-14T22:13:22Z") == ["0 K1 V1", "1 K2 V2"]
    assert values(*where, "--latest-per-key", "--max-messages", "2") == ["3 K1 V4", "4 K3 V5"]
    for wrong in (["--follow"], ["--group", "g"]):
        assert call_plog("consume", *where, "--latest-per-key", *wrong).returncode == 2
    assert call_plog("consume", *where, "--as-of", "3", "--until", "4").returncode == 2
