"""The places of `log_config.py` that name a topic's key agree."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields

import pytest

from core.common.errors import KafkaError
from core.files.log_config import SERVER_KEYS, TOPIC_CONFIG, LogConfig, parse_topic_configs
from tests.support.for_each import for_each

FIELDS = {field.name.replace("_", "."): field.default for field in fields(LogConfig)}


def test_every_field_is_of_a_key_and_has_its_default() -> None:
    parsed = {name: TOPIC_CONFIG[name].default for name in FIELDS}
    assert LogConfig.from_values(parsed) == LogConfig()


WITHOUT_BROKER_KEY = {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
"""Brokers say nothing of replicas of single partitions, in Kafka either."""


def test_every_key_that_the_log_works_by_has_a_key_of_the_broker() -> None:
    assert FIELDS.keys() - WITHOUT_BROKER_KEY <= SERVER_KEYS.keys()
    assert WITHOUT_BROKER_KEY.isdisjoint(SERVER_KEYS)
    assert SERVER_KEYS.keys() <= {key.name for key in TOPIC_CONFIG}


@for_each("size, is_taken", [("13", False), ("14", True), ("60000", True), ("2147483648", False)])
def test_beside_kafka_3_segments_may_be_small(size: str, is_taken: bool) -> None:
    """Kafka 4 allows none below 1 MiB (KIP-1030); a cluster of Kafka 3.9 and plog has the rules of Kafka 3.9."""
    with pytest.raises(KafkaError):
        parse_topic_configs({"segment.bytes": size})
    with nullcontext() if is_taken else pytest.raises(KafkaError):
        assert parse_topic_configs({"segment.bytes": size}, is_kafka_3=True) == {"segment.bytes": int(size)}
