"""TLS on a connected socket, and messages for its failures.

The two sides do not learn of a refusal at the same time: in TLS 1.3 the client is done before the server has looked at
its certificate, and gets the refusal with the first answer. `alert_failure` explains that, too.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address

from core.client.net.connect_notice import SILENCE_HINT, SILENCE_SECONDS, ConnectNotice, open_socket, place_text
from core.client.net.port_probe import find_speech, speaks
from core.common.errors import AccessError, AuthenticationError, ConnectionFailedError, UnansweredError
from core.security.certificate_fields import CertificateFields, elements, parse_certificate

_DIAGNOSIS_SECONDS = 5.0
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_UNKNOWN_CA = {2, 18, 19, 20, 21}
_TIME = "%Y-%m-%d %H:%M:%S UTC"
_DNS_NAME, _ADDRESS = 0x82, 0x87  # the tags of alternative names


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """The address of the server, whose certificate has to be for `host`, and how to connect."""

    host: str
    port: int
    shows_certificate: bool
    """Whether we have a certificate."""
    target: tuple[str, int] | None = None
    """Where the address can be reached from here, if not where it says."""

    @property
    def address(self) -> tuple[str, int]:
        return self.target or (self.host, self.port)

    @property
    def where(self) -> str:
        return place_text((self.host, self.port), self.address)


def begin_tls(
    plain: socket.socket,
    peer: TlsPeer,
    context: ssl.SSLContext,
    notice: ConnectNotice | None = None,
    *,
    is_hasty: bool = False,
) -> ssl.SSLSocket:
    """Shakes hands, and returns the connected socket with TLS on it. Raises ConnectionFailedError or
    AuthenticationError if that fails; the socket is closed then. `is_hasty`: see `ConnectNotice.wait`.
    """
    timeout_s = plain.gettimeout()
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(plain.close)
        try:
            tls = context.wrap_socket(plain, server_hostname=peer.host, do_handshake_on_connect=False)
            unless_done.callback(tls.close)
            tls.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()  # our hello
            tls.settimeout(timeout_s)
            if notice is not None and tls.version() is None:
                notice.wait(tls, (peer.host, peer.port), has_tls=True, is_hasty=is_hasty)
            tls.do_handshake()  # which ends after the timeout, however slowly the bytes come
        except TimeoutError as error:
            seconds = SILENCE_SECONDS if is_hasty else timeout_s
            failure = _not_connected(peer, f"TLS did not begin in {seconds:g} s", SILENCE_HINT)
            raise UnansweredError(failure.message, where=failure.where, hint=failure.hint) from error
        except OSError as error:
            raise handshake_failure(error, peer, timeout_s) from error
        unless_done.pop_all()
    return tls


def shown_chain(tls: ssl.SSLSocket) -> list[bytes]:
    """Returns DER of the certificates that the server showed, its own first, whether or not they are trusted. Python
    has no public call for all of them before 3.13.
    """
    name = "get_unverified_chain"
    take = getattr(tls, name, None) or getattr(getattr(tls, "_sslobj", None), name, None)
    if take is not None:
        return [one if isinstance(one, bytes) else ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in take()]
    shown = tls.getpeercert(binary_form=True)
    return [] if shown is None else [shown]


def _not_connected(peer: TlsPeer, what: str, hint: str | None = None) -> ConnectionFailedError:
    return ConnectionFailedError(f"could not connect to {peer.where}: {what}", where=peer.where, hint=hint)


def handshake_failure(error: OSError, peer: TlsPeer, timeout_s: float | None = None) -> AccessError:
    """Explains why the handshake failed. Connects again, to look at a certificate that was refused, or to find out what
    the port speaks instead; `timeout_s` is that of an answer.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_failure(error, peer)
    if (alert := alert_failure(error, peer)) is not None:
        return alert
    speech = find_speech(peer.address, has_tls=True, timeout_s=timeout_s)
    if speech is not None:
        return speaks(peer.where, speech)
    what = "it closed the connection when TLS began"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        if error.reason != "WRONG_VERSION_NUMBER":
            return _not_connected(peer, f"TLS failed: {_reason(error)}")
        what = "it does not speak TLS"
    return _not_connected(peer, what, "it may speak plaintext: security.protocol=PLAINTEXT or SASL_PLAINTEXT")


# --- the server refuses us


def alert_failure(error: OSError, peer: TlsPeer) -> AccessError | None:
    """Explains an alert that the server sent; None for other failures."""
    reason = getattr(error, "reason", None) or ""
    if "ALERT" not in reason:
        return None
    alert = reason.split("ALERT_")[-1].lower().replace("_", " ")
    if reason.endswith("PROTOCOL_VERSION"):
        return AuthenticationError(
            f"{peer.where} speaks no version of TLS that plog speaks",
            where=peer.where,
            hint="ssl.enabled.protocols leaves out what it speaks, or it speaks TLS 1.1 at most",
        )
    about_certificates = any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED"))
    if not peer.shows_certificate and (about_certificates or reason.endswith("HANDSHAKE_FAILURE")):
        return AuthenticationError(
            f"{peer.where} wants a certificate of the client's, and plog has none to show (alert: {alert})",
            where=peer.where,
            hint="ssl.keystore.location, or ssl.certificate.location and ssl.key.location",
        )
    if about_certificates:
        return AuthenticationError(
            f"{peer.where} refuses our certificate (alert: {alert})",
            where=peer.where,
            hint="has it expired, and is it of a CA that the broker trusts?",
        )
    return AuthenticationError(f"{peer.where} ended TLS (alert: {alert})", where=peer.where)


# --- we refuse the server


def _certificate_failure(error: ssl.SSLCertVerificationError, peer: TlsPeer) -> AuthenticationError:
    shown = _look_at(peer)
    code = error.verify_code
    clock = f"and the clock here says {datetime.datetime.now(datetime.UTC):{_TIME}}"
    what, hint = error.verify_message, None
    if code == _EXPIRED:
        what = f"it expired{f' at {shown.end:{_TIME}}' if shown else ''}, {clock}"
        hint = "if the clock is right, the cluster needs a new certificate"
    elif code == _NOT_YET_VALID:
        what = f"it is not good before{f' {shown.start:{_TIME}}' if shown else ''}, {clock}"
        hint = "is the clock of this machine right?"
    elif code in _UNKNOWN_CA:
        issuer = _common_name(shown.issuer) if shown else ""
        what = f"it is of a CA that is not trusted{f', {issuer}' if issuer else ''}"
        hint = "ssl.truststore.location or ssl.ca.location: the file with the CA's certificate"
    elif code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = (", ".join(_hosts(shown)) or _common_name(shown.subject)) if shown else ""
        what = f"it is not for {peer.host}{f', but for {names}' if names else ''}"
        hint = "connect by a name that it has; a broker's advertised.listeners must have one, too"
    return AuthenticationError(f"the certificate of {peer.where} is not good: {what}", where=peer.where, hint=hint)


def _look_at(peer: TlsPeer) -> CertificateFields | None:
    """Returns the contents of the server's certificate, though we do not trust it: we ask nothing else of it; None if
    it can't be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        contextlib.suppress(OSError, ValueError),
        open_socket(peer.address, _DIAGNOSIS_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=peer.host) as tls,
    ):
        return parse_certificate(tls.getpeercert(binary_form=True) or b"")
    return None


def _common_name(name: str) -> str:
    """Returns the common name in the text of a name, else the organisation, or ""."""
    parts = dict(reversed(re.findall(r"(?:^|[,+])(CN|O)=((?:\\.|[^,+\\])*)", name, re.DOTALL)))
    return re.sub(r"\\(.)", r"\1", parts.get("CN") or parts.get("O") or "", flags=re.DOTALL)


def _hosts(shown: CertificateFields) -> list[str]:
    hosts = []
    for tag, value, _ in (element for name in shown.names for element in elements(name)):
        if tag == _DNS_NAME:
            hosts.append(value.decode("ascii", "replace"))
        elif tag == _ADDRESS and len(value) in (4, 16):
            hosts.append(str(ip_address(value)))
    return hosts


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
