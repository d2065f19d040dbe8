"""How a broker reaches ZooKeeper, by its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.zookeeper_registration import zookeeper_config_of
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, PlogError, UsageError
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


def test_tls(tmp_path: Path) -> None:
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "ca.pem",
        "zookeeper.ssl.keystore.location": "own.pem",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    found = zookeeper_config_of("zk1", BrokerConfig.parse(settings)).tls
    assert found is not None
    assert (found.ca, found.certificate, found.key) == (Path("ca.pem"), Path("own.pem"), Path("own.pem"))
    assert not found.verifies_host


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
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "trust.jks"},
            UsageError,
            "plog reads PEM files",
        ),
    ],
)
def test_what_does_not_work(settings: dict[str, str], error: type[PlogError], words: str) -> None:
    with pytest.raises(error, match=words):
        zookeeper_config_of("zk1", BrokerConfig.parse(settings))
