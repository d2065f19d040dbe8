from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import BROKER_CONFIG
from core.common.config_def import value_text
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.errors import KafkaError, UsageError
from core.files.log_config import TOPIC_CONFIG
from tests.support.answers.message_codec import GOLDEN
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


@for_each(
    "name, least",
    [
        ("connection.failed.authentication.delay.ms", 0), ("fetch.max.bytes", 1024), ("group.max.size", 1),
        ("log.cleaner.backoff.ms", 0), ("log.cleaner.threads", 0), ("log.index.size.max.bytes", 4),
        ("log.roll.hours", 1), ("log.segment.bytes", 1 << 20), ("max.connections", 0), ("max.connections.per.ip", 0),
        ("max.incremental.fetch.session.cache.slots", 0), ("min.insync.replicas", 1), ("node.id", 0),
        ("num.partitions", 1), ("offsets.retention.minutes", 1), ("producer.id.expiration.ms", 1),
        ("replica.fetch.max.bytes", 0), ("socket.request.max.bytes", 1),
    ],
)  # fmt: skip
def test_the_least_values_are_those_of_kafkas_documentation(name: str, least: int) -> None:
    assert BROKER_CONFIG[name].parse(str(least)) == least
    with pytest.raises(KafkaError, match=f"at least {least}"):
        BROKER_CONFIG[name].parse(str(least - 1))


def configs_in(answer: Any) -> Iterator[dict[str, Any]]:
    """The settings that a recorded answer describes."""
    if isinstance(answer, dict) and "ReadOnly" in answer:
        yield answer
    elif isinstance(answer, dict | list):
        for part in answer.values() if isinstance(answer, dict) else answer:
            yield from configs_in(part)


@for_each("scenario", ["describe-broker-configs", "change-listener-configs"])
def test_defaults_and_keys_that_may_change_are_those_of_a_broker_of_kafka(scenario: str) -> None:
    of_kafka = {
        config["Name"]: config
        for line in (GOLDEN / f"{scenario}.ndjson").read_text().splitlines()
        for config in configs_in(json.loads(line))
        if config["Name"] in BROKER_CONFIG
    }
    assert of_kafka
    for name, config in of_kafka.items():
        key = BROKER_CONFIG[name]
        assert key.is_dynamic is not config["ReadOnly"], name
        defaults = [one["Value"] for one in config["Synonyms"] if (one["Name"], one["Source"]) == (name, 5)]
        assert defaults in ([value_text(key.default)], []), name


def test_settings_of_tls_and_logins_may_change_but_for_those_that_kafka_reads_once() -> None:
    fixed = {key.name for key in BROKER_CONFIG if key.name.startswith(("ssl.", "sasl.")) and not key.is_dynamic}
    assert fixed == {
        "sasl.server.max.receive.size",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.principal.mapping.rules",
    }
