"""The connection to a broker that somebody keeps: made when it is needed, and again when it broke or the broker has
moved.
"""

from __future__ import annotations

import asyncio

from core.broker.replication.peer_connection import PeerConnection
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.errors import ConnectionFailedError


class PeerLink:
    """Owned by the broker's loop; any of its tasks may connect."""

    def __init__(
        self, buffers: ReceiveBuffers, *, client_id: str, connect_timeout_ms: int, request_timeout_ms: int
    ) -> None:
        """`client_id` names this broker in the other one's log."""
        self._buffers = buffers
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._request_timeout_s = request_timeout_ms / 1000
        self._connecting = asyncio.Lock()
        self._connection: PeerConnection | None = None
        self._endpoint: Endpoint | None = None
        self._is_closed = False

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the connection leads that there is; None if there is none, or it is broken."""
        is_connected = self._connection is not None and not self._connection.is_closed
        return self._endpoint if is_connected else None

    async def connect(self, endpoint: Endpoint) -> PeerConnection:
        """Gives a connection to there, of which all who ask at once make one; one to elsewhere is closed. Raises
        ConnectionFailedError if nobody takes it in time, or the link is closed.
        """
        connection = self._connection
        if connection is not None and not connection.is_closed and self._endpoint is endpoint:  # nearly always
            return connection
        async with self._connecting:
            if self._connection is None or self.endpoint != endpoint:
                self.leave()
                self._ensure_open()
                self._connection = await PeerConnection.connect(
                    endpoint,
                    self._buffers,
                    client_id=self._client_id,
                    connect_timeout_s=self._connect_timeout_s,
                    request_timeout_s=self._request_timeout_s,
                )
                self._endpoint = endpoint
                self._ensure_open()
            return self._connection

    def _ensure_open(self) -> None:
        if self._is_closed:
            self.leave()
            raise ConnectionFailedError("nobody is asked any more", where=self._client_id)

    def leave(self) -> None:
        """Closes the connection, if there is one: ConnectionFailedError is raised where its answers are waited for."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Leaves, and makes no other connection."""
        self._is_closed = True
        self.leave()
