"""Counts the ACLs and delegation tokens that a cluster keeps in ZooKeeper, and notices when the first of them appears.

    /kafka-acl/TYPE/NAME                     {"version":1,"acls":[{..},..]}, of the resource of just that name
    /kafka-acl-extended/PATTERN/TYPE/NAME    the same, of the resources whose names fit the pattern (prefixed)
    /delegation_token/tokens/ID              a delegation token

Kafka's authorizer creates the folders, and deletes a resource's node with the last of its ACLs. Kafka 3.9 refuses a
name with a slash; deeper nodes are counted all the same. A node that can't be read may hold an ACL, and counts as one.

Source: kafka.zk.LiteralAclStore, kafka.zk.ExtendedAclStore, kafka.zk.DelegationTokensZNode of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from core.common.errors import MalformedMessageError
from core.zookeeper.znodes import Fields
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Node, Refusal, ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

_ACLS = ("/kafka-acl", "/kafka-acl-extended")
_TOKENS = "/delegation_token/tokens"


class StoredAcls:
    """Owned by the loop's thread."""

    def __init__(self, session: ZooKeeperSession, on_found: Callable[[], None]) -> None:
        """`on_found` is called in the loop when there are some after there were none."""
        self.acls = 0
        self.tokens = 0
        self.has_folders = False
        """Whether an authorizer of Kafka's has ever run here."""
        self._session = session
        self._on_found = on_found
        self._followed: set[str] = set()
        self._waiting: list[str] = []
        self._is_stale = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Counts ACLs, and goes on looking until there are some. Raises ZooKeeperError if it may not read them."""
        await self._count()
        if not self._has_some:
            self._waiting = [*_ACLS, _TOKENS]
            self._followed.update(self._waiting)
            await self._look()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def _has_some(self) -> bool:
        return bool(self.acls or self.tokens)

    async def _count(self) -> None:
        acls = 0
        below = [path for path in _ACLS if await self._session.children(path) is not None]
        self.has_folders = bool(below)
        while below:
            path = below.pop()
            found = [f"{path}/{name}" for name in await self._session.children(path) or ()]
            nodes = await self._session.read_many(found)
            acls += sum(_count_acls(node, one) for node, one in zip(nodes, found, strict=True))
            below += found
        self.tokens = len(await self._session.children(_TOKENS) or ())
        self.acls = acls

    async def _look(self) -> None:
        """Watches the existing nodes, one by one: as long as there are no rules, these are only folders."""
        while not self._has_some and (self._waiting or self._is_stale):
            if self._is_stale:
                self._is_stale = False
                await self._count()
            else:
                path = self._waiting.pop()
                await self._session.watch_data(path, partial(self._on_data, path))
                await self._session.watch_children(path, partial(self._on_children, path))
        if self._has_some:
            self._on_found()

    def _on_data(self, path: str, node: Node | None) -> None:
        if path.startswith(f"{_TOKENS}/") or (path.startswith(_ACLS) and _count_acls(node, path)):
            self._is_stale = True
            self._look_soon()

    def _on_children(self, path: str, names: list[str] | None) -> None:
        new = [below for name in names or () if (below := f"{path}/{name}") not in self._followed]
        self._followed.update(new)
        self._waiting += new
        self._look_soon()

    def _look_soon(self) -> None:
        is_due = not self._has_some and (self._waiting or self._is_stale)
        if is_due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._look())
            self._task.add_done_callback(_say_failure)


def _count_acls(node: Node | None, path: str) -> int:
    if node is None or not node.data:
        return 0
    try:
        return len(Fields.of(node.data, path).get("acls", _read_list))
    except MalformedMessageError:
        return 1


def _read_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("a list")
    return value


def _say_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not (isinstance(error, ZooKeeperError) and error.refusal is Refusal.CLOSED):
        _log.error("whether the cluster has ACLs now can't be read: %s", error)
