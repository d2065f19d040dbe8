"""Log lines on stderr: what comes again and again does not fill a disk, and nothing is left out without a word."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from cli.logging import JsonFormatter, SparingHandler, TextFormatter


class Log:
    """A logger of its own; `now` is the time, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self.handler = SparingHandler(self.stream, lambda: self.now)
        self.logger = logging.Logger("plog.test")
        self.logger.addHandler(self.handler)

    def lines(self) -> list[str]:
        """What was written since the last call."""
        found = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return found


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.handler.close()


def test_no_name_makes_a_line_of_its_own(log: Log) -> None:
    log.handler.setFormatter(TextFormatter())
    log.logger.info("transaction of %s is aborted: timed out", "x\n2026-01-01 INFO plog.authorizer: y\x1b[2K\u2028")
    try:
        raise ValueError
    except ValueError:
        log.logger.exception("a\tb")
    first, second, third, *_ = log.lines()
    assert first.endswith(r" x\n2026-01-01 INFO plog.authorizer: y\x1b[2K\u2028 is aborted: timed out")
    assert second.endswith(": a\tb")
    assert third.startswith("Traceback"), "on lines of its own"


def test_the_same_warning_is_written_once_in_ten_seconds_with_how_often_it_came(log: Log) -> None:
    for n in range(1000):
        log.now = n / 100
        log.logger.error("group %s could not be written: %s", "g", "why")
    assert log.lines() == ["group g could not be written: why"]
    log.now = 10.0
    log.logger.error("group g could not be written: why")
    assert log.lines() == [
        "group g could not be written: why (again 999 times in 10.0 s)",
        "group g could not be written: why",
    ]
    log.now = 20.0
    log.logger.error("another one")
    assert log.lines() == ["another one"], "it came once"


def test_any_later_line_tells_how_often_it_came_and_so_does_the_end(log: Log) -> None:
    for n, text in enumerate(("a", "b", "a", "b", "b")):
        log.now = float(n)
        log.logger.warning(text)
    log.now = 11.0
    other = logging.Logger("plog.other")
    other.addHandler(log.handler)
    other.info("later")
    assert log.lines() == ["a", "b", "a (again once in 2.0 s)", "b (again 2 times in 3.0 s)", "later"]
    log.logger.warning("c")
    log.logger.warning("c")
    log.handler.close()
    assert log.lines() == ["c", "c (again once in 0.0 s)"]


def test_how_often_is_told_with_the_time_when_it_came_last(log: Log) -> None:
    log.handler.setFormatter(JsonFormatter())
    for log.now in (1.0, 2.5, 3600.0):
        log.logger.error("a" if log.now < 3600 else "b")
    _, again, _ = map(json.loads, log.lines())
    assert again == {
        "time": "1970-01-01T00:00:02.500+00:00",
        "level": "ERROR",
        "logger": "plog.test",
        "message": "a (again once in 1.5 s)",
    }


def test_what_was_taken_back_in_between_is_written_again(log: Log) -> None:
    for _ in range(2):
        log.logger.warning("lost the connection")
        log.logger.warning("lost the connection")
        log.logger.info("connected")
    lost = ["lost the connection", "lost the connection (again once in 0.0 s)", "connected"]
    assert log.lines() == [*lost, *lost]


def test_a_clock_that_is_set_back_keeps_nothing_back_for_longer(log: Log) -> None:
    log.now = 5000.0
    log.logger.warning("a")
    log.now = 1000.0
    log.logger.warning("a")
    assert log.lines() == ["a", "a"]


def fail() -> None:
    raise ValueError("x")


def fail_elsewhere() -> None:
    raise ValueError("x")


def test_what_is_no_trouble_or_differs_is_always_written(log: Log) -> None:
    for n in range(2):
        log.logger.info("here")
        log.logger.warning("of %d", n)
        log.logger.error("of %d", n)
    assert log.lines() == ["here", "of 0", "of 0", "here", "of 1", "of 1"]


def test_the_same_mistake_is_written_once_with_its_traceback(log: Log) -> None:
    for work in (fail, fail, fail_elsewhere, fail):
        try:
            work()
        except ValueError:
            log.logger.exception("broken")
    lines = log.lines()
    assert (lines.count("broken"), lines.count("ValueError: x")) == (2, 2)


def test_another_reason_raised_by_the_same_line_is_another_mistake(log: Log) -> None:
    for reason in ("no space", "input/output error", "no space"):
        try:
            raise OSError(reason)
        except OSError:
            log.logger.exception("broken")
    assert [line for line in log.lines() if line.startswith("OSError")] == [
        "OSError: no space",
        "OSError: input/output error",
    ]


@pytest.mark.filterwarnings("ignore")
def test_a_line_that_can_not_be_made_hurts_nobody(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.logger.warning("%d parts", "a")
    log.logger.warning("%s", Broken())
    log.logger.warning("next")
    assert log.lines() == ["next"]


def test_so_much_is_remembered_at_most(log: Log) -> None:
    """What is forgotten is told first."""
    log.logger.warning("first")
    log.logger.warning("first")
    for n in range(5000):
        log.logger.warning("other %d", n)
    lines = log.lines()
    assert len(lines) == 5002
    assert lines.count("first (again once in 0.0 s)") == 1
    log.logger.warning("first")
    assert log.lines() == ["first"]
    assert len(log.handler._written) <= 1001
