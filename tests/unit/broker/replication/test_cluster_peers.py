"""The brokers of a cluster as the metadata have them: who may join those in sync, and where each is reached."""

from __future__ import annotations

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.cluster_peers import ClusterPeers
from core.cluster.image.metadata_image import MetadataImage
from core.common.endpoint import Endpoint
from core.protocol.schema.metadata_records import BrokerEndpoint, RegisterBrokerRecord

CLIENT = BrokerEndpoint("CLIENT", "c", 1, 0)
INTERNAL = BrokerEndpoint("INTERNAL", "i", 2, 0)
PLAINTEXT = BrokerEndpoint("PLAINTEXT", "p", 3, 0)
SECURED = BrokerEndpoint("INTERNAL", "s", 4, 1)


class Cluster:
    def __init__(self, **settings: str) -> None:
        config = BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        self.image = MetadataImage(brokers=self.brokers)
        self.peers = ClusterPeers(config, lambda: self.image)

    def add(self, node_id: int, *endpoints: BrokerEndpoint, fenced: bool = False, is_leaving: bool = False) -> None:
        self.brokers[node_id] = RegisterBrokerRecord(
            node_id,
            broker_epoch=100 + node_id,
            end_points=list(endpoints),
            fenced=fenced,
            in_controlled_shutdown=is_leaving,
        )


def test_only_brokers_that_live_and_stay_may_join_those_in_sync() -> None:
    cluster = Cluster(replica_lag_time_max_ms="12345")
    cluster.add(1)
    cluster.add(2, fenced=True)
    cluster.add(3, is_leaving=True)
    assert [cluster.peers.find_broker_epoch(node_id) for node_id in range(1, 5)] == [101, None, None, None]
    assert cluster.peers.max_lag_ms == 12345


@pytest.mark.parametrize(
    ("name", "endpoints", "expected"),
    [
        pytest.param("INTERNAL", (CLIENT, INTERNAL), Endpoint("i", 2), id="by the name that is set"),
        pytest.param("internal", (CLIENT, INTERNAL), Endpoint("i", 2), id="in small letters"),
        pytest.param(None, (CLIENT, PLAINTEXT), Endpoint("p", 3), id="the one called PLAINTEXT"),
        pytest.param(None, (SECURED, CLIENT), Endpoint("c", 1), id="any that is plaintext"),
    ],
)
def test_brokers_reach_each_other_at_one_listener(
    name: str | None, endpoints: tuple[BrokerEndpoint, ...], expected: Endpoint
) -> None:
    cluster = Cluster() if name is None else Cluster(inter_broker_listener_name=name)
    cluster.add(1, *endpoints)
    assert cluster.peers.find_endpoint(1) == expected
    assert cluster.peers.find_endpoint(2) is None


def test_a_broker_that_can_not_be_reached_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(inter_broker_listener_name="INTERNAL")
    for endpoints in [(CLIENT, SECURED), (), (INTERNAL,), (CLIENT,)]:
        cluster.add(1, *endpoints)
        for _ in range(2):
            found = cluster.peers.find_endpoint(1)
            assert (found is not None) == (endpoints == (INTERNAL,))
    reason = "it has no listener INTERNAL (inter.broker.listener.name) at which PLAINTEXT is spoken"
    assert caplog.messages == [
        f"broker 1 can't be reached: {reason}; it has CLIENT://c:1 (PLAINTEXT), INTERNAL://s:4 (SSL)",
        f"broker 1 can't be reached: {reason}; it has CLIENT://c:1 (PLAINTEXT)",
    ]


def test_a_broker_without_any_plaintext_listener_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.add(1)
    assert cluster.peers.find_endpoint(1) is None
    assert caplog.messages == [
        "broker 1 can't be reached: it has no listener at which PLAINTEXT is spoken; it has none"
    ]
