"""One connection to one broker: requests out, answers in, in the same order.

`Transport` is all that is asked of the wire, so that an embedded broker can stand behind it as well as a socket.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError
from core.protocol.api import Api
from core.protocol.frame import SIZE, decode_response, encode_request
from core.protocol.message import MAX_VERSION
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest

Req = TypeVar("Req")
Res = TypeVar("Res")

CLIENT_NAME = "plog"
_MAX_ANSWER_BYTES = 1 << 30


class Transport(Protocol):
    """Frames with their sizes in front go out whole, and are the transport's then; answers come back whole, without
    their sizes, in order.
    """

    def send(self, frame: bytearray) -> None: ...

    def receive(self) -> memoryview: ...

    def close(self) -> None: ...


Connect = Callable[[str, int], Transport]
"""(host, port) -> a transport; ConnectionFailedError where nobody answers."""


class SocketTransport:
    """A blocking TCP connection; ConnectionFailedError whenever it breaks."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 30.0) -> None:
        self._where = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise self._failure("could not connect to", error) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _failure(self, what: str, error: OSError | str) -> ConnectionFailedError:
        reason = error if isinstance(error, str) else (error.strerror or str(error) or type(error).__name__).lower()
        return ConnectionFailedError(
            f"{what} {self._where}: {reason}", where=self._where, hint="is a broker listening there? (plog serve)"
        )

    def send(self, frame: bytearray) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._failure("lost the connection to", error) from error

    def receive(self) -> memoryview:
        (size,) = SIZE.unpack(self._read(SIZE.size))
        if not 0 <= size <= _MAX_ANSWER_BYTES:
            raise self._failure("lost the connection to", f"an answer claims {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        received = 0
        while received < size:
            try:
                count = self._socket.recv_into(buffer[received:])
            except OSError as error:
                raise self._failure("lost the connection to", error) from error
            if count == 0:
                raise self._failure("lost the connection to", "it was closed")
            received += count
        return buffer

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class ClientConnection:
    """Knows what the broker speaks, and picks the newest version that both know; owned by one task."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._correlation_id = 0
        self._expected: deque[tuple[Api[Any, Any], int, int]] = deque()
        self.features: dict[str, int] = {}
        """What the cluster has finalized, by level."""
        self._versions = self._negotiate()

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(CLIENT_NAME, "1")
        for version in (API_VERSIONS.versions.last, 0):
            self._send(API_VERSIONS, version, request)
            try:
                response = self.receive()
            except MalformedMessageError:
                continue  # a broker that does not know the version may answer in version 0
            if response.error_code == ErrorCode.NONE:
                self.features = {f.name: f.max_version_level for f in response.finalized_features}
                return {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker and plog share no version of ApiVersions")

    def version_of(self, api: Api[Any, Any], *, at_most: int = MAX_VERSION) -> int:
        """The newest version that both speak; KafkaError(UNSUPPORTED_VERSION) where there is none."""
        low, high = self._versions.get(api.key, (1, 0))
        version = min(high, api.versions.last, at_most)
        if version < max(low, api.versions.first):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker does not serve {api.name} in a version that plog speaks",
            )
        return version

    def speaks(self, api: Api[Any, Any]) -> bool:
        """Whether there is a version that both speak."""
        try:
            self.version_of(api)
        except KafkaError:
            return False
        return True

    def call(self, api: Api[Req, Res], request: Req, *, at_most: int = MAX_VERSION) -> Res:
        """Sends, in that version at most, and waits for the answer; nothing else may be under way."""
        assert not self._expected
        self.send(api, request, at_most=at_most)
        response: Res = self.receive()
        return response

    def send(self, api: Api[Req, Any], request: Req, *, at_most: int = MAX_VERSION) -> None:
        """Sends without waiting; `receive` gives the answers in the same order."""
        self._send(api, self.version_of(api, at_most=at_most), request)

    def _send(self, api: Api[Req, Any], version: int, request: Req) -> None:
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, CLIENT_NAME, request)
        self._expected.append((api, version, self._correlation_id))
        self._transport.send(frame)

    def expect_no_answer(self) -> None:
        """The request sent last gets none (Produce with acks=0)."""
        self._expected.pop()

    def receive(self) -> Any:  # the response of the oldest request under way
        api, version, correlation_id = self._expected.popleft()
        answered_id, response = decode_response(api, version, self._transport.receive())
        if answered_id != correlation_id:
            raise MalformedMessageError(f"answer to request {answered_id} where one to {correlation_id} was due")
        return response

    def close(self) -> None:
        self._transport.close()
