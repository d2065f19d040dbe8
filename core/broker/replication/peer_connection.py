"""A connection to another broker: requests out, responses in, in the order of the requests.

Raw non-blocking sockets under the event loop, as clients' connections are (core.broker.serving.connection). Requests
are sent without waiting for earlier responses. Responses are received into one buffer, which is used again and again;
it grows with the bytes that arrive, never with a claimed size.

The records of a response are a view of that buffer. They are valid until the next request is sent on the connection. If
more responses are due when they come, the buffer is left to them, and the connection goes on with another one.

Where the brokers' listener speaks TLS or SASL, a connection is ready when both are done (`PeerSecurity`). It logs in
again before its session ends (KIP-368); requests wait meanwhile, and those that were sent before are answered.

A connection fails as a whole: when it breaks, or a response is late or invalid, all waiting requests and all later ones
get a ConnectionFailedError. The caller then connects again.

A `PeerLink` keeps the connection to one broker: it connects on first use, and again when the connection broke or the
broker has moved. A `PeerPool` has a link to each of the other brokers, for requests of coordinators and leaders.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import SAME_PROTOCOLS
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, MalformedMessageError, PlogError
from core.protocol.frame import SIZE, decode_response, encode_request
from core.protocol.message import Api, schema_of
from core.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from core.broker.replication.peer_security import ClientTransport, PeerSecurity
    from core.client.net.authenticator import Authenticator, Question

Req = TypeVar("Req")
Res = TypeVar("Res")

MAX_ANSWER_BYTES = 1 << 30
_MOST_LOGIN_BYTES = 512 * 1024
"""The limit for an answer before the other broker has proven who it is; Kafka's brokers have it for requests."""
_BUFFER_BYTES = 64 * 1024
_MOST_RECEIVED_BYTES = 1024 * 1024
"""The most bytes received at once: more would delay other connections."""
_MAX_INT32 = 0x7FFFFFFF
_LOGIN_VERSION = 2  # of SaslAuthenticate, with tagged fields; of SaslHandshake 1 is the newest
_CLOSED = "it was closed"
_ALERT = b"\x15\x03"
"""The answer of a port with TLS to a request without; it would be the size of an answer of 352 MB."""
_UNASKED = "data came without a request"


_UNAUTHORIZED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_CLUSTER_ACTION = "--operation ClusterAction --cluster"
DESCRIBE_TOPICS = "--operation Describe --topic '*'"
"""The right for ListOffsets, with which followers ask as clients do."""


def missing_right(error: ErrorCode, security: PeerSecurity | None, host: str = "", right: str = _CLUSTER_ACTION) -> str:
    """Returns what an operator does if another broker refuses this one for lack of a right, to be added to the refusal;
    "" for other errors. `host` is the address from which this broker asks, `right` are options of plog acl add.
    """
    if error not in _UNAUTHORIZED:
        return ""
    principal = ANONYMOUS if security is None else security.principal
    ways = f"plog acl add (or kafka-acls --add) --allow-principal {_quoted(str(principal))}"
    if principal == ANONYMOUS:
        ways += f" --allow-host {host or 'HOST'}"
    else:
        ways = f"super.users={principal} at all brokers, or {ways}"
    return f"; this broker is {principal} there, who lacks a right: {ways} {right}"


def _quoted(text: str) -> str:
    return text if text.replace(":", "").isalnum() else f"'{text}'"


class _Expected(NamedTuple):
    api: Api[Any, Any]
    version: int
    correlation_id: int
    deadline_s: float
    answer: asyncio.Future[Any]


class PeerConnection:
    """Owned by one task of the loop."""

    def __init__(
        self,
        sock: socket.socket,
        endpoint: Endpoint,
        buffers: ReceiveBuffers,
        *,
        client_id: str,
        request_timeout_s: float,
        security: PeerSecurity | None = None,
        tls: ClientTransport | None = None,
    ) -> None:
        """Takes over a connected, non-blocking socket, and the TLS on it; `connect` makes one."""
        self._loop = asyncio.get_running_loop()
        self._plain = sock
        self._socket: socket.socket | ClientTransport = tls or sock
        self._tls = tls
        self._security = security
        self._authenticator: Authenticator | None = None if security is None else security.make_authenticator()
        self._most_answer_bytes = MAX_ANSWER_BYTES if self._authenticator is None else _MOST_LOGIN_BYTES
        self._login: asyncio.Task[None] | None = None
        """The login before the session's end, which later requests wait for."""
        self._held: list[tuple[bytearray, _Expected]] = []
        self._endpoint = endpoint
        self._where = str(endpoint)
        self._buffers = buffers
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._expected: deque[_Expected] = deque()
        self._correlation_id = 0
        self._buffer = buffers.take(_BUFFER_BYTES)
        self._end = 0  # of the received bytes; a response, or a part of one, begins at 0
        self._has_answered = False
        self._is_lent = False  # whether records of the last response use the buffer
        self._out = bytearray()
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        self._loop.add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def connect(
        cls,
        endpoint: Endpoint,
        buffers: ReceiveBuffers,
        *,
        client_id: str,
        connect_timeout_s: float,
        request_timeout_s: float,
        security: PeerSecurity | None = None,
    ) -> Self:
        """Raises ConnectionFailedError if the connection is not accepted within that time, TLS and login included."""
        begun: socket.socket | Self | None = None
        missing = "no answer"
        try:
            async with asyncio.timeout(connect_timeout_s):
                begun = sock = await _connected_socket(endpoint)
                missing = "TLS did not begin"
                tls = None if security is None else await security.shake_hands(sock, endpoint, buffers.scratch)
                missing = "no answer to the login"
                begun = connection = cls(
                    sock,
                    endpoint,
                    buffers,
                    client_id=client_id,
                    request_timeout_s=request_timeout_s,
                    security=security,
                    tls=tls,
                )
                await connection._log_in()
                begun = None
                return connection
        except (OSError, ValueError, PlogError) as error:  # ValueError for a name that is invalid
            is_late = isinstance(error, TimeoutError) and error.errno is None
            reason = f"{missing} in {connect_timeout_s:g} s" if is_late else _reason(error)
            if security is not None and isinstance(begun, socket.socket):
                reason = await security.explain(error, endpoint) or reason
            raise ConnectionFailedError(f"could not connect to {endpoint}: {reason}", where=str(endpoint)) from error
        finally:
            if begun is not None:
                begun.close()

    @property
    def local_host(self) -> str:
        """This broker's address, as the other one sees it; "" once the connection is closed."""
        return "" if self.is_closed else str(self._plain.getsockname()[0])

    def missing_right(self, error: ErrorCode, right: str = _CLUSTER_ACTION) -> str:
        """See `missing_right`."""
        return missing_right(error, self._security, self.local_host, right)

    def ensure_allowed(self, answer: Any) -> None:
        """Raises KafkaError if the answer as a whole says that this broker lacks a right."""
        error = ErrorCode.of(getattr(answer, "error_code", 0))
        if error in _UNAUTHORIZED:
            raise KafkaError(error, f"{error.text}{self.missing_right(error)}")

    # --- out

    def send(self, api: Api[Req, Res], version: int, request: Req) -> asyncio.Future[Res]:
        """Sends; returns a future of the response. The records of earlier responses are no longer valid.

        Raises ConnectionFailedError if the connection is closed; the future raises it if the connection fails. Raises
        KafkaError(UNSUPPORTED_VERSION) if the version can't express the request. A response whose future is cancelled
        is dropped when it comes.
        """
        if self.is_closed:
            raise self._failure("it is closed")
        if self._authenticator is not None and self._login is None and self._authenticator.is_due:
            self._login = self._loop.create_task(self._log_in_again(self._authenticator.wait_s))
        frame, expected = self._framed(api, version, request)
        self._is_lent = False
        if self._login is None:
            self._put(frame, expected)
        else:
            self._held.append((frame, expected))
        return expected.answer

    def _framed(self, api: Api[Any, Any], version: int, request: object) -> tuple[bytearray, _Expected]:
        self._correlation_id = (self._correlation_id + 1) & _MAX_INT32
        frame = encode_request(api, version, self._correlation_id, self._client_id, request)
        deadline_s = self._loop.time() + self._request_timeout_s
        return frame, _Expected(api, version, self._correlation_id, deadline_s, self._loop.create_future())

    def _put(self, frame: bytearray, expected: _Expected) -> None:
        self._expected.append(expected)
        if self._timer is None:
            self._timer = self._loop.call_at(expected.deadline_s, self._on_timer)
        self._out += frame
        if not self._is_writing:
            self._flush()

    def _flush(self) -> None:
        """Sends as much as the socket takes now; the rest when it takes more."""
        tls = self._tls
        try:
            if tls is not None and tls.has_unsent:
                tls.flush()
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail_by(error)
            return
        if (has_more := bool(self._out) or (tls is not None and tls.has_unsent)) != self._is_writing:
            self._is_writing = has_more
            if self._is_writing:
                self._loop.add_writer(self._socket.fileno(), self._flush)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _on_timer(self) -> None:
        """Checks the oldest response that is due; one timer is enough, because all have the same timeout."""
        self._timer = None
        if not self._expected:
            return
        if self._expected[0].deadline_s <= self._loop.time():
            self._fail(f"no answer in {self._request_timeout_s:g} s")
            return
        self._timer = self._loop.call_at(self._expected[0].deadline_s, self._on_timer)

    # --- logging in

    async def _log_in(self) -> None:
        """Logs in, if the listener speaks SASL. Raises PlogError if the other broker refuses, or does not prove that it
        knows the password; the connection stays as it is.
        """
        if self._authenticator is None:
            return
        asking, answer = self._authenticator.ask(), None
        while (question := await asyncio.to_thread(_next, asking, answer)) is not None:  # it computes for milliseconds
            api, request, version = question
            try:
                frame, expected = self._framed(api, min(version, _LOGIN_VERSION), request)
                if self.is_closed:
                    raise self._failure("it is closed")
                self._put(frame, expected)
                answer = await expected.answer
            except PlogError as error:
                asking.throw(error)
        self._most_answer_bytes = MAX_ANSWER_BYTES

    async def _log_in_again(self, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            await self._log_in()
        except PlogError as error:
            self._login = None
            self._fail(f"this broker could not log in again: {_reason(error)}")
            return
        self._login = None
        held, self._held = self._held, []
        for one in held:
            self._put(*one)

    # --- in

    def _on_readable(self) -> None:
        try:
            if not self._expected:  # unexpected bytes must not overwrite records in the buffer
                self._fail(_UNASKED if self._socket.recv_into(memoryview(bytearray(1))) else _CLOSED)
                return
            received = self._socket.recv_into(self._buffer[self._end : self._end + _MOST_RECEIVED_BYTES])
        except BlockingIOError:
            return
        except (OSError, MalformedMessageError) as error:
            self._fail_by(error)
            return
        if received == 0:
            self._fail(_CLOSED)
            return
        self._end += received
        try:
            self._keep_rest(self._take_answers())
        except MalformedMessageError as error:
            self._fail(error.message)
            return
        if self._tls is not None and self._tls.has_plaintext:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Reads bytes that TLS has decrypted: the selector does not report them. Others had their turn before."""
        if not self.is_closed:
            self._on_readable()

    def _take_answers(self) -> int:
        """Completes the future of each complete response, and returns where the rest begins."""
        start = 0
        if not self._has_answered and self._end >= SIZE.size:
            self._has_answered = True
            if bytes(self._buffer[:2]) == _ALERT:
                raise MalformedMessageError(f"it speaks TLS; {SAME_PROTOCOLS}")
        while start + SIZE.size <= self._end:
            body = start + SIZE.size
            end = body + self._answer_size(start)
            if end > self._end:
                break
            self._take_answer(self._buffer[body:end])
            start = end
        return start

    def _answer_size(self, start: int) -> int:
        (size,) = SIZE.unpack_from(self._buffer, start)
        if not 0 <= size <= self._most_answer_bytes:
            raise MalformedMessageError(f"an answer claims {size} bytes")
        return int(size)

    def _take_answer(self, frame: memoryview) -> None:
        if not self._expected:
            raise MalformedMessageError(_UNASKED)
        expected = self._expected[0]
        correlation_id, response = decode_response(expected.api, expected.version, frame)
        if correlation_id != expected.correlation_id:
            raise MalformedMessageError(
                f"an answer to request {correlation_id} came where one to {expected.correlation_id} was due"
            )
        self._expected.popleft()
        self._is_lent = self._is_lent or _has_records(expected.api.response)  # type: ignore[arg-type]  # it is hashable
        if not expected.answer.done():  # else it was cancelled
            expected.answer.set_result(response)

    def _keep_rest(self, start: int) -> None:
        """Moves the rest to the beginning of a buffer that has room for more."""
        if start == self._end and not self._expected:  # nearly always
            self._end = 0
            return
        rest = self._buffer[start : self._end]
        if rest and not self._expected:
            raise MalformedMessageError(_UNASKED)
        self._end = len(rest)
        if self._is_lent and self._expected:
            self._buffer = self._buffers.take(max(_BUFFER_BYTES, len(rest)))
            self._buffer[: len(rest)] = rest
            self._is_lent = False
        elif start:
            self._buffer[: len(rest)] = rest
        if len(rest) == len(self._buffer):
            size = min(SIZE.size + self._answer_size(0), 2 * len(rest))
            self._buffer = self._buffers.grow(self._buffer, len(rest), size)

    # --- closing

    def _fail_by(self, error: Exception) -> None:
        """Fails for that error, or for the alert that explains it: the other broker may have sent one, and closed."""
        refusal = None
        if self._security is not None and self._tls is not None:
            refusal = self._security.refusal(error, self._endpoint)
            try:
                self._tls.recv_into(memoryview(bytearray(1)))
            except (OSError, MalformedMessageError) as last:
                refusal = refusal or self._security.refusal(last, self._endpoint)
        self._fail(refusal or _reason(error))

    def _fail(self, reason: str) -> None:
        """Closes the connection; waiting requests get the reason."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._login is not None:
            self._login.cancel()
        self._loop.remove_reader(self._socket.fileno())
        if self._is_writing:
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._out = bytearray()  # the error may hold a view of what was to be sent
        if not self._is_lent:
            self._buffers.give_back(self._buffer)
        for expected in (*self._expected, *(one for _, one in self._held)):
            if not expected.answer.done():
                expected.answer.set_exception(self._failure(reason))
                expected.answer.exception()  # or Python logs an exception that was never retrieved
        self._expected.clear()
        self._held.clear()

    def _failure(self, reason: str) -> ConnectionFailedError:
        return ConnectionFailedError(f"lost the connection to {self._where}: {reason}", where=self._where)

    def close(self) -> None:
        """Does nothing if it is closed already. Records of the last response stay valid."""
        self._fail("it is closed")


async def _connected_socket(endpoint: Endpoint) -> socket.socket:
    """Connects to the first of the host's addresses that accepts. Raises OSError if none does."""
    loop = asyncio.get_running_loop()
    if not 0 < endpoint.port < 1 << 16:
        raise OSError("there is no such port")  # the system would take another one
    failure = OSError("the host has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except asyncio.CancelledError:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _next(asking: Generator[Question, Any, None], answer: object) -> Question | None:
    try:
        return asking.send(answer)
    except StopIteration:
        return None


def _reason(error: Exception) -> str:
    if isinstance(error, PlogError):
        return f"{error.message}; {error.hint}" if error.hint else error.message
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno).lower()  # asyncio's text is "connect call failed"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


@cache
def _has_records(declared: type) -> bool:
    """Whether a message of that class holds record batches, which are views of the received bytes."""
    return any(
        field.kind == "records" or (isinstance(field.element, type) and _has_records(field.element))
        for field in schema_of(declared).fields
    )


class PeerLink:
    """Owned by the broker's loop; any of its tasks may connect."""

    def __init__(
        self,
        buffers: ReceiveBuffers,
        config: BrokerConfig,
        *,
        client_id: str,
        request_timeout_ms: int | None = None,
        security: PeerSecurity | None = None,
    ) -> None:
        """`client_id` names this broker in the other one's log. The default of `request_timeout_ms` is
        `controller.socket.timeout.ms`. `security` is None if the brokers' listener is PLAINTEXT.
        """
        self._security = security
        self._client_id = client_id
        timeout_ms = config.controller_socket_timeout_ms if request_timeout_ms is None else request_timeout_ms
        self._connect = partial(
            PeerConnection.connect,
            buffers=buffers,
            client_id=client_id,
            connect_timeout_s=config.socket_connection_setup_timeout_ms / 1000,
            request_timeout_s=timeout_ms / 1000,
            security=security,
        )
        self._connecting = asyncio.Lock()
        self._connection: PeerConnection | None = None
        self._endpoint: Endpoint | None = None
        self._is_closed = False

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint of the present connection, or None without a working one."""
        is_connected = self._connection is not None and not self._connection.is_closed
        return self._endpoint if is_connected else None

    def missing_right(self, error: ErrorCode, right: str = _CLUSTER_ACTION) -> str:
        """See `missing_right`."""
        host = "" if self._connection is None else self._connection.local_host
        return missing_right(error, self._security, host, right)

    def reason(self, error: ErrorCode, right: str = _CLUSTER_ACTION) -> str:
        """Returns the name of the error in an answer, and what to do about it if the right is missing."""
        return error.name + self.missing_right(error, right)

    async def connect(self, endpoint: Endpoint) -> PeerConnection:
        """Returns a connection to that endpoint, which concurrent callers share; closes one to another endpoint. Raises
        ConnectionFailedError if it is not accepted in time, or the link is closed.
        """
        connection = self._connection
        if connection is not None and not connection.is_closed and self._endpoint is endpoint:  # nearly always
            return connection
        async with self._connecting:
            if self._connection is None or self.endpoint != endpoint:
                self.leave()
                self._ensure_open()
                self._connection = await self._connect(endpoint)
                self._endpoint = endpoint
                self._ensure_open()
            return self._connection

    def _ensure_open(self) -> None:
        if self._is_closed:
            self.leave()
            raise ConnectionFailedError("this broker sends no more requests, as it stops", where=self._client_id)

    def leave(self) -> None:
        """Closes the connection, if there is one: its waiting requests get ConnectionFailedError."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Closes the connection, and makes no other."""
        self._is_closed = True
        self.leave()


class PeerPool:
    """Owned by the broker's loop; any of its tasks may ask. Only for requests whose responses have no records."""

    def __init__(
        self,
        find_endpoint: Callable[[int], Endpoint | None],
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        *,
        client_id: str,
        security: PeerSecurity | None = None,
    ) -> None:
        """`find_endpoint` returns another broker's endpoint, or None if that is not alive."""
        self._find_endpoint = find_endpoint
        self._make_link = partial(PeerLink, buffers, config, client_id=client_id, security=security)
        self._client_id = client_id
        self._links: dict[int, PeerLink] = {}
        self._is_closed = False

    async def ask(self, node_id: int, api: Api[Req, Res], version: int, request: Req) -> Res:
        """Asks once. Raises ConnectionFailedError if the broker can't be reached or does not answer in time; it may
        have executed the request all the same. Raises KafkaError if this broker lacks the right to ask.
        """
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = self._make_link()
        endpoint = self._find_endpoint(node_id)
        if endpoint is None or self._is_closed:
            link.leave()
            raise ConnectionFailedError(f"broker {node_id} is not known to live", where=self._client_id)
        connection = await link.connect(endpoint)
        answer = await connection.send(api, version, request)
        connection.ensure_allowed(answer)
        return answer

    def missing_right(self, node_id: int, error: ErrorCode) -> str:
        """See `missing_right`."""
        link = self._links.get(node_id)
        return "" if link is None else link.missing_right(error)

    def on_brokers_changed(self) -> None:
        """Drops connections to brokers that are dead or have moved: a suspended broker keeps its connections open, and
        its requests must go to the broker that took its place.
        """
        for node_id, link in self._links.items():
            if link.endpoint != self._find_endpoint(node_id):
                link.leave()

    def close(self) -> None:
        """Ends waiting requests, which raise ConnectionFailedError."""
        self._is_closed = True
        for link in self._links.values():
            link.close()
