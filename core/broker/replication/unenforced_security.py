"""What guards a cluster that ZooKeeper keeps, and plog does not obey: ACLs, users of SCRAM, delegation tokens, and
settings that were made for brokers while they ran. Quotas guard nobody's data: they are told, and no reason to leave.

What is found at the start is raised before a data directory is touched, what comes later has the broker leave. No
request that plog serves may write it: `find_guards` refuses such settings, and `ClientQuotas` knows no credentials.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.client_quotas import ClientQuotas
from core.broker.config.security_requirements import ensure_asks_for_none, ensure_open_to_everybody
from core.cluster.image.security_image import counts_text
from core.common.endpoint import Endpoint
from core.common.errors import UsageError
from core.zookeeper.stored_acls import StoredAcls
from core.zookeeper.znodes import DEFAULT_ENTITY, ConfigEntity
from core.zookeeper.zookeeper_session import ZooKeeperSession

_log = logging.getLogger("plog.zookeeper")

_SCRAM = "SCRAM-"
"""What the names of a user's settings begin with that are credentials: SCRAM-SHA-256, SCRAM-SHA-512."""


class UnenforcedSecurity:
    """Owned by the loop's thread."""

    def __init__(
        self, session: ZooKeeperSession, quotas: ClientQuotas, config: BrokerConfig, listens: Sequence[Endpoint]
    ) -> None:
        """`config` is what the broker was started with, `listens` where it is going to listen."""
        self.on_guarded: Callable[[UsageError], None] | None = None
        """Has the broker leave the cluster in a controlled way, for that reason."""
        self._quotas = quotas
        self._config = config
        self._listens = listens
        self._rules = StoredAcls(session, self._look)
        self._users: set[str] = set()
        self._of_brokers: dict[str, Mapping[str, str]] = {}
        self._node_id: int | None = None
        self._said = ""

    async def start(self, node_id: int) -> None:
        """Reads what there is, and goes on looking. Raises UsageError if the broker must not serve it."""
        self._node_id = node_id
        await self._rules.start()
        self.ensure_open()  # also of what `_look` met while nobody could be told
        self._said = self.summary
        if self._rules.has_folders and not self._rules.acls:
            _log.warning(
                "an authorizer of Kafka's has worked in this cluster (/kafka-acl in ZooKeeper): if the other brokers "
                "still have one, they let in nobody but super users, and plog lets in everybody"
            )

    def stop(self) -> None:
        self._rules.stop()

    @property
    def summary(self) -> str:
        """Counts what there is of each, for people; empty if there is nothing."""
        return self._count_text(self._quotas.count)

    def _count_text(self, quotas: int) -> str:
        rules = self._rules
        users = len(self._users)
        return counts_text(
            [(rules.acls, "ACL"), (users, "SCRAM user"), (rules.tokens, "delegation token"), (quotas, "quota")]
        )

    def take(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        """Takes note of all settings that an entity has now; those of topics guard nobody."""
        if entity.kind == "topics":
            return
        if entity.kind == "users" and entity.client is None:
            if any(name.startswith(_SCRAM) for name in settings):
                self._users.add(entity.name)
            else:
                self._users.discard(entity.name)
        elif entity.kind == "brokers":
            self._of_brokers[entity.name] = settings
        self._look()

    def note_unreadable(self, entity: ConfigEntity) -> None:
        """A user whose settings can't be read may have credentials."""
        if entity.kind == "users" and entity.client is None:
            self._users.add(entity.name)
            self._look()

    def ensure_open(self) -> None:
        """Raises UsageError if the cluster is guarded, and this broker would serve it to everybody."""
        if self._config.ignores_security:
            return
        ensure_asks_for_none(
            replace(
                self._config,
                dynamic_defaults=self._of_brokers.get(DEFAULT_ENTITY, {}),
                dynamic=self._of_brokers.get(str(self._node_id), {}),
            )
        )
        held = self.summary if self._count_text(0) else ""
        for listen in self._listens:
            ensure_open_to_everybody(held, listen)

    def _look(self) -> None:
        if self._node_id is None:
            return
        try:
            self.ensure_open()
        except UsageError as error:
            if self.on_guarded is not None:
                self.on_guarded(error)
            return
        if self.summary and not self._said:
            _log.warning("the metadata hold %s now, and plog obeys none of them", self.summary)
        self._said = self.summary
