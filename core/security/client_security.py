"""How a client reaches a cluster: its trust, and its identity. Values only; nothing here opens a file.

Made of settings by `client_settings.py`, used by `core/files/tls_context.py`, and in `core/client/net` by
authenticator.py and token_source.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from core.security.secret import Secret, shown_url


class StoreType(StrEnum):
    """Kinds of files with certificates and keys. The first bytes of a file tell its kind: as in Java, a JKS may be a
    PKCS12 and the other way round.
    """

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Certificates that are trusted: a file or folder, or PEM as it stands."""

    location: str | None = None
    type: StoreType | None = None
    password: Secret | None = None
    certificates: str | None = None


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Our certificate and its key: both in one file (`location`), in a file each, or PEM as it stands."""

    location: str | None = None
    type: StoreType | None = None
    password: Secret | None = None
    key_password: Secret | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    certificate_chain: str | None = None
    key: Secret | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """The settings of TLS; `trust` is None for the system's."""

    trust: TrustStore | None = None
    key_store: KeyStore | None = None
    checks_certificates: bool = True
    checks_host_names: bool = True
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. `is_token`: the id and the HMAC of a delegation token."""

    mechanism: str
    name: str
    password: Secret
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where OAUTHBEARER's tokens are fetched with client credentials (RFC 6749, 4.4)."""

    url: str = field(repr=False)
    client_id: str
    client_secret: Secret
    scope: str | None = None
    url_encodes_header: bool = False
    trust: TrustStore | None = None
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0

    @property
    def shown(self) -> str:
        """Returns the URL without secrets."""
        return shown_url(self.url)


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """OAUTHBEARER. One of the first three is set."""

    endpoint: TokenEndpoint | None = None
    token_file: str | None = None
    token: Secret | None = None
    extensions: dict[str, str] = field(default_factory=dict)
    mechanism: str = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Immutable, and may be sent to another process; it prints no secrets."""

    tls: Tls | None = None
    login: PasswordLogin | BearerLogin | None = None

    @property
    def protocol(self) -> str:
        """Names it as `security.protocol` does."""
        return ("SASL_" if self.login else "") + ("SSL" if self.tls else "PLAINTEXT")


PLAINTEXT = ClientSecurity()
