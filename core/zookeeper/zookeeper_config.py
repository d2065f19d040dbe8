"""How to reach a ZooKeeper: `zookeeper.connect`, and our identity."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import UsageError
from core.security.client_security import Tls
from core.security.secret import Secret

DEFAULT_PORT = 2181
DEFAULT_SESSION_TIMEOUT_MS = 18_000
"""Kafka's own `zookeeper.session.timeout.ms`."""


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """A name and its password, for the scheme `digest` or for SASL's DIGEST-MD5."""

    user: str
    password: Secret


@dataclass(frozen=True, slots=True)
class ZooKeeperConfig:
    """`chroot` is empty or begins with a slash: our / is there. With `sets_acls` (Kafka's `zookeeper.set.acl`) only we
    may change the nodes that we create; that needs `digest`, `sasl` or a certificate of our own.
    """

    servers: tuple[Endpoint, ...]
    chroot: str = ""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    sets_acls: bool = False
    digest: ZooKeeperLogin | None = None
    sasl: ZooKeeperLogin | None = None
    tls: Tls | None = None

    def __str__(self) -> str:
        return ",".join(map(str, self.servers)) + self.chroot

    def ensure_consistent(self) -> None:
        """Raises UsageError for settings that can't work together."""
        has_certificate = self.tls is not None and self.tls.key_store is not None
        if self.sets_acls and not (self.digest or self.sasl or has_certificate):
            raise UsageError(
                "zookeeper.set.acl needs a login: without one nobody could change the nodes again",
                hint="log in with digest or SASL (plog.zookeeper.login), or by a certificate "
                "(zookeeper.ssl.client.enable, zookeeper.ssl.keystore.location), or leave zookeeper.set.acl out",
            )


def parse_zookeeper_connect(text: str) -> tuple[tuple[Endpoint, ...], str]:
    """Reads HOST:PORT[,HOST:PORT..][/CHROOT] into servers and chroot; raises UsageError for anything else."""
    hosts, slash, path = text.strip().partition("/")
    chroot = f"/{path}".rstrip("/") if slash else ""
    if re.search(r"//|/\.{1,2}(/|$)|[\x00-\x1f\x7f]", chroot) or "," in chroot:
        raise UsageError(
            f"{chroot!r} is no chroot", hint="one path at the end, for all servers: zk1:2181,zk2:2181/kafka"
        )
    parts = [part.strip() for part in hosts.split(",") if part.strip()]
    if not parts:
        raise UsageError("no ZooKeeper is named", hint=f"for example 127.0.0.1:{DEFAULT_PORT}/kafka")
    endpoints = [parse_endpoint(part, DEFAULT_PORT) for part in parts]
    wrong = next((one for one in endpoints if not 0 < one.port < 1 << 16 or re.search(r"\s", one.host)), None)
    if wrong is not None:
        raise UsageError(f"no ZooKeeper can be at {wrong}", hint=f"for example 127.0.0.1:{DEFAULT_PORT}/kafka")
    return tuple(Endpoint(one.host or "127.0.0.1", one.port) for one in endpoints), chroot
