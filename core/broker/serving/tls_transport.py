"""TLS on an accepted socket, used like a non-blocking socket: OpenSSL works on memory, and the bytes are moved here.

One receive brings many records: librdkafka makes two of each record of Kafka's, and OpenSSL takes 1.5 us for a small
one. They go into OpenSSL in slices, and their data into the caller's buffer, as much as a turn is worth. A peer that
sends records without data is noticed by what comes out of a slice. OpenSSL's own state is made when the first record of
a handshake is whole: half a hello costs the broker no more than its bytes.

What waits here is invisible to the selector. The owner looks at `has_plaintext` after each receive and whenever it
begins to read again, and at `has_unsent` after each send and before it closes.

A record: content type (1 byte; 20 change_cipher_spec, 21 alert, 22 handshake, 23 data), version (2), length of the body
(2), body (RFC 8446, 5.1).
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Sequence
from time import monotonic  # noqa: TID251  how long a turn takes
from typing import Any

from core.broker.requests.fair_scheduler import TURN_SECONDS
from core.common.errors import MalformedMessageError

_HEADER_BYTES = 5
_MOST_BODY_BYTES = 16 * 1024 + 2048  # of TLS 1.2
_HANDSHAKE = 22
_CLIENT_HELLO = b"\1"
_MOST_HELLO_BYTES = 16 * 1024
"""OpenSSL reserves as much as a hello claims to have, up to 128 KB; usual ones have 2 KB at most."""
_GROUPS, _SHARES = 10, 51
_CURVES = {23, 24, 25}
"""P-256, P-384, P-521: a client that can do with curves has one of them. OpenSSL prefers them."""
_FINITE_FIELDS = range(256, 512)
"""Diffie-Hellman without curves (RFC 7919): OpenSSL takes 20 to 150 ms for a key of 4096 to 8192 bits, and a client may
send any number as its own. Python's ssl can't leave them out.
"""
_MOST_HANDSHAKE_BYTES = 40 * 1024
"""A client's chain of certificates has 32 KB at most, as for Java, and the rest a few. OpenSSL takes 100 KB, and keeps
the chains of the last 20,000 clients of TLS 1.2, in case that they go on with their sessions.
"""
_LEAST_RECEIVED_BYTES = 32 * 1024
_FIRST_BYTES = 4 * 1024
_SLICE_BYTES = 32 * 1024
"""What goes into OpenSSL at once, first and later: if a slice takes long, as with new keys (25 us for 27 bytes), the
rest waits for another turn.
"""
_MOST_BARREN_BYTES = 2 * (_HEADER_BYTES + _MOST_BODY_BYTES)
"""Bytes without data in a row. OpenSSL 3 has no limit for new keys."""
_MOST_ANSWER_BYTES = 1024
"""What OpenSSL answers by itself to a slice: each request for new keys by 27 bytes."""
_LEAST_OVERHEAD_BYTES = 21
"""Of a record, beside its data: 22 in TLS 1.3, in TLS 1.2 29 with GCM, and these with ChaCha20."""
_LEAST_LOW_WATER_BYTES = 2 * 1024
_MOST_LOW_WATER_BYTES = 64 * 1024
PIECE_BYTES = 96 * 1024
"""The most data encrypted at once; OpenSSL keeps memory for that as long as the connection is open."""

_REASONS = {
    "HTTP_REQUEST": "HTTP at a port that speaks TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is enabled",
    "NO_SHARED_CIPHER": "it has no cipher suite that is enabled",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth is required",
}
_UNKNOWN_CA = (2, 18, 19, 20, 21)  # OpenSSL's X509_V_ERR_*: no issuer's certificate that is trusted
_HTTP = re.compile(rb"[A-Z]{3,7} ")


class TlsError(MalformedMessageError):
    """What the peer sent is not TLS, breaks it, or can't be agreed on."""


class TlsTransport:
    """Owned by the loop's task. `scratch` is memory that all sockets of a server use in turns: room for many records.
    During the handshake `_waiting` begins with a record, which is whole if `_has_whole`.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, scratch: memoryview) -> None:
        self._socket = sock
        self._context = context
        self._scratch = scratch
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._waiting = b""
        self._has_whole = False
        self._is_full = False  # the caller's buffer was, so OpenSSL may have more data
        self._has_ended = False  # the peer sends no more
        self._failure: TlsError | None = None  # found after data that the caller gets first
        self._barren_bytes = 0
        self._excess_bytes = 0  # given to OpenSSL, and no data yet: those of an incomplete record, or more
        self._overhead_bytes = _LEAST_OVERHEAD_BYTES
        self._low_water = 1
        self._handshake_bytes = 0
        self._unsent = memoryview(b"")
        self._has_closed = False  # we said that we send no more
        self.is_ready = False
        """Whether the handshake is done."""

    # --- the handshake

    @property
    def has_begun(self) -> bool:
        """Whether the first record was whole."""
        return self._tls is not None or self._has_whole

    @property
    def needs_step(self) -> bool:
        """Whether `shake_hands` is to be called: records of the peer wait for it."""
        return not self.is_ready and self._has_whole

    def shake_hands(self) -> None:
        """Does one step of the handshake, which may take a millisecond, and sends our part. Raises TlsError, after the
        alert is on its way; OSError if the peer is gone.
        """
        if self._tls is None:
            self._ensure_usual_hello()
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshake_bytes += len(self._waiting)
        if self._handshake_bytes > _MOST_HANDSHAKE_BYTES:
            raise TlsError(f"a TLS handshake of more than {_MOST_HANDSHAKE_BYTES} bytes")
        data, end = memoryview(self._waiting), 0
        while (after := _record_end(data, end, len(data))) is not None:
            end = after
        self._incoming.write(data[:end])
        self._waiting, self._has_whole = self._waiting[end:], False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise TlsError(f"no TLS connection: {_reason(error)}") from error
        else:
            self.is_ready = True
            cipher, version, _ = self._tls.cipher() or ("", "", 0)
            self._overhead_bytes = 22 if version == "TLSv1.3" else 29 if "GCM" in cipher else _LEAST_OVERHEAD_BYTES
            self._excess_bytes = self._incoming.pending
            self._is_full = self._excess_bytes > 0
        finally:
            self._push()

    def _ensure_usual_hello(self) -> None:
        body = self._waiting[_HEADER_BYTES : _record_end(self._waiting, 0, len(self._waiting))]
        size_bytes = int.from_bytes(body[1:4])
        if len(body) < 4 + size_bytes or body[:1] != _CLIENT_HELLO or size_bytes > _MOST_HELLO_BYTES:
            expected = f"a ClientHello of at most {_MOST_HELLO_BYTES} bytes in its first record"
            raise TlsError(f"TLS that begins with {body[:4].hex()}, expected {expected}")
        groups, shares = _groups_of(body[4 : 4 + size_bytes])
        if not (shares if groups & _CURVES else groups | shares).isdisjoint(_FINITE_FIELDS):
            raise TlsError("it wants Diffie-Hellman without curves, which is too dear")

    @property
    def certificate(self) -> bytes | None:
        """DER of the client's certificate, which was verified, or None."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    @property
    def is_resumed(self) -> bool:
        """Whether the handshake went on with an earlier session: its certificate was verified then, and not now."""
        return self._tls is not None and bool(self._tls.session_reused)

    # --- in

    @property
    def has_plaintext(self) -> bool:
        """Whether `recv_into` returns something though the selector may never say so."""
        has_cut = self.is_ready and len(self._waiting) > 0
        return has_cut or self._is_full or self._has_ended or self._failure is not None

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here, in and out. A few in OpenSSL do not count, and none if it is not known how many."""
        is_record = _LEAST_LOW_WATER_BYTES <= self._excess_bytes <= _HEADER_BYTES + _MOST_BODY_BYTES
        return len(self._waiting) + len(self._unsent) + (self._excess_bytes if is_record else 0)

    def recv_into(self, buffer: memoryview, nbytes: int = 0) -> int:
        """Receives what is there, but at most what one turn is worth; returns 0 if the peer sends no more. Raises
        BlockingIOError if there is nothing, as before the end of the handshake; TlsError; the socket's errors.
        """
        if not self.is_ready:
            return self._receive_handshake()
        size = nbytes or len(buffer)
        filled = self._decrypt(buffer[:size]) if self._is_full else 0
        if not filled and self._failure is None and not self._has_ended:
            filled = self._receive(buffer[:size])
        if filled:
            return filled
        if self._failure is not None:
            raise self._failure
        if self._has_ended:
            return 0
        raise BlockingIOError

    def _receive_handshake(self) -> int:
        if not self._has_whole and not self._has_ended:
            end = self._fill(_HEADER_BYTES + _MOST_BODY_BYTES)
            self._keep(self._scratch[:end])
            if end and self._waiting[0] != _HANDSHAKE and self._tls is None:
                raise TlsError(f"{_name_of(self._waiting)} at a port that speaks TLS")
        if self._has_ended and not self._has_whole:
            return 0
        raise BlockingIOError

    def _fill(self, most_bytes: int) -> int:
        """Receives behind what waits, into the scratch; returns the end there."""
        end = len(self._waiting)
        self._scratch[:end] = self._waiting
        received = self._socket.recv_into(self._scratch[end:most_bytes])
        self._has_ended = received == 0
        return end + received

    def _keep(self, rest: memoryview) -> None:
        self._waiting = bytes(rest)
        self._has_whole = _record_end(rest, 0, len(rest)) is not None

    def _receive(self, buffer: memoryview) -> int:
        """Gives OpenSSL as many bytes as a turn is worth. Their data has fewer: so nearly always all of it fits."""
        scratch, size, end = self._scratch, len(buffer), len(self._waiting)
        if end:
            scratch[:end] = self._waiting
        else:
            end = self._fill(max(size, _LEAST_RECEIVED_BYTES))
        turn_end_s = monotonic() + TURN_SECONDS
        position = filled = 0
        after = _FIRST_BYTES
        while position < end and filled < size:
            after = min(after, end)
            self._incoming.write(scratch[position:after])
            self._excess_bytes += after - position
            came = self._decrypt(buffer[filled:])
            filled += came
            self._barren_bytes = 0 if came else self._barren_bytes + after - position
            position = after
            after += _SLICE_BYTES
            if self._barren_bytes > _MOST_BARREN_BYTES:
                self._failure = TlsError(f"{self._barren_bytes} bytes of TLS records without data")
            if self._has_ended or self._failure is not None or monotonic() >= turn_end_s:
                break
        self._waiting = bytes(scratch[position:end])
        return filled

    def _decrypt(self, buffer: memoryview) -> int:
        """Reads what OpenSSL has, as far as there is room."""
        assert self._tls is not None
        read, size, filled, reads = self._tls.read, len(buffer), 0, 0
        self._is_full = False
        try:
            while filled < size:
                came: int = read(size, buffer[filled:])  # type: ignore[assignment]  # into a buffer: how many
                if came == 0:
                    self._has_ended = True
                    break
                filled += came
                reads += 1
            else:
                self._is_full = self._incoming.pending > 0 or self._tls.pending() > 0
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._failure = TlsError(f"broken TLS: {_reason(error)}")
            self._failure.__cause__ = error
        whole = reads - 1 if self._is_full and self._tls.pending() else reads
        self._excess_bytes -= filled + whole * self._overhead_bytes
        if self._outgoing.pending:
            if self._outgoing.pending > _MOST_ANSWER_BYTES and self._failure is None:
                self._failure = TlsError("a peer that asks for new keys again and again")
            self._push()
        return filled

    def expect(self, missing_bytes: int) -> None:
        """Says how many bytes of data the owner needs before it can do anything; 0 if it takes any. The socket does not
        wake it before: librdkafka writes the parts of a request as records of their own, and each by a system call.
        """
        wanted = min(missing_bytes - self._excess_bytes - len(self._waiting), _MOST_LOW_WATER_BYTES)
        low_water = wanted if wanted >= _LEAST_LOW_WATER_BYTES else 1
        if low_water != self._low_water:
            self._low_water = low_water
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    # --- out

    @property
    def has_unsent(self) -> bool:
        """Whether encrypted bytes wait until the peer takes more."""
        return len(self._unsent) > 0

    def take_unsent(self) -> memoryview:
        """Returns the bytes that wait, which the caller sends."""
        unsent, self._unsent = self._unsent, memoryview(b"")
        return unsent

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypts as much as is sent at once, and sends what the peer takes; returns how much was encrypted. Raises
        BlockingIOError while bytes encrypted before are unsent.
        """
        self.flush()
        assert self._tls is not None
        written = self._tls.write(memoryview(data)[:PIECE_BYTES])
        self._push()
        return written

    def sendmsg(self, pieces: Sequence[bytes | bytearray | memoryview], *_: object) -> int:
        """As `send`, of the pieces together."""
        together, size = [], 0
        for piece in pieces:
            together.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                break
        return self.send(b"".join(together) if len(together) > 1 else together[0])

    def flush(self) -> None:
        """Sends what waits. Raises BlockingIOError if the peer takes no more."""
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _push(self) -> None:
        """Sends what OpenSSL made, or keeps it."""
        made = self._outgoing.read()
        if len(self._unsent) + len(made) > 2 * PIECE_BYTES:
            raise ConnectionError("the peer does not read what OpenSSL answers")
        self._unsent = memoryview(bytes(self._unsent) + made if self._unsent else made)
        with contextlib.suppress(BlockingIOError):
            self.flush()

    def say_end(self) -> bool:
        """Tells the peer that no more data comes; returns whether that is sent."""
        if self.is_ready and not self._has_closed:
            self._has_closed = True
            assert self._tls is not None
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._push()
        return not self._unsent

    def end(self) -> None:
        """Sends no more, and goes on receiving."""
        self._socket.shutdown(socket.SHUT_WR)

    def discard(self) -> bool:
        """Receives and forgets; returns whether that was the last, or enough."""
        received = self._socket.recv_into(self._scratch)
        self._handshake_bytes += received
        return received == 0 or self._handshake_bytes > _MOST_HANDSHAKE_BYTES

    # --- as a socket

    def fileno(self) -> int:
        return self._socket.fileno()

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def getsockname(self) -> Any:
        return self._socket.getsockname()

    def close(self) -> None:
        """Closes the socket; tells the peer before, if it can be told at once."""
        with contextlib.suppress(OSError):
            self.say_end()
        self._socket.close()


def _record_end(data: bytes | memoryview, start: int, end: int) -> int | None:
    """Returns where the record ends that begins there; None if it is not whole. One that is too long counts as whole:
    OpenSSL says no to its header.
    """
    body = start + _HEADER_BYTES
    if body > end:
        return None
    size = data[start + 3] << 8 | data[start + 4]
    if size > _MOST_BODY_BYTES:
        return end
    return body + size if body + size <= end else None


def _groups_of(hello: bytes) -> tuple[set[int], set[int]]:
    """Returns the groups for the exchange of keys that a ClientHello names, and those of which it has keys, as far as
    OpenSSL would read it.

        version (2), random (32), session (1 + n), suites (2 + n), compression (1 + n), extensions (2 + n), each of
        them: type (2), size (2), data. Of groups: size (2), group (2) ..; of keys: size (2), [group (2), size (2), key]
    """
    at = 34
    for width in (1, 2, 1):
        at += width + int.from_bytes(hello[at : at + width])
    at += 2
    groups, shares = set[int](), set[int]()
    while at < len(hello):
        kind, size = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
        data = hello[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == _GROUPS:
            groups.update(int.from_bytes(data[one : one + 2]) for one in range(2, len(data), 2))
        elif kind == _SHARES:
            one = 2
            while one < len(data):
                shares.add(int.from_bytes(data[one : one + 2]))
                one += 4 + int.from_bytes(data[one + 2 : one + 4])
    return groups, shares


def find_speech(start: bytes) -> str:
    """Returns what the bytes of a peer begin, if it is neither Kafka's protocol nor something unknown."""
    if start[:2] == b"\x16\x03":
        return "TLS"
    return "HTTP" if _HTTP.match(start) else ""


def _name_of(start: bytes) -> str:
    """Says what came in place of TLS."""
    unknown = "a request without TLS" if start[:1] == b"\0" else f"bytes that are no TLS ({start[:8].hex()})"
    return find_speech(start) or unknown


def _reason(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        what = "it is of a CA that is not trusted: " if error.verify_code in _UNKNOWN_CA else ""
        return f"its certificate is not good: {what}{error.verify_message}"
    if "ALERT" in reason:
        return f"it refuses this broker (alert: {reason.split('ALERT_')[-1].lower().replace('_', ' ')})"
    return _REASONS.get(reason, reason.lower().replace("_", " ") or str(error))
