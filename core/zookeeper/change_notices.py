"""A folder of notices in ZooKeeper: whoever changes something elsewhere adds a node here that names it.

The nodes are numbered, as config_change_0000000012. Every broker watches the folder, and reads what new notices name.
Any broker deletes notices older than 15 minutes; so a broker that has a new session reads everything again.

Source: kafka.common.ZkNodeChangeNotificationListener of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable

from core.common.clock import Clock
from core.zookeeper.zookeeper_session import SessionState, Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Delete, Node, Refusal, ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

_KEPT_MS = 15 * 60 * 1000
_NAME = re.compile(r"[a-z_]+_[0-9]{10,}")

Apply = Callable[[dict[str, Node] | None], Awaitable[None]]


class ChangeNotices:
    """Owned by the loop's thread. `apply` is awaited with the new notices by their paths, in order, and with None to
    read everything: before `start` returns, and after each expiry of the session.
    """

    def __init__(self, session: ZooKeeperSession, folder: str, apply: Apply, *, clock: Clock) -> None:
        self._session = session
        self._folder = folder
        self._apply = apply
        self._clock = clock
        self._names: list[str] = []
        self._created_ms: dict[str, int] = {}
        """When the known notices were made."""
        self._reads_all = True
        self._is_asked = False
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    async def start(self) -> None:
        self._session.subscribe(self._on_state)
        self._watch = await self._session.watch_children(self._folder, self._on_names)
        assert self._task is not None
        await self._task

    async def catch_up(self) -> None:
        """Waits until all changes announced before this session's last read are applied. Raises ZooKeeperError if the
        session is closed.
        """
        self._on_names(await self._session.children(self._folder))
        assert self._task is not None
        await asyncio.wait([self._task])

    def look(self) -> None:
        """Has `apply` called soon, also without a new notice."""
        self._is_asked = True
        self._begin()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._reads_all = True

    def _on_names(self, names: list[str] | None) -> None:
        self._names = names or []
        self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
            self._task.add_done_callback(self._say_failure)

    async def _work(self) -> None:
        """Works until no notice is left. `names` are from before the read, so the read includes their changes."""
        names: list[str] | None = None
        while names is not self._names or self._reads_all or self._is_asked:
            names = self._names
            reads_all, self._reads_all, self._is_asked = self._reads_all, False, False
            try:
                new = await self._read_new(names)
                await self._apply(None if reads_all else new)
                await self._delete_old()
            except ZooKeeperError as error:
                if error.refusal is Refusal.CLOSED:
                    return
                raise

    async def _read_new(self, names: list[str]) -> dict[str, Node]:
        self._created_ms = {name: self._created_ms[name] for name in names if name in self._created_ms}
        new = [name for name in names if name not in self._created_ms and _NAME.fullmatch(name)]
        nodes = await self._session.read_many([f"{self._folder}/{name}" for name in new])
        found = {name: node for name, node in zip(new, nodes, strict=True) if node is not None}
        self._created_ms |= {name: node.stat.created_ms for name, node in found.items()}
        return {f"{self._folder}/{name}": node for name, node in found.items()}

    async def _delete_old(self) -> None:
        """Another broker may delete them at the same time."""
        oldest_ms = self._clock.now_ms() - _KEPT_MS
        for name in [name for name, created_ms in self._created_ms.items() if created_ms < oldest_ms]:
            path = f"{self._folder}/{name}"
            try:
                await self._session.commit([Delete(path)])
            except ZooKeeperError as error:
                if error.refusal is not Refusal.NO_NODE:
                    _log.debug("could not delete %s: %s", path, error)

    def _say_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("changes named in %s of ZooKeeper could not be read: %s", self._folder, error)
