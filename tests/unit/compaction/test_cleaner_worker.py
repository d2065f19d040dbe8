from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from core.common.topic_partition import TopicPartition
from core.compaction import cleaner_worker
from core.compaction.cleaner_process import CleanerSettings, format_log
from core.compaction.cleaner_worker import Throttle
from core.compaction.log_to_clean import LogToClean
from core.files.log_config import LogConfig


def test_no_more_bytes_a_second_than_are_allowed() -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    throttle = Throttle(1000, lambda: now, sleep)
    for _ in range(10):
        throttle(500)
        now += 0.1  # what the work takes
    assert now == pytest.approx(105.1)
    now += 60  # of which a second counts
    for _ in range(3):
        throttle(500)
    assert now == pytest.approx(165.6)


def test_the_process_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = Throttle(1e9)
    throttle(1)
    monkeypatch.setattr(os, "getppid", lambda: -1)  # 1 may be who runs this test, in a container
    with pytest.raises(SystemExit):
        throttle(1)


@pytest.mark.parametrize("error", [IndexError("index 56 is out of bounds"), MemoryError()])
def test_a_mistake_with_one_log_is_told_and_the_next_is_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    settings = asdict(CleanerSettings(1 << 20, 0.9, 1e9))
    logs = [LogToClean(tmp_path, TopicPartition(t, 0), LogConfig(), [], 0, 0, [], {}) for t in ("odd", "sound")]
    requests = [{"log": format_log(log), "now_ms": 0, "settings": settings} for log in logs]
    clean = cleaner_worker._clean

    def clean_or_fail(log: LogToClean, *others: object) -> None:
        if log.partition.topic == "odd":
            raise error
        clean(log, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner_worker, "_clean", clean_or_fail)
    monkeypatch.setattr(os, "nice", lambda _: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(request) + "\n" for request in requests)))
    cleaner_worker.main()
    odd, sound = map(json.loads, capsys.readouterr().out.splitlines())
    if isinstance(error, IndexError):
        assert odd == {"corrupt": f"plog met a bug of its own: IndexError: {error}", "path": str(tmp_path)}
    else:
        assert odd == {"refused": "there is not enough memory"}
    assert sound["end_offset"] == 0
