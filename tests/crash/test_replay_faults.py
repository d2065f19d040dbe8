"""`plog spark-replay` on a disk that refuses: each operation on the folder of the output fails once, the run ends in
words, and the same command again makes the folder exact.

Spark is left out: what its tasks do is done in this process.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from core.spark.offset_range import OffsetRange
from core.spark.replay import Replay, write_range
from core.spark.replay_plan import ReplayPlan
from tests.support.logs import NOW, append, make_batch, open_log
from tests.support.server import call_plog

SAMPLES = int(os.environ.get("PLOG_CRASH_SAMPLES", "12"))
"""Of the operations that may fail, spread over the run."""

_BY_PATH = ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "scandir", "stat", "readlink")
_BY_DESCRIPTOR = ("fsync", "fdatasync", "pwrite", "write")


def run_here(replay: Replay, plan: ReplayPlan, todo: Sequence[OffsetRange], master: str) -> None:
    """What Spark's tasks do, in this process."""
    for range_ in replay.missing(plan):
        replay.finish(write_range(replay.beside, range_, plan))


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.commands.spark_replay._run_with_spark", run_here)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    log = open_log(tmp_path / "data" / "t-0", segment_bytes=400)
    for n in range(12):
        append(log, make_batch(b"%d" % n, timestamp=NOW + n))
    log.close()
    return tmp_path / "data"


@contextmanager
def refusing(folder: Path, number: int, code: int) -> Iterator[list[str]]:
    """In the block the operation of this number on files of the folder fails; gives all operations, in order."""
    done: list[str] = []

    def count(what: str, path: object) -> None:
        if isinstance(path, int):
            try:
                path = real["readlink"](f"/proc/self/fd/{path}")
            except OSError:
                return
        if not isinstance(path, str | os.PathLike) or not str(path).startswith(str(folder)):
            return
        done.append(f"{what} {Path(str(path)).relative_to(folder)}")
        if len(done) - 1 == number:
            raise OSError(code, os.strerror(code), str(path))

    def refuse(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            count(what, arguments[0] if arguments else None)
            return call(*arguments, **options)

        return instead

    real = {name: getattr(os, name) for name in (*_BY_PATH, *_BY_DESCRIPTOR)}
    with pytest.MonkeyPatch.context() as patch:
        for name, call in real.items():
            patch.setattr(os, name, refuse(name, call))
        patch.setattr(io, "open", refuse("open", io.open))
        yield done


def replay(data: Path, out: Path, *options: str) -> tuple[int, str]:
    where = ["--to", f"parquet:{out}", "--range-size", "400", "--data-dir", str(data)]
    done = call_plog("spark-replay", "t", *where, *options)
    return done.returncode, done.stderr.decode()


def ensure_exact(out: Path) -> None:
    found = [n for path in sorted(out.rglob("*.parquet")) for n in pq.read_table(path)["offset"].to_pylist()]
    assert sorted(found) == list(range(12))
    done = call_plog("spark-replay", "--verify", str(out))
    assert b"exact" in done.stderr, done.stderr
    state = {path.name.partition("-")[0] for path in (out / "_plog").iterdir()}
    assert state - {"writing"} == {"lock", "plan.json", "receipts", "manifest.json"}


def spread(count: int, seed: int) -> list[int]:
    step = max(count // SAMPLES, 1)
    return list(range(seed % step, count, step))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_operation_that_fails_ends_the_run_in_words(data: Path, tmp_path: Path, code: int) -> None:
    with refusing(tmp_path / "first", -1, code) as operations:
        assert replay(data, tmp_path / "first")[0] == 0
    ensure_exact(tmp_path / "first")
    for number in spread(len(operations), code):
        out = tmp_path / f"{number}"
        with refusing(out, number, code) as met:
            exit_code, told = replay(data, out)
        assert exit_code in (0, 1, 3), f"{met[-1]}: {told}"
        assert "bug" not in told
        if exit_code:
            assert os.strerror(code).lower() in told.lower(), f"{met[number]}: {told}"
        exit_code, told = replay(data, out)
        assert exit_code == 0, f"{met[number]}: {told}"
        ensure_exact(out)
