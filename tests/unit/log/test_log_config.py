"""The places of `log_config.py` that name a topic's key agree."""

from __future__ import annotations

from dataclasses import fields

from core.log.log_config import SERVER_KEYS, TOPIC_CONFIG, LogConfig, parse_topic_configs

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


def test_what_is_set_arrives_in_its_field() -> None:
    assert LogConfig.from_values(parse_topic_configs({"segment.ms": "7"})).segment_ms == 7
