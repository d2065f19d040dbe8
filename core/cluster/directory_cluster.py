"""The cluster of which a data directory was a broker's, as its files have it."""

from __future__ import annotations

from pathlib import Path

from core.cluster.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.metadata_log import read_metadata_image
from core.common.endpoint import Endpoint
from core.log.meta_properties import read_meta_properties


def read_cluster(directory: Path) -> ClusterDescription:
    """As the metadata log in a data directory has it; who the controller is no file knows for certain. Raises what
    `read_metadata_image` raises.
    """
    meta = read_meta_properties(directory)
    image = read_metadata_image(directory)
    brokers = [
        BrokerDescription(
            broker.broker_id,
            {endpoint.name: str(Endpoint(endpoint.host, endpoint.port)) for endpoint in broker.endpoints},
            broker.rack,
            broker.is_fenced,
        )
        for broker in (image.brokers.values() if image is not None else ())
    ]
    return ClusterDescription(
        meta.cluster_id if meta is not None else None,
        -1,
        sorted(brokers, key=lambda broker: broker.broker_id),
        dict(image.features) if image is not None else {},
    )
