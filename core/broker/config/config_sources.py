"""Configuration values as DescribeConfigs reports them, with every source that sets them, the one in force first.

Values that may be secrets are never logged or printed, unless the user asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import BROKER_CONFIG, find_broker_key, plain_name
from core.broker.config.group_configs import GROUP_CONFIG
from core.common.config_def import (
    ZOOKEEPER_SILENCE,
    ConfigDef,
    ConfigKey,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    value_text,
)
from core.common.errors import KafkaError
from core.files.log_config import INTERNAL_KEYS, SERVER_KEYS, TOPIC_CONFIG
from core.forensics.damage import DamagedRange
from core.log.damaged_ranges import DAMAGED_OFFSETS, DOCS_OF_DAMAGE, damaged_offsets_text, offset_ranges_text
from core.protocol.schema.configs import DescribeConfigsSynonym as Synonym
from core.protocol.schema.configs import DescribedConfig

_TABLES: dict[int, ConfigDef] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIG,
    ConfigResourceType.BROKER: BROKER_CONFIG,
    ConfigResourceType.GROUP: GROUP_CONFIG,
}
_WITHOUT_SECRETS = (ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)


def is_secret_config(resource_type: int, name: str) -> bool:
    """Returns True for a password, and for any key that plog does not know (`KafkaConfig.maybeSensitive`)."""
    table = _TABLES.get(resource_type)
    if table is None:
        return resource_type not in _WITHOUT_SECRETS
    key = find_broker_key(name) if table is BROKER_CONFIG else table.find(name)
    return key is None or key.type is ConfigType.PASSWORD


def describe_topic_configs(
    config: BrokerConfig,
    overrides: Mapping[str, str],
    gaps: Mapping[int, Sequence[DamagedRange]] = MappingProxyType({}),
    doubts: Mapping[str, Mapping[int, Sequence[tuple[int, int]]]] = MappingProxyType({}),
) -> list[DescribedConfig]:
    """Describes every key of a topic with those overrides; `gaps` by partition, `doubts` from `doubts_of`."""
    told = {DAMAGED_OFFSETS: damaged_offsets_text(gaps)} if gaps else {}
    told |= {key: offset_ranges_text(ranges) for key, ranges in doubts.items()}
    described = [_told(key, text, ConfigType.LIST, DOCS_OF_DAMAGE[key]) for key, text in told.items()]
    for default in _describe_topic_defaults(config):
        if default.name in overrides:
            described.append(_overridden(default, overrides[default.name]))
        elif default.name not in INTERNAL_KEYS:
            described.append(default)
    return described


def described_key(
    key: ConfigKey, value: str | None, synonyms: list[Synonym], *, is_read_only: bool = False
) -> DescribedConfig:
    """Describes a key with its value in force; a password has no value."""
    is_secret = key.type is ConfigType.PASSWORD
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    shown = None if is_secret else value
    return DescribedConfig(
        key.name, shown, is_read_only, source, is_secret, synonyms, config_type=key.type, documentation=key.full_doc
    )


def _told(name: str, text: str, kind: ConfigType, doc: str) -> DescribedConfig:
    """Describes what nobody sets."""
    return DescribedConfig(name, text, True, ConfigSource.DEFAULT_CONFIG, config_type=kind, documentation=doc)


def _describe_topic_defaults(config: BrokerConfig) -> Sequence[DescribedConfig]:
    """Describes every key of a topic without overrides; cached, because thousands of topics are described together."""
    global _known_defaults
    if _known_defaults is None or _known_defaults[0] is not config:
        _known_defaults = config, [_default(config, key) for key in TOPIC_CONFIG]
    return _known_defaults[1]


_known_defaults: tuple[BrokerConfig, list[DescribedConfig]] | None = None


def _default(config: BrokerConfig, key: ConfigKey) -> DescribedConfig:
    synonyms = [s for name, _ in SERVER_KEYS.get(key.name, ()) for s in broker_synonyms(config, name)]
    return described_key(key, value_text(config.topic_default(key.name)), synonyms)


def _overridden(default: DescribedConfig, text: str) -> DescribedConfig:
    own = Synonym(default.name, _as_parsed(TOPIC_CONFIG[default.name], text), ConfigSource.TOPIC_CONFIG)
    return described_key(TOPIC_CONFIG[default.name], own.value, [own, *default.synonyms])


def _as_parsed(key: ConfigKey, text: str) -> str:
    """Returns the value as Kafka shows it: `1` for a double is 1.0."""
    try:
        return value_text(key.parse(text)) or ""
    except KafkaError:
        return text


def describe_broker_configs(
    config: BrokerConfig, running: Mapping[str, str] = MappingProxyType({}), *, zookeeper_silence_ms: int | None = None
) -> list[DescribedConfig]:
    """Describes every key of the broker, the configured ones of single listeners, and, without their values, configured
    keys that plog does not know. Passwords have no values either.

    `running`: values in use in place of the static configuration. `zookeeper_silence_ms` is reported by the name
    `ZOOKEEPER_SILENCE`, unless it is None.
    """
    given = {name: source for values, source in _dynamic_layers(config) for name in values if name not in BROKER_CONFIG}
    described = [
        DescribedConfig(name, None, True, source, True, [Synonym(name, None, source)], documentation=None)
        for name, source in given.items()
        if find_broker_key(name) is None
    ]
    if zookeeper_silence_ms is not None:
        doc = "How long the broker has been without a connection to ZooKeeper, ms; 0 while it has one."
        described.append(_told(ZOOKEEPER_SILENCE, str(zookeeper_silence_ms), ConfigType.LONG, doc))
    of_listeners = (find_broker_key(name) for name in {**config.static, **given} if name not in BROKER_CONFIG)
    for key in chain(filter(None, of_listeners), BROKER_CONFIG):
        synonyms = broker_synonyms(config, key.name)
        if key.name in running:
            others = [synonym for synonym in synonyms if synonym.source is not ConfigSource.STATIC_BROKER_CONFIG]
            synonyms = [Synonym(key.name, running[key.name], ConfigSource.STATIC_BROKER_CONFIG), *others]
        value = running.get(key.name, value_text(config[key.name]))
        is_read_only = not key.is_dynamic or key.name not in BROKER_CONFIG
        described.append(described_key(key, value, synonyms, is_read_only=is_read_only))
    return described


def describe_broker_defaults(config: BrokerConfig) -> list[DescribedConfig]:
    """Describes the dynamic settings of all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        described_key(BROKER_CONFIG[name], text, [Synonym(name, text, source)])
        for name, text in config.dynamic_defaults.items()
        if name in BROKER_CONFIG and not is_secret_config(ConfigResourceType.BROKER, name)
    ]


def _dynamic_layers(config: BrokerConfig) -> list[tuple[Mapping[str, str], ConfigSource]]:
    return [
        (config.dynamic_defaults, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
    ]


def broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """Returns every source that sets a key of the broker, the one in force first; for a key of a single listener, its
    own sources before those of the key for all. Passwords have no values.
    """
    synonyms = [Synonym(name, v[name], source) for v, source in reversed(_dynamic_layers(config)) if name in v]
    if name in config.static:
        synonyms.append(Synonym(name, value_text(config.static[name]), ConfigSource.STATIC_BROKER_CONFIG))
    plain = plain_name(name)
    key = BROKER_CONFIG[plain]
    if plain != name:
        synonyms += broker_synonyms(config, plain)
    elif key.default is not None:
        synonyms.append(Synonym(name, value_text(key.default), ConfigSource.DEFAULT_CONFIG))
    return [Synonym(one.name, None, one.source) for one in synonyms] if key.type is ConfigType.PASSWORD else synonyms
