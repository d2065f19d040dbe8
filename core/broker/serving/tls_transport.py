"""TLS on an accepted socket, used like a non-blocking socket: OpenSSL works on memory, and the bytes are moved here.

One receive brings many records. Whole records go into OpenSSL a few at a time, and their data into the caller's buffer;
a part of a record waits here. So OpenSSL is never asked for more than there is, which would cost an exception, and a
peer that sends records without data is noticed. OpenSSL's own state is made when the first record is whole: half a
hello costs the broker no more than its bytes.

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
from typing import Any

from core.common.errors import MalformedMessageError

_HEADER_BYTES = 5
_MOST_BODY_BYTES = 16 * 1024 + 2048  # of TLS 1.2
_HANDSHAKE = 22
_CLIENT_HELLO = 1
_MOST_HELLO_BYTES = 16 * 1024
"""OpenSSL reserves as much as a hello claims to have, up to 128 KB; usual ones have 2 KB at most."""
_MOST_HANDSHAKE_BYTES = 256 * 1024
"""A client's chain of certificates has 100 KB at most (OpenSSL's limit)."""
_SLICE_BYTES = 32 * 1024
_SLICE_RECORDS = 16
_TURN_RECORDS = 256
"""The most records of one receive, about a millisecond's worth: a peer may send one byte in each."""
_MOST_BARREN_RECORDS = 32
"""In a row: new keys, for example. OpenSSL 3 has no such limit."""
PIECE_BYTES = 96 * 1024
"""The most data encrypted at once; OpenSSL keeps memory for that as long as the connection is open."""
_MOST_OWN_BYTES = 64 * 1024
"""Unsent bytes, beyond a piece, of what OpenSSL answers by itself."""

_REASONS = {
    "HTTP_REQUEST": "HTTP at a port that speaks TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is enabled",
    "NO_SHARED_CIPHER": "it has no cipher suite that is enabled",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth is required",
}
_HTTP = re.compile(rb"[A-Z]{3,7} ")


class TlsError(MalformedMessageError):
    """What the peer sent is not TLS, breaks it, or can't be agreed on."""


class TlsTransport:
    """Owned by the loop's task. `scratch` is memory that all sockets of a server use in turns: room for many records.
    `_waiting` always begins with a record, which is whole if `_has_whole`.
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
        self._barren_records = 0
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
        data, end = memoryview(self._waiting), 0
        while (after := _record_end(data, end, len(data))) is not None:
            end = after
        self._incoming.write(data[:end])
        self._waiting, self._has_whole = self._waiting[end:], False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._handshake_bytes > _MOST_HANDSHAKE_BYTES:
                raise TlsError(f"a TLS handshake of more than {_MOST_HANDSHAKE_BYTES} bytes") from None
        except ssl.SSLError as error:
            raise TlsError(f"no TLS connection: {_reason(error)}") from error
        else:
            self.is_ready = True
            self._is_full = self._incoming.pending > 0 or self._tls.pending() > 0
        finally:
            self._push()

    def _ensure_usual_hello(self) -> None:
        body = self._waiting[_HEADER_BYTES : _record_end(self._waiting, 0, len(self._waiting))]
        size_bytes = int.from_bytes(body[1:4])
        if len(body) < 4 or body[0] != _CLIENT_HELLO or size_bytes > _MOST_HELLO_BYTES:
            expected = f"a ClientHello of at most {_MOST_HELLO_BYTES} bytes"
            raise TlsError(f"TLS that begins with {body[:4].hex()}, expected {expected}")

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
        return self._has_whole or self._is_full or self._has_ended or self._failure is not None

    @property
    def held_bytes(self) -> int:
        """Bytes that wait here, in and out."""
        return len(self._waiting) + len(self._unsent)

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
        """Gives whole records to OpenSSL. Their data has fewer bytes than they: so nearly always all of it fits."""
        scratch, size = self._scratch, len(buffer)
        end = len(self._waiting)
        if self._has_whole:
            scratch[:end] = self._waiting
        else:
            end = self._fill(max(size, _HEADER_BYTES + _MOST_BODY_BYTES))
        position = filled = records = 0
        while records < _TURN_RECORDS and not self._is_full and filled < size:
            start, count = position, 0
            while count < _SLICE_RECORDS and position - start < _SLICE_BYTES:
                after = _record_end(scratch, position, end)
                if after is None:
                    break
                position, count = after, count + 1
            if count == 0:
                break
            self._incoming.write(scratch[start:position])
            filled += self._decrypt(buffer[filled:], count)
            if self._has_ended or self._failure is not None:
                break
            records += count
        self._keep(scratch[position:end])
        return filled

    def _decrypt(self, buffer: memoryview, records: int = -1) -> int:
        """Reads the data of so many records, or of all that OpenSSL has, as far as there is room."""
        assert self._tls is not None
        read, size, filled = self._tls.read, len(buffer), 0
        try:
            while filled < size and records:
                count = int(read(size - filled, buffer[filled:]))
                if count == 0:
                    self._has_ended = True
                    return filled
                filled += count
                records -= 1
            self._is_full = filled == size and (self._incoming.pending > 0 or self._tls.pending() > 0)
            self._barren_records = 0
        except ssl.SSLWantReadError:
            self._is_full = False
            self._barren_records = 0 if filled else self._barren_records + records
            if self._barren_records >= _MOST_BARREN_RECORDS:
                self._failure = TlsError(f"{self._barren_records} TLS records without data in a row")
        except ssl.SSLError as error:
            self._is_full = False
            self._failure = TlsError(f"broken TLS: {_reason(error)}")
            self._failure.__cause__ = error
        if self._outgoing.pending:
            self._push()
        return filled

    # --- out

    @property
    def has_unsent(self) -> bool:
        """Whether encrypted bytes wait until the peer takes more."""
        return len(self._unsent) > 0

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
        return f"its certificate is not good: {error.verify_message}"
    if "ALERT" in reason:
        return f"it refuses this broker (alert: {reason.split('ALERT_')[-1].lower().replace('_', ' ')})"
    return _REASONS.get(reason, reason.lower().replace("_", " ") or str(error))
