"""A node that is read again each time it changes: no change may go by unread."""

from __future__ import annotations

import asyncio

import pytest

from core.zookeeper.zookeeper_session import OnEvent, Watch


@pytest.mark.parametrize("turns", range(4))
async def test_a_change_while_the_last_one_is_read_is_read_too(turns: int) -> None:
    """Whenever the news of it comes: so many turns of the loop after the answer."""
    loop = asyncio.get_running_loop()
    answers: list[int] = []

    def change_after(turns: int) -> None:
        loop.call_soon(change_after, turns - 1) if turns else watch.refresh()

    async def read(_on_event: OnEvent) -> int:
        if not answers:
            loop.call_soon(change_after, turns)
        return len(answers)

    watch = Watch("/a", read, answers.append, loop.call_soon, lambda _: None)
    watch.refresh()
    for _ in range(20):
        await asyncio.sleep(0)
    assert answers == [0, 1]


async def test_what_is_read_while_a_watch_is_cancelled_is_given_up() -> None:
    loop = asyncio.get_running_loop()
    asked: list[asyncio.Future[int]] = []
    answers: list[int] = []
    cancelled: list[Watch] = []

    async def read(_on_event: OnEvent) -> int:
        asked.append(loop.create_future())
        return await asked[-1]

    watches = [Watch(path, read, answers.append, loop.call_soon, cancelled.append) for path in ("/read", "/unread")]
    watches[0].refresh()
    await asyncio.sleep(0)
    for watch in watches:
        watch.cancel()
    await asyncio.sleep(0)
    assert [future.cancelled() for future in asked] == [True]
    assert (answers, cancelled) == ([], watches)
