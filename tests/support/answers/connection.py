"""A socket to a broker, on which frames go out and come back as they are."""

from __future__ import annotations

import socket
import struct


class ConnectionLostError(Exception):
    """The broker closed the connection, or broke it off."""


class Connection:
    """Owned by one thread."""

    def __init__(self, address: str, answer_seconds: float) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), answer_seconds)

    def send(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Without the length before it."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise ConnectionLostError from error

    def receive(self) -> bytes:
        """A frame without its length; `ConnectionLostError`, and `TimeoutError` after `answer_seconds`."""
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self._socket.recv(size - len(data))
            except ConnectionError as error:
                raise ConnectionLostError from error
            if not chunk:
                raise ConnectionLostError
            data += chunk
        return bytes(data)

    def close(self) -> None:
        self._socket.close()
