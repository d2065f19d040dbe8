"""A cluster of Kafka 3.9 and plog in which brokers speak SASL_SSL, and reach ZooKeeper by their certificate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from tests.support.certificates import Certificate, make_ca, sign
from tests.support.free_ports import free_ports
from tests.support.kafka39 import CHROOT
from tests.support.waiting import ANSWER_SECONDS

PASSWORDS = {"broker": "marked-of-the-brokers", "alice": "marked-of-alice"}
SESSION_MS = 4000
"""After so long each client of a broker has to log in again."""

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LISTENER = "listener.name.internal"


class Secrets:
    """The files of a cluster: a CA, the brokers' certificate, ZooKeeper's; and the settings that name them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = make_ca()
        (folder / "ca.pem").write_text(self.ca.pem)
        self.broker = self.write("broker")
        self.write("zookeeper")
        (self._port,) = free_ports(1)

    def write(self, name: str, certificate: Certificate | None = None) -> Path:
        """Writes a certificate of the CA and its key."""
        made = certificate or sign(self.ca, name, organisation=("plog",))
        path = self.folder / f"{name}.pem"
        path.write_text(made.key_pem() + made.pem)
        return path

    @property
    def of_zookeeper(self) -> Mapping[str, str]:
        """A second port, at which a certificate is the login."""
        return {
            "secureClientPort": str(self._port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self.folder / "zookeeper.pem"),
            "ssl.trustStore.location": str(self.folder / "ca.pem"),
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        }

    def of_brokers(self, protocol: str = "SASL_SSL") -> dict[str, str]:
        """By Kafka's names, for brokers of both."""
        stores = {
            f"{prefix}.{store}.{what}": value
            for prefix in (f"{_LISTENER}.ssl", "zookeeper.ssl")
            for store, file in (("keystore", self.broker), ("truststore", self.folder / "ca.pem"))
            for what, value in (("type", "PEM"), ("location", str(file)))
        }
        return {
            **stores,
            "listener.security.protocol.map": f"CLIENT:PLAINTEXT,INTERNAL:{protocol}",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            f"{_LISTENER}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{_LISTENER}.scram-sha-512.sasl.jaas.config": self.jaas("broker"),
            f"{_LISTENER}.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
            "zookeeper.connect": f"127.0.0.1:{self._port}{CHROOT}",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.set.acl": "true",
        }

    def change_password(self, name: str, password: str) -> None:
        """As kafka-configs --zookeeper does while brokers run: it has their certificate."""
        client = KazooClient(
            f"127.0.0.1:{self._port}{CHROOT}",
            use_ssl=True,
            ca=str(self.folder / "ca.pem"),
            certfile=str(self.broker),
            keyfile=str(self.broker),
        )
        client.start(ANSWER_SECONDS)
        try:
            add_users(client, {name: password})
            change = json.dumps({"version": 2, "entity_path": f"users/{name}"}).encode()
            client.create("/config/changes/config_change_", change, sequence=True)
        finally:
            client.stop()
            client.close()

    @staticmethod
    def jaas(name: str, password: str | None = None) -> str:
        return f'{_SCRAM} required username="{name}" password="{password or PASSWORDS[name]}";'

    def of_client(self, name: str) -> dict[str, Any]:
        """librdkafka's settings."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": PASSWORDS[name],
            "ssl.ca.location": str(self.folder / "ca.pem"),
        }


def add_users(client: KazooClient, passwords: Mapping[str, str] = PASSWORDS) -> None:
    """Writes SCRAM's credentials as kafka-configs --zookeeper does, before any broker runs (RFC 5802)."""
    for name, password in passwords.items():
        salt = hashlib.sha256(name.encode()).digest()
        salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 4096)
        parts = {
            "salt": salt,
            "stored_key": hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest(),
            "server_key": hmac.digest(salted, b"Server Key", "sha512"),
        }
        credential = ",".join(f"{key}={base64.b64encode(data).decode()}" for key, data in parts.items())
        value = {"version": 1, "config": {"SCRAM-SHA-512": f"{credential},iterations=4096"}}
        path = f"/config/users/{name}"
        client.ensure_path(path)
        client.set(path, json.dumps(value).encode())
