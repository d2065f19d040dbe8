"""Log lines on stderr: what comes again and again does not fill a disk, and nothing is left out without a word."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from cli.logging import SparingHandler


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


def test_the_same_warning_is_written_once_in_ten_seconds_with_how_often_it_came(log: Log) -> None:
    for n in range(1000):
        log.now = n / 100
        log.logger.error("group %s could not be written: %s", "g", "why")
    assert log.lines() == ["group g could not be written: why"]
    log.now = 10.0
    log.logger.error("group g could not be written: why")
    assert log.lines() == [
        "group g could not be written: why (again 999 times in 10 s)",
        "group g could not be written: why",
    ]
    log.now = 20.0
    log.logger.info("something else")
    assert log.lines() == ["something else"], "it came once"


def test_any_later_line_tells_how_often_it_came_and_so_does_the_end(log: Log) -> None:
    for text in ("a", "b", "a", "b", "b"):
        log.logger.warning(text)
    log.now = 10.0
    log.logger.info("later")
    assert log.lines() == ["a", "b", "a (again once in 10 s)", "b (again 2 times in 10 s)", "later"]
    log.logger.warning("c")
    log.logger.warning("c")
    log.handler.close()
    assert log.lines() == ["c", "c (again once in 10 s)"]


def test_what_is_no_trouble_differs_or_has_a_traceback_is_always_written(log: Log) -> None:
    for _ in range(2):
        log.logger.info("here")
        log.logger.warning("of %d", 1)
        log.logger.error("of 1")
        log.logger.error("broken", exc_info=ValueError("x"))
    lines = log.lines()
    assert (lines.count("here"), lines.count("of 1"), lines.count("broken")) == (2, 2, 2)


def test_so_much_is_remembered_at_most(log: Log) -> None:
    """What is forgotten is told first."""
    log.logger.warning("first")
    log.logger.warning("first")
    for n in range(5000):
        log.logger.warning("other %d", n)
    lines = log.lines()
    assert len(lines) == 5002
    assert lines.count("first (again once in 10 s)") == 1
    log.logger.warning("first")
    assert log.lines() == ["first"]
    assert len(log.handler._written) <= 1001
