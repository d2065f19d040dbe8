"""A controller of a cluster that answers as a test says: a server on loopback, and what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Self

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.controller_channel import ControllerChannel
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.protocol import frame as frames
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from core.protocol.schema.controller_request import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, CONTROLLED_SHUTDOWN
from core.protocol.schema.topic_changes import CREATE_TOPICS

SERVED = (API_VERSIONS, ALTER_PARTITION, CONTROLLED_SHUTDOWN, ALLOCATE_PRODUCER_IDS, CREATE_TOPICS)


class ScriptedController:
    """Started by `async with`; each request is answered with what `answer` makes of it.

    It gives no answer to one of which that is None, and closes the connection if it raises ConnectionError.
    """

    def __init__(
        self, answer: Callable[[Any], Any], node_id: int = 1, served: tuple[Api[Any, Any], ...] = SERVED
    ) -> None:
        self.answer = answer
        self.node_id = node_id
        self.asked: list[Any] = []
        """Requests that came, without those of ApiVersions."""
        self.connections = 0
        self._served = served
        self._apis: Mapping[int, Api[Any, Any]] = {api.key: api for api in (*SERVED, *served)}
        self._server: asyncio.Server | None = None
        self._came = asyncio.Condition()
        self._serving: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._serving.values():
            writer.close()
        if self._serving:
            await asyncio.wait(self._serving)

    def find(self) -> tuple[int, Endpoint]:
        """What a channel wants to know of the controller."""
        assert self._server is not None
        return self.node_id, Endpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def was_asked(self, times: int) -> None:
        """Returns when so many requests have come."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.asked) >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                (size,) = frames.SIZE.unpack(await reader.readexactly(frames.SIZE.size))
                frame = memoryview(await reader.readexactly(size))
                key, version, correlation_id = frames.read_request_start(frame)
                endpoint = frames.Endpoint(self._apis[key], version)
                _, request = endpoint.decode_request(frame)
                answer = self._versions() if key == API_VERSIONS.key else await self._answer(request)
                if answer is not None:
                    writer.writelines(endpoint.encode_response(correlation_id, answer))  # type: ignore[arg-type]
        writer.close()

    async def _answer(self, request: Any) -> Any:
        self.asked.append(request)
        async with self._came:
            self._came.notify_all()
        return self.answer(request)

    def _versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api.key, api.versions.first, api.versions.last) for api in self._served]
        )


def channel_to(
    find_controller: Callable[[], tuple[int, Endpoint] | None], *, backoff_ms: int = 1, **settings: str
) -> ControllerChannel:
    """A channel that tries again at once, and gives up no request, unless the test says otherwise: a request that is
    given up would end waits that something else has to end.
    """
    patient = {"controller_socket_timeout_ms": "3600000"} | settings
    config = BrokerConfig.parse({name.replace("_", "."): value for name, value in patient.items()})
    return ControllerChannel(
        find_controller, config, ReceiveBuffers(), client_id="broker-7-to-controller", backoff_ms=backoff_ms
    )


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)
