"""The quotas of clients that a cluster with ZooKeeper keeps, as Kafka's clients name them."""

from __future__ import annotations

from core.broker.config.client_quotas import ClientQuotas, FoundQuotas
from core.zookeeper.znodes import DEFAULT_ENTITY, ConfigEntity


def test_the_default_of_all_users_or_clients_has_no_name() -> None:
    quotas = ClientQuotas(lambda *_: None)
    limits = {"producer_byte_rate": "1000"}
    for entity in (
        ConfigEntity("users", "alice"),
        ConfigEntity("users", DEFAULT_ENTITY),
        ConfigEntity("users", "alice", DEFAULT_ENTITY),
        ConfigEntity("clients", "app"),
        ConfigEntity("ips", DEFAULT_ENTITY),
    ):
        quotas.take(entity, limits if entity.kind != "ips" else {"connection_creation_rate": "7"})
    assert list(quotas.all()) == [
        FoundQuotas({"user": "alice"}, {"producer_byte_rate": 1000.0}),
        FoundQuotas({"user": None}, {"producer_byte_rate": 1000.0}),
        FoundQuotas({"user": "alice", "client-id": None}, {"producer_byte_rate": 1000.0}),
        FoundQuotas({"client-id": "app"}, {"producer_byte_rate": 1000.0}),
        FoundQuotas({"ip": None}, {"connection_creation_rate": 7.0}),
    ]
