"""Settings of topics, brokers, users, clients and addresses, as they are changed in ZooKeeper.

A client that changes settings writes the entity's node, then adds a node below /config/changes that names the entity.
Every broker watches that folder and reads the named entities. Any broker deletes nodes older than 15 minutes; so a
broker that has a new session reads everything again.

The settings of a new topic come without a node below /config/changes: a broker that creates a log of the topic must
read them (`read_many`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from core.common.clock import Clock
from core.common.errors import MalformedMessageError
from core.zookeeper import znodes
from core.zookeeper.zookeeper_session import SessionState, Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Delete, Node, Refusal, ZooKeeperError

_log = logging.getLogger("plog.zookeeper")

_KEPT_MS = 15 * 60 * 1000

OnConfig = Callable[[znodes.ConfigEntity, Mapping[str, str]], None]


class _Change(NamedTuple):
    number: int
    path: str


class ConfigChanges:
    """Calls `on_config` with an entity's settings, {} if it has none, in the loop: for each entity before `start`
    returns, for each change, and after a new session for each entity again. Owned by the loop's thread. Unreadable
    entities are logged, and `on_unreadable` is called with them. New users are read even without an announcement: they
    may have credentials.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        on_config: OnConfig,
        *,
        clock: Clock,
        on_unreadable: Callable[[znodes.ConfigEntity], None] = lambda _: None,
    ) -> None:
        self._session = session
        self._on_config = on_config
        self._on_unreadable = on_unreadable
        self._clock = clock
        self._last_number = -1
        self._known: set[znodes.ConfigEntity] = set()
        self._reads_all = True
        self._children: list[str] = []
        self._new_users: list[znodes.ConfigEntity] = []
        self._task: asyncio.Task[None] | None = None
        self._watches: list[Watch] = []

    async def start(self) -> None:
        self._session.subscribe(self._on_state)
        self._watches.append(await self._session.watch_children(znodes.CONFIG_CHANGES, self._on_children))
        assert self._task is not None
        await self._task
        self._watches.append(await self._session.watch_children(f"{znodes.CONFIG}/users", self._on_users))

    async def read_many(self, entities: Sequence[znodes.ConfigEntity]) -> list[dict[str, str]]:
        """Returns the present settings of each entity, without a call of `on_config`, in one round of requests; {} for
        an entity that does not exist or can't be read, which is logged.
        """
        nodes = await self._session.read_many([entity.path for entity in entities])
        self._known.update(entities)
        return [_readable_settings_of(node, entity) for node, entity in zip(nodes, entities, strict=True)]

    async def catch_up(self) -> None:
        """Waits until all changes announced before this session's last read are applied, except unreadable ones, which
        are logged. Raises ZooKeeperError if the session is closed.
        """
        self._on_children(await self._session.children(znodes.CONFIG_CHANGES))
        assert self._task is not None
        await asyncio.wait([self._task])

    def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        if self._task is not None:
            self._task.cancel()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._reads_all = True

    def _on_children(self, names: list[str] | None) -> None:
        self._children = names or []
        self._begin()

    def _on_users(self, names: list[str] | None) -> None:
        found = [znodes.parse_entity_path(f"users/{name}", f"{znodes.CONFIG}/users/{name}") for name in names or ()]
        self._new_users = [user for user in found if user not in self._known]
        if self._new_users:
            self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())
            self._task.add_done_callback(_say_failure)

    async def _work(self) -> None:
        """Works until no change is left. `names` are from before the read, so the read includes their changes."""
        names: list[str] | None = None
        while names is not self._children or self._reads_all or self._new_users:
            names = self._children
            try:
                if self._reads_all:
                    self._reads_all = False
                    await self._read_all(names)
                else:
                    await self._read_changes(names)
                new, self._new_users = self._new_users, []
                await self._read_entities([user for user in new if user not in self._known])
            except ZooKeeperError as error:
                if error.refusal is Refusal.CLOSED:
                    return
                raise

    async def _read_all(self, names: Iterable[str]) -> None:
        self._last_number = max(map(znodes.change_number, names), default=-1)
        entities = await self._list_entities()
        gone = self._known - set(entities)
        await self._read_entities([*entities, *sorted(gone, key=lambda one: one.path)])

    async def _list_entities(self) -> list[znodes.ConfigEntity]:
        found = []
        for kind in znodes.CONFIG_KINDS:
            names = await self._session.children(f"{znodes.CONFIG}/{kind}") or []
            paths = [f"{kind}/{name}" for name in names]
            if kind == "users":
                for path in list(paths):
                    clients = await self._session.children(f"{znodes.CONFIG}/{path}/clients") or []
                    paths += [f"{path}/clients/{client}" for client in clients]
            found += [znodes.parse_entity_path(path, f"{znodes.CONFIG}/{path}") for path in paths]
        return found

    async def _read_changes(self, names: Iterable[str]) -> None:
        changes = sorted(
            _Change(number, f"{znodes.CONFIG_CHANGES}/{name}")
            for name in names
            if (number := znodes.change_number(name)) >= 0
        )
        nodes = await self._session.read_many([change.path for change in changes])
        entities: dict[znodes.ConfigEntity, None] = {}
        for change, node in zip(changes, nodes, strict=True):
            if node is None:
                continue
            if change.number > self._last_number:
                self._last_number = change.number
                if (entity := _entity_of(node, change.path)) is not None:
                    entities[entity] = None
        await self._read_entities(list(entities))
        await self._delete_old(changes, nodes)

    async def _read_entities(self, entities: list[znodes.ConfigEntity]) -> None:
        nodes = await self._session.read_many([entity.path for entity in entities])
        for entity, node in zip(entities, nodes, strict=True):
            try:
                settings = _settings_of(node, entity)
            except MalformedMessageError as error:
                _log.error("settings that can't be read are passed over: %s", error)
                self._on_unreadable(entity)
                continue
            self._known.add(entity)
            self._on_config(entity, settings)

    async def _delete_old(self, changes: list[_Change], nodes: list[Node | None]) -> None:
        """Another broker may delete them at the same time."""
        oldest_ms = self._clock.now_ms() - _KEPT_MS
        for change, node in zip(changes, nodes, strict=True):
            if node is not None and node.stat.created_ms < oldest_ms:
                try:
                    await self._session.commit([Delete(change.path)])
                except ZooKeeperError as error:
                    if error.refusal is not Refusal.NO_NODE:
                        _log.debug("could not delete %s: %s", change.path, error)


def _say_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("changes of settings in ZooKeeper could not be read: %s", error)


def _settings_of(node: Node | None, entity: znodes.ConfigEntity) -> dict[str, str]:
    return znodes.decode_config(node.data, entity.path) if node is not None and node.data else {}


def _readable_settings_of(node: Node | None, entity: znodes.ConfigEntity) -> dict[str, str]:
    try:
        return _settings_of(node, entity)
    except MalformedMessageError as error:
        _log.error("settings that can't be read are passed over: %s", error)
        return {}


def _entity_of(node: Node, path: str) -> znodes.ConfigEntity | None:
    try:
        return znodes.decode_config_change(node.data, path)
    except MalformedMessageError as error:
        _log.error("a change of settings is passed over: %s", error)
        return None
