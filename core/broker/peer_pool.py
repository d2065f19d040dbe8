"""Connections to the other brokers of a cluster, one to each, for what coordinators and leaders ask each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from core.broker.broker_config import BrokerConfig
from core.broker.peer_connection import PeerConnection
from core.broker.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.errors import ConnectionFailedError
from core.protocol.api import Api

Req = TypeVar("Req")
Res = TypeVar("Res")


class PeerPool:
    """Owned by the broker's loop; any of its tasks may ask. Only what has no records in its answer is asked here."""

    def __init__(
        self,
        find_endpoint: Callable[[int], Endpoint | None],
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        *,
        client_id: str,
    ) -> None:
        """`find_endpoint` says where another broker listens; None if it does not live."""
        self._find_endpoint = find_endpoint
        self._buffers = buffers
        self._client_id = client_id
        self._connect_timeout_s = config.socket_connection_setup_timeout_ms / 1000
        self._request_timeout_s = config.controller_socket_timeout_ms / 1000
        self._connections: dict[int, tuple[Endpoint, PeerConnection]] = {}
        self._connecting: dict[int, asyncio.Lock] = {}
        self._is_closed = False

    async def ask(self, node_id: int, api: Api[Req, Res], version: int, request: Req) -> Res:
        """Asks once. Raises ConnectionFailedError if the broker can't be reached or gives no answer in time: it may
        have done what it was asked to.
        """
        async with self._connecting.setdefault(node_id, asyncio.Lock()):
            connection = await self._connect(node_id)
        return await connection.send(api, version, request)

    async def _connect(self, node_id: int) -> PeerConnection:
        endpoint = self._find_endpoint(node_id)
        known = self._connections.get(node_id)
        if known is not None and known[0] == endpoint and not known[1].is_closed:
            return known[1]
        if known is not None:
            known[1].close()
            del self._connections[node_id]
        if endpoint is None or self._is_closed:
            raise ConnectionFailedError(f"broker {node_id} is not known to live", where=self._client_id)
        connection = await PeerConnection.connect(
            endpoint,
            self._buffers,
            client_id=self._client_id,
            connect_timeout_s=self._connect_timeout_s,
            request_timeout_s=self._request_timeout_s,
        )
        self._connections[node_id] = endpoint, connection
        return connection

    def on_brokers_changed(self) -> None:
        """Gives up brokers that live no more, or elsewhere: one that is paused keeps its connections open, and what it
        was asked is to be asked again of whoever took its place.
        """
        for node_id, (endpoint, connection) in list(self._connections.items()):
            if self._find_endpoint(node_id) != endpoint:
                connection.close()
                del self._connections[node_id]

    def close(self) -> None:
        """Ends what waits for an answer; ConnectionFailedError is raised there."""
        self._is_closed = True
        for _, connection in self._connections.values():
            connection.close()
        self._connections.clear()
