"""Configurations that ask for security, and those of Kafka's that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.listener_security import find_listener_security
from core.broker.config.security_requirements import ensure_asks_for_none, find_security_requirements
from core.common.endpoint import Endpoint
from core.common.errors import KafkaError, UsageError
from core.common.properties_file import parse_properties
from core.security.principal import Principal, parse_principals
from tests.support.for_each import for_each
from tests.support.server_properties import STOCK


def asked(text: str) -> list[str]:
    return list(find_security_requirements(BrokerConfig.parse(parse_properties(text))))


def test_kafkas_stock_file_asks_for_none() -> None:
    config = BrokerConfig.parse(parse_properties(STOCK))
    assert find_security_requirements(config) == {}
    assert config.served_listeners[0].endpoint == Endpoint("", 9092)
    assert config.find_advertised(config.main_listener) == Endpoint("localhost", 9092)


@for_each(
    "text, keys",
    [
        ("", []),
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", []),
        ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", ["authorizer.class.name"]),
        ("authorizer.class.name=StandardAuthorizer", ["authorizer.class.name"]),
        ("authorizer.class.name=", []),
        ("listeners=PLAINTEXT://:9092,SASL_SSL://:9093", []),
        ("listeners=EXTERNAL://:9093\nlistener.security.protocol.map=EXTERNAL:SASL_PLAINTEXT", []),
        ("listeners=EXTERNAL://:9093\nlistener.security.protocol.map=external : plaintext", []),
        ("advertised.listeners=SSL://kafka:9093", ["advertised.listeners"]),
        ("listeners=PLAINTEXT://:1,C://:2\ncontroller.listener.names=C\nlistener.security.protocol.map=C:SSL,PLAINTEXT:PLAINTEXT",
         []),
        ("listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=PLAIN", []),
        ("ssl.client.auth=required", []),  # of no listener, as in Kafka
        ("listener.name.plaintext.ssl.client.auth=requested", ["listener.name.plaintext.ssl.client.auth"]),
        ("listeners=SSL://:1\nlistener.name.ssl.ssl.client.auth=required", []),
        ("listeners=SSL://:1\nlistener.name.SSL.ssl.client.auth=required", ["listener.name.SSL.ssl.client.auth"]),
        ("listeners=SSL://:1\nlistener.name.tls.ssl.client.auth=required", ["listener.name.tls.ssl.client.auth"]),
        ("listeners=SSL://:1\ncontroller.listener.names=C\nlistener.name.c.ssl.client.auth=required", []),
        ("create.topic.policy.class.name=a.Policy", ["create.topic.policy.class.name"]),
        ("alter.config.policy.class.name=a.Policy", ["alter.config.policy.class.name"]),
        ("client.quota.callback.class=a.Quotas", ["client.quota.callback.class"]),
        ("principal.builder.class=a.Builder", ["principal.builder.class"]),
        ("principal.builder.class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", []),
        ("max.connections.per.ip.overrides=10.0.0.1:5,host:9", ["max.connections.per.ip.overrides"]),
        ("max.connections.per.ip.overrides=", []),
        ("max.connection.creation.rate=100", ["max.connection.creation.rate"]),
        ("max.connection.creation.rate=2147483647", []),
        ("listener.name.a.max.connection.creation.rate=1", ["listener.name.a.max.connection.creation.rate"]),
        ("listener.name.plaintext.max.connections=1", ["listener.name.plaintext.max.connections"]),
        ("controller.listener.names=C\nlistener.name.c.max.connections=1", []),
        ("max.connections=1\nmax.connections.per.ip=1", []),  # which plog obeys
        ("security.inter.broker.protocol=SASL_SSL", ["security.inter.broker.protocol"]),
        ("security.inter.broker.protocol=ssl\nlisteners=PLAINTEXT://:1", ["security.inter.broker.protocol"]),
        ("security.inter.broker.protocol=SSL\nlisteners=PLAINTEXT://:1,SSL://:2", []),
        ("listeners=SASL_SSL://:1\nlistener.name.sasl_ssl.plain.sasl.server.callback.handler.class=a.B",
         ["listener.name.sasl_ssl.plain.sasl.server.callback.handler.class"]),
        ("listeners=SASL_SSL://:1\nsasl.server.callback.handler.class=a.B", ["sasl.server.callback.handler.class"]),
        ("listeners=SSL://:1\nlistener.name.ssl.ssl.engine.factory.class=a.B",
         ["listener.name.ssl.ssl.engine.factory.class"]),
        ("listeners=SSL://:1\nsecurity.providers=a.B", ["security.providers"]),
        ("listeners=SSL://:1\ncontroller.listener.names=C\nlistener.name.c.sasl.server.callback.handler.class=a.B", []),
        ("listeners=SSL://:1\ndelegation.token.secret.key=s", ["delegation.token.secret.key"]),
        ("listeners=SSL://:1\ndelegation.token.master.key=s", ["delegation.token.master.key"]),
        ("delegation.token.secret.key=s", []),
        ("listener.name.sasl_ssl.plain.sasl.server.callback.handler.class=a.B", []),
        ("zookeeper.ssl.client.enable=true\nzookeeper.ssl.crl.enable=true", ["zookeeper.ssl.crl.enable"]),
        ("zookeeper.ssl.client.enable=true\nzookeeper.ssl.ocsp.enable=true", ["zookeeper.ssl.ocsp.enable"]),
        ("zookeeper.ssl.ocsp.enable=true", []),
        ("super.users=User:admin\nssl.keystore.location=/etc/k.p12\nsecurity.inter.broker.protocol=PLAINTEXT", []),
    ],
)  # fmt: skip
def test_what_asks_for_security(text: str, keys: list[str]) -> None:
    assert asked(text) == keys


@for_each(
    "name, is_known",
    [
        ("kafka.security.authorizer.AclAuthorizer", True),
        ("kafka.security.auth.SimpleAclAuthorizer", True),
        ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", False),
        ("AclAuthorizer", False),
    ],
)
def test_a_member_has_the_authorizer_of_zookeeper(name: str, *, is_known: bool) -> None:
    config = BrokerConfig.parse({"authorizer.class.name": name})
    found = find_security_requirements(config, is_member=True)
    why = "the authorizer of a member of a ZooKeeper cluster is kafka.security.authorizer.AclAuthorizer"
    assert found == ({} if is_known else {"authorizer.class.name": why})
    if not is_known:
        with pytest.raises(UsageError) as refused:
            ensure_asks_for_none(config, is_member=True)
        hint = refused.value.hint or ""
        assert hint.startswith(
            "ACLs are obeyed by authorizer.class.name=kafka.security.authorizer.AclAuthorizer; --ins"
        )


@for_each(
    "connect, authorizer, is_known",
    [("h:1/c", "AclAuthorizer", True), ("h:2/c", "AclAuthorizer", False), ("h:2/c", "", True)],
)
def test_acls_in_another_zookeeper_are_not_obeyed(connect: str, authorizer: str, *, is_known: bool) -> None:
    name = authorizer and f"kafka.security.authorizer.{authorizer}"
    settings = {"zookeeper.connect": "h:1/c", "authorizer.zookeeper.url": connect, "authorizer.class.name": name}
    found = find_security_requirements(BrokerConfig.parse(settings), is_member=True)
    assert found == ({} if is_known else {"authorizer.zookeeper.url": "the ACLs are in another ZooKeeper"})


@for_each("text", ["alice", "User:", ":alice", "User:a,b;c"])
def test_super_users_without_a_type_are_refused(text: str) -> None:
    with pytest.raises(KafkaError, match=r"super\.users.*a type and a name are expected, as User:alice"):
        BrokerConfig.parse({"super.users": text})


def test_super_users_with_a_comma_between_them_are_refused() -> None:
    """Kafka has one super user then, of the name `alice, User:bob`, and nobody can use either."""
    with pytest.raises(
        KafkaError, match=r"super\.users: 'User:alice, User:bob' is one principal: a semicolon separates"
    ):
        BrokerConfig.parse({"super.users": "User:root;User:alice, User:bob"})


@for_each("text", ["user:alice", "Local:owner", "User:alice;Group:ops", "User:*"])
def test_super_users_that_nobody_can_be_are_refused(text: str) -> None:
    with pytest.raises(KafkaError, match=r"super\.users: no client is .*: the type is User, and each super user has a"):
        BrokerConfig.parse({"super.users": text})


def test_super_users_are_read_as_kafka_reads_them() -> None:
    assert parse_principals(" User:CN=a,O=b ; ;Group:x:y;") == [
        Principal("User", "CN=a,O=b"),
        Principal("Group", "x:y"),
    ]


def test_nothing_secret_is_told() -> None:
    text = (
        "authorizer.class.name=s3cret\nlisteners=SASL_SSL://s3cret:1\ndelegation.token.secret.key=s3cret\n"
        "sasl.server.callback.handler.class=s3cret\nlistener.name.sasl_ssl.plain.sasl.jaas.config=s3cret"
    )
    config = BrokerConfig.parse(parse_properties(text))
    found = find_security_requirements(config)
    assert len(found) == 3
    assert "s3cret" not in str(found) + repr(config)


def test_a_map_of_protocols_that_is_none() -> None:
    with pytest.raises(UsageError, match="'PLAINTEXT' is no NAME:PROTOCOL"):
        asked("listener.security.protocol.map=PLAINTEXT\nlisteners=PLAINTEXT://:1")


@for_each(
    "text, endpoint",
    [
        ("listeners=PLAINTEXT://h:2,SASL_SSL://h:1", Endpoint("h", 2)),
        ("listeners=SASL_SSL://h:1,SSL://h:2\nssl.client.auth=required", Endpoint("h", 1)),
        ("listeners=ANY://h:1", Endpoint("h", 1)),
    ],
)
def test_security_that_is_ignored_is_served_in_the_open(text: str, endpoint: Endpoint) -> None:
    config = replace(BrokerConfig.parse(parse_properties(text)), ignores_security=True)
    assert config.served_listeners[0].endpoint == endpoint
    assert {one.protocol for one in config.served_listeners} == {"PLAINTEXT"}
    assert {find_listener_security(config, one).protocol for one in config.served_listeners} == {"PLAINTEXT"}
    assert "listeners" in find_security_requirements(config)


def test_the_address_that_clients_are_told_is_of_the_listener_that_is_served() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "INSIDE://:1,OUTSIDE://:2",
            "advertised.listeners": "OUTSIDE://outside:2,INSIDE://inside:1",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    assert config.find_advertised(config.main_listener) == Endpoint("inside", 1)
