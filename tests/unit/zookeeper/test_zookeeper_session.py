"""What is known and said of a session whose ZooKeeper is away: the loop's time is the test's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession


class Loop:
    """Calls what is due when time passes."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._calls: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, seconds: float, function: Callable[..., None], *arguments: Any) -> Any:
        call = self.now_s + seconds, function, arguments
        self._calls.append(call)
        return type("Handle", (), {"cancel": lambda _: self._calls.remove(call)})()

    def pass_time(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while due := [call for call in self._calls if call[0] <= end_s]:
            call = min(due, key=lambda one: one[0])
            self._calls.remove(call)
            self.now_s = call[0]
            call[1](*call[2])
        self.now_s = end_s


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def session(loop: Loop) -> ZooKeeperSession:
    made = ZooKeeperSession(ZooKeeperConfig(*parse_zookeeper_connect("127.0.0.1:1"), 6000))
    made._loop = cast(asyncio.AbstractEventLoop, loop)
    made._on_state(SessionState.CONNECTED, 1)
    return made


def test_how_long_zookeeper_is_away(session: ZooKeeperSession, loop: Loop) -> None:
    loop.pass_time(50)
    assert session.figures.silence_ms == 0
    session._on_state(SessionState.SUSPENDED, 1)
    loop.pass_time(7.5)
    assert session.figures.silence_ms == 7500
    session._on_state(SessionState.EXPIRED, 1)
    loop.pass_time(2)
    assert session.figures.silence_ms == 9500
    session._on_state(SessionState.CONNECTED, 2)
    assert session.figures.silence_ms == 0
    session._on_state(SessionState.SUSPENDED, 2)
    assert session.figures == (
        SessionState.SUSPENDED,
        0,
        {SessionState.CONNECTED: 2, SessionState.SUSPENDED: 2, SessionState.EXPIRED: 1},
    )


def test_the_loss_is_said_again_at_growing_intervals(
    session: ZooKeeperSession, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    session._on_state(SessionState.SUSPENDED, 1)
    loop.pass_time(3 * 3600)
    said = [int(seconds) for seconds in re.findall(r"no ZooKeeper answers .*\(for (\d+) s\)", caplog.text)]
    assert said[:8] == [5, 15, 35, 75, 155, 315, 635, 1235]
    assert {later - earlier for earlier, later in pairwise(said[7:])} == {600}
    session._on_state(SessionState.CONNECTED, 1)
    caplog.clear()
    loop.pass_time(3600)
    assert not caplog.text
