"""The channel to the controller of the cluster, whichever broker that is: sends this broker's requests to it, over one
connection.

The controller is looked up before each try, and when it may have changed. After a lost connection or a refusal, such as
NOT_CONTROLLER, the request is sent again, after a short while. So it may reach a controller twice, or two controllers
one after the other: only requests that may be repeated are sent here.

Requests are sent without waiting for earlier responses. A controller may answer them in order, so that one late
response delays the following ones.

A `ControllerErrand` is a task that sends a broker's requests to the controller in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.peer_connection import PeerConnection, PeerLink
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest

if TYPE_CHECKING:
    from core.broker.replication.peer_security import PeerSecurity

_log = logging.getLogger("plog.broker")

Req = TypeVar("Req")
Res = TypeVar("Res")

_API_VERSIONS_VERSION = 3
_BACKOFF_MS = 100
_MAX_BACKOFF_MS = 1000


class ControllerErrand:
    """Owned by the broker's loop. It runs once at a time, until nothing is left to ask, or the channel is closed."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`work` calls `ControllerChannel.ask`, as often as it has to."""
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Starts to run soon, unless it is running."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._work()
        except ConnectionFailedError:
            pass  # the channel is closed
        finally:
            self._task = None

    async def close(self) -> None:
        """Cancels the task; returns when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


class _Connected(NamedTuple):
    """A connection to a broker that is, or was, the controller."""

    node_id: int
    endpoint: Endpoint
    connection: PeerConnection
    versions: Mapping[int, tuple[int, int]]
    """By API key, the lowest and the highest version that the controller serves."""

    def ensure_serves(self, api: Api[Any, Any], version: int) -> None:
        lowest, highest = self.versions.get(api.key, (0, -1))
        if not lowest <= version <= highest:
            serves = f"serves versions {lowest} to {highest} of it" if highest >= 0 else "does not serve it"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api.name} version {version} can't be asked of the controller, broker {self.node_id}, which {serves}",
            )


class ControllerChannel:
    """Owned by the broker's loop; any of its tasks may ask."""

    def __init__(
        self,
        find_controller: Callable[[], tuple[int, Endpoint] | None],
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        *,
        client_id: str,
        backoff_ms: int = _BACKOFF_MS,
        security: PeerSecurity | None = None,
    ) -> None:
        """`find_controller` returns id and endpoint of the newest known controller. That must be no older than the
        sender of any LeaderAndIsr that was applied: an older one would refuse an epoch that it does not know yet as if
        it were over (KAFKA-14154).
        """
        self._find_controller = find_controller
        self._client_id = client_id
        self._backoff_ms = backoff_ms
        self._link = PeerLink(buffers, config, client_id=client_id, security=security)
        self._connecting = asyncio.Lock()
        self._connected: _Connected | None = None
        self._changed = asyncio.Event()
        self._changes = 0
        """How often a newer controller replaced one while requests were in flight."""
        self._is_closed = False
        self._has_known_one = False
        self._failures: dict[str, str] = {}
        """By API name, the last logged reason why it failed."""

    # --- asking

    async def ask(
        self, api: Api[Req, Res], version: int, make_request: Callable[[], Req | None], find_error: Callable[[Res], int]
    ) -> Res | None:
        """Returns the controller's answer, however often and however long it must ask.

        `make_request` is called before each try, because the request may change meanwhile; if it returns None, asking
        ends, and None is returned. `find_error` returns the error code of an answer that requires another try,
        otherwise 0: the code of the whole answer, or NOT_CONTROLLER if a part of it has that. Raises
        ConnectionFailedError once the channel is closed.
        """
        backoff_ms = self._backoff_ms
        while (request := make_request()) is not None:
            changes = self._changes
            try:
                answer = await self.try_once(api, version, request, find_error)
            except (ConnectionFailedError, KafkaError) as error:
                if self._is_closed:
                    raise self._closed() from None
                if self._changes != changes:  # a newer controller, not a failure
                    continue
                self._note_failure(api, error)
            else:
                self._note_success(api)
                return answer
            await self.wait_for_change(backoff_ms)
            backoff_ms = min(2 * backoff_ms, _MAX_BACKOFF_MS)
        return None

    async def try_once(self, api: Api[Req, Res], version: int, request: Req, find_error: Callable[[Res], int]) -> Res:
        """Asks once. Raises ConnectionFailedError if no controller is known, it can't be reached, or does not answer in
        time, and KafkaError with the error that `find_error` returns, or UNSUPPORTED_VERSION if the controller does not
        serve that version.
        """
        connected = await self._connect()
        connected.ensure_serves(api, version)
        answer = await connected.connection.send(api, version, request)
        error = ErrorCode.of(find_error(answer))
        if error is not ErrorCode.NONE:
            way = connected.connection.missing_right(error)
            raise KafkaError(error, f"broker {connected.node_id} refuses {api.name}: {error.text}{way}")
        return answer

    def _note_failure(self, api: Api[Any, Any], error: ConnectionFailedError | KafkaError) -> None:
        """Logs it once, and nothing before the first controller is known: that is not a failure."""
        if self._has_known_one and self._failures.get(api.name) != str(error):
            self._failures[api.name] = str(error)
            _log.warning("%s; %s is tried again until the controller answers", error, api.name)

    def _note_success(self, api: Api[Any, Any]) -> None:
        if self._failures.pop(api.name, None) is not None:
            _log.info("the controller answers %s again", api.name)

    def missing_right(self, error: ErrorCode, right: str) -> str:
        """Returns what an operator does if this broker lacks that right at the controller; "" for other errors."""
        return self._link.missing_right(error, right)

    # --- the present controller

    def look_again(self) -> None:
        """Called when the controller or its endpoint may have changed: requests in flight to an earlier one are sent to
        the present one at once.
        """
        if self._connected is not None and self._find_controller() != self._connected[:2]:
            self._changes += 1
            self._disconnect()
        self._changed.set()
        self._changed.clear()

    async def wait_for_change(self, most_ms: int | None = None) -> None:
        """Returns after that time (by default that before a second try), or earlier when the controller may have
        changed.
        """
        try:
            async with asyncio.timeout((self._backoff_ms if most_ms is None else most_ms) / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _connect(self) -> _Connected:
        """Returns a connection to the present controller, which concurrent callers share."""
        async with self._connecting:
            if self._is_closed:
                raise self._closed()
            found = self._find_controller()
            self._has_known_one |= found is not None
            if found is None:
                raise ConnectionFailedError("no controller of the cluster is known", where=self._client_id)
            if self._connected is not None and self._connected[:2] != found:
                self._disconnect()
            node_id, endpoint = found
            connection = await self._link.connect(endpoint)
            if self._connected is None or self._connected.connection is not connection:
                self._connected = _Connected(node_id, endpoint, connection, await _find_versions(connection))
            return self._connected

    def _disconnect(self) -> None:
        self._link.leave()
        self._connected = None

    def _closed(self) -> ConnectionFailedError:
        return ConnectionFailedError("this broker asks the controller nothing more, as it stops", where=self._client_id)

    def close(self) -> None:
        """Ends waiting requests, which raise ConnectionFailedError."""
        self._is_closed = True
        self._disconnect()
        self._link.close()
        self.look_again()


async def _find_versions(connection: PeerConnection) -> dict[int, tuple[int, int]]:
    """Asks for the served versions: by API key, the lowest and the highest."""
    answer = await connection.send(API_VERSIONS, _API_VERSIONS_VERSION, ApiVersionsRequest("plog", "1"))
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
