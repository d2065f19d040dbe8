"""How a broker reaches ZooKeeper, by its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.zookeeper_registration import zookeeper_config_of
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, PlogError, UsageError
from core.security.client_security import KeyStore, StoreType, Tls, TrustStore
from core.security.secret import Secret
from tests.support.for_each import for_each


def test_the_least(tmp_path: Path) -> None:
    found = zookeeper_config_of("zk1:2181,zk2/kafka", BrokerConfig.parse({"zookeeper.session.timeout.ms": "7000"}))
    assert found.servers == (Endpoint("zk1", 2181), Endpoint("zk2", 2181))
    assert (found.chroot, found.session_timeout_ms, found.sets_acls, found.tls) == ("/kafka", 7000, False, None)
    assert found.digest is found.sasl is None


@pytest.mark.parametrize("login", ["sasl", "digest"])
def test_a_login(tmp_path: Path, login: str) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    settings = {
        "zookeeper.set.acl": "true",
        "plog.zookeeper.login": login,
        "plog.zookeeper.user": "kafka",
        "plog.zookeeper.password.file": str(tmp_path / "password"),
    }
    found = zookeeper_config_of("zk1", BrokerConfig.parse(settings))
    used, other = (found.sasl, found.digest) if login == "sasl" else (found.digest, found.sasl)
    assert used is not None
    assert (used.user, used.password) == ("kafka", Secret("s3cret"))
    assert other is None
    assert found.sets_acls


STORES = {
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "zookeeper.ssl.truststore.location": "/var/private/ssl/kafka.zk.truststore.jks",
    "zookeeper.ssl.truststore.password": "trust-pw",
    "zookeeper.ssl.keystore.location": "/var/private/ssl/kafka.zk.keystore.p12",
    "zookeeper.ssl.keystore.type": "PKCS12",
    "zookeeper.ssl.keystore.password": "key-pw",
    "zookeeper.ssl.protocol": "TLSv1.2",
    "zookeeper.set.acl": "true",
}
"""As KIP-515 and Kafka's documentation have them: a certificate alone is a login."""


def test_tls_as_kafkas_brokers_have_it() -> None:
    found = zookeeper_config_of("zk1", BrokerConfig.parse(STORES))
    assert found.tls == Tls(
        TrustStore("/var/private/ssl/kafka.zk.truststore.jks", None, Secret("trust-pw")),
        KeyStore("/var/private/ssl/kafka.zk.keystore.p12", StoreType.PKCS12, Secret("key-pw")),
    )
    assert found.sets_acls
    assert "-pw" not in repr(found)


def test_tls_without_a_certificate() -> None:
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "ca.pem",
        "zookeeper.ssl.enabled.protocols": "TLSv1.3",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    found = zookeeper_config_of("zk1", BrokerConfig.parse(settings)).tls
    assert found == Tls(TrustStore("ca.pem"), checks_host_names=False, protocols=("TLSv1.3",))


def test_settings_of_tls_without_tls_have_no_effect() -> None:
    settings = STORES | {"zookeeper.ssl.client.enable": "false", "zookeeper.set.acl": "false"}
    assert zookeeper_config_of("zk1", BrokerConfig.parse(settings)).tls is None


@for_each(
    "settings, error, words",
    [
        ({"zookeeper.set.acl": "true"}, UsageError, "needs a login"),
        (
            {"plog.zookeeper.login": "sasl", "plog.zookeeper.user": "me"},
            UsageError,
            "the user or the password file is missing",
        ),
        (
            {
                "plog.zookeeper.login": "digest",
                "plog.zookeeper.user": "me",
                "plog.zookeeper.password.file": "/nowhere/password",
            },
            AccessError,
            "/nowhere/password: no such file",
        ),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.type": "BKS"},
            UsageError,
            r"^zookeeper\.ssl\.truststore\.type=BKS, expected one of PEM, PKCS12, JKS",
        ),
        (
            STORES | {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
            UsageError,
            "zookeeper.clientCnxnSocket is Java's class without TLS",
        ),
        (
            {"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"},
            UsageError,
            "zookeeper.set.acl needs a login",
        ),
    ],
)
def test_what_does_not_work(settings: dict[str, str], error: type[PlogError], words: str) -> None:
    with pytest.raises(error, match=words):
        zookeeper_config_of("zk1", BrokerConfig.parse(settings))
