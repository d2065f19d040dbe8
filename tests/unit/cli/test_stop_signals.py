"""A stop ends a command wherever it comes, also where Python drops exceptions."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from cli.stop_signals import exit_code_of, obeying_stop_signals, undivided


class Cleared:
    """Does something while Python clears it away."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def __del__(self) -> None:
        self._work()


@pytest.fixture(autouse=True)
def obeying() -> Iterator[None]:
    with obeying_stop_signals():
        yield


def stop() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):  # the handler is called here at the latest
        pass


def wait() -> None:
    """Until the stop comes."""
    threading.Event().wait()


def test_a_stop_that_is_dropped_is_raised_again(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes at any of them
        Cleared(stop)
        wait()
    assert exit_code_of(0) == 130
    assert capfd.readouterr().err == ""


def test_one_that_is_dropped_twice(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes at any of them
        Cleared(lambda: Cleared(stop) and None)
        Cleared(lambda: threading.Event().wait(0.2) and None)
        wait()


def test_one_that_is_dropped_waits_for_what_is_under_way() -> None:
    ended = False
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes at any of them
        Cleared(stop)
        with undivided(30.0):
            ended = True
        wait()
    assert ended


def test_an_endless_block_ends_first() -> None:
    ended = False
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it comes at any of them
        with undivided(float("inf")):
            stop()

            ended = True
        wait()
    assert ended


def test_other_exceptions_that_are_dropped_are_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("dropped")

    told: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_value))
    with obeying_stop_signals():
        Cleared(fail)
    assert [str(one) for one in told] == ["dropped"]
