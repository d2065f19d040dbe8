"""The cluster of which a data directory was a broker's, as its files have it."""

from __future__ import annotations

from pathlib import Path

from core.cluster.cluster_description import BrokerDescription, ClusterDescription
from core.cluster.metadata_log import read_metadata_image
from core.common.endpoint import Endpoint
from core.log.meta_properties import read_meta_properties


def read_cluster(directory: Path) -> ClusterDescription:
    """Reads the metadata log in a data directory, and adds the broker whose directory it is if the log has not got it.
    No file says for certain who the controller is. Raises what `read_metadata_image` and `read_meta_properties` raise.
    """
    meta = read_meta_properties(directory)
    image = read_metadata_image(directory)
    brokers = [
        BrokerDescription(
            broker.broker_id,
            {endpoint.name: str(Endpoint(endpoint.host, endpoint.port)) for endpoint in broker.end_points},
            broker.rack,
            broker.fenced,
        )
        for broker in (image.brokers.values() if image is not None else ())
    ]
    if meta is not None and all(broker.broker_id != meta.node_id for broker in brokers):
        brokers.append(BrokerDescription(meta.node_id, {}))
    return ClusterDescription(
        meta.cluster_id if meta is not None else None,
        -1,
        sorted(brokers, key=lambda broker: broker.broker_id),
        dict(image.features) if image is not None else {},
    )
