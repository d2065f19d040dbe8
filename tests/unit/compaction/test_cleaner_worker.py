from __future__ import annotations

import os

import pytest

from core.compaction.cleaner_worker import Throttle


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
