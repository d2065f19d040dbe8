"""Connections to the other brokers of a cluster, one to each, for requests of coordinators and leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.peer_connection import PeerLink
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.errors import ConnectionFailedError
from core.protocol.message import Api

Req = TypeVar("Req")
Res = TypeVar("Res")


class PeerPool:
    """Owned by the broker's loop; any of its tasks may ask. Only for requests whose responses have no records."""

    def __init__(
        self,
        find_endpoint: Callable[[int], Endpoint | None],
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        *,
        client_id: str,
    ) -> None:
        """`find_endpoint` returns another broker's endpoint, or None if that is not alive."""
        self._find_endpoint = find_endpoint
        self._config = config
        self._buffers = buffers
        self._client_id = client_id
        self._links: dict[int, PeerLink] = {}
        self._is_closed = False

    async def ask(self, node_id: int, api: Api[Req, Res], version: int, request: Req) -> Res:
        """Asks once. Raises ConnectionFailedError if the broker can't be reached or does not answer in time; it may
        have executed the request all the same.
        """
        link = self._links.get(node_id) or self._add_link(node_id)
        endpoint = self._find_endpoint(node_id)
        if endpoint is None or self._is_closed:
            link.leave()
            raise ConnectionFailedError(f"broker {node_id} is not known to live", where=self._client_id)
        connection = await link.connect(endpoint)
        return await connection.send(api, version, request)

    def _add_link(self, node_id: int) -> PeerLink:
        link = self._links[node_id] = PeerLink(
            self._buffers,
            client_id=self._client_id,
            connect_timeout_ms=self._config.socket_connection_setup_timeout_ms,
            request_timeout_ms=self._config.controller_socket_timeout_ms,
        )
        return link

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
