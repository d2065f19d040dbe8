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
