"""A cluster in ZooKeeper that is guarded: refused off loopback, left when guards appear, and no request writes them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication import zookeeper_registration
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.pending import Pending
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion
from core.zookeeper.znodes import CONFIG_CHANGE_PREFIX
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.support.for_each import for_each
from tests.unit.zookeeper.test_stored_acls import acls, put, settle

US = 5
EVERYWHERE = Endpoint("0.0.0.0", 9092)
HERE = Endpoint("127.0.0.1", 9092)
SCRAM = "salt=c2FsdA==,stored_key=QUJD,server_key=QUJD,iterations=4096"


class Opened:
    """A broker's way into a cluster of the test, as `ZooKeeperRegistration.open` leaves it."""

    def __init__(
        self, zookeeper: FakeZooKeeper, *listens: Endpoint, ignores_security: bool = False, **static: str
    ) -> None:
        config = replace(BrokerConfig.parse(static), ignores_security=ignores_security)
        self.session = zookeeper.session()
        self.reasons: list[str] = []
        with patch.object(zookeeper_registration, "ZooKeeperSession", return_value=self.session):
            self.entry = entry = zookeeper_registration.ZooKeeperRegistration(
                ZooKeeperConfig(*parse_zookeeper_connect("127.0.0.1:1"), 6000),
                SystemClock(),
                config,
                listens or (EVERYWHERE,),
            )
        entry.security.on_guarded.append(lambda error: self.reasons.append(error.message))

    async def start(self) -> None:
        await self.session.ensure_paths(["/config/changes", "/config/users"])
        await self.entry._changes.start()
        await self.entry.security.start(US)
        self.entry.attach(ClusterMemberMetadata(bytes(16), self.entry.write_configs))


def config(**settings: str) -> bytes:
    return json.dumps(
        {"version": 1, "config": {name.replace("_", "."): text for name, text in settings.items()}}
    ).encode()


def user(**settings: str) -> bytes:
    return json.dumps({"version": 1, "config": settings}).encode()


SCRAM_USER = json.dumps({"version": 1, "config": {"SCRAM-SHA-512": SCRAM}}).encode()
GUARDS = [
    ("/kafka-acl/Topic/secret", acls(), "1 ACL"),
    ("/kafka-acl-extended/prefixed/Topic/pre", acls(2), "2 ACLs"),
    ("/config/users/alice", SCRAM_USER, "1 SCRAM user"),
    ("/config/users/al%20ice", SCRAM_USER.replace(b"512", b"256"), "1 SCRAM user"),
    ("/config/users/<default>", SCRAM_USER, "1 SCRAM user"),
    ("/config/users/alice", b"{not JSON", "1 SCRAM user"),
    ("/delegation_token/tokens/Zm9v", b"{}", "1 delegation token"),
]


async def test_a_broker_with_an_authorizer_makes_the_folders_of_acls() -> None:
    """As kafka-server-start with AclAuthorizer does; one without it makes none."""
    folders = {f"{top}/{kind}" for top in ("/kafka-acl", "/kafka-acl-extended/prefixed") for kind in ("Topic", "Group")}
    for authorizer in ("", "kafka.security.authorizer.AclAuthorizer"):
        zookeeper = FakeZooKeeper()
        await Opened(zookeeper, **{"authorizer.class.name": authorizer}).start()
        changes = {"/kafka-acl-changes", "/kafka-acl-extended-changes"}
        assert (folders | changes) & zookeeper.nodes.keys() == ((folders | changes) if authorizer else set())


@for_each("path, data, held", GUARDS)
async def test_a_guarded_cluster_is_refused_off_loopback(path: str, data: bytes, held: str) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, path, data)
    with pytest.raises(UsageError) as refused:
        await Opened(zookeeper, HERE, EVERYWHERE).start()
    assert refused.value.message == (
        f"the metadata hold {held}, and plog obeys none of them: not served on 0.0.0.0:9092"
    )
    assert "--insecure-ignore-security" in (refused.value.hint or "")
    for opened in (Opened(zookeeper, HERE), Opened(zookeeper, ignores_security=True)):
        await opened.start()
        assert opened.entry.security.summary == held


@for_each("path, data, held", GUARDS)
async def test_a_cluster_that_becomes_guarded_is_left(path: str, data: bytes, held: str) -> None:
    """Nobody announces it in /config/changes: a tool, or a restored backup, may have written the node."""
    zookeeper = FakeZooKeeper()
    opened, near = Opened(zookeeper), Opened(zookeeper, HERE)
    await opened.start()
    await near.start()
    put(zookeeper, path, data)
    await settle()
    assert opened.reasons[0].startswith(f"the metadata hold {held}, and plog obeys none of them")
    assert near.reasons == []


async def test_an_authorizer_obeys_acls() -> None:
    """With users that can't log in: they are ANONYMOUS."""
    zookeeper = FakeZooKeeper()
    for path, data, _ in GUARDS[:3]:
        put(zookeeper, path, data)
    with pytest.raises(UsageError) as refused:
        await Opened(zookeeper).start()
    assert "authorizer.class.name=kafka.security.authorizer.AclAuthorizer" in (refused.value.hint or "")
    opened = Opened(zookeeper)
    opened.entry.security._config = BrokerConfig.parse(
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    )
    await opened.start()
    assert opened.reasons == []


async def test_users_who_log_in_are_obeyed() -> None:
    """At a listener with SASL, even without an authorizer; ACLs need one."""
    settings = {
        "listeners": "PLAINTEXT://0.0.0.0:9092,SASL_PLAINTEXT://0.0.0.0:9093",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/config/users/alice", SCRAM_USER)
    opened = Opened(zookeeper, **settings)
    await opened.start()
    assert opened.entry.security.summary == ""
    deletions = [ScramCredentialDeletion("alice", 2)]
    assert await outcome(opened.entry.security.store.alter_scram_credentials(deletions)) == {"alice": None}
    put(zookeeper, "/kafka-acl/Topic/secret", acls())
    await settle()
    assert opened.reasons[0].startswith("the metadata hold 1 ACL, and plog obeys none of them")


async def test_a_user_that_is_given_credentials_is_noticed() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/config/users/alice", user(producer_byte_rate="1000"))
    opened = Opened(zookeeper)
    await opened.start()
    assert opened.entry.security.summary == "1 quota"
    zookeeper.set("/config/users/alice", SCRAM_USER)
    put(zookeeper, f"{CONFIG_CHANGE_PREFIX}0000000000", b'{"version":2,"entity_path":"users/alice"}')
    await settle()
    assert opened.reasons == ["the metadata hold 1 SCRAM user, and plog obeys none of them: not served on 0.0.0.0:9092"]


async def test_quotas_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = FakeZooKeeper()
    opened = Opened(zookeeper)
    await opened.start()
    put(zookeeper, "/config/users/alice", user(producer_byte_rate="1000", request_percentage="50"))
    await settle()
    assert (opened.reasons, opened.entry.security.summary) == ([], "2 quotas")
    assert "the metadata hold 2 quotas now, and plog obeys none of them" in caplog.text


async def test_what_is_there_at_the_start_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever starts the broker reports it, as a whole."""
    zookeeper = FakeZooKeeper()
    for name in "tu":
        put(zookeeper, f"/kafka-acl/Topic/{name}", acls())
    await Opened(zookeeper, HERE).start()
    assert caplog.text == ""


async def test_an_authorizer_that_left_its_folders_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic", b"")
    await Opened(zookeeper).start()
    assert "an authorizer of Kafka's has worked in this cluster" in caplog.text


GUARDING = {
    "max.connections.per.ip.overrides": "10.0.0.1:5",
    "max.connection.creation.rate": "10",
    "listener.name.plaintext.max.connection.creation.rate": "10",
    "listener.name.plaintext.max.connections": "10",
    "client.quota.callback.class": "com.example.Quotas",
    "principal.builder.class": "com.example.Builder",
    "create.topic.policy.class.name": "com.example.Policy",
    "alter.config.policy.class.name": "com.example.Policy",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "listener.name.plaintext.ssl.client.auth": "required",
}


@for_each("entity", ["<default>", str(US)])
@for_each("key", GUARDING)
async def test_guards_among_the_settings_of_brokers(entity: str, key: str) -> None:
    data = json.dumps({"version": 1, "config": {key: GUARDING[key]}}).encode()
    zookeeper = FakeZooKeeper()
    opened = Opened(zookeeper, HERE)
    await opened.start()
    put(zookeeper, f"/config/brokers/{entity}", data)
    change = json.dumps({"version": 2, "entity_path": f"brokers/{entity}"}).encode()
    put(zookeeper, f"{CONFIG_CHANGE_PREFIX}0000000000", change)
    await settle()
    assert key in opened.reasons[0]
    with pytest.raises(UsageError, match=rf"the configuration asks for security that plog does not have: {key}"):
        await Opened(zookeeper, HERE).start()
    await Opened(zookeeper, HERE, ignores_security=True).start()


async def test_wrong_settings_of_a_listener_are_no_reason_to_leave() -> None:
    """The listener keeps those that it has."""
    zookeeper = FakeZooKeeper()
    settings = {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    opened = Opened(zookeeper, HERE, **settings)
    await opened.start()
    changed = {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "NOPE"}
    put(zookeeper, f"/config/brokers/{US}", json.dumps({"version": 1, "config": changed}).encode())
    change = json.dumps({"version": 2, "entity_path": f"brokers/{US}"}).encode()
    put(zookeeper, f"{CONFIG_CHANGE_PREFIX}0000000000", change)
    await settle()
    assert opened.reasons == []


async def test_guards_of_another_broker_are_its_own() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, f"/config/brokers/{US + 1}", config(max_connection_creation_rate="10"))
    await Opened(zookeeper).start()


@for_each(
    "listeners, is_guarded",
    [("PLAINTEXT://:9092", False), ("SASL_SSL://:9092", True), ("PLAINTEXT://:1,SSL://:2", True)],
)
async def test_listeners_that_were_set_while_the_broker_ran(listeners: str, is_guarded: bool) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, f"/config/brokers/{US}", config(listeners=listeners))
    if is_guarded:
        with pytest.raises(UsageError, match="asks for security"):
            await Opened(zookeeper).start()
    else:
        await Opened(zookeeper).start()


# --- no request writes what makes a broker leave


async def outcome(pending: Pending[Any] | None) -> Any:
    assert pending is not None
    await settle()
    assert pending.is_over
    return cast(KafkaError | None, pending.value)


@for_each("key", ["SCRAM-SHA-256", "SCRAM-SHA-512", "password", "acls"])
async def test_quotas_can_not_be_credentials(key: str) -> None:
    opened = Opened(FakeZooKeeper())
    await opened.start()
    with pytest.raises(KafkaError, match=f"Invalid configuration key {key}"):
        opened.entry.quotas.alter({"user": "alice"}, {key: 1.0}, validate_only=False)


@for_each(
    "named",
    [
        {"ip": "../users/alice"},
        {"ip": "1.2.3.4/clients/x"},
        {"ip": "a/b"},
        {"ip": ".."},
        {"user": ".."},
        {"client-id": "."},
        {"user": "a", "client-id": ".."},
        {"user": "a" * 1_100_000},
        {"ip": "1.2.3.4\n"},
    ],
)
async def test_a_name_leads_nowhere_else_in_zookeeper(named: dict[str, str]) -> None:
    """Some would be asked for again and again, or ZooKeeper would end the broker's session."""
    zookeeper = FakeZooKeeper()
    opened = Opened(zookeeper)
    await opened.start()
    before = set(zookeeper.nodes)
    key = "connection_creation_rate" if "ip" in named else "producer_byte_rate"
    with pytest.raises(KafkaError, match="can't be the") as refused:
        opened.entry.quotas.alter(named, {key: 1.0}, validate_only=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert set(zookeeper.nodes) == before


@for_each(
    "named", [{"user": "a/../b"}, {"user": "<default>x"}, {"ip": "10.0.0.1"}, {"ip": "::1"}, {"ip": "host.example"}]
)
async def test_quotas_that_a_request_writes_do_not_make_a_broker_leave(named: dict[str, Any]) -> None:
    zookeeper = FakeZooKeeper()
    opened = Opened(zookeeper)
    await opened.start()
    kind = "ips" if "ip" in named else "users"
    await opened.session.ensure_paths([f"/config/{kind}"])
    key = "connection_creation_rate" if "ip" in named else "producer_byte_rate"
    assert await outcome(opened.entry.quotas.alter(named, {key: 1.0}, validate_only=False)) is None
    assert opened.reasons == []
    await Opened(zookeeper).start()


async def test_settings_that_zookeeper_would_not_take_are_refused() -> None:
    """It ends the connection of a client that sends a megabyte, and with it the broker's place."""
    opened = Opened(FakeZooKeeper())
    await opened.start()
    await opened.session.ensure_paths(["/config/brokers"])
    changes = {f"x{number}": "y" * 100_000 for number in range(10)}
    error = await outcome(opened.entry.write_configs(ConfigResourceType.BROKER, str(US), changes))
    assert error is not None
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, "more than 900000 bytes of settings")
    assert opened.session.committed == []


def test_it_is_refused_before_a_directory_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of `open`: the data directory is opened after it."""
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    put(zookeeper, "/cluster/id", b'{"version":"1","id":"abcdefghijklmnopqrstuv"}')
    put(zookeeper, "/brokers/ids", b"")
    opened = Opened(zookeeper)

    async def connected(_session: FakeSession, **_options: object) -> None:
        """There is nothing to wait for."""

    monkeypatch.setattr(FakeSession, "open", connected, raising=False)
    with pytest.raises(UsageError, match="the metadata hold 1 ACL"):
        asyncio.run(opened.entry.open(tmp_path / "data", US))
    assert not (tmp_path / "data").exists()
