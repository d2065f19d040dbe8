"""Security settings of a ZooKeeper-mode cluster that this broker does not enforce: ACLs without an authorizer, SCRAM
users without a listener at which they log in, delegation tokens, and some dynamic settings of brokers. Quotas protect
no data: they are reported, and are no reason to leave. With an authorizer a client that can't log in is User:ANONYMOUS,
and may do what ACLs allow that.

Settings found at the start are an error before a data directory is touched; later ones make the broker leave. No
request that plog serves may write them: `find_guards` refuses such settings, `ClientQuotas` refuses credentials, and
`ZooKeeperSecurity` what this broker would not obey.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import ZOOKEEPER_AUTHORIZERS
from core.broker.config.client_quotas import ClientQuotas
from core.broker.config.security_requirements import ensure_open_to_everybody, ensure_unguarded
from core.broker.replication.zookeeper_security import WriteSettings, ZooKeeperSecurity
from core.broker.serving.loop_tasks import LoopTasks
from core.cluster.image.security_image import counts_text
from core.common.clock import Clock
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.files.login_secret import LOGIN_SECRET_BYTES
from core.security.acl_rules import ZooKeeperAclRules
from core.security.principal import parse_principals
from core.zookeeper.stored_acls import StoredAcls
from core.zookeeper.znodes import DEFAULT_ENTITY, LOGIN_SECRET, ConfigEntity
from core.zookeeper.zookeeper_session import ZooKeeperSession, read_or_create

_log = logging.getLogger("plog.zookeeper")

_NOT_OBEYED = KafkaError(
    ErrorCode.SECURITY_DISABLED,
    "without authorizer.class.name, brokers of plog leave a cluster with ACLs or users: set it first",
)


class UnenforcedSecurity:
    """Owned by the loop's thread."""

    def __init__(
        self,
        session: ZooKeeperSession,
        quotas: ClientQuotas,
        config: BrokerConfig,
        listens: Sequence[Endpoint],
        *,
        clock: Clock,
        write: WriteSettings,
        tasks: LoopTasks,
    ) -> None:
        """`config` is the broker's static configuration, `listens` are its endpoints; `write` changes settings."""
        self.on_guarded: list[Callable[[UsageError], None]] = []
        """Called with the reason why the broker must leave the cluster, in a controlled way."""
        self._quotas = quotas
        self._config = config
        self._listens = listens
        rules = ZooKeeperAclRules(
            super_users=parse_principals(config.super_users),
            allows_everyone_if_none=config.allow_everyone_if_no_acl_found,
        )
        self.acls = StoredAcls(session, rules, self._look, clock=clock)
        refusal = None if config.authorizes() else _NOT_OBEYED
        self.store = ZooKeeperSecurity(self.acls, write, tasks, refusal, has_login=self._has_login)
        self._of_brokers: dict[str, Mapping[str, str]] = {}
        self.login_secret = b""
        """The same in all brokers of plog, after `start` of a broker at which clients log in: see `ScramServer`."""
        self._session = session
        self._node_id: int | None = None
        self._said = ""

    @property
    def _has_login(self) -> bool:
        """Whether users log in at a listener."""
        config = self._config
        return not config.ignores_security and any(one.is_sasl for one in config.served_listeners)

    async def start(self, node_id: int) -> None:
        """Reads the settings, and watches for changes. Raises UsageError if the broker must not serve the cluster."""
        if self._config.authorizes():
            await self.acls.make_folders()
        await self.acls.start()
        if self._has_login:
            node = await read_or_create(self._session, LOGIN_SECRET, os.urandom(LOGIN_SECRET_BYTES))
            if len(node.data) != LOGIN_SECRET_BYTES:
                raise UsageError(
                    f"{LOGIN_SECRET} in ZooKeeper has {len(node.data)} bytes, expected {LOGIN_SECRET_BYTES} random",
                    hint="delete that node: the next broker of plog to start makes another",
                )
            self.login_secret = node.data
        self._node_id = node_id  # not before all is known
        self.ensure_open()  # also for findings of `_look` before anybody subscribed
        self._said = self.summary
        if self.acls.has_folders and not self.acls.rules and not self._config.authorizes():
            _log.warning(
                "an authorizer of Kafka's has worked in this cluster (/kafka-acl in ZooKeeper): if the other brokers "
                "still have one, they let in nobody but super users, and plog lets in everybody; if so, set "
                "authorizer.class.name=%s",
                ZOOKEEPER_AUTHORIZERS[0],
            )

    def stop(self) -> None:
        self.acls.stop()

    @property
    def summary(self) -> str:
        """The count of each kind that is not obeyed, for people; empty if nothing is protected."""
        return self._count_text(self._quotas.count)

    def _count_text(self, quotas: int) -> str:
        acls = 0 if self._config.authorizes() else len(self.acls.rules)
        users, tokens = 0 if self._has_login else len(self.store.users), self.acls.tokens
        return counts_text([(acls, "ACL"), (users, "SCRAM user"), (tokens, "delegation token"), (quotas, "quota")])

    def take(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        """Notes all present settings of an entity; those of topics protect nothing."""
        if entity.kind == "topics":
            return
        if entity.kind == "users" and entity.client is None:
            self.store.take_user(entity.name, settings)
        elif entity.kind == "brokers":
            self._of_brokers[entity.name] = settings
        self._look()

    def note_unreadable(self, entity: ConfigEntity) -> None:
        """Notes a user whose settings can't be read: it may have credentials."""
        if entity.kind == "users" and entity.client is None:
            self.store.take_user(entity.name, None)
            self._look()

    def ensure_open(self) -> None:
        """Raises UsageError if the cluster is protected, and this broker would serve it to everybody."""
        if self._config.ignores_security:
            return
        own = self._of_brokers.get(str(self._node_id), {})
        ensure_unguarded(self._config.with_dynamic(self._of_brokers.get(DEFAULT_ENTITY, {}), own), is_member=True)
        held = self.summary if self._count_text(0) and not self._config.authorizes() else ""
        for listen in self._listens:
            ensure_open_to_everybody(held, listen, ZOOKEEPER_AUTHORIZERS[0])

    def _look(self) -> None:
        if self._node_id is None:
            return
        try:
            self.ensure_open()
        except UsageError as error:
            for on_guarded in self.on_guarded:
                on_guarded(error)
            return
        if self.summary and not self._said:
            _log.warning("the metadata hold %s now, and plog obeys none of them", self.summary)
        self._said = self.summary
