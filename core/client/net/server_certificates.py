"""The certificates that a server shows, and whether a client would trust them."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass, replace

from core.client.net.connect_notice import open_socket
from core.client.net.tls_socket import TlsPeer, begin_tls, shown_chain
from core.common.errors import AuthenticationError, ConnectionFailedError
from core.files.tls_context import make_context
from core.security.client_security import Tls

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ServerCertificates:
    """`chain` is DER, the server's own first; `refusal` says why a client with these settings would refuse it."""

    chain: list[bytes]
    tls_version: str
    refusal: AuthenticationError | None


def ask_server(host: str, port: int, tls: Tls, target: tuple[str, int] | None = None) -> ServerCertificates:
    """Connects twice: first trusting everything, to get the certificates, then as `tls` says. Sends only TLS's
    handshake. `target`: see `TlsPeer`. Raises ConnectionFailedError if nobody answers or it is not TLS;
    AuthenticationError if the server ends the handshake; UsageError for files of `tls` that can't be read.
    """
    peer = TlsPeer(host, port, tls.key_store is not None, target)
    trusting = replace(tls, checks_certificates=False, checks_host_names=False)
    with contextlib.closing(_connect(peer, trusting)) as connection:
        chain, version = shown_chain(connection), connection.version() or ""
    try:
        _connect(peer, tls).close()
    except AuthenticationError as error:
        return ServerCertificates(chain, version, error)
    return ServerCertificates(chain, version, None)


def _connect(peer: TlsPeer, tls: Tls) -> ssl.SSLSocket:
    context = make_context(tls)
    try:
        plain = open_socket(peer.address, _TIMEOUT_SECONDS)
    except OSError as error:
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        raise ConnectionFailedError(f"could not connect to {peer.where}: {reason}", where=peer.where) from error
    return begin_tls(plain, peer, context)
