"""Finds out when a member of a cluster knows all topics: ZooKeeper lists them, the controller announces them one by
one.

The first UpdateMetadata to a registered broker may name brokers alone, and many topics come in several requests. Until
the controller has announced every topic that ZooKeeper lists, `ClusterMemberMetadata.is_informed` is False, and no
client is told that a topic does not exist. The controller announces no topic that is being deleted, that never had a
leader, or that it can't read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from core.cluster.controller.controller_writes import NOT_WRITTEN
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata
from core.zookeeper.controller_store import ControllerStore
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

_LOOK_AGAIN_SECONDS = 0.5
"""How long it waits for news before it looks again, because topics are deleted, too."""
_WARN_AFTER_LOOKS = 20

T = TypeVar("T")


class Read(Protocol):
    """Reads, and retries as often as needed."""

    async def __call__(self, read: Callable[[], Awaitable[T]], /) -> T: ...


class UnannouncedTopics:
    """Owned by the loop's thread."""

    def __init__(self, session: ZooKeeperSession, controller: ClusterMemberMetadata, read: Read) -> None:
        self._controller = controller
        self._read = read
        self._store = ControllerStore(session, 0, 0)  # reads as a controller does
        self._news = asyncio.Event()
        controller.subscribe(lambda _delta: self._news.set())

    async def wait(self, broker_epoch: int) -> None:
        """Sets `is_informed` when the controller has announced all topics, unless the broker has registered again
        before.
        """
        self._controller.is_informed = False
        looks = 0
        try:
            while self._controller.broker_epoch == broker_epoch:
                self._news.clear()
                untold = await self._find_untold() if self._controller.image.brokers else None
                if self._controller.broker_epoch != broker_epoch:
                    return
                if self._controller.image.brokers and untold is None:
                    self._controller.is_informed = True
                    return
                looks += 1
                if looks == _WARN_AFTER_LOOKS and untold is not None:
                    _log.warning(
                        "ZooKeeper has the topic %s, of which the controller, broker %d, has not told this broker: "
                        "until it does, clients that ask for topics that are unknown here are disconnected",
                        untold,
                        self._controller.controller_id,
                    )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _LOOK_AGAIN_SECONDS)
        except ZooKeeperError as error:  # this broker is about to stop
            _log.debug("which topics there are is not known: %s", error)

    async def _find_untold(self) -> str | None:
        listed = set(await self._read(self._store.topic_names))
        listed.difference_update(await self._read(self._store.deleted_topics))
        lacking = [topic for topic in sorted(listed) if self._controller.lacks(topic)]
        for some in filter(None, (lacking[:1], lacking[1:])):  # the first one nearly always decides
            others = {one.topic_id: one.name for one in self._controller.image.topics.values() if one.name not in some}
            found = (await self._read(partial(self._store.read_topics, some, others))).topics
            for topic, controlled in found.items():
                announced = sum(state.partition_epoch != NOT_WRITTEN for state in controlled.partitions.values())
                known = self._controller.image.topics.get(topic)
                if announced > (0 if known is None else len(known.partitions)):
                    return topic
        return None
