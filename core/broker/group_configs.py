"""Settings of single groups, which go before the broker's (org.apache.kafka.coordinator.group.GroupConfig)."""

from __future__ import annotations

from collections.abc import Mapping

from core.broker.broker_config import BrokerConfig
from core.common.config_def import ConfigDef, ConfigKey, ConfigType, at_least
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

GROUP_CONFIG = ConfigDef(
    "group",
    [
        ConfigKey(SESSION_TIMEOUT, ConfigType.INT, 45_000, "How long a member may be silent, ms.", at_least(1)),
        ConfigKey(HEARTBEAT_INTERVAL, ConfigType.INT, 5000, "How often members are told to speak, ms.", at_least(1)),
    ],
)

GROUP_DEFAULTS: Mapping[str, str] = {key.name: f"group.{key.name}" for key in GROUP_CONFIG}
"""The broker's key that gives each its default."""

_BOUNDS: Mapping[str, tuple[str, str]] = {
    SESSION_TIMEOUT: ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    HEARTBEAT_INTERVAL: ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
}


def ensure_valid_group_configs(settings: Mapping[str, str], config: BrokerConfig) -> None:
    """KafkaError(INVALID_CONFIG) for an unknown name, and for a value that the broker does not allow."""
    for name, text in settings.items():
        value = GROUP_CONFIG[name].parse(text)
        lowest, highest = _BOUNDS[name]
        assert isinstance(value, int)
        if value < config.integer(lowest):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {lowest}")
        if value > config.integer(highest):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {highest}")


def group_setting(name: str, settings: Mapping[str, str], config: BrokerConfig) -> int:
    """What is in force for a group with those settings; the broker's where another version wrote what is no number."""
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else config.integer(GROUP_DEFAULTS[name])
