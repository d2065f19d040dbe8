"""TLS on a connected socket, and messages for its failures.

The two sides do not learn of a refusal at the same time: in TLS 1.3 the client is done before the server has looked at
its certificate, and gets the refusal with the first answer. `alert_failure` explains that, too.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

from core.client.net.connect_notice import SILENCE_HINT, SILENCE_SECONDS, ConnectNotice, is_readable, open_socket
from core.client.net.port_probe import Speech, find_speech, recognize, speaks
from core.common.errors import AccessError, AuthenticationError, ConnectionFailedError, UnansweredError

_HANDSHAKE, _ALERT = 0x16, 0x15
_BUFFER_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024
_LOW_WATER_BYTES = 192 * 1024
_MOST_HELD_BYTES = 17 * 1024  # of an incomplete record of 16 KB with its frame, by OpenSSL
_DIAGNOSIS_SECONDS = 5.0
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
_PARTIAL_CHAIN = 0x80000
_NOT_YET_VALID, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
_UNKNOWN_CA = {2, 18, 19, 20, 21}
_TIME = "%b %d %H:%M:%S %Y GMT"  # as OpenSSL prints it


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
        name = f"{self.host}:{self.port}"
        return name if self.address == (self.host, self.port) else "{} (at {}:{})".format(name, *self.address)


class TlsSocket:
    """A connected socket with TLS on it, used like a socket; owned by one task. OpenSSL works on memory, and the bytes
    are moved here: so a server's answer to our hello can be inspected, and one `recv` brings many of its records of 16
    KB.
    """

    def __init__(
        self,
        plain: socket.socket,
        peer: TlsPeer,
        context: ssl.SSLContext,
        notice: ConnectNotice | None = None,
        *,
        is_hasty: bool = False,
    ) -> None:
        """Shakes hands. Raises ConnectionFailedError or AuthenticationError if that fails; the socket is closed then.
        `is_hasty`: see `ConnectNotice.wait`.
        """
        self._socket = plain
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=peer.host)
        self._notice = notice
        self._is_hasty = is_hasty
        self._low_water = 1
        self.deadline_s: float | None = None
        """When `recv_into` ends with TimeoutError though bytes come."""
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        try:
            self._shake_hands(peer)
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._flush()  # the alert that tells the server why
            plain.close()
            raise handshake_failure(error, peer) from error
        except TimeoutError as error:
            plain.close()
            seconds = SILENCE_SECONDS if is_hasty else plain.gettimeout()
            failure = _not_connected(peer, f"TLS did not begin in {seconds:g} s", SILENCE_HINT)
            raise UnansweredError(failure.message, where=failure.where, hint=failure.hint) from error
        except OSError as error:
            plain.close()
            raise _closed_at_once(peer, plain.gettimeout()) from error
        except AccessError:
            plain.close()
            raise

    def _shake_hands(self, peer: TlsPeer) -> None:
        """Raises TimeoutError if it takes longer than one answer may, however slowly the bytes come."""
        timeout_s = self._socket.gettimeout()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        is_first = True
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if is_first and self._notice is not None:
                    address = peer.host, peer.port
                    self._notice.wait(self._socket, address, has_tls=True, is_hasty=self._is_hasty)
                count = self._socket.recv_into(self._buffer)
                if is_first:
                    _ensure_tls(bytes(self._buffer[: min(count, 8)]), peer, timeout_s)
                elif count == 0:
                    raise _not_connected(peer, "it closed the connection in the middle of TLS's handshake") from None
                if deadline_s is not None and time.monotonic() > deadline_s:
                    raise TimeoutError from None
                is_first = False
                self._incoming.write(self._buffer[:count])
            else:
                self._flush()
                return

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())

    def sendall(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            self._tls.write(view[start : start + _PIECE_BYTES])
            self._flush()

    def recv_into(self, buffer: memoryview) -> int:
        """Receives the available bytes, at least one; returns 0 if the server closed the connection."""
        read, size, filled = self._tls.read, len(buffer), 0
        while filled < size:
            try:
                count = int(read(size - filled, buffer[filled:]))
                if count == 0:  # the server said that it closes
                    break
                filled += count
            except ssl.SSLWantReadError:
                if filled:
                    break
                self._flush()  # OpenSSL's own answers
                self._wait_for(size)
                received = self._socket.recv_into(self._buffer)
                if received == 0:
                    return 0
                if self.deadline_s is not None and time.monotonic() > self.deadline_s:
                    raise TimeoutError from None
                self._incoming.write(self._buffer[:received])
        return filled

    def _wait_for(self, size: int) -> None:
        """Waits. While so many bytes of an answer are missing, the socket must not wake us for each TLS record: that
        takes two system calls and a failed read, and a broker in Java sends each record of 16 KB by itself. A part of a
        record may be here already, so that less than `size` is still to come.
        """
        low_water = max(1, min(size - _MOST_HELD_BYTES, _LOW_WATER_BYTES))
        if low_water != self._low_water:
            self._low_water = low_water
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def is_readable(self, seconds: float) -> bool:
        """Returns whether data, or the end, arrives within that time; it may be less than can be read."""
        if self._tls.pending() or self._incoming.pending:
            return True
        self._wait_for(1)
        return is_readable(self._socket, seconds)

    def fileno(self) -> int:
        return self._socket.fileno()

    def gettimeout(self) -> float | None:
        return self._socket.gettimeout()

    def shown_chain(self) -> list[bytes]:
        """Returns DER of the certificates that the server showed, its own first, whether or not they are trusted.
        Python has no public call for all of them before 3.13.
        """
        name = "get_unverified_chain"
        take = getattr(self._tls, name, None) or getattr(getattr(self._tls, "_sslobj", None), name, None)
        if take is not None:
            return [one if isinstance(one, bytes) else ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in take()]
        shown = self._tls.getpeercert(binary_form=True)
        return [] if shown is None else [shown]

    @property
    def version(self) -> str:
        """Returns the version of TLS, as `TLSv1.3`."""
        return self._tls.version() or ""

    def close(self) -> None:
        self._socket.close()


_PLAINTEXT_HINT = "it may speak plaintext: security.protocol=PLAINTEXT or SASL_PLAINTEXT"


def _ensure_tls(first: bytes, peer: TlsPeer, timeout_s: float | None) -> None:
    if not first:
        raise _closed_at_once(peer, timeout_s)
    if recognize(first) is Speech.HTTP:
        raise _not_connected(peer, "it speaks HTTP, not TLS", "is that the port of a broker?")
    if first[0] not in (_HANDSHAKE, _ALERT):
        raise _not_connected(peer, "it does not speak TLS", _PLAINTEXT_HINT)


def _closed_at_once(peer: TlsPeer, timeout_s: float | None) -> ConnectionFailedError:
    speech = find_speech(peer.address, has_tls=True, timeout_s=timeout_s)
    if speech is not None:
        return speaks(peer.where, speech)
    return _not_connected(peer, "it closed the connection when TLS began", _PLAINTEXT_HINT)


def _not_connected(peer: TlsPeer, what: str, hint: str | None = None) -> ConnectionFailedError:
    return ConnectionFailedError(f"could not connect to {peer.where}: {what}", where=peer.where, hint=hint)


def handshake_failure(error: ssl.SSLError, peer: TlsPeer) -> AccessError:
    """Explains why the handshake failed; connects again to look at a certificate that was refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_failure(error, peer)
    return alert_failure(error, peer) or _not_connected(peer, f"TLS failed: {_reason(error)}")


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
    now = datetime.datetime.now(datetime.UTC)
    what, hint = error.verify_message, None
    if code == _EXPIRED:
        what = f"it expired{_at(shown, 'notAfter')}, and the clock here says {now:%Y-%m-%d %H:%M:%S} UTC"
        hint = "if the clock is right, the cluster needs a new certificate"
    elif code == _NOT_YET_VALID:
        what = f"it is not good before{_at(shown, 'notBefore')}, and the clock here says {now:%Y-%m-%d %H:%M:%S} UTC"
        hint = "is the clock of this machine right?"
    elif code in _UNKNOWN_CA:
        issuer = _name(shown, "issuer")
        what = f"it is of a CA that is not trusted{f', {issuer}' if issuer else ''}"
        hint = "ssl.truststore.location or ssl.ca.location: the file with the CA's certificate"
    elif code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = ", ".join(name for _, name in shown.get("subjectAltName", ())) or _name(shown, "subject")
        what = f"it is not for {peer.host}{f', but for {names}' if names else ''}"
        hint = "connect by a name that it has; a broker's advertised.listeners must have one, too"
    return AuthenticationError(f"the certificate of {peer.where} is not good: {what}", where=peer.where, hint=hint)


def _look_at(peer: TlsPeer) -> dict[str, Any]:
    """Returns the contents of the server's certificate, though we do not trust it: we ask nothing else of it. Empty if
    it can't be read. Python parses a certificate only if it was verified, so it is made its own CA the second time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connection(peer, context) as connection:
            shown = connection.getpeercert(binary_form=True)
        if shown is None:
            return {}
        context.load_verify_locations(cadata=shown)
        context.verify_flags |= _NO_CHECK_TIME | _PARTIAL_CHAIN
        context.verify_mode = ssl.CERT_REQUIRED
        with _connection(peer, context) as connection:
            return dict(connection.getpeercert() or {})
    except OSError:
        return {}


def _connection(peer: TlsPeer, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = open_socket(peer.address, _DIAGNOSIS_SECONDS)
    try:
        return context.wrap_socket(plain, server_hostname=peer.host)
    except OSError:
        plain.close()
        raise


def _at(shown: dict[str, Any], which: str) -> str:
    try:
        time = datetime.datetime.strptime(shown[which], _TIME)
    except (KeyError, ValueError):
        return ""
    return f" {'at ' if which == 'notAfter' else ''}{time:%Y-%m-%d %H:%M:%S} UTC"


def _name(shown: dict[str, Any], which: str) -> str:
    parts = dict(pair for group in shown.get(which, ()) for pair in group)
    return str(parts.get("commonName") or parts.get("organizationName") or "")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
