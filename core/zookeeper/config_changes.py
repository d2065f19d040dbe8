"""Settings of topics, brokers, users, clients and addresses, as they are changed in ZooKeeper.

A client that changes settings writes the entity's node, then adds a notice (`ChangeNotices`) below /config/changes that
names the entity.

The settings of a new topic come without a node below /config/changes: a broker that creates a log of the topic must
read them (`read_many`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from core.common.clock import Clock
from core.common.errors import MalformedMessageError
from core.zookeeper import znodes
from core.zookeeper.change_notices import ChangeNotices
from core.zookeeper.zookeeper_session import Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Node

_log = logging.getLogger("plog.zookeeper")

OnConfig = Callable[[znodes.ConfigEntity, Mapping[str, str]], None]


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
        self._known: set[znodes.ConfigEntity] = set()
        self._new_users: list[znodes.ConfigEntity] = []
        self._notices = ChangeNotices(session, znodes.CONFIG_CHANGES, self._apply, clock=clock)
        self._users: Watch | None = None

    async def start(self) -> None:
        await self._notices.start()
        self._users = await self._session.watch_children(f"{znodes.CONFIG}/users", self._on_users)

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
        await self._notices.catch_up()

    def stop(self) -> None:
        self._notices.stop()
        if self._users is not None:
            self._users.cancel()

    def _on_users(self, names: list[str] | None) -> None:
        found = [znodes.parse_entity_path(f"users/{name}", f"{znodes.CONFIG}/users/{name}") for name in names or ()]
        self._new_users = [user for user in found if user not in self._known]
        if self._new_users:
            self._notices.look()

    async def _apply(self, notices: Mapping[str, Node] | None) -> None:
        if notices is None:
            entities = await self._list_entities()
            gone = self._known - set(entities)
            await self._read_entities([*entities, *sorted(gone, key=lambda one: one.path)])
        else:
            named = (_entity_of(node, path) for path, node in notices.items())
            await self._read_entities([one for one in dict.fromkeys(named) if one is not None])
        new, self._new_users = self._new_users, []
        await self._read_entities([user for user in new if user not in self._known])

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
