"""The other brokers of a cluster in the metadata: which are alive, and their endpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import PLAINTEXT, PROTOCOLS
from core.cluster.image.metadata_image import MetadataImage
from core.common.endpoint import Endpoint
from core.protocol.schema.control_request import UpdateMetadataBroker
from core.protocol.schema.metadata_records import BrokerEndpoint, RegisterBrokerRecord

if TYPE_CHECKING:
    from core.broker.replication.peer_security import PeerSecurity

_log = logging.getLogger("plog.broker")


class ClusterPeers:
    """A `core.cluster.partition.leadership.Peers`; owned by the broker's task.

    Brokers reach each other at the listener `inter.broker.listener.name`, by the protocol that this broker's own one
    has; without that setting at the one with the name of `security.inter.broker.protocol`, or else at any with that
    protocol.
    """

    def __init__(self, config: BrokerConfig, find_image: Callable[[], MetadataImage]) -> None:
        self.max_lag_ms = config.replica_lag_time_max_ms
        self._listener = config.inter_broker_listener
        self._is_named = config.inter_broker_listener_name is not None
        self._protocol = config.protocol_of(self._listener)
        self._find_image = find_image
        self._unreachable: set[int] = set()
        self._found: dict[int, tuple[RegisterBrokerRecord, Endpoint]] = {}  # with the record that it comes from

    def make_security(self, find_config: Callable[[], BrokerConfig]) -> PeerSecurity | None:
        """Returns how connections to other brokers begin; None for PLAINTEXT. Raises what `PeerSecurity` raises."""
        if self._protocol == PLAINTEXT:
            return None
        from core.broker.replication.peer_security import PeerSecurity

        return PeerSecurity(find_config)

    def find_broker_epoch(self, node_id: int) -> int | None:
        """See `Peers.find_broker_epoch`."""
        broker = self._find_image().brokers.get(node_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return None
        return broker.broker_epoch

    def find_endpoint(self, node_id: int) -> Endpoint | None:
        """Returns that broker's endpoint for other brokers, or None if it is not alive, or has no such listener, which
        is logged.
        """
        broker = self._find_image().brokers.get(node_id)
        if broker is None:
            return None
        record, endpoint = self._found.get(node_id, (None, None))
        if record is not broker:
            endpoint = self._find_listed(node_id, broker.end_points)
            if endpoint is not None:
                self._found[node_id] = broker, endpoint
        return endpoint

    def endpoint_of(self, node_id: int, broker: UpdateMetadataBroker) -> Endpoint | None:
        """Returns the endpoint for other brokers of a broker that may not be in the metadata yet."""
        listed = [BrokerEndpoint(one.listener, one.host, one.port, one.security_protocol) for one in broker.endpoints]
        return self._find_listed(node_id, listed)

    def _find_listed(self, node_id: int, endpoints: Sequence[BrokerEndpoint]) -> Endpoint | None:
        found = self._find(endpoints)
        if found is not None:
            self._unreachable.discard(node_id)
            return Endpoint(found.host, found.port)
        if node_id not in self._unreachable:
            self._unreachable.add(node_id)
            wanted = f"at which {self._protocol} is spoken"
            if self._is_named:
                wanted = f"{self._listener} (inter.broker.listener.name) {wanted}"
            has = ", ".join(f"{one.name}://{one.host}:{one.port} ({_protocol(one)})" for one in endpoints) or "none"
            _log.error("broker %d can't be reached: it has no listener %s; it has %s", node_id, wanted, has)
        return None

    def _find(self, endpoints: Iterable[BrokerEndpoint]) -> BrokerEndpoint | None:
        spoken = [one for one in endpoints if _protocol(one) == self._protocol]
        named = [one for one in spoken if one.name.upper() == (self._listener if self._is_named else self._protocol)]
        return next(iter(named if self._is_named else [*named, *spoken]), None)


def _protocol(endpoint: BrokerEndpoint) -> str:
    number = endpoint.security_protocol
    return PROTOCOLS[number] if 0 <= number < len(PROTOCOLS) else f"protocol {number}"
