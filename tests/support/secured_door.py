"""A door before a plaintext broker: TLS and SASL as Kafka does them, then every byte as it comes.

It answers by the table of what Kafka answers before authentication (tests/golden/sasl): ApiVersions once,
SaslHandshake, SaslAuthenticate; anything else closes. A session that has ended closes at the next request, but for a
SaslHandshake. It notes what a client must not do: authenticate again while answers are under way.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from core.common.errors import MalformedMessageError
from core.protocol.frame import Endpoint, decode_response
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersion
from core.protocol.schema.sasl_exchange import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from core.security.sasl.server_steps import Continue, Done, ServerSteps
from plog.testing import RunningBroker, running_broker

_SIZE = struct.Struct(">i")
_START = struct.Struct(">hhi")
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE, _PRODUCE = 18, 17, 36, 0
_UNSUPPORTED_MECHANISM, _REFUSED, _ILLEGAL_STATE = 33, 58, 34

MakeSteps = Callable[[], ServerSteps]


@dataclass
class Door:
    """`mechanisms` make the server's steps; `lifetime_s` ends sessions."""

    broker: RunningBroker
    listener: socket.socket
    context: ssl.SSLContext | None
    mechanisms: Mapping[str, MakeSteps]
    lifetime_s: float = 0.0
    names: list[str] = field(default_factory=list)
    """Who authenticated, in order."""

    requests: list[int] = field(default_factory=list)
    """API keys, in order, of all connections."""

    wrongs: list[str] = field(default_factory=list)
    connections: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve_one, args=(plain,), daemon=True).start()

    def _serve_one(self, plain: socket.socket) -> None:
        host, _, port = self.broker_address.rpartition(":")
        with suppress(OSError, EOFError):
            client = self.context.wrap_socket(plain, server_side=True) if self.context else plain
            with client, socket.create_connection((host, int(port))) as broker:
                _Session(self, client, broker).run()
        plain.close()

    broker_address: str = ""


class _Session:
    def __init__(self, door: Door, client: socket.socket, broker: socket.socket) -> None:
        self._door = door
        self._client = client
        self._broker = broker
        self._steps: ServerSteps | None = None
        self._mechanism = ""
        self._is_in = not door.mechanisms
        self._ends_s = 0.0
        self._under_way = 0
        self._lock = threading.Lock()
        self._asked_versions = False

    def run(self) -> None:
        threading.Thread(target=self._give_answers, daemon=True).start()
        try:
            while True:
                frame = _read_frame(self._client)
                key, version, correlation_id = _START.unpack_from(frame)
                self._door.requests.append(key)
                if not self._one(key, version, correlation_id, frame):
                    return
        finally:
            with suppress(OSError):
                self._broker.shutdown(socket.SHUT_RDWR)

    def _one(self, key: int, version: int, correlation_id: int, frame: bytes) -> bool:
        """Whether the connection stays."""
        if self._steps is not None and key != _AUTHENTICATE:
            return False
        if key == _HANDSHAKE:
            return self._handshake(version, correlation_id, frame)
        if key == _AUTHENTICATE:
            return self._authenticate(version, correlation_id, frame)
        if not self._is_in:
            if key != _API_VERSIONS or self._asked_versions:
                return False
            self._asked_versions = True
        elif self._ends_s and time.monotonic() > self._ends_s:
            self._door.wrongs.append(f"a request of API {key} after the session")
            return False
        with self._lock:
            self._under_way += 1
        self._broker.sendall(_SIZE.pack(len(frame)) + frame)
        return True

    def _handshake(self, version: int, correlation_id: int, frame: bytes) -> bool:
        with self._lock:
            if self._under_way:
                self._door.wrongs.append(f"{self._under_way} answers were under way")
        if not self._door.mechanisms:
            self._answer(SASL_HANDSHAKE, version, correlation_id, SaslHandshakeResponse(_ILLEGAL_STATE, []))
            return True
        _, request = Endpoint(SASL_HANDSHAKE, version).decode_request(memoryview(frame))
        offered = list(self._door.mechanisms)
        if request.mechanism not in offered or (self._mechanism and request.mechanism != self._mechanism):
            self._answer(
                SASL_HANDSHAKE, version, correlation_id, SaslHandshakeResponse(_UNSUPPORTED_MECHANISM, offered)
            )
            return False
        self._mechanism = request.mechanism
        self._steps = self._door.mechanisms[request.mechanism]()
        self._answer(SASL_HANDSHAKE, version, correlation_id, SaslHandshakeResponse(0, offered))
        return True

    def _authenticate(self, version: int, correlation_id: int, frame: bytes) -> bool:
        if self._steps is None:
            return False
        _, request = Endpoint(SASL_AUTHENTICATE, version).decode_request(memoryview(frame))
        result = self._steps.step(bytes(request.auth_bytes))
        if isinstance(result, Continue):
            self._answer(SASL_AUTHENTICATE, version, correlation_id, SaslAuthenticateResponse(0, "", result.token))
            return True
        self._steps = None
        if not isinstance(result, Done):
            response = SaslAuthenticateResponse(_REFUSED, result.message)
            self._answer(SASL_AUTHENTICATE, version, correlation_id, response)
            return False
        self._is_in = True
        self._door.names.append(result.name)
        lifetime_s = self._door.lifetime_s
        self._ends_s = time.monotonic() + lifetime_s if lifetime_s else 0.0
        response = SaslAuthenticateResponse(0, "", result.token, int(lifetime_s * 1000))
        self._answer(SASL_AUTHENTICATE, version, correlation_id, response)
        return True

    def _answer(self, api: object, version: int, correlation_id: int, response: object) -> None:
        pieces = Endpoint(api, version).encode_response(correlation_id, response)  # type: ignore[arg-type]
        with self._lock:
            self._client.sendall(b"".join(pieces))  # type: ignore[arg-type]

    def _give_answers(self) -> None:
        with suppress(OSError, EOFError, struct.error):
            while True:
                frame = _read_frame(self._broker)
                if self._asked_versions or not self._door.mechanisms:
                    frame = _with_sasl(frame)
                with self._lock:
                    self._under_way -= 1
                    self._client.sendall(_SIZE.pack(len(frame)) + frame)
                self._asked_versions = False
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)


def _with_sasl(frame: bytes) -> bytes:
    """The answer to ApiVersions with two more APIs; any other answer as it is."""
    version = API_VERSIONS.versions.last
    try:
        correlation_id, response = decode_response(API_VERSIONS, version, memoryview(frame))
    except MalformedMessageError:
        return frame
    if correlation_id != 1 or not response.api_keys:
        return frame
    response.api_keys += [ApiVersion(_HANDSHAKE, 0, 1), ApiVersion(_AUTHENTICATE, 0, 2)]
    return b"".join(Endpoint(API_VERSIONS, version).encode_response(correlation_id, response))[4:]  # type: ignore[arg-type]


def _read_frame(source: socket.socket) -> bytes:
    return _read(source, _SIZE.unpack(_read(source, 4))[0])


def _read(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


@contextmanager
def secured_door(
    mechanisms: Mapping[str, MakeSteps] | None = None,
    context: ssl.SSLContext | None = None,
    *,
    lifetime_s: float = 0.0,
    advertised: str = "",
    **settings: str,
) -> Iterator[Door]:
    """A broker of its own behind it, whose answers name the door, or what is `advertised`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        named = advertised or f"127.0.0.1:{port}"
        with running_broker(advertised_listeners=f"PLAINTEXT://{named}", **settings) as broker:
            door = Door(broker, listener, context, mechanisms or {}, lifetime_s)
            door.broker_address = broker.bootstrap_servers
            threading.Thread(target=door.serve, daemon=True).start()
            yield door
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def server_context(certificate: str, key: str, *, ca: str | None = None) -> ssl.SSLContext:
    """Of a listener; it wants a certificate of that CA's from clients, if there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
