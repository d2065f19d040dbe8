"""Settings of single groups, which override the broker's (org.apache.kafka.coordinator.group.GroupConfig).

plog acts on two of them. The others are Kafka's for share groups and Streams groups, which plog does not serve, and for
a delay that its assignors do not need: they are checked, kept and shown, so that tools that set them work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import Setting
from core.common.config_def import ConfigDef, ConfigKey, ConfigType, Value, at_least, between, kept, one_of
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?")


def _offset_reset(value: Value) -> str | None:
    if value in ("earliest", "latest") or (isinstance(value, str) and _DURATION.fullmatch(value)):
        return None
    return "must be earliest, latest or by_duration:<duration>, as by_duration:PT1H"


_T = ConfigType


def _kept_int(name: str, default: int, lowest: int, highest: int) -> ConfigKey:
    return kept(name, _T.INT, default, f"A number from {lowest} to {highest}.", between(lowest, highest))


GROUP_CONFIG = ConfigDef(
    "group",
    [
        ConfigKey(SESSION_TIMEOUT, _T.INT, 45_000, "How long a member may send no heartbeat, ms.", at_least(1)),
        ConfigKey(HEARTBEAT_INTERVAL, _T.INT, 5000, "How often members send heartbeats, ms.", at_least(1)),
        _kept_int("consumer.assignment.interval.ms", 1000, 0, 15_000),
        kept(
            "errors.deadletterqueue.copy.record.enable",
            _T.BOOLEAN,
            False,
            "Whether records that a share group rejects are copied to its dead-letter queue.",
        ),
        kept(
            "errors.deadletterqueue.topic.name",
            _T.STRING,
            "",
            "The topic that gets the records that a share group rejects.",
        ),
        _kept_int("share.assignment.interval.ms", 1000, 0, 15_000),
        kept(
            "share.auto.offset.reset",
            _T.STRING,
            "latest",
            "The offset at which a share group starts: latest, earliest or by_duration:DURATION.",
            _offset_reset,
        ),
        _kept_int("share.delivery.count.limit", 5, 2, 10),
        _kept_int("share.heartbeat.interval.ms", 5000, 5000, 15_000),
        kept(
            "share.isolation.level",
            _T.STRING,
            "read_uncommitted",
            "Whether a share group gets records of open and aborted transactions.",
            one_of("read_uncommitted", "read_committed"),
        ),
        _kept_int("share.partition.max.record.locks", 2000, 100, 4000),
        _kept_int("share.record.lock.duration.ms", 30_000, 15_000, 60_000),
        kept("share.renew.acknowledge.enable", _T.BOOLEAN, True, "Whether a consumer may renew the lock of a record."),
        _kept_int("share.session.timeout.ms", 45_000, 45_000, 60_000),
        _kept_int("streams.assignment.interval.ms", 1000, 0, 15_000),
        kept("streams.assignor.name", _T.STRING, "sticky", "The assignor of a streams group."),
        _kept_int("streams.heartbeat.interval.ms", 5000, 5000, 15_000),
        _kept_int("streams.initial.rebalance.delay.ms", 3000, 0, (1 << 31) - 1),
        _kept_int("streams.num.standby.replicas", 0, 0, 2),
        kept("streams.rack.aware.assignment.tags", _T.LIST, [], "The client tags that tell racks apart."),
        _kept_int("streams.session.timeout.ms", 45_000, 45_000, 60_000),
    ],
)
"""The bounds of keys that plog does not act on are Kafka's defaults."""

GROUP_DEFAULTS: Mapping[str, Setting[int]] = {
    SESSION_TIMEOUT: BrokerConfig.group_consumer_session_timeout_ms,
    HEARTBEAT_INTERVAL: BrokerConfig.group_consumer_heartbeat_interval_ms,
}
"""The broker's setting with the default of each."""

_OTHER_BROKER_KEYS: Mapping[str, str] = {
    "streams.assignor.name": "group.streams.assignors",
    **{
        name: name  # none
        for name in (
            "errors.deadletterqueue.copy.record.enable",
            "errors.deadletterqueue.topic.name",
            "share.auto.offset.reset",
            "share.isolation.level",
            "share.renew.acknowledge.enable",
        )
    },
}


def broker_key(name: str) -> str:
    """Returns the key under which Kafka's brokers have the default of a group's key."""
    return _OTHER_BROKER_KEYS.get(name, f"group.{name}")


_BOUNDS: Mapping[str, tuple[Setting[int], Setting[int]]] = {
    SESSION_TIMEOUT: (
        BrokerConfig.group_consumer_min_session_timeout_ms,
        BrokerConfig.group_consumer_max_session_timeout_ms,
    ),
    HEARTBEAT_INTERVAL: (
        BrokerConfig.group_consumer_min_heartbeat_interval_ms,
        BrokerConfig.group_consumer_max_heartbeat_interval_ms,
    ),
}


def ensure_valid_group_configs(settings: Mapping[str, str], config: BrokerConfig) -> None:
    """Raises KafkaError(INVALID_CONFIG) for an unknown name, and for a value that the broker does not allow."""
    for name, text in settings.items():
        value = GROUP_CONFIG[name].parse(text)
        if name not in _BOUNDS:
            continue
        lowest, highest = _BOUNDS[name]
        assert isinstance(value, int)
        if value < lowest.of(config):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {lowest.key.name}")
        if value > highest.of(config):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {highest.key.name}")


def group_setting(name: str, settings: Mapping[str, str], config: BrokerConfig) -> int:
    """Returns the value in force for a group with those settings; the broker's if another version wrote no number."""
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else GROUP_DEFAULTS[name].of(config)
