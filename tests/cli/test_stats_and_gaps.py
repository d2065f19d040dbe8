"""`plog stats` and `plog gaps` count the same records and the same offsets without one, whatever the log has been
through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.server import call_plog

DAMAGE = GOLDEN.parent / "damage"
DIRECTORIES = [path for root in (SAMPLE_DATA, DAMAGE) for path in sorted(root.iterdir()) if path.is_dir()]


def test_the_plan_of_a_replay_counts_the_same_gap(tmp_path: Path) -> None:
    """Offsets 21 and 22 of 0 to 39, as `plog verify` says."""
    where = ["c_bitflip_middle", "--data-dir", str(SAMPLE_DATA / "damaged"), "--to", f"json:{tmp_path / 'out'}"]
    (row,) = json.loads(ok("spark-replay", *where, "--dry-run", "--allow-loss", "--output", "json"))
    assert (row["start_offset"], row["end_offset"], row["records"]) == (0, 40, 38)
    assert (row["gaps"], row["lost"]) == (2, 2)


class Counts(NamedTuple):
    records: int
    hidden: int
    without: int
    end_offset: int


def counted_by_gaps(directory: Path, file: Path, isolation: str) -> tuple[dict[str, Counts], str, int]:
    done = call_plog("gaps", str(directory), "--isolation", isolation, "--certificate", str(file))
    accounts: list[dict[str, Any]] = json.loads(file.read_text())["partitions"]
    return {f"{a['topic']}-{a['partition']}": _counts(a) for a in accounts}, done.stderr.decode(), done.returncode


def _counts(account: dict[str, Any]) -> Counts:
    hidden = account["hidden_records"]
    gaps = sum(gap["count"] for gap in account["gaps"] if gap["reason"] != "trimmed")
    return Counts(account["records"] + hidden, hidden, gaps - hidden, account["end_offset"])


def counted_by_stats(directory: Path) -> tuple[dict[str, Counts], int]:
    done = call_plog("stats", str(directory), "--output", "json")
    found = {log["log"]: log["summary"] for log in json.loads(done.stdout)}
    names = ("records", "hidden_records", "offsets_without_record", "end_offset")
    return {name: Counts(*(summary[key] for key in names)) for name, summary in found.items()}, done.returncode


@for_each("directory", [*DIRECTORIES, GOLDEN], first=12)
def test_both_count_the_same(directory: Path, tmp_path: Path) -> None:
    by_gaps, said, code = counted_by_gaps(directory, tmp_path / "gaps.json", "read_committed")
    assert counted_by_stats(directory) == (by_gaps, code)
    records = sum(counts.records for counts in by_gaps.values())
    without = sum(counts.without for counts in by_gaps.values())
    assert f"{records} records" in said
    assert f", {without} offsets without one" in said


@for_each("directory", DIRECTORIES, first=12)
def test_isolation_changes_no_count_of_records(directory: Path, tmp_path: Path) -> None:
    """But of those whose end can't be told: they are lost to readers of what is committed."""
    committed, said, _ = counted_by_gaps(directory, tmp_path / "gaps.json", "read_committed")
    everything, _, _ = counted_by_gaps(directory, tmp_path / "gaps.json", "read_uncommitted")
    if "can't be told" not in said:
        assert {n: c._replace(hidden=0) for n, c in committed.items()} == everything


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    """What lies in the file before the log's start is none of its records, and none of its gaps."""
    where = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *where)
    ok("produce", "t", *where, stdin=b"x\n" * 10)
    ok("topic", "delete-records", "t", "--before", "4", *where)
    by_gaps, said, _ = counted_by_gaps(tmp_path / "data", tmp_path / "gaps.json", "read_committed")
    assert by_gaps["t-0"] == Counts(6, 0, 0, 10)
    assert counted_by_stats(tmp_path / "data") == (by_gaps, 0)
    assert "6 records, 0 offsets without one from the log's start on (4 before it), 0 of them lost" in said
