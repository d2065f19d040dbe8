"""Work that makes sense only while ZooKeeper is there, as without it a controller decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession

T = TypeVar("T")


async def while_connected(session: ZooKeeperSession, work: Coroutine[Any, Any, T], grace_seconds: float) -> T:
    """Gives what the work comes to. Breaks it off, and raises TimeoutError, once the connection is lost for so many
    seconds.
    """
    time = asyncio.get_running_loop().time
    async with asyncio.timeout(None) as limit:

        def on_state(state: SessionState) -> None:
            if not limit.expired():
                limit.reschedule(None if state is SessionState.CONNECTED else time() + grace_seconds)

        unsubscribe = session.subscribe(on_state)
        on_state(session.state)
        try:
            return await work
        finally:
            unsubscribe()
