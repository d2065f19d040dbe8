"""Nodes with other versions, with secrets, sanitised names and garbage; tests/golden has Kafka's own."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import MalformedMessageError
from core.zookeeper import znodes
from core.zookeeper.znodes import (
    DEFAULT_ENTITY,
    BrokerEndpoint,
    BrokerNode,
    ConfigEntity,
    FeatureNode,
    PartitionStateNode,
    TopicNode,
    acls_of,
    parse_entity_path,
)
from tests.support.for_each import for_each

DECODERS = [
    znodes.decode_broker,
    znodes.decode_controller,
    znodes.decode_topic,
    znodes.decode_partition_state,
    znodes.decode_config,
    znodes.decode_config_change,
    znodes.decode_producer_id_block,
    znodes.decode_cluster_id,
    znodes.decode_feature,
]


# --- brokers


def test_a_broker_with_a_rack_features_and_security() -> None:
    node = BrokerNode(
        endpoints=(BrokerEndpoint("SAFE", "::1", 9093, "SASL_SSL"), BrokerEndpoint("PLAIN", "h", 9092, "PLAINTEXT")),
        timestamp_ms=1795453562342,
        rack="r1",
        features={"f": (1, 3)},
    )
    written = json.loads(node.encode())
    assert written["endpoints"] == ["SAFE://[::1]:9093", "PLAIN://h:9092"]
    assert (written["host"], written["port"], written["rack"]) == ("h", 9092, "r1")
    assert written["features"] == {"f": {"min_version": 1, "max_version": 3}}
    assert znodes.decode_broker(node.encode(), "/brokers/ids/1") == node


def test_a_broker_without_a_plaintext_listener_has_no_host_for_old_clients() -> None:
    written = json.loads(BrokerNode((BrokerEndpoint("S", "h", 1, "SSL"),), 0).encode())
    assert (written["host"], written["port"]) == (None, -1)


# --- topics and features


OLD_BROKER = b'{"version":4,"endpoints":["P://h:1"],"listener_security_protocol_map":{"P":"SSL"},"timestamp":"7"}'
OLD_TOPIC = b'{"version":%d,"partitions":{"0":[1,2]}}'
OLD_FEATURES = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":4}}}'
OLD_CHANGE = b'{"version":1,"entity_type":"topics","entity_name":"t.1"}'


@for_each(
    "decode, data, node",
    [
        (znodes.decode_broker, OLD_BROKER, BrokerNode((BrokerEndpoint("P", "h", 1, "SSL"),), 7)),  # without features
        (znodes.decode_topic, OLD_TOPIC % 1, TopicNode({0: (1, 2)}, None)),  # without an id
        (znodes.decode_topic, OLD_TOPIC % 2, TopicNode({0: (1, 2)}, None)),
        (znodes.decode_feature, OLD_FEATURES, FeatureNode({"f": 4}, is_enabled=False)),  # Kafka 2.7 has ranges
        (znodes.decode_config_change, OLD_CHANGE, ConfigEntity("topics", "t.1")),
    ],
)
def test_older_versions_are_read(decode: Any, data: bytes, node: object) -> None:
    assert decode(data, "/x") == node


def test_a_topic_without_an_id_is_written_in_version_2() -> None:
    assert json.loads(TopicNode({0: (1, 2)}, None).encode())["version"] == 2


def test_features_of_kafka_3_9_have_levels() -> None:
    """As its kafka.zk.FeatureZNode writes it; it can't read a bare number for a level."""
    kafkas = b'{"features":{"group.version":{"max_version_level":1}},"version":2,"status":1}'
    node = FeatureNode({"group.version": 1})
    assert znodes.decode_feature(kafkas) == node
    assert json.loads(node.encode()) == json.loads(kafkas)


def test_a_state_may_say_in_which_lives_its_holders_are_known() -> None:
    state = PartitionStateNode(1, 2, (1, 3), 4, holders={1: 2**40, 3: -1})
    assert json.loads(state.encode())["plog_holders"] == {"1": 2**40, "3": -1}
    assert znodes.decode_partition_state(state.encode(), "/state") == state
    assert "plog_holders" not in json.loads(PartitionStateNode(1, 2, (1, 3), 4).encode())


# --- settings


@for_each(
    "name, written",
    [
        ("alice", "alice"),
        ("a b", "a%20b"),
        ("a*b+c~d/e", "a%2Ab%2Bc%7Ed%2Fe"),
        ("CN=ä,O=x", "CN%3D%C3%A4%2CO%3Dx"),
        (DEFAULT_ENTITY, DEFAULT_ENTITY),
    ],
)
def test_names_are_sanitised_as_javas_url_encoder_does(name: str, written: str) -> None:
    assert ConfigEntity("users", name).entity_path == f"users/{written}"


@given(
    st.builds(ConfigEntity, st.just("users"), st.text(min_size=1), st.none() | st.text(min_size=1))
    | st.builds(ConfigEntity, st.just("clients"), st.text(min_size=1), st.none())
)
def test_each_entity_is_found_by_its_path(entity: ConfigEntity) -> None:
    assert parse_entity_path(entity.entity_path, "/x") == entity
    assert znodes.decode_config_change(znodes.encode_config_change(entity), "/x") == entity


@for_each("path", ["", "t1", "topics", "topics/", "planets/x", "users/a/clients", "topics/a/clients/b"])
def test_entities_that_there_are_not(path: str) -> None:
    with pytest.raises(MalformedMessageError, match="expected KIND/NAME"):
        parse_entity_path(path, "/config/changes/config_change_0000000001")


# --- rights


def test_rights_of_a_secured_cluster() -> None:
    creator, readers = (31, "auth", ""), (1, "world", "anyone")
    assert acls_of("/brokers/ids/1", is_secured=True) == [creator, readers]
    assert acls_of("/config/users/alice", is_secured=True) == [creator]
    assert acls_of("/config/users", is_secured=True) == [creator]
    assert acls_of("/config/usersx", is_secured=True) == [creator, readers]
    assert acls_of("/consumers", is_secured=True) == [(31, "world", "anyone")]


# --- garbage


@for_each("decode", DECODERS, ids=lambda decode: decode.__name__)
@for_each("data", [b"nonsense", b"[]", b"\xff\xfe", b"7", b"{}", b'{"version":99}', b'{"version":true}'])
def test_garbage_and_unknown_versions_are_refused_with_the_path(decode: Any, data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="ZooKeeper node /a/path: ") as refused:
        decode(data, "/a/path")
    if b"99" in data:
        assert "version 99, expected " in refused.value.message


STATE = {"version": 1, "leader": 1, "leader_epoch": 0, "isr": [1], "controller_epoch": 1}
NO_ENDPOINT = {"version": 5, "listener_security_protocol_map": {}}
WRONG_EPOCHS: list[object] = [7, [1], {"x": 1}, {"-1": 1}, {"1": "2"}, {"1": None}, {"1": True}, {"1": 1.5}]


@for_each(
    "decode, data, problem",
    [
        (znodes.decode_partition_state, {"version": 1}, "Object missing required field `leader`"),
        (znodes.decode_partition_state, STATE | {"leader": "1"}, "Expected `int`, got `str` - at `$.leader`"),
        (znodes.decode_partition_state, STATE | {"leader": 2**31}, "Expected `int` <= 2147483647 - at `$.leader`"),
        (znodes.decode_partition_state, STATE | {"isr": 7}, "Expected `array`, got `int` - at `$.isr`"),
        (znodes.decode_partition_state, STATE | {"isr": [True]}, "Expected `int`, got `bool` - at `$.isr[0]`"),
        (
            znodes.decode_partition_state,
            STATE | {"leader_recovery_state": 300},
            "Expected `int` <= 1 - at `$.leader_recovery_state`",
        ),
        *((znodes.decode_partition_state, STATE | {"plog_holders": one}, "$.plog_holders") for one in WRONG_EPOCHS),
        (znodes.decode_config, {"version": 1, "config": {"a": 1}}, "Expected `str`, got `int` - at `$.config[...]`"),
        (znodes.decode_topic, {"version": 1, "partitions": {"x": []}}, "Expected `int`, got `str` - at `key` in"),
        (znodes.decode_topic, {"version": 1, "partitions": {"-1": []}}, "Expected `int` >= 0 - at `key` in"),
        (znodes.decode_topic, {"version": 3, "partitions": {}, "topic_id": "x"}, " - at `$.topic_id`"),
        (znodes.decode_controller, {"version": 1, "brokerid": 1, "timestamp": 7}, "got 7 - at `$.timestamp`"),
        (znodes.decode_controller, {"version": 1, "brokerid": 1, "timestamp": str(2**63)}, "Expected a number of 64"),
        (
            znodes.decode_broker,
            NO_ENDPOINT | {"endpoints": ["P://h:1"]},
            "listener 'P' is missing in listener_security_protocol_map",
        ),
        (
            znodes.decode_broker,
            NO_ENDPOINT | {"endpoints": ["h:1"]},
            "endpoint 'h:1', expected LISTENER://HOST:PORT",
        ),
    ],
)
def test_fields_are_named_when_they_are_wrong(decode: Any, data: dict[str, Any], problem: str) -> None:
    with pytest.raises(MalformedMessageError) as refused:
        decode(json.dumps(data).encode(), "/s")
    assert refused.value.message.startswith("ZooKeeper node /s: ")
    assert problem in refused.value.message


@for_each("data", [b"", b"x", b"-1", b"1.5", b'"1"'])
def test_epochs_are_numbers(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match=r"/controller_epoch: .* is no epoch, expected a number"):
        znodes.decode_controller_epoch(data)


@given(st.binary(max_size=40), st.sampled_from(DECODERS))
def test_no_bytes_raise_anything_else(data: bytes, decode: Any) -> None:
    with contextlib.suppress(MalformedMessageError):
        decode(data, "/p")
