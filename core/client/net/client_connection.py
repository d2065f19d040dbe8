"""One connection to one broker: requests out, answers in, in the same order.

`Transport` is the whole interface to the wire, so that an embedded broker can be behind it as well as a socket.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from core.client.net.connect_notice import SILENCE_HINT, SILENCE_SECONDS, ConnectNotice, is_readable
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, ConnectionFailedError, KafkaError, MalformedMessageError, UnansweredError
from core.protocol.frame import SIZE, decode_response, encode_request
from core.protocol.message import MAX_VERSION, Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest

if TYPE_CHECKING:
    from ssl import SSLContext, SSLSocket

    from core.client.net.authenticator import Authenticator
    from core.client.net.tls_socket import TlsPeer
    from core.cluster.image.feature_levels import Levels

_logger = logging.getLogger("plog.client")

Req = TypeVar("Req")
Res = TypeVar("Res")

CLIENT_NAME = "plog"
MAX_ANSWER_BYTES = 1 << 30
_FIRST_ANSWER_BYTES = 1 << 20
_GROWTH = 4
_PIECE_BYTES = 256 * 1024
"""So many bytes must come within the timeout, else a server that sends a byte now and then would never end."""

_FIRST_API_VERSIONS_WITH_FEATURES = 3  # KIP-584
_LAST_API_VERSIONS_OF_ANY_BROKER = 4  # from version 5 on a client names the broker that it means (KIP-1242)
_CLOSED = "it was closed"
_TLS_HINT = "a listener that wants the client's certificate, or has no TLS, may close connections like this"
_SECURITY_HINT = (
    "a listener with TLS or SASL closes connections like this: --command-config FILE with its security.protocol"
)
_WAIT_FOR_OTHERS = {"JoinGroup", "SyncGroup"}
"""Requests whose answer waits for all members of a group."""

_CHANGES = ("AddP", "AddO", "Alter", "Create", "Delete", "Elect", "EndTxn", "IncrementalAlter", "OffsetCommit",
    "OffsetDelete", "Produce", "TxnOffsetCommit", "Update", "WriteTxnMarkers")  # fmt: skip
"""Prefixes of the names of requests that change something."""

_MAY_BE_DONE_HINT = (
    "the broker may still carry out the request, even minutes later: look before you try it again. The broker's log "
    "says what it waits for, such as a ZooKeeper that is away"
)
_UNANSWERED_HINT = "is the broker well? plog cluster status says which brokers answer"
_AFTER_ONE_ANSWER_HINT = (
    "a listener with SASL closes connections like this: --command-config FILE with its security.protocol; so does a "
    "broker that joins a cluster, until the controller has spoken to it: the broker's log says so"
)


class Transport(Protocol):
    """Frames with their sizes in front go out whole, and are the transport's then; answers come back whole, without
    their sizes, in order.
    """

    def send(self, frame: bytearray) -> None: ...

    def await_answer(self, on_silence: Callable[[str], None]) -> None:
        """Waits until an answer begins to arrive, or the connection ends. Meanwhile calls `on_silence` every few
        seconds with the broker's address; its exception ends the wait. Raises UnansweredError after the timeout.
        """

    def receive(self) -> memoryview: ...

    def close(self) -> None: ...


Connect = Callable[[str, int], Transport]
"""(host, port) -> a transport; raises ConnectionFailedError if nobody answers."""


class SocketTransport:
    """A blocking TCP connection, with TLS if there is a context. Raises ConnectionFailedError whenever it breaks, and
    AuthenticationError if TLS fails because one side does not trust the other.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 30.0,
        context: SSLContext | None = None,
        shows_certificate: bool = False,
        is_trusted: bool = True,
        notice: ConnectNotice | None = None,
        is_hasty: bool = False,
    ) -> None:
        """`shows_certificate`: the context has one of the client's. `is_trusted`: see the attribute. `notice`
        remembers the silent ports that were reported. `is_hasty`: another broker can be asked, so that this gives up a
        port that is silent for SILENCE_SECONDS.
        """
        self._address = host, port
        self._notice = notice or ConnectNotice()
        self._where = self._notice.where(self._address)
        self.is_trusted = is_trusted
        """An untrusted peer may not send a large answer, and each answer must be whole within the timeout; from a
        trusted peer each _PIECE_BYTES must come within the timeout.
        """
        self._has_answered = False
        self._is_hasty = is_hasty
        self._peer: TlsPeer | None = None
        try:
            plain = self._notice.connect(self._address, timeout_s, is_hasty=is_hasty)
        except OSError as error:
            raise self._failure("could not connect to", error) from error
        self._socket: socket.socket | SSLSocket = plain
        self.is_owners = plain.family not in (socket.AF_INET, socket.AF_INET6)
        """Whether it is the socket in a broker's directory (owner_socket.py), which needs neither TLS nor a login."""
        if context is not None and not self.is_owners:
            from core.client.net.tls_socket import TlsPeer, begin_tls

            self._peer = TlsPeer(host, port, shows_certificate, self._notice.target(self._address))
            self._socket = begin_tls(plain, self._peer, context, self._notice, is_hasty=is_hasty)

    @property
    def is_private(self) -> bool:
        """Whether nobody on a network can read along: there is TLS, or the peer is on this machine."""
        return self._peer is not None or self.is_owners or Endpoint(*self._notice.target(self._address)).is_loopback

    def _failure(self, what: str, error: OSError | str) -> AccessError:
        if self._peer is not None and not isinstance(error, str):
            from core.client.net.tls_socket import alert_failure

            alert = alert_failure(error, self._peer)
            if alert is not None:
                return alert
        reason = error if isinstance(error, str) else (error.strerror or str(error) or type(error).__name__).lower()
        from core.client.net.port_probe import connect_hint

        hint = connect_hint(self._address[0], error)
        if what.startswith("lost") and isinstance(error, TimeoutError):
            reason, hint = f"no answer in {self._socket.gettimeout():g} s", _UNANSWERED_HINT
            if not self._has_answered:
                reason = f"no answer in {SILENCE_SECONDS:g} s" if self._is_hasty and self._peer is None else reason
                what, hint = "could not connect to", SILENCE_HINT
        elif what.startswith("lost") and not self._has_answered:
            other = self._find_other_speech() if error == _CLOSED or isinstance(error, OSError) else None
            if other is not None:
                return other
            hint = _SECURITY_HINT if self._peer is None else _TLS_HINT
        kind = UnansweredError if isinstance(error, TimeoutError) else ConnectionFailedError
        return kind(f"{what} {self._where}: {reason}", where=self._where, hint=hint)

    def _find_other_speech(self) -> ConnectionFailedError | None:
        """Finds the protocol of a port that closes a plaintext connection without an answer."""
        if self._peer is not None or self.is_trusted:
            return None
        from core.client.net.port_probe import find_speech, speaks

        speech = find_speech(self._notice.target(self._address), has_tls=False, timeout_s=self._socket.gettimeout())
        return None if speech is None else speaks(self._where, speech)

    def send(self, frame: bytearray) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._failure("lost the connection to", error) from error

    def await_answer(self, on_silence: Callable[[str], None]) -> None:
        if not (self.is_trusted and self._has_answered):
            return  # `receive` does the same with the first answers
        deadline_s = time.monotonic() + (self._socket.gettimeout() or 0.0)
        silent = self._notice.silent
        silent.discard(self._address)
        while not self._is_readable(min(SILENCE_SECONDS, deadline_s - time.monotonic())):
            silent.add(self._address)
            if time.monotonic() >= deadline_s:
                raise self._failure("lost the connection to", TimeoutError())
            on_silence(self._where)

    def _is_readable(self, seconds: float) -> bool:
        is_decrypted = self._peer is not None and self._socket.pending() > 0  # type: ignore[union-attr]
        return is_decrypted or is_readable(self._socket, seconds)

    def receive(self) -> memoryview:
        deadline_s = None if self.is_trusted else time.monotonic() + (self._socket.gettimeout() or 0.0)
        if self._peer is None and not self._has_answered:
            self._await_first_answer()
        start = self._read(SIZE.size, deadline_s)
        (size,) = SIZE.unpack(start)
        if not self._has_answered and not 0 <= size <= _FIRST_ANSWER_BYTES:
            self._ensure_kafka(bytes(start))
        if not 0 <= size <= (MAX_ANSWER_BYTES if self.is_trusted else _FIRST_ANSWER_BYTES):
            raise self._failure("lost the connection to", f"an answer claims {size} bytes")
        answer = self._read(size, deadline_s)
        self._has_answered = True
        return answer

    def _await_first_answer(self) -> None:
        try:
            self._notice.wait(self._socket, self._address, has_tls=False, is_hasty=self._is_hasty)
        except OSError as error:
            raise self._failure("lost the connection to", error) from error

    def _ensure_kafka(self, start: bytes) -> None:
        """Raises ConnectionFailedError if these first four bytes are another protocol's, and no size of Kafka's."""
        from core.client.net.port_probe import recognize, speaks

        speech = recognize(start)
        if speech is not None:
            raise speaks(self._where, speech)
        if not self.is_trusted:
            raise ConnectionFailedError(
                f"could not connect to {self._where}: it does not speak Kafka's protocol",
                where=self._where,
                hint="is that the port of a broker?",
            )

    def _read(self, size: int, deadline_s: float | None) -> memoryview:
        """Reads so many bytes, into memory that grows as they come: an answer that only claims to be large costs
        nothing. Raises what `_failure` returns if they do not come in time.
        """
        buffer = memoryview(bytearray(min(size, _FIRST_ANSWER_BYTES)))
        received = 0
        while True:
            received = self._fill(buffer, received, deadline_s)
            if received == size:
                return buffer
            if received == len(buffer):
                larger = memoryview(bytearray(min(_GROWTH * received, size)))
                larger[:received] = buffer
                buffer = larger

    def _fill(self, buffer: memoryview, received: int, deadline_s: float | None) -> int:
        """Reads on until the buffer is full, or another _PIECE_BYTES have come; returns the bytes in it then."""
        end = min(received + _PIECE_BYTES, len(buffer))
        while received < end:
            try:
                count = self._socket.recv_into(buffer[received:])
                if received + count < end:  # most answers come at once
                    deadline_s = deadline_s or time.monotonic() + (self._socket.gettimeout() or 0.0)
                    if time.monotonic() > deadline_s:
                        raise TimeoutError
            except OSError as error:
                raise self._failure("lost the connection to", error) from error
            if count == 0:
                raise self._failure("lost the connection to", _CLOSED)
            received += count
        return received

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class ClientConnection:
    """Picks the newest version of each API that both sides support; owned by one task."""

    def __init__(self, transport: Transport, authenticator: Authenticator | None = None) -> None:
        """Raises what `Authenticator.authenticate` raises."""
        self._transport = transport
        self._authenticator = authenticator
        self._correlation_id = 0
        self._expected: deque[tuple[Api[Any, Any], int, int]] = deque()
        self._arrived: deque[memoryview] = deque()
        """Answers to the first expected requests, received early to free the connection."""
        self._answers = 0
        self._has_said = False  # that an answer is long in coming
        self.features: dict[str, int] = {}
        """The finalized level of each feature of the cluster."""
        self.features_epoch = -1
        """Grows with each change of a level, in KRaft with all metadata; -1 if the broker does not report it."""
        self.supported_features: Levels = {}
        """The levels that the broker supports."""
        self._versions = self._negotiate()
        if authenticator is not None:
            authenticator.authenticate(self)

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(CLIENT_NAME, "1")
        malformed = None
        for version in (_LAST_API_VERSIONS_OF_ANY_BROKER, _FIRST_API_VERSIONS_WITH_FEATURES, 0):
            self._send(API_VERSIONS, version, request)
            try:
                response = self.receive()
            except MalformedMessageError as error:
                malformed = error if version == 0 else None
                continue  # a broker that does not know the version may answer in version 0
            if response.error_code == ErrorCode.NONE:
                self.features = {f.name: f.max_version_level for f in response.finalized_features}
                self.features_epoch = response.finalized_features_epoch
                self.supported_features = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
                return {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
        if malformed is not None:
            raise ConnectionFailedError(
                f"what answers is no Kafka broker: {malformed.message}", hint="is that the port of a broker?"
            )
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker and plog share no version of ApiVersions")

    @property
    def is_private(self) -> bool:
        """As `SocketTransport.is_private`; true without a network."""
        return getattr(self._transport, "is_private", True)

    @property
    def api_versions(self) -> dict[int, tuple[int, int]]:
        """API key -> the least and the greatest version that the broker serves."""
        return self._versions

    def version_of(self, api: Api[Any, Any], *, at_most: int = MAX_VERSION) -> int:
        """Returns the newest version that both support. Raises KafkaError(UNSUPPORTED_VERSION) without one."""
        low, high = self._versions.get(api.key, (1, 0))
        version = min(high, api.versions.last, at_most)
        if version < max(low, api.versions.first):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker does not serve {api.name} in a version that plog speaks",
            )
        return version

    def speaks(self, api: Api[Any, Any]) -> bool:
        """Returns whether both sides support a common version."""
        try:
            self.version_of(api)
        except KafkaError:
            return False
        return True

    def call(self, api: Api[Req, Res], request: Req, *, at_most: int = MAX_VERSION, is_hasty: bool = False) -> Res:
        """Sends, in that version at most, and waits for the answer; nothing else may be under way. If it `is_hasty`,
        UnansweredError is raised after SILENCE_SECONDS.
        """
        assert not self._expected
        self.send(api, request, at_most=at_most)
        response: Res = self._receive(_give_up if is_hasty else self._say_silence)
        return response

    def send(self, api: Api[Req, Any], request: Req, *, at_most: int = MAX_VERSION) -> None:
        """Sends without waiting; `receive` returns the answers in the same order. If the session is about to end, waits
        for the answers under way, and authenticates again; raises what `Authenticator.authenticate` raises.
        """
        if self._authenticator is not None and self._authenticator.is_due:
            while len(self._arrived) < len(self._expected):
                self._arrived.append(self._transport.receive())
            self._authenticator.authenticate(self)
        self._send(api, self.version_of(api, at_most=at_most), request)

    def exchange(self, api: Api[Req, Res], request: Req, *, at_most: int = MAX_VERSION) -> Res:
        """Sends and returns the answer; all earlier requests must have been answered, if not received."""
        assert len(self._arrived) == len(self._expected)
        self._send(api, self.version_of(api, at_most=at_most), request)
        response: Res = self._decode(*self._expected.pop(), self._transport.receive())
        return response

    def _send(self, api: Api[Req, Any], version: int, request: Req) -> None:
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, CLIENT_NAME, request)
        self._transport.send(frame)
        self._expected.append((api, version, self._correlation_id))

    def expect_no_answer(self) -> None:
        """Notes that the request sent last gets none (Produce with acks=0)."""
        self._expected.pop()

    def receive(self, *, on_silence: Callable[[], None] = lambda: None) -> Any:
        """Returns the response of the oldest request under way. While it does not come, `on_silence` is called every
        few seconds; an exception from it ends the wait, and the connection must be forgotten then.
        """

        def silence(where: str, api: Api[Any, Any]) -> None:
            self._say_silence(where, api)
            on_silence()

        return self._receive(silence)

    def _receive(self, on_silence: Callable[[str, Api[Any, Any]], None]) -> Any:
        api, version, correlation_id = self._expected.popleft()
        frame = self._arrived.popleft() if self._arrived else self._receive_frame(api, on_silence)
        return self._decode(api, version, correlation_id, frame)

    def _say_silence(self, where: str, api: Api[Any, Any]) -> None:
        if not self._has_said and api.name not in _WAIT_FOR_OTHERS:
            self._has_said = True
            _logger.warning("waiting for %s, which has not answered %s in %g s", where, api.name, SILENCE_SECONDS)

    def _receive_frame(self, api: Api[Any, Any], on_silence: Callable[[str, Api[Any, Any]], None]) -> memoryview:
        try:
            self._transport.await_answer(lambda where: on_silence(where, api))
            frame = self._transport.receive()
        except UnansweredError as error:
            if self._answers and api.name.startswith(_CHANGES):
                error.hint = _MAY_BE_DONE_HINT
            raise
        except ConnectionFailedError as error:
            if self._answers == 1 and self._authenticator is None:  # of ApiVersions, which everybody may ask
                error.hint = _AFTER_ONE_ANSWER_HINT
            raise
        self._answers += 1
        return frame

    @staticmethod
    def _decode(api: Api[Any, Any], version: int, correlation_id: int, frame: memoryview) -> Any:
        answered_id, response = decode_response(api, version, frame)
        if answered_id != correlation_id:
            raise MalformedMessageError(f"answer to request {answered_id} where one to {correlation_id} was due")
        return response

    def close(self) -> None:
        self._transport.close()


def ensure_as_many(answers: Sequence[Res], asked: int, api: Api[Any, Any]) -> Sequence[Res]:
    """Returns the entries of an answer, one for each thing that was asked about. Raises MalformedMessageError if there
    are more or fewer.
    """
    if len(answers) != asked:
        raise MalformedMessageError(f"a {api.name} answer has {len(answers)} entries, expected {asked}")
    return answers


def _give_up(where: str, _: Api[Any, Any]) -> None:
    raise UnansweredError(f"{where} gave no answer in {SILENCE_SECONDS:g} s", where=where, hint=_UNANSWERED_HINT)
