"""`plog spark-replay` once more: after files went away, after the log changed, and of a log that has lost records.

Spark is left out: what its tasks do is done in this process.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from cli.commands.spark_replay import _showing_how_far_lanes_are
from core.common.errors import AccessError
from core.spark.lake_folder import PlainFolder
from core.spark.offset_range import OffsetRange
from core.spark.replay import Replay, write_range
from core.spark.replay_plan import ReplayPlan
from tests.crash.test_replay_faults import run_here
from tests.support.for_each import for_each
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.server import call_plog

pytestmark = pytest.mark.longer

DAYS = 24 * 3600_000


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.commands.spark_replay._run_with_spark", run_here)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """t-0 has 60 records in batches of three, a day after the other."""
    log = open_log(tmp_path / "data" / "t-0", segment_bytes=400)
    for n in range(0, 60, 3):
        append(log, make_batch(*(b"%d" % (n + i) for i in range(3)), timestamp=NOW + (n - 60) * DAYS, key=b"k"))
    log.close()
    return tmp_path / "data"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def replay(data: Path, out: Path, *options: str, kind: str = "parquet", code: int = 0) -> str:
    """stderr."""
    where = ["--to", f"{kind}:{out}", "--range-size", "700", "--data-dir", str(data)]
    done = call_plog("spark-replay", "t", *where, *options)
    told = done.stderr.decode()
    assert done.returncode == code, told
    return told


def verify(out: Path, code: int = 0) -> str:
    done = call_plog("spark-replay", "--verify", str(out))
    assert done.returncode == code, done.stderr
    return done.stderr.decode()


def offsets(out: Path) -> list[int]:
    return sorted(n for path in out.rglob("*.parquet") for n in pq.read_table(path)["offset"].to_pylist())


def contents(out: Path) -> dict[str, bytes]:
    """Of all files but the lock's, and receipts, which say where files were before."""
    files = (path for path in out.rglob("*") if path.is_file() and not path.name.startswith("lock-"))
    files = (path for path in files if path.parent.name != "receipts")
    return {str(path): path.read_bytes() for path in files}


def receipts(out: Path) -> list[Path]:
    return sorted((out / "_plog" / "receipts").glob("*.json"))


def flip_bit(path: Path) -> None:
    """Of the first batch's records."""
    content = bytearray(path.read_bytes())
    content[65] ^= 1
    path.write_bytes(content)


# --- what went away is written again


@pytest.mark.parametrize("options", [[], ["--partition-by", "day"]], ids=["files", "folders"])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_file_that_was_deleted_is_written_again(
    data: Path, out: Path, options: list[str], has_manifest: bool
) -> None:
    replay(data, out, *options)
    before, kept = contents(out), {path.name: path.stat().st_mtime_ns for path in receipts(out)[1:]}
    lost = min(out.rglob("*.parquet"))
    lost.unlink()
    if not has_manifest:
        (out / "_plog" / "manifest.json").unlink()
    told = replay(data, out, *options)
    assert f"warning: {lost.relative_to(out)}: written before, and gone from {out}: t-0-" in told
    assert "replaying 1 of" in told
    assert offsets(out) == list(range(60))
    assert contents(out) == before
    assert {path.name: path.stat().st_mtime_ns for path in receipts(out)[1:]} == kept
    assert "exact" in verify(out)
    assert "done already" in replay(data, out, *options)


def test_all_of_them(data: Path, out: Path) -> None:
    replay(data, out, "--partition-by", "day")
    for folder in out.glob("day=*"):
        shutil.rmtree(folder)
    assert "more: written before, and gone" in replay(data, out, "--partition-by", "day")
    assert "exact" in verify(out)


def test_a_unit_whose_receipt_was_taken_away_is_done_again(data: Path, out: Path) -> None:
    replay(data, out)
    receipts(out)[0].unlink()
    assert "replaying 1 of" in replay(data, out)
    assert "exact" in verify(out)


def test_a_replay_of_nothing_is_made_again_too(data: Path, out: Path) -> None:
    replay(data, out, "--from", "end")
    (path,) = out.glob("*.parquet")
    path.unlink()
    replay(data, out, "--from", "end")
    assert pq.read_table(path).num_rows == 0


def test_a_file_that_somebody_changed_stays(data: Path, out: Path) -> None:
    replay(data, out)
    first, second = sorted(out.glob("*.parquet"))[:2]
    second.unlink()
    with first.open("ab") as file:
        file.write(b"mine")
    before = contents(out)
    told = replay(data, out, code=1)
    assert f"error: {first} has" in told
    assert "it was changed since" in told
    assert "hint: move it out of the folder, and the same command writes it again" in told
    assert contents(out) == before
    first.unlink()
    replay(data, out)
    assert "exact" in verify(out)


def test_what_the_log_has_not_any_more_is_not_taken_from_the_folder(data: Path, out: Path) -> None:
    """The range of the lost file is deleted from the log: the others, and the manifest, stay."""
    replay(data, out)
    min(out.glob("*.parquet")).unlink()
    first, second, *_ = sorted((data / "t-0").glob("*.log"))
    first.unlink()
    (data / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {int(second.stem)}\n")  # retention did it
    before = contents(out)
    told = replay(data, out, code=1)
    assert "were planned to be replayed, and are deleted since" in told
    assert contents(out) == before
    assert "is missing" in verify(out, code=1)


def test_a_log_that_is_away_when_the_job_has_failed(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of it then fails, too: how to go on is told all the same."""
    log, away = data / "t-0", data.parent / "away"

    def fail(*_: Any) -> None:
        log.rename(away)
        raise AccessError("the job failed")

    with monkeypatch.context() as patches:
        patches.setattr("cli.commands.spark_replay._run_with_spark", fail)
        told = replay(data, out, code=3)
    assert "hint: when that is mended, the same command again goes on from there (" in told
    away.rename(log)
    replay(data, out)
    assert "exact" in verify(out)


@pytest.mark.parametrize("damage", ["the first log is gone", "a byte"])
def test_what_the_log_has_lost_is_not_taken_from_the_folder(data: Path, out: Path, damage: str) -> None:
    """Neither are the receipt and the manifest, which tell what was there."""
    replay(data, out)
    min(out.glob("*.parquet")).unlink()
    first, *_ = sorted((data / "t-0").glob("*.log"))
    if damage == "a byte":
        first.write_bytes(first.read_bytes()[:-1] + b"?")
    else:
        first.unlink()
    before = contents(out)
    told = replay(data, out, code=1)
    assert "lost (" in told
    assert "allow-loss" in told
    assert contents(out) == before


def test_receipts_that_know_no_sizes(data: Path, out: Path) -> None:
    """As they were written before."""
    replay(data, out)
    for path in [*receipts(out), out / "_plog" / "manifest.json"]:
        fields = json.loads(path.read_text())
        for file in fields["files"]:
            del file["bytes"]
        fields.pop("left_out", None)
        path.write_text(json.dumps(fields))
    assert "done already" in replay(data, out)
    assert "exact" in verify(out)


def test_files_that_delta_took_away_stay_away(data: Path, out: Path) -> None:
    """A table has a log of its own, and an optimized one other files."""
    pytest.importorskip("deltalake", reason="the extra delta is not installed")
    replay(data, out, kind="delta")
    min(out.glob("*.parquet")).unlink()
    assert "done already" in replay(data, out, kind="delta")


# --- a log that has grown, and a stop


def test_a_log_that_has_grown_is_named(data: Path, out: Path) -> None:
    replay(data, out)
    log = open_log(data / "t-0")
    append(log, make_batch(b"60", b"61"))
    append(log, make_batch(b"62", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    append_marker(log, 1, is_commit=True)
    log.close()
    said = f"note: {out} is done as of t-0@60; the log has 3 records more by now; --continue replays them\n"
    assert said in replay(data, out)
    assert offsets(out) == list(range(60))
    receipts(out)[0].unlink()  # it goes on with an old plan
    assert said in replay(data, out)
    assert "more by now" not in replay(data, out.with_name("whole"))
    shutil.rmtree(data)
    assert "more by now" not in replay(data, out)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("done", [0, 2])
def test_a_stop_says_how_far_it_came(
    data: Path, out: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int, done: int
) -> None:
    """While Spark starts, and after some ranges."""

    def run_some(replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange], master: str) -> None:
        for range_ in todo[:done]:
            replay.finish(write_range(replay.beside, range_, plan))
        signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr("cli.commands.spark_replay._run_with_spark", run_some)
        told = replay(data, out, code=code)
    ranges = len(json.loads((out / "_plog" / "plan.json").read_text())["ranges"])
    assert f"stopped; the same command again goes on from there ({done} of {ranges} ranges are done)" in told
    assert f"replaying {ranges - done} of {ranges} ranges" in replay(data, out)
    assert "exact" in verify(out)


def test_a_replay_into_a_topic_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while a cluster is away for a time."""
    ranges = [OffsetRange("t", 0, start, start + 10, 1024, directory="x") for start in (0, 10, 20)]
    lanes = [SimpleNamespace(missing=ranges[:count]) for count in (3, 2, 0)]
    answers = iter([lanes[1:2], AccessError("no broker answers"), lanes[2:]])

    def look_up(_lanes: object) -> list[SimpleNamespace]:
        answer = next(answers)
        if isinstance(answer, AccessError):
            raise answer
        return answer

    monkeypatch.setattr("cli.commands.spark_replay._LOOK_SECONDS", 0)
    monkeypatch.setattr("cli.progress._EVERY_SECONDS_IN_A_PIPE", 0)
    replay: Any = SimpleNamespace(look=look_up)
    given: Any = lanes[:1]
    with _showing_how_far_lanes_are(replay, given) as look:
        for _ in range(3):
            look()
    told = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["replayed 1 ranges", "replayed 3 ranges"]


# --- the proof


def test_a_log_that_is_gone_proves_nothing(data: Path, out: Path) -> None:
    replay(data, out)
    ranges = len(receipts(out))
    shutil.rmtree(data)
    told = verify(out, code=1)
    assert "the log can't be compared" in told
    assert f"as the manifest says; {ranges} of {ranges} ranges were not compared with the log" in told
    assert "exact" not in told


def test_a_log_that_was_trimmed_proves_the_rest(data: Path, out: Path) -> None:
    replay(data, out)
    min((data / "t-0").glob("*.log")).unlink()
    assert f"1 of {len(receipts(out))} ranges were not compared with the log" in verify(out, code=1)


# --- a log that has lost records


def test_a_replay_says_each_time_what_it_left_out(data: Path, out: Path) -> None:
    """One batch is damaged."""
    log = sorted((data / "t-0").glob("*.log"))[3]
    first = int(log.stem)
    flip_bit(log)
    told = replay(data, out, code=1)
    assert "crc-mismatch" in told
    shutil.rmtree(out)
    for told in replay(data, out, "--allow-loss", code=1), replay(data, out, "--allow-loss", code=1), verify(out, 1):
        assert told.count("warning: left out: ") == 1
        assert f"t-0: passed over: offsets {first} to {first + 2}: crc-mismatch: " in told
    assert "done already" in replay(data, out, "--allow-loss", code=1)
    assert offsets(out) == [n for n in range(60) if not first <= n < first + 3]
    manifest = Replay(PlainFolder(out)).manifest()
    assert manifest["records"] == 57
    assert sorted(gap[:3] for gaps in manifest["gaps"].values() for gap in gaps) == [[first, first + 3, "damaged"]]
    assert [len(texts) for texts in manifest["left_out"].values()] == [1]
    flip_bit(log)  # as a backup would bring it back: then it is not all of the log any more
    assert "records, the log " in verify(out, code=1)


# --- a folder that is not as it was left


@pytest.mark.parametrize("name", ["plan.json", "manifest.json", "groups.json", "receipts/"])
def test_state_that_is_damaged_is_named(data: Path, out: Path, name: str) -> None:
    replay(data, out)
    path = receipts(out)[0] if name.endswith("/") else out / "_plog" / name
    for content in (b"", b"{", b"[]", b"{}", b'{"files": 7}', b"\xff\xfe", b"null"):
        path.write_bytes(content)
        done = call_plog("spark-replay", "--verify", str(out))
        named = f"error: {path} is damaged: ".encode() in done.stderr
        assert done.returncode == (3 if named else 0), done.stderr
        assert named == (name == "manifest.json") or name == "receipts/"
        if name == "groups.json" and content in (b"[]", b"{}", b"null"):
            continue  # which say nothing of any group, or the wrong thing
        options = ["--commit-group", "g"] if name == "groups.json" else []
        where = ["--to", f"parquet:{out}", "--range-size", "700", "--data-dir", str(data), *options]
        done = call_plog("spark-replay", "t", *where)
        told = done.stderr.decode()
        assert done.returncode == (0 if name == "manifest.json" else 3), told
        assert f"error: {path} is damaged: " in told or name == "manifest.json"


@for_each(
    "place, value",
    [
        (("left_out",), []),
        (("left_out",), None),
        (("left_out",), {"a": 7}),
        (("files", 0, "name"), 7),
        (("files", 0, "rows"), "3"),
        (("files", 0, "bytes"), "3"),
        (("files", 0, "sha256"), None),
        (("files", 0), None),
        (("ranges",), None),
        (("ranges", 0, "start_offset"), "0"),
        (("ranges", 0, "directory"), 7),
        (("output", "kind"), None),
        (("output", "partition_by"), 5),
        (("columns",), [7]),
        (("id",), None),
    ],
)
def test_a_manifest_with_a_field_of_another_type_is_damaged(
    data: Path, out: Path, place: tuple[str | int, ...], value: object
) -> None:
    replay(data, out)
    path = out / "_plog" / "manifest.json"
    good = path.read_bytes()
    fields = json.loads(good)
    at: Any = fields
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    path.write_text(json.dumps(fields))
    done = call_plog("spark-replay", "--verify", str(out))
    assert done.returncode == 3, done.stderr
    assert f"error: {path} is damaged: ".encode() in done.stderr
    assert b"hint: remove it, and the replay's command writes it again" in done.stderr
    assert "is done already" in replay(data, out)
    path.write_bytes(good)


@for_each("field", ["records", "gaps", "left_out", "files"])
def test_a_receipt_with_a_field_of_another_type_is_damaged(data: Path, out: Path, field: str) -> None:
    replay(data, out)
    path = receipts(out)[0]
    good = path.read_bytes()
    path.write_text(json.dumps(json.loads(good) | {field: "x"}))
    assert f"error: {path} is damaged: " in replay(data, out, code=3)
    path.write_bytes(good)
