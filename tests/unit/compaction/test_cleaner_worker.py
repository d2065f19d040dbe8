from __future__ import annotations

import io
import os
import pickle
import sys
from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError
from core.common.topic_partition import TopicPartition
from core.compaction import cleaner_worker
from core.compaction.cleaner_process import CleanerSettings, LogCleaned
from core.compaction.cleaner_stats import CleanerStats
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    settings = CleanerSettings(1 << 20, 0.9, 1e9)
    logs = [LogToClean(tmp_path, TopicPartition(t, 0), LogConfig(), [], 0, 0, [], {}) for t in ("odd", "sound")]
    clean = cleaner_worker._clean

    def clean_or_fail(log: LogToClean, *others: object) -> LogCleaned:
        if log.partition.topic == "odd":
            raise error
        return clean(log, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner_worker, "_clean", clean_or_fail)
    monkeypatch.setattr(os, "nice", lambda _: None)
    requests = io.BytesIO(b"".join(pickle.dumps((log, 0, settings)) for log in logs))
    answers = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(requests)))  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(answers))
    cleaner_worker.main()
    answers.seek(0)
    odd, sound = pickle.load(answers), pickle.load(answers)
    if isinstance(error, IndexError):
        assert isinstance(odd, CorruptRecordError)
        assert (odd.cause, odd.path) == (f"plog met a bug of its own: IndexError: {error}", str(tmp_path))
    else:
        assert not isinstance(odd, CorruptRecordError)
        assert odd.message == "there is not enough memory"
    assert sound == LogCleaned(0, CleanerStats())
