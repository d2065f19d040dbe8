"""The controller's requests to one life of a broker: one after the other, each until it is answered.

A broker is registered before it can be reached, and may not answer for a while: no request may be left out, or the
broker would lead and follow partitions without the controller's knowledge. So a request is sent again until it is
answered, or the queue is closed, because the broker's life is over or another broker is the controller.

Source: kafka.controller.RequestSendThread of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from core.broker.replication.peer_connection import PeerLink
from core.cluster.controller.controller_requests import ControllerRequest
from core.common.endpoint import Endpoint
from core.common.errors import ConnectionFailedError, KafkaError

_log = logging.getLogger("plog.controller")

_FIRST_BACKOFF_S = 0.05
_MOST_BACKOFF_S = 1.0


class ControllerSender:
    """Owned by the loop; its task sends."""

    def __init__(
        self,
        endpoint: Endpoint | None,
        link: PeerLink,
        on_answer: Callable[[ControllerRequest, Any], None],
        on_mistake: Callable[[], None],
    ) -> None:
        """`endpoint`: the broker's endpoint for other brokers; without one nothing can be sent. `on_mistake` is called
        if a mistake of ours ends the sending: the broker then lacks decisions that others have.
        """
        self._endpoint = endpoint
        self._link = link
        self._on_answer = on_answer
        self._on_mistake = on_mistake
        self._waiting: deque[ControllerRequest] = deque()
        self._has_some = asyncio.Event()
        self._failure = ""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        """Counts the unanswered requests."""
        return len(self._waiting)

    def put(self, request: ControllerRequest) -> None:
        self._waiting.append(request)
        self._has_some.set()

    async def _run(self) -> None:
        try:
            await self._send_all()
        except Exception:  # noqa: BLE001 - the door of this task
            _log.exception("the controller's requests to %s have come to an end", self._endpoint)
            self._on_mistake()

    async def _send_all(self) -> None:
        while True:
            while not self._waiting:
                self._has_some.clear()
                await self._has_some.wait()
            request = self._waiting[0]
            answer = await self._send(request)
            self._waiting.popleft()
            self._on_answer(request, answer)

    async def _send(self, request: ControllerRequest) -> Any:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                if self._endpoint is None:
                    raise ConnectionFailedError("it has no listener for brokers", where=str(request.broker_id))
                connection = await self._link.connect(self._endpoint)
                answer = await connection.send(request.api, request.version, request.request)
                connection.ensure_allowed(answer)
            except (ConnectionFailedError, KafkaError) as error:
                self._note_failure(request, str(error))
            else:
                if self._failure:
                    _log.info("broker %d answers the controller again", request.broker_id)
                self._failure = ""
                return answer
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _MOST_BACKOFF_S)

    def _note_failure(self, request: ControllerRequest, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            _log.warning("broker %d does not get %s: %s; it is sent again", request.broker_id, request.api.name, reason)

    def close(self) -> list[ControllerRequest]:
        """Stops sending; returns the unanswered requests."""
        self._task.cancel()
        self._link.close()
        return list(self._waiting)
