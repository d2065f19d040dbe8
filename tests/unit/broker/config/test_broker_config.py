from __future__ import annotations

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import BROKER_CONFIG
from core.common.config_def import value_text
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import KafkaError, UsageError
from core.files.log_config import TOPIC_CONFIG
from tests.support.for_each import for_each


@for_each(
    "text, host, port",
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost", "localhost", 9092),
        (":7000", "", 7000),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("[::1]:9093", "::1", 9093),
        ("::1", "::1", 9092),
        ("[fe80::1]", "fe80::1", 9092),
    ],
)
def test_endpoints(text: str, host: str, port: int) -> None:
    endpoint = parse_endpoint(text)
    assert endpoint == Endpoint(host, port)
    assert parse_endpoint(str(endpoint)) == endpoint


@for_each("text", ["host:port", "host:70000", "http://host:1", "host:-1", "host:", "9092"])
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(UsageError, match="is no HOST:PORT"):
        parse_endpoint(text)


def test_wildcards() -> None:
    assert [e for e in ("", "0.0.0.0", "::", "127.0.0.1", "h") if Endpoint(e, 1).is_wildcard] == ["", "0.0.0.0", "::"]


@for_each(
    "host, is_loopback",
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
        ("", False), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("::ffff:10.0.0.1", False),
        ("localhost.example", False),
    ],
)  # fmt: skip
def test_loopback(host: str, is_loopback: bool) -> None:
    assert Endpoint(host, 1).is_loopback == is_loopback


def test_unknown_keys_are_kept_and_named() -> None:
    config = BrokerConfig.parse({"process.roles": "broker,controller", "num.partitions": "3"})
    assert config.num_partitions == config["num.partitions"] == 3
    assert config.unknown == {"process.roles": "broker,controller"}


@for_each(
    "name, text",
    [("num.partitions", "0"), ("num.partitions", "many"), ("log.cleanup.policy", "shred"), ("fetch.max.bytes", "1")],
)
def test_a_value_that_is_not_allowed_names_its_key(name: str, text: str) -> None:
    with pytest.raises(KafkaError, match=name):
        BrokerConfig.parse({name: text})


@for_each(
    "properties, listener",
    [
        ({}, None),
        ({"listeners": "PLAINTEXT://:9092"}, Endpoint("", 9092)),
        ({"listeners": "C://:9093,PLAINTEXT://host:1", "controller.listener.names": "C"}, Endpoint("host", 1)),
        ({"listeners": "SSL://host:1"}, Endpoint("host", 1)),
    ],
)
def test_the_first_listener(properties: dict[str, str], listener: Endpoint | None) -> None:
    served = BrokerConfig.parse(properties).served_listeners
    assert (served[0].endpoint if served else None) == listener


@for_each("listener, protocols", [("ANY://:1", ""), ("SSL://:1", "SSL:TLS"), ("CONTROLLER://:9093", "A:SSL")])
def test_a_listener_whose_protocol_is_not_known(listener: str, protocols: str) -> None:
    config = BrokerConfig.parse({"listeners": listener, "listener.security.protocol.map": protocols})
    with pytest.raises(UsageError, match=r"whose protocol is .*, expected PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        assert config.served_listeners


@for_each(
    "properties, node_id",
    [
        ({}, None),
        ({"node.id": "7"}, 7),
        ({"broker.id": "5"}, 5),
        ({"broker.id": "-1"}, None),
        ({"node.id": "7", "broker.id": "5"}, 7),
    ],
)
def test_given_node_id(properties: dict[str, str], node_id: int | None) -> None:
    assert BrokerConfig.parse(properties).given_node_id == node_id


@for_each(
    "properties, retention_ms",
    [
        ({}, 7 * 86_400_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finer_unit_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.parse(properties).topic_default("retention.ms") == retention_ms


def test_topics_take_the_brokers_settings() -> None:
    config = BrokerConfig.parse({"log.segment.bytes": "2000000", "compression.type": "zstd", "log.roll.hours": "1"})
    defaults = config.topic_defaults()
    assert defaults.keys() == {key.name for key in TOPIC_CONFIG}
    assert (defaults["segment.bytes"], defaults["compression.type"], defaults["segment.ms"]) == (
        2_000_000,
        "zstd",
        3_600_000,
    )


def test_every_key_has_a_default_that_it_allows() -> None:
    for key in BROKER_CONFIG:
        text = value_text(key.default)
        if text is not None:
            assert key.parse(text) == key.default, key.name
