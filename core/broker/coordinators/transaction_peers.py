"""What coordinators of transactions, and those who lead partitions, ask of the other brokers of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from core.broker.config.broker_config import BrokerConfig
from core.broker.coordinators.marker_sender import MarkerSender
from core.broker.coordinators.transaction_verifier import TransactionVerifier
from core.broker.replication.peer_pool import PeerPool
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint


class TransactionPeers:
    """Owned by the broker's loop. Markers have connections of their own: they are answered when they are replicated,
    and who is to be verified can't wait for that.
    """

    def __init__(
        self,
        find_endpoint: Callable[[int], Endpoint | None],
        config: BrokerConfig,
        buffers: ReceiveBuffers,
        client: str,
    ) -> None:
        """`client` names this broker in the others' logs."""
        self._pools = [
            PeerPool(find_endpoint, config, buffers, client_id=f"{client}-{what}") for what in ("markers", "verifier")
        ]
        self.markers = MarkerSender(self._pools[0])
        self.verifier = TransactionVerifier(self._pools[1])

    def on_brokers_changed(self) -> None:
        """Called when brokers have come or gone, or listen elsewhere."""
        for pool in self._pools:
            pool.on_brokers_changed()

    async def close(self) -> None:
        await self.markers.close()
        await self.verifier.close()
        for pool in self._pools:
            pool.close()
