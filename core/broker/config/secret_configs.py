"""Which settings' values may be secrets. They are never logged or printed, unless somebody asks for them."""

from __future__ import annotations

from core.broker.config.broker_settings import BROKER_CONFIG
from core.broker.config.group_configs import GROUP_CONFIG
from core.common.config_def import ConfigDef, ConfigResourceType, ConfigType
from core.log.log_config import TOPIC_CONFIG

_TABLES: dict[int, ConfigDef] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIG,
    ConfigResourceType.BROKER: BROKER_CONFIG,
    ConfigResourceType.GROUP: GROUP_CONFIG,
}
_WITHOUT_SECRETS = (ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)


def is_secret_config(resource_type: int, name: str) -> bool:
    """Says so of a password, and of whatever plog does not know: that may be one (`KafkaConfig.maybeSensitive`)."""
    table = _TABLES.get(resource_type)
    if table is None:
        return resource_type not in _WITHOUT_SECRETS
    return name not in table or table[name].type is ConfigType.PASSWORD
