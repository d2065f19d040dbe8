"""`plog spark-replay` with a real Spark: what Kafka and plog wrote, each committed record once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.golden import GOLDEN
from tests.support.server import run_plog

pytest.importorskip("pyspark", reason="the extra spark is not installed")


def test_a_replay_from_plan_to_proof(tmp_path: Path) -> None:
    data_dir, out = tmp_path / "data", tmp_path / "out"
    lines = b"".join(b'{"key": "k%d", "value": "%d", "timestamp": %d}\n' % (n % 9, n, n) for n in range(3000))
    produce = ["produce", "t", "--format", "envelope", "--data-dir", str(data_dir)]
    assert run_plog("topic", "create", "t", "--partitions", "3", "--data-dir", str(data_dir)).returncode == 0
    assert run_plog(*produce, stdin=lines).returncode == 0
    (data_dir / "txn-0").symlink_to(GOLDEN / "txn_multisegment")

    replay = ["spark-replay", "t", "txn", "--to", f"parquet:{out}", "--master", "local[2]", "--data-dir", str(data_dir)]
    planned = run_plog(*replay, "--dry-run", "--output", "json")
    assert {row["partition"] for row in json.loads(planned.stdout)} == {"t-0", "t-1", "t-2", "txn-0"}
    assert not out.exists()

    done = run_plog(*replay)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(sorted(out.glob("*.parquet"))).to_pylist()
    ours = [row for row in rows if row["topic"] == "t"]
    assert sorted(int(row["value"]) for row in ours) == list(range(3000))
    truth = json.loads((GOLDEN / "txn_multisegment.json").read_text())
    committed = truth["read_committed_offsets"]
    assert sorted(row["offset"] for row in rows if row["topic"] == "txn") == committed

    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    again = run_plog(*replay)
    assert again.returncode == 0
    assert b"done already" in again.stderr
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before

    verified = run_plog("spark-replay", "--verify", str(out))
    assert verified.returncode == 0
    assert b"exact: as the manifest and the log say" in verified.stderr
    next(iter(out.glob("*.parquet"))).unlink()
    broken = run_plog("spark-replay", "--verify", str(out))
    assert broken.returncode == 1
    assert b"is missing" in broken.stderr


@pytest.mark.parametrize("to", ["", "parquet:", "nowhere:/x", "parquet"])
def test_where_to(tmp_path: Path, to: str) -> None:
    assert run_plog("produce", "t", "--data-dir", str(tmp_path), stdin=b"a\n").returncode == 0
    done = run_plog("spark-replay", "t", "--to", to, "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert b"expected parquet:DIR" in done.stderr


def test_no_topic(tmp_path: Path) -> None:
    assert run_plog("spark-replay", "--to", "parquet:x", "--data-dir", str(tmp_path)).returncode == 2
    assert run_plog("spark-replay", "nope", "--to", "parquet:x", "--data-dir", str(tmp_path)).returncode == 1
