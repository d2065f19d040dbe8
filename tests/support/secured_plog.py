"""`plog serve` behind locked doors: a listener for SASL over TLS, one for clients with certificates, a broker's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.certificates import make_ca, sign
from tests.support.free_ports import free_ports
from tests.support.server import Server, call_plog
from tests.support.ways_in import WAYS, Way, write_properties

PASSWORD = "marked-password, with = and \N{LATIN SMALL LETTER E WITH ACUTE}"
"""Of alice, for PLAIN and SCRAM."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MTLS = "mTLS"
_STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecuredPlog(Server):
    """Alice may do everything, by each way; nobody else may do anything. `address` is that of the way that was taken
    last; `tests.support.ways_in` knows what a client needs there.
    """

    def __init__(self, folder: Path, *, lifetime_ms: int = 0, settings: Mapping[str, str] | None = None) -> None:
        """`lifetime_ms` ends sessions of SASL; 0 does not."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = make_ca()
        (folder / "ca.pem").write_text(self.ca.pem)
        self._write_pair("server", "server", ())
        self._write_pair("alice", "Alice", ("plog", "eng"))
        self._ports = dict(zip((*MECHANISMS, MTLS), free_ports(len(MECHANISMS) + 1), strict=True))
        self._way = MECHANISMS[-1]
        names = {way: way.replace("-", "_") for way in self._ports}
        protocols = ",".join(f"{names[way]}:{'SSL' if way == MTLS else 'SASL_SSL'}" for way in self._ports)
        lines = {
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": names[MTLS],
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
            "authorizer.class.name": _STANDARD,
            "super.users": "User:alice",
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "200",
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.num.partitions": "2",
        }
        for way in MECHANISMS:
            prefix = f"listener.name.{names[way].lower()}"
            lines[f"{prefix}.sasl.enabled.mechanisms"] = way
            if lifetime_ms:
                lines[f"{prefix}.connections.max.reauth.ms"] = str(lifetime_ms)
        lines["listener.name.plain.plain.sasl.jaas.config"] = f'{_PLAIN} required user_alice="{PASSWORD}";'
        properties = write_properties(folder / "server.properties", lines | dict(settings or {}))
        listeners = [
            word for way, port in self._ports.items() for word in ("--listener", f"{names[way]}://localhost:{port}")
        ]
        super().__init__(folder / "data", "--config", str(properties), *listeners)
        where = ["--password-stdin", "--data-dir", str(self.data_dir)]
        done = call_plog("user", "create", "alice", "--iterations", "4096", *where, stdin=PASSWORD.encode())
        assert done.returncode == 0, done.stderr
        self._make_ways()

    def _write_pair(self, file: str, name: str, organisation: tuple[str, ...]) -> None:
        made = sign(self.ca, name, organisation=organisation)
        (self.folder / f"{file}.pem").write_text(made.key_pem() + made.pem)

    def _make_ways(self) -> None:
        for name, port in self._ports.items():
            certificate, login = None, ("", "", "")
            if name == MTLS:
                certificate = self.folder / "alice.pem"
            else:
                login = name, "alice", PASSWORD
            path = self.folder / f"{name}.properties"
            way = Way(self.folder / "ca.pem", *login, certificate=certificate, properties=path)
            way.write_java(path)
            WAYS[f"localhost:{port}"] = way

    def start(self) -> None:
        super().start()
        self.take(self._way)

    def take(self, way: str) -> None:
        """Lets the next clients take it."""
        self._way = way
        self.address = f"localhost:{self._ports[way]}"
