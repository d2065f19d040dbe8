"""Work that goes on as long as ZooKeeper is there; the connection comes and goes as a test says."""

from __future__ import annotations

import asyncio

import pytest

from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession, while_connected
from tests.support.for_each import for_each
from tests.support.scripted_controller import run

AT_ONCE = 0.0
NEVER = 1000.0


def connected_session() -> ZooKeeperSession:
    session = ZooKeeperSession(ZooKeeperConfig(*parse_zookeeper_connect("127.0.0.1:1"), 6000))
    session._loop = asyncio.get_running_loop()
    session._on_state(SessionState.CONNECTED, 1)
    return session


async def endless() -> None:
    await asyncio.Event().wait()


def test_work_that_ends_while_it_is_connected_gives_what_it_comes_to() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def scenario() -> None:
        session = connected_session()
        assert await while_connected(session, work(), AT_ONCE) == "done"
        session._on_state(SessionState.SUSPENDED, 1)
        assert await while_connected(session, work(), NEVER) == "done"
        session._on_state(SessionState.CONNECTED, 1)  # nobody listens any more

    run(scenario())


@for_each("is_lost_before", [True, False])
async def test_work_is_broken_off_when_the_connection_is_lost_for_long(is_lost_before: bool) -> None:
    session = connected_session()
    if is_lost_before:
        session._on_state(SessionState.SUSPENDED, 1)
    else:
        asyncio.get_running_loop().call_soon(session._on_state, SessionState.SUSPENDED, 1)
    with pytest.raises(TimeoutError):
        await while_connected(session, endless(), AT_ONCE)
    session._on_state(SessionState.EXPIRED, 1)


def test_a_connection_that_is_back_in_time_breaks_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []
    reschedule = asyncio.Timeout.reschedule

    def spy(timeout: asyncio.Timeout, when: float | None) -> None:
        limits.append(when)
        reschedule(timeout, when)

    monkeypatch.setattr(asyncio.Timeout, "reschedule", spy)

    async def scenario() -> None:
        session = connected_session()
        work = asyncio.create_task(while_connected(session, endless(), NEVER))
        await asyncio.sleep(0)
        for state in (SessionState.SUSPENDED, SessionState.CONNECTED, SessionState.EXPIRED):
            session._on_state(state, 1)
        assert [limit is None for limit in limits[-4:]] == [True, False, True, False]
        work.cancel()

    run(scenario())
