"""What clients must do at listeners, by configurations as people have them; the strangers' files below are those of
handbooks, charts and questions of other people, with other names and passwords. What is expected of those that are
obeyed is what kafka.server.KafkaConfig of 3.9.2 makes of them for each listener.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.listener_security import authenticates, find_listener_security, find_unused_settings
from core.broker.config.security_requirements import ensure_asks_for_none
from core.common.errors import UsageError
from core.common.properties_file import parse_properties
from core.security.secret import Secret
from core.security.server_security import ClientAuth, ListenerSecurity
from tests.support.for_each import for_each
from tests.support.server_properties import STRANGERS

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEY = "ssl.keystore.location=/k.pem\n"


def parse(text: str) -> BrokerConfig:
    return BrokerConfig.parse(parse_properties(text))


def found(text: str) -> dict[str, ListenerSecurity]:
    config = parse(text)
    return {listener.name: find_listener_security(config, listener) for listener in config.served_listeners}


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        ensure_asks_for_none(parse(text))
    assert "s3cret" not in f"{refused.value} {refused.value.hint}"
    return refused.value


def describe(security: ListenerSecurity) -> str:
    """The protocol, who shows a certificate, the mechanisms, and PLAIN's users."""
    parts = [security.protocol]
    if security.tls is not None:
        parts.append(security.tls.client_auth)
    if security.sasl is not None:
        parts.append(",".join(security.sasl.mechanisms))
        parts.append(",".join(security.sasl.plain_users))
    return " ".join(filter(None, parts))


@for_each("name", [name for name, (_, expected, _) in STRANGERS.items() if isinstance(expected, dict)])
def test_files_of_strangers_that_are_obeyed(name: str) -> None:
    text, expected, unused = STRANGERS[name]
    config = parse(text)
    ensure_asks_for_none(config, is_member="zookeeper.connect" in config.unknown)
    assert {one: describe(security) for one, security in found(text).items()} == expected
    assert list(find_unused_settings(config)) == unused
    assert not [key for key in config.unknown if "ssl." in key or ("sasl" in key and "controller" not in key)]


@for_each("name", [name for name, (_, expected, _) in STRANGERS.items() if isinstance(expected, str)])
def test_files_of_strangers_that_are_refused(name: str) -> None:
    text, expected, hint = STRANGERS[name]
    error = refusal(text)
    assert expected in error.message
    assert str(hint) in (error.hint or "")


def test_a_listeners_own_settings_win() -> None:
    own = found(
        KEY
        + "listeners=SASL_SSL://:1,TLS://:2,SSL://:3\nlistener.security.protocol.map=SASL_SSL:SASL_SSL,TLS:SSL,SSL:SSL\n"
        "ssl.client.auth=required\nlistener.name.tls.ssl.client.auth=Requested\n"
        "listener.name.tls.ssl.keystore.location=/other.pem\nlistener.name.tls.ssl.keystore.password=s3cret\n"
        "listener.name.tls.ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/L\nssl.enabled.protocols=TLSv1.2\n"
        "listener.name.ssl.ssl.allow.dn.changes=true\nlistener.name.ssl.ssl.enabled.protocols=TLSv1.3\n"
        "sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256\n"
        "connections.max.reauth.ms=3\nlistener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms=5\n"
        "listener.name.sasl_ssl.sasl.server.max.receive.size=100\nconnection.failed.authentication.delay.ms=7\n"
    )
    tls, ssl, both = (own[name] for name in ("TLS", "SSL", "SASL_SSL"))
    assert tls.tls is not None
    assert ssl.tls is not None
    assert both.tls is not None
    assert both.sasl is not None
    assert (tls.tls.client_auth, ssl.tls.client_auth) == (ClientAuth.REQUESTED, ClientAuth.REQUIRED)
    assert both.tls.client_auth is ClientAuth.NONE  # only the listener itself asks for both
    assert (tls.tls.tls.protocols, ssl.tls.tls.protocols) == (("TLSv1.2",), ("TLSv1.3",))
    assert tls.tls.tls.key_store is not None
    assert ssl.tls.tls.key_store is not None
    assert (tls.tls.tls.key_store.location, ssl.tls.tls.key_store.location) == ("/other.pem", "/k.pem")
    assert tls.tls.tls.key_store.password == Secret("s3cret")
    assert (tls.tls.principal_mapping_rules, ssl.tls.principal_mapping_rules) == ("RULE:^CN=(.*)$/$1/L", "DEFAULT")
    assert (tls.tls.allows_dn_changes, ssl.tls.allows_dn_changes) == (False, True)
    assert both.sasl.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert both.sasl.max_reauth_ms == {"SCRAM-SHA-512": 3, "SCRAM-SHA-256": 5}
    assert (both.sasl.most_frame_bytes, both.sasl.failure_delay_ms) == (100, 7)


def test_certificates_in_the_settings_themselves() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"
    settings = {
        "listeners": "SSL://:1",
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.certificate.chain": pem,
        "listener.name.ssl.ssl.keystore.key": "s3cret",
        "listener.name.ssl.ssl.truststore.certificates": pem,
        "listener.name.ssl.ssl.client.auth": "required",
    }
    config = BrokerConfig.parse(settings)
    assert "s3cret" not in repr(config)
    security = find_listener_security(config, config.served_listeners[0])
    assert security.tls is not None
    assert security.tls.tls.key_store is not None
    assert security.tls.tls.trust is not None
    assert (security.tls.tls.key_store.certificate_chain, security.tls.tls.trust.certificates) == (pem, pem)
    assert security.tls.tls.key_store.key == Secret("s3cret")
    assert "s3cret" not in repr(security)


def test_users_of_plain_and_the_broker_s_own_login() -> None:
    security = found(
        "listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=PLAIN\n"
        f'listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN} required username="b" password="s3cret" \\\n'
        '  user_b="s3cret" user_alice="a\\\\"b" user_=""  ;'
    )["SASL_PLAINTEXT"]
    assert security.sasl is not None
    assert security.sasl.plain_users == {"b": Secret("s3cret"), "alice": Secret('a"b'), "": Secret("")}


def test_a_mechanism_that_is_named_often_is_looked_up_once() -> None:
    security = found(
        "listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=" + "SCRAM-SHA-256," * 10**5 + "SCRAM-SHA-512"
    )
    assert security["SASL_PLAINTEXT"].sasl is not None
    assert security["SASL_PLAINTEXT"].sasl.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


SASL, TLS = "listeners=SASL_PLAINTEXT://:1\n", "listeners=SSL://:1\n"
PREFIX = "listener.name.sasl_plaintext."
LOGIN = f"{SASL}sasl.enabled.mechanisms=PLAIN\n{PREFIX}plain.sasl.jaas.config={PLAIN} required"


@for_each(
    "text, message, hint",
    [
        (TLS, "listener SSL://:1, SSL: it has no certificate", "listener.name.ssl.ssl.keystore.location"),
        (KEY + TLS + "ssl.keystore.key=s3cret\nssl.keystore.certificate.chain=c",
         "ssl.keystore.location and a certificate or key of another setting are both set", ""),
        (TLS + "ssl.keystore.key=s3cret", "certificate (ssl.certificate.location", ""),
        (KEY + TLS + "ssl.keystore.type=BCFKS", "ssl.keystore.type=BCFKS, expected one of PEM, PKCS12, JKS", ""),
        (KEY + TLS + "ssl.enabled.protocols=TLSv1.1", "plog speaks TLSv1.2 and TLSv1.3", ""),
        (SASL, "sasl.enabled.mechanisms is not set, and Kafka's default is GSSAPI (Kerberos)",
         PREFIX + "sasl.enabled.mechanisms=SCRAM-SHA-512"),
        (SASL + "sasl.enabled.mechanisms=GSSAPI,PLAIN", "plog does not speak GSSAPI", "leave it"),
        (SASL + "sasl.enabled.mechanisms=OAUTHBEARER", "plog does not speak OAUTHBEARER", "leave it"),
        (SASL + "sasl.enabled.mechanisms=scram-sha-512", "does not speak scram-sha-512", "SCRAM-SHA-512"),
        (SASL + "sasl.enabled.mechanisms=", "sasl.enabled.mechanisms is empty", ""),
        (SASL + "sasl.enabled.mechanisms=PLAIN", "PLAIN has no users",
         f'{PREFIX}plain.sasl.jaas.config={PLAIN} required user_alice="..";'),
        (LOGIN + ' username="a" password="s3cret";', "PLAIN has no users", "java.security.auth.login.config"),
        (SASL + f'sasl.enabled.mechanisms=PLAIN\nsasl.jaas.config={PLAIN} required user_a="s3cret";',
         "PLAIN has no users", "sasl.jaas.config is not obeyed, neither by Kafka: its name is listener.name.sasl_"),
        (SASL + f'sasl.enabled.mechanisms=PLAIN\nplain.sasl.jaas.config={PLAIN} required user_a="s3cret";',
         "PLAIN has no users", "plain.sasl.jaas.config is not obeyed, neither by Kafka"),
        (LOGIN + ' user_a="s3cret"', "plain.sasl.jaas.config: it does not end with a semicolon", ""),
        (LOGIN + ' user_a="s3cret" pasword="s3cret";',
         "plain.sasl.jaas.config: pasword is no option of PlainLoginModule", "password"),
        (SASL + f"sasl.enabled.mechanisms=SCRAM-SHA-512\n{PREFIX}scram-sha-512.sasl.jaas.config={PLAIN} required"
         ' user_a="s3cret";', f"{PLAIN} is not of SCRAM-SHA-512, expected {SCRAM}", ""),
    ],
)  # fmt: skip
def test_what_can_not_be_served(text: str, message: str, hint: str) -> None:
    error = refusal(text)
    assert message in error.message
    assert hint in (error.hint or "")


@for_each(
    "text, key, why",
    [
        ("listeners=SSL://:1\nlistener.name.SSL.ssl.keystore.location=s3cret",
         "listener.name.SSL.ssl.keystore.location", "no listener is called SSL, expected ssl, in lower case"),
        ("ssl.keystore.location=s3cret", "ssl.keystore.location", "no listener has TLS"),
        ("listeners=PLAINTEXT://:1\nlistener.name.plaintext.sasl.enabled.mechanisms=PLAIN",
         "listener.name.plaintext.sasl.enabled.mechanisms", "listener plaintext has no SASL"),
        ("listeners=SASL_PLAINTEXT://:1\nsasl.jaas.config=s3cret", "sasl.jaas.config",
         "it is obeyed as listener.name.NAME.MECHANISM.sasl.jaas.config alone"),
        ("listeners=SASL_PLAINTEXT://:1\nlistener.name.sasl_plaintext.plain.sasl.jaas.config=s3cret",
         "listener.name.sasl_plaintext.plain.sasl.jaas.config",
         "sasl.enabled.mechanisms of listener sasl_plaintext has no PLAIN"),
        ("listeners=SASL_SSL://:1\nssl.client.auth=required", "ssl.client.auth",
         "clients of SASL_SSL log in; listener.name.NAME.ssl.client.auth asks for a certificate as well"),
        ("connections.max.reauth.ms=5", "connections.max.reauth.ms", "no listener has SASL"),
    ],
)  # fmt: skip
def test_settings_that_change_nothing_are_named(text: str, key: str, why: str) -> None:
    assert find_unused_settings(parse(text)) == {key: why}


@for_each(
    "text",
    [
        "listeners=SSL://:1\nssl.client.auth=required\nssl.keystore.location=/k",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "controller.listener.names=C\nlistener.name.c.plain.sasl.jaas.config=x\nlistener.name.c.sasl.enabled.mechanisms=x",
    ],
)
def test_settings_that_are_obeyed_or_of_controllers_are_not_named(text: str) -> None:
    assert find_unused_settings(parse(text)) == {}


def test_who_says_who_it_is() -> None:
    text = (
        KEY + "listeners=SSL://:1,REQ://:2,ASK://:3,SASL://:4,P://:5\nlistener.name.req.ssl.client.auth=required\n"
        "listener.security.protocol.map=SSL:SSL,REQ:SSL,ASK:SSL,SASL:SASL_PLAINTEXT,P:PLAINTEXT\n"
        "listener.name.ask.ssl.client.auth=requested\nsasl.enabled.mechanisms=SCRAM-SHA-256"
    )
    config = parse(text)
    known = {one.name: authenticates(config, one) for one in config.served_listeners}
    assert known == {"SSL": False, "REQ": True, "ASK": False, "SASL": True, "P": False}
    config = replace(config, ignores_security=True)
    assert not any(authenticates(config, one) for one in config.served_listeners)
