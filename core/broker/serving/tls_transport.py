"""TLS on an accepted socket, under the event loop: OpenSSL works on memory, and the bytes are moved here.

The socket's selector knows of bytes that the system holds. It does not know of those that are decrypted, or wait to be:
whoever reads asks `has_plaintext`, and whoever writes `has_unsent`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence

from core.common.filesystem import Buffer

_RECEIVED_BYTES = 256 * 1024
_PIECE_BYTES = 128 * 1024
"""The most bytes that are encrypted before they are sent."""


class TlsTransport:
    """A non-blocking socket with TLS on it, used like a socket; owned by the broker's task. The handshake is made by
    `recv_into`.
    """

    def __init__(self, plain: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = memoryview(b"")
        self.is_ready = False
        """Whether the handshake is done."""

    @property
    def has_plaintext(self) -> bool:
        """Whether `recv_into` may return bytes though the system has none."""
        return bool(self._incoming.pending or self._tls.pending())

    @property
    def has_unsent(self) -> bool:
        """Whether encrypted bytes wait for the system to take them."""
        return bool(self._unsent or self._outgoing.pending)

    @property
    def certificate(self) -> bytes | None:
        """DER of the client's certificate, which was verified, or None."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def is_resumed(self) -> bool:
        """Whether the handshake went on with an earlier session: its certificate was verified then, and not now."""
        return bool(self._tls.session_reused)

    def recv_into(self, buffer: memoryview, size_bytes: int = 0) -> int:
        """Receives what is there, at most so many bytes; 0 means that the client closed. Raises BlockingIOError if
        nothing is there, OSError (ssl.SSLError) if the connection or the handshake failed.
        """
        size_bytes = size_bytes or len(buffer)
        try:
            received = self._socket.recv(_RECEIVED_BYTES)
        except BlockingIOError:
            if not self.has_plaintext:
                raise
        else:
            if not received:
                self._incoming.write_eof()
            self._incoming.write(received) if received else None
        return self._decrypt(buffer, size_bytes)

    def _decrypt(self, buffer: memoryview, size_bytes: int) -> int:
        filled = 0
        try:
            if not self.is_ready:
                self._tls.do_handshake()
                self.is_ready = True
            while filled < size_bytes:
                got: int = self._tls.read(size_bytes - filled, buffer[filled:])  # type: ignore[assignment]  # with a buffer
                if not got:
                    break
                filled += got
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return filled
        finally:
            with contextlib.suppress(BlockingIOError):
                self.flush()
        return filled

    def send(self, data: Buffer) -> int:
        """Encrypts a piece of the data, and sends as much as the system takes; keeps the rest. Raises BlockingIOError
        if an earlier rest could not be sent.
        """
        self.flush()
        piece = memoryview(data)[:_PIECE_BYTES]
        written = self._tls.write(piece)
        with contextlib.suppress(BlockingIOError):
            self.flush()
        return written

    def sendmsg(self, pieces: Sequence[Buffer], _ancillary: object = (), _flags: int = 0) -> int:
        return self.send(b"".join(pieces))

    def flush(self) -> None:
        """Sends encrypted bytes. Raises BlockingIOError if the system does not take all."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
