"""What a client must do at a listener before its requests are served. Values only; nothing here opens a file.

Made of settings by `core/broker/config/listener_security.py`, used by `core/files/tls_context.py`, and in
`core/broker/serving`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from core.security.client_security import Tls
from core.security.secret import Secret

MOST_FRAME_BYTES = 512 * 1024
"""The most bytes of a request before authentication, by default (BrokerSecurityConfigs)."""


class ClientAuth(StrEnum):
    """Whether clients show a certificate, by the names of `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The listener's certificate and key, and its trust; `principal_mapping_rules` as Kafka's setting has them. A
    certificate that replaces another one while the broker runs may have another name, or fewer names, only if allowed.
    """

    tls: Tls
    client_auth: ClientAuth = ClientAuth.NONE
    principal_mapping_rules: str = "DEFAULT"
    allows_dn_changes: bool = False
    allows_san_changes: bool = False


@dataclass(frozen=True, slots=True)
class ServerSasl:
    """The listener's mechanisms. `max_reauth_ms` says by mechanism how long a session lasts; without an entry it does
    not end.
    """

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, Secret] = field(default_factory=dict)
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    most_frame_bytes: int = MOST_FRAME_BYTES
    failure_delay_ms: int = 100


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """Immutable; it prints no secrets."""

    tls: ServerTls | None = None
    sasl: ServerSasl | None = None

    @property
    def protocol(self) -> str:
        """Names it as `listener.security.protocol.map` does."""
        return ("SASL_" if self.sasl else "") + ("SSL" if self.tls else "PLAINTEXT")


OPEN = ListenerSecurity()
"""PLAINTEXT: whoever connects is served."""
