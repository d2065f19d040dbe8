"""Settings of listeners that change while the broker runs: Kafka's refusals, and what clients must do from then on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.requests.client_session import Session
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.common.config_def import ConfigResourceType, ConfigSource
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.protocol.frame import encode_request
from core.protocol.schema.cluster_nodes import DESCRIBE_CLUSTER, DescribeClusterRequest
from core.protocol.schema.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.security.secret import Secret
from core.security.server_security import ClientAuth
from tests.support.broker import SteeredNode, ask
from tests.support.certificates import make_ca, sign
from tests.support.requests import changes_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BROKER = ConfigResourceType.BROKER
SET, DELETE = 0, 1
USERS = "listener.name.login.plain.sasl.jaas.config"
STATIC = {
    "listeners": "TLS://127.0.0.1:0,LOGIN://127.0.0.1:0,PLAIN://127.0.0.1:0",
    "listener.security.protocol.map": "TLS:SSL,LOGIN:SASL_PLAINTEXT,PLAIN:PLAINTEXT",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
    USERS: f'{PLAIN} required user_alice="s3cret";',
}


def alter(broker: SteeredNode, name: str, **settings: str | None) -> tuple[int, str]:
    changes = [
        (key.replace("__", "-").replace("_", "."), DELETE if text is None else SET, text)
        for key, text in settings.items()
    ]
    (result,) = ask(broker, INCREMENTAL_ALTER_CONFIGS, changes_of(BROKER, name, *changes)).responses
    assert "s3cret" not in (result.error_message or "")
    return result.error_code, result.error_message or ""


def open_secured(folder: Path) -> SteeredNode:
    ca = make_ca()
    certificate = sign(ca)
    path = folder / "server.pem"
    path.write_text(certificate.key_pem() + certificate.pem)
    stores = {"ssl.keystore.location": str(path), "ssl.truststore.certificates": ca.pem}
    return SteeredNode(folder / "data", BrokerConfig.parse(STATIC | stores))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[SteeredNode, SocketServer]]:
    broker = open_secured(folder)
    runtime = broker.runtime.follow(LoopRuntime(asyncio.get_running_loop(), broker.directory))
    server = SocketServer(broker, runtime, broker.services.config.served_listeners)
    try:
        await server.start()
        yield broker, server
    finally:
        server.close()
        broker.close()


PER_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix: "
PER_BROKER = "Cannot update these configs at default cluster level, broker id must be specified: "
FIXED = "Cannot update these configs dynamically: "
LOGIN = "Invalid dynamic configuration: listener LOGIN://127.0.0.1:0, SASL_PLAINTEXT: "
REFUSED = [
    ("", {"ssl_keystore_location": "/x"}, PER_LISTENER + "[ssl.keystore.location]"),
    ("1", {"ssl_key_password": "s3cret"}, PER_LISTENER + "[ssl.key.password]"),
    ("1", {"ssl_truststore_type": "PEM"}, PER_LISTENER + "[ssl.truststore.type]"),
    ("", {"listener_name_tls_ssl_keystore_location": "/x"}, PER_BROKER + "[listener.name.tls.ssl.keystore.location]"),
    ("", {"listener_name_login_plain_sasl_jaas_config": "s3cret"}, PER_BROKER + f"[{USERS}]"),
    ("", {"ssl_client_auth": "required"}, PER_BROKER + "[ssl.client.auth]"),
    ("1", {"connections_max_reauth_ms": "5"}, FIXED + "[connections.max.reauth.ms]"),
    ("1", {"ssl_principal_mapping_rules": "DEFAULT"}, FIXED + "[ssl.principal.mapping.rules]"),
    ("1", {"security_inter_broker_protocol": "SSL"}, FIXED + "[security.inter.broker.protocol]"),
    ("1", {"sasl_server_max_receive_size": "5"}, FIXED + "[sasl.server.max.receive.size]"),
    # Kafka refuses the following in other words, or takes them, and nobody can log in after the next start.
    ("1", {"sasl_enabled_mechanisms": "PLAIN"},
     "Configs cannot be updated dynamically for existing listeners, restart broker: [sasl.enabled.mechanisms]"),
    ("1", {"listener_name_tls_ssl_client_auth": "bogus"},
     "Invalid value bogus for configuration listener.name.tls.ssl.client.auth: String must be one of: required, req"),
    ("1", {"listener_name_tls_ssl_keystore_location": "a\0b"},
     "Invalid dynamic configuration: listener TLS://127.0.0.1:0, SSL: ssl.keystore.location is no path: it has a null"),
    ("1", {"listener_name_login_connections_max_reauth_ms": "x"},
     "Invalid value x for configuration listener.name.login.connections.max.reauth.ms: Not a number of type LONG"),
    ("1", {"listener_name_login_sasl_enabled_mechanisms": "NOPE"},
     LOGIN + "sasl.enabled.mechanisms: plog does not speak NOPE, expected some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ("1", {"listener_name_login_plain_sasl_jaas_config": "s3cret"},
     LOGIN + f"{USERS}: expected LOGIN_MODULE required KEY=VALUE .. ;"),
    ("1", {"listener_name_tls_ssl_principal_mapping_rules": "RULE:bogus"}, "Invalid dynamic configuration: "),
    ("1", {"listener_name_plain_ssl_client_auth": "required"},
     "plog can't obey listener.name.plain.ssl.client.auth (clients show certificates, and no listener with TLS has"),
]  # fmt: skip


async def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, server):
        before = {name: one.door.security for name, one in server.served.items()}
        for name, settings, expected in REFUSED:
            code, message = alter(broker, name, **settings)
            assert (code, message[: len(expected)]) == (ErrorCode.INVALID_REQUEST, expected)
        assert {name: one.door.security for name, one in server.served.items()} == before
        assert (BROKER, "1") not in broker.services.image.configs


async def test_new_clients_must_do_what_was_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as (broker, server):
        login, tls = server.served["LOGIN"].door, server.served["TLS"].door
        settings = {
            "listener_name_login_plain_sasl_jaas_config": f'{PLAIN} required user_bob="s3cret";',
            "listener_name_login_plain_connections_max_reauth_ms": "5000",
            "listener_name_login_sasl_server_max_receive_size": "1000",
            "listener_name_tls_ssl_client_auth": "required",
            "listener_name_tls_ssl_principal_mapping_rules": "RULE:^CN=(.*)$/$1/",
        }
        assert alter(broker, "1", **settings) == (0, "")
        assert login.security.sasl is not None
        assert tls.security.tls is not None
        assert login.security.sasl.plain_users == {"bob": Secret("s3cret")}
        assert login.security.sasl.max_reauth_ms == {"PLAIN": 5000}
        assert login.security.sasl.most_frame_bytes == 1000
        assert tls.security.tls.client_auth is ClientAuth.REQUIRED
        assert "listener LOGIN has other settings from now on" in caplog.messages
        assert alter(broker, "1", listener_name_login_plain_sasl_jaas_config=None) == (0, "")
        assert list(login.security.sasl.plain_users) == ["alice"]
        assert alter(broker, "1", listener_name_login_sasl_enabled_mechanisms="SCRAM-SHA-512") == (0, "")
        assert login.security.sasl.mechanisms == ("SCRAM-SHA-512",)
        assert alter(broker, "1", listener_name_nobody_ssl_keystore_location="/x") == (0, ""), "as in Kafka"
        assert "listener.name.nobody.ssl.keystore.location changes nothing: no listener is called nobody" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_client_without_the_certificate_that_it_must_show_is_not_served_from_then_on(tmp_path: Path) -> None:
    """Not even with the TLS context of before, which is replaced within a second or two."""
    async with serving(tmp_path) as (broker, server):
        assert alter(broker, "1", listener_name_tls_ssl_client_auth="required") == (0, "")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port, ssl=context)
        writer.write(encode_request(METADATA, 12, 1, "test", MetadataRequest(topics=[])))
        with contextlib.suppress(OSError):  # a reset, or an alert of the new context
            assert await reader.read() == b""
        writer.close()


async def test_a_changed_setting_of_tls_does_not_wait_for_the_next_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SocketServer, "_housekeep", lambda _server: None)
    async with serving(tmp_path) as (broker, server):
        before = server.served["TLS"].door.context
        assert alter(broker, "1", listener_name_tls_ssl_enabled_protocols="TLSv1.3") == (0, "")
        while (context := server.served["TLS"].door.context) is before:
            await asyncio.sleep(0)
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3


async def test_what_another_kafka_wrote_is_obeyed_as_far_as_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the metadata log passwords are in the clear."""
    broker = open_secured(tmp_path)
    broker.services.controller.set_configs(BROKER, "1", {USERS: f'{PLAIN} required user_carol="s3cret";'})
    broker.close()
    async with serving(tmp_path) as (broker, server):
        sasl = server.served["LOGIN"].door.security.sasl
        assert sasl is not None
        assert list(sasl.plain_users) == ["carol"]
        broker.services.controller.set_configs(BROKER, "1", {USERS: "s3cret"})
        assert server.served["LOGIN"].door.security.sasl == sasl
    assert "listener LOGIN keeps its settings: listener LOGIN://127.0.0.1:0" in caplog.text
    assert "s3cret" not in caplog.text


def test_an_encrypted_password_of_zookeeper_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """As kafka.server.DynamicConfig writes it."""
    text = "initializationVector:Zz==,encryptedPassword:Aa==,salt:Bb==,keyLength:128,iterations:4096"
    config = BrokerConfig.parse(STATIC).with_dynamic({}, {USERS: text})
    assert config.settings[USERS] == STATIC[USERS]
    assert f"{USERS} is encrypted with password.encoder.secret" in caplog.text


def test_endpoints_are_registered_with_their_protocols(tmp_path: Path) -> None:
    """By the numbers of org.apache.kafka.common.security.auth.SecurityProtocol."""
    broker = open_secured(tmp_path)
    (record,) = broker.services.image.brokers.values()
    assert [(one.name, one.security_protocol) for one in record.end_points] == [("TLS", 1), ("LOGIN", 2), ("PLAIN", 0)]
    broker.close()


def test_each_client_is_told_the_endpoint_of_its_listener(tmp_path: Path) -> None:
    broker = open_secured(tmp_path)
    endpoints = {name: Endpoint("127.0.0.1", port) for port, name in enumerate(("TLS", "LOGIN", "PLAIN"), 1)}
    broker.begin_serving(endpoints["TLS"], endpoints)
    for name, at in endpoints.items():
        session = Session(listener=name)
        metadata = ask(broker, METADATA, MetadataRequest(topics=[]), session=session)
        cluster = ask(broker, DESCRIBE_CLUSTER, DescribeClusterRequest(), session=session)
        coordinator = ask(broker, FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g"]), session=session)
        for told in (metadata.brokers, cluster.brokers, coordinator.coordinators):
            assert [(one.host, one.port) for one in told] == [(at.host, at.port)]
    broker.close()


def described(broker: SteeredNode) -> dict[str, tuple[str | None, int, bool, bool, list[tuple[str, str | None, int]]]]:
    request = DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)], include_synonyms=True)
    (result,) = ask(broker, DESCRIBE_CONFIGS, request).results
    return {
        one.name: (
            one.value,
            one.config_source,
            one.read_only,
            one.is_sensitive,
            [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms],
        )
        for one in result.configs
    }


def test_settings_of_listeners_are_described_as_kafka_does(tmp_path: Path) -> None:
    """What is expected is what Kafka 4.3.1 answered."""
    dynamic, static, default = (
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    )
    broker = open_secured(tmp_path)
    path = str(tmp_path / "server.pem")
    settings = {"listener_name_tls_ssl_enabled_protocols": "TLSv1.2", "listener_name_nope_ssl_keystore_location": "/x"}
    jaas = {"listener_name_login_plain_sasl_jaas_config": f'{PLAIN} required user_bob="s3cret";'}
    assert alter(broker, "1", **settings, **jaas) == (0, "")
    found = described(broker)
    assert found["listener.name.tls.ssl.enabled.protocols"] == (
        "TLSv1.2", dynamic, True, False,
        [("listener.name.tls.ssl.enabled.protocols", "TLSv1.2", dynamic),
         ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", default)],
    )  # fmt: skip
    assert found["listener.name.login.sasl.enabled.mechanisms"] == (
        "PLAIN", static, True, False,
        [("listener.name.login.sasl.enabled.mechanisms", "PLAIN", static),
         ("sasl.enabled.mechanisms", "GSSAPI", default)],
    )  # fmt: skip
    assert found["listener.name.nope.ssl.keystore.location"] == (
        "/x", dynamic, True, False,
        [("listener.name.nope.ssl.keystore.location", "/x", dynamic), ("ssl.keystore.location", path, static)],
    )  # fmt: skip
    assert found[USERS] == (None, dynamic, True, True, [(USERS, None, dynamic), (USERS, None, static)])
    assert found["ssl.keystore.location"] == (path, static, False, False, [("ssl.keystore.location", path, static)])
    assert found["ssl.keystore.password"] == (None, default, False, True, [])
    assert found["ssl.client.auth"] == ("none", default, False, False, [("ssl.client.auth", "none", default)])
    assert found["security.inter.broker.protocol"][:4] == ("PLAINTEXT", default, True, False)
    assert found["connections.max.reauth.ms"][:4] == ("0", default, True, False)
    broker.close()
