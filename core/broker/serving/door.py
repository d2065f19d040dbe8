"""The door of a listener: what its clients must do before their requests are served."""

from __future__ import annotations

import ssl
from datetime import datetime

from core.common.errors import AuthenticationError
from core.common.printable import printable
from core.security.certificate_fields import parse_certificate
from core.security.principal import ANONYMOUS, USER_TYPE, Principal
from core.security.principal_mapping import DEFAULT, PrincipalMapping
from core.security.server_security import ClientAuth, ListenerSecurity

_MOST_SHOWN = 256


class Door:
    """One for each listener; owned by the broker's task. `context` may be replaced while the broker runs: a connection
    keeps the one that it began with.
    """

    def __init__(self, listener: str, security: ListenerSecurity, context: ssl.SSLContext | None = None) -> None:
        """Raises UsageError for invalid `ssl.principal.mapping.rules`."""
        self.listener = listener
        self.context = context
        self.handshakes = self.failed_handshakes = 0
        """Of TLS, since the start."""
        self._mapping = _mapping_of(security)
        self.security = security

    def use(self, security: ListenerSecurity) -> None:
        """Asks this of clients that connect from now on. Raises UsageError, as the constructor does."""
        self._mapping = _mapping_of(security)
        self.security = security

    def ensure_shown(self, certificate: bytes | None) -> None:
        """Raises AuthenticationError for a client without a certificate if it must show one: its handshake may be of a
        context from before `use`.
        """
        tls = self.security.tls
        if certificate is None and tls is not None and tls.client_auth is ClientAuth.REQUIRED:
            raise AuthenticationError("it shows no certificate", where=self.listener)

    def ensure_current(self, certificate: bytes | None, now: datetime) -> None:
        """Raises AuthenticationError if the certificate of a session that goes on has expired since it was verified."""
        if certificate is not None and (found := parse_certificate(certificate)).end <= now:
            raise AuthenticationError(f"the certificate of {_shown(found.subject)} has expired", where=self.listener)

    def on_failed_handshake(self) -> None:
        self.failed_handshakes += 1

    def find_principal(self, certificate: bytes | None) -> Principal:
        """Returns the principal of a client that showed this certificate (DER), which was verified; ANONYMOUS without
        one. Raises AuthenticationError if no rule matches its name.
        """
        if certificate is None:
            return ANONYMOUS
        subject = parse_certificate(certificate).subject
        name = self._mapping.find_name(subject)
        if name is None:
            shown = _shown(subject)
            raise AuthenticationError(f"no rule of ssl.principal.mapping.rules matches {shown}", where=self.listener)
        return Principal(USER_TYPE, name)


def _shown(subject: str) -> str:
    """Returns as much of it as a line of a log needs."""
    return printable(subject[:_MOST_SHOWN], keeps="") + (".." if len(subject) > _MOST_SHOWN else "")


def _mapping_of(security: ListenerSecurity) -> PrincipalMapping:
    return PrincipalMapping(DEFAULT if security.tls is None else security.tls.principal_mapping_rules)
