"""The identity of the broker: its node and cluster, its addresses for clients, and whether it may write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError


class NodeIdentity:
    """Owned by the broker's task."""

    def __init__(self, directory: Path, cluster_id: str, node_id: int, *, is_read_only: bool) -> None:
        """`directory` is the user's, even if a read-only broker works in a shadow of it."""
        self.directory = directory
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.is_read_only = is_read_only
        self.endpoint: Endpoint | None = None
        """The endpoint of the first listener, once the broker listens."""
        self.endpoints: Mapping[str, Endpoint] = {}
        """The endpoints by name of the listener, once the broker listens."""

    def ensure_writable(self) -> None:
        """Raises KafkaError(POLICY_VIOLATION) if the broker is read-only."""
        if self.is_read_only:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this broker was started with --read-only: {self.directory} is not written to",
            )

    def advertised_endpoint(self, advertised: Endpoint | None, local_host: str, listener: str = "") -> Endpoint:
        """Returns the address for clients of that listener: `advertised`, if configured, otherwise the listener's
        endpoint; for a listener on all addresses, `local_host`, the one that the client reached.
        """
        bound = self.endpoints.get(listener, self.endpoint)
        if advertised is not None and not advertised.is_wildcard:
            return Endpoint(advertised.host, advertised.port or (bound.port if bound else 0))
        endpoint = bound or Endpoint("localhost", 0)
        if not endpoint.is_wildcard:
            return endpoint
        return Endpoint(local_host or "localhost", endpoint.port)
