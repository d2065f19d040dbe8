"""The door of a listener: what its clients must do before their requests are served."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from core.security.principal import ANONYMOUS, USER_TYPE, Principal
from core.security.server_security import ListenerSecurity


class Door:
    """One for each listener; owned by the broker's task. `context` may be replaced while the broker runs: a connection
    keeps the one that it began with.
    """

    def __init__(self, listener: str, security: ListenerSecurity, context: ssl.SSLContext | None = None) -> None:
        self.listener = listener
        self.security = security
        self.context = context
        self.find_principal: Callable[[bytes | None], Principal] = find_principal
        """Returns the principal of a client that showed a certificate (DER), or none."""


def find_principal(certificate: bytes | None) -> Principal:
    """Returns the subject of the certificate as a user; ANONYMOUS without one."""
    if certificate is None:
        return ANONYMOUS
    from cryptography.x509 import load_der_x509_certificate

    return Principal(USER_TYPE, load_der_x509_certificate(certificate).subject.rfc4514_string())
