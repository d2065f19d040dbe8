"""The resources that can be configured while the broker runs: topics, the broker, groups, client metrics, loggers.

Each kind of resource has its keys, the sources of their values, and its checks. The settings are in the metadata log as
Kafka's ConfigRecords, except the levels of loggers, which last as long as the process. Refusals have Kafka's texts
(kafka.server.ConfigAdminManager, org.apache.kafka.controller.ConfigurationControlManager).

A change is answered when it is written; a cluster's settings are written in ZooKeeper.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

from core.broker.config.broker_settings import BROKER_CONFIG, LISTENER_PREFIX, find_broker_key, plain_name
from core.broker.config.config_sources import (
    broker_synonyms,
    describe_broker_configs,
    describe_broker_defaults,
    describe_topic_configs,
    described_key,
    is_secret_config,
)
from core.broker.config.group_configs import GROUP_CONFIG, GROUP_DEFAULTS, broker_key, ensure_valid_group_configs
from core.broker.config.security_requirements import find_guards
from core.broker.requests.services import Services
from core.common.config_def import ConfigDef, ConfigKey, ConfigResourceType, ConfigSource, ConfigType, kept, value_text
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.pending import Pending
from core.common.regular_expression import matching
from core.common.topic_partition import ensure_valid_topic_name
from core.files.log_config import TOPIC_CONFIG, parse_topic_configs
from core.protocol.schema.configs import DescribeConfigsSynonym as Synonym
from core.protocol.schema.configs import DescribedConfig

T = TypeVar("T")

_log = logging.getLogger("plog.config")

_MOST_CHARACTERS = 32767
"""Of a value, as in Kafka (KAFKA-18020): a rule or the users of a listener could keep the broker busy for minutes."""

Overrides = Mapping[str, str | None]
"""Key -> its new value; None removes it."""


class ConfigResource(ABC):
    """One resource of a kind; it need not exist."""

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self._name = name

    @classmethod
    @abstractmethod
    def names(cls, services: Services) -> Iterable[str]:
        """Returns the names of the resources of this kind that ListConfigResources lists."""

    @abstractmethod
    def describe(self) -> list[DescribedConfig]:
        """Raises KafkaError if there is no such resource."""

    @abstractmethod
    def overrides(self) -> Mapping[str, str]:
        """Returns the settings of the resource itself. Raises KafkaError if it can't be configured."""

    @abstractmethod
    def alter(self, changes: Overrides, *, validate_only: bool) -> Pending[KafkaError | None] | None:
        """Sets them, and returns what `BrokerMetadata.set_configs` returns. Raises KafkaError, with nothing changed, if
        the resulting settings are not valid.
        """

    @abstractmethod
    def elements(self, key: str, operation: str) -> list[str]:
        """Returns a list's elements for `operation`, APPEND or SUBTRACT. Raises KafkaError if the value is no list."""


class _StoredConfigs(ConfigResource):
    """A kind of resource whose settings are in the metadata log."""

    resource_type: ClassVar[int]
    keys: ClassVar[ConfigDef]
    nameless: ClassVar[str]
    """Kafka's refusal of a change to a resource without a name."""

    @classmethod
    def names(cls, services: Services) -> Iterable[str]:
        return [name for type_, name in services.image.configs if type_ == cls.resource_type]

    @property
    def _stored(self) -> Mapping[str, str]:
        return self._services.image.configs.get((self.resource_type, self._name), {})

    def overrides(self) -> Mapping[str, str]:
        self._ensure_configurable()
        return self._stored

    def alter(self, changes: Overrides, *, validate_only: bool) -> Pending[KafkaError | None] | None:
        if any(len(value or "") > _MOST_CHARACTERS for value in changes.values()):
            why = f"it exceeds the maximum value size of {_MOST_CHARACTERS} bytes."
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"The configuration value cannot be added because {why}")
        after = {key: value for key, value in {**self.overrides(), **changes}.items() if value is not None}
        self._ensure_valid(after)
        self._ensure_usable(changes, after)
        if validate_only:
            return None
        writing = self._services.configs.set(self.resource_type, self._name, changes)
        self._services.configs.log_kept_only(self.keys, (key for key in changes if changes[key] is not None))
        return writing

    def elements(self, key: str, operation: str) -> list[str]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {operation} to key {key} because its type is not LIST.")

    def _changed(self, after: Mapping[str, str]) -> dict[str, str]:
        """Leaves out unchanged settings: another version of Kafka may have set values that plog would refuse."""
        return {key: value for key, value in after.items() if value != self._stored.get(key)}

    def _ensure_configurable(self) -> None:
        """Raises KafkaError if no resource can have that name."""
        if not self._name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, self.nameless)

    @abstractmethod
    def _ensure_valid(self, after: Mapping[str, str]) -> None:
        """Raises KafkaError for settings that contradict each other, then if the resource does not exist."""

    def _ensure_usable(self, changes: Overrides, after: Mapping[str, str]) -> None:
        """Raises KafkaError if the valid settings of `after` can't be obeyed."""


def _split(text: str | None) -> list[str]:
    return [part for part in (text or "").split(",") if part]


class TopicConfigs(_StoredConfigs):
    resource_type = ConfigResourceType.TOPIC
    keys = TOPIC_CONFIG
    nameless = "Default topic resources are not allowed."

    @classmethod
    def names(cls, services: Services) -> Iterable[str]:
        return services.image.topics

    def describe(self) -> list[DescribedConfig]:
        ensure_valid_topic_name(self._name)
        topic = self._services.image.topics.get(self._name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        losses = self._services.losses
        return describe_topic_configs(
            self._services.config, self._stored, losses.gaps_of(topic), losses.doubts_of(topic)
        )

    def elements(self, key: str, operation: str) -> list[str]:
        if TOPIC_CONFIG[key].type is not ConfigType.LIST:
            return super().elements(key, operation)
        present = self._stored.get(key)
        return _split(value_text(self._services.config.topic_default(key)) if present is None else present)

    def _ensure_configurable(self) -> None:
        super()._ensure_configurable()
        ensure_valid_topic_name(self._name)

    def _ensure_valid(self, after: Mapping[str, str]) -> None:
        parse_topic_configs(after, is_kafka_3=self._services.membership is not None)
        if self._name not in self._services.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{self._name}' does not exist.")


_STORES = ("ssl.keystore.", "ssl.key.", "ssl.certificate.", "ssl.truststore.")
"""What the names of settings of certificates and keys begin with."""


class BrokerConfigs(_StoredConfigs):
    """The settings of this broker, by its id, or of all brokers, by the empty name."""

    resource_type = ConfigResourceType.BROKER
    keys = BROKER_CONFIG

    @classmethod
    def names(cls, services: Services) -> Iterable[str]:
        return [str(services.node.node_id)]

    def describe(self) -> list[DescribedConfig]:
        if self._name == "":
            return describe_broker_defaults(self._services.config)
        expected = f"expected {self._services.node.node_id} or empty string, but"
        _ensure_this_broker(self._services, self._name, "Broker id", expected)
        membership = self._services.membership
        return describe_broker_configs(
            self._services.config,
            self._running(),
            zookeeper_silence_ms=None if membership is None else membership.control.zookeeper.silence_ms,
        )

    def _running(self) -> dict[str, str]:
        """Returns the values that the command line, or the data directory, puts in place of the server's properties."""
        services, config = self._services, self._services.config
        running = dict.fromkeys(("node.id", "broker.id"), str(services.node.node_id))
        running |= dict.fromkeys(("log.dirs", "log.dir"), str(services.node.directory))
        if services.node.endpoint is not None:
            bound = services.node.endpoints or {config.main_listener: services.node.endpoint}
            listeners = ",".join(f"{name}://{endpoint}" for name, endpoint in bound.items())
            if {one.name: one.endpoint for one in config.served_listeners} != bound:
                running["listeners"] = listeners
            if all(config.find_advertised(name) is None for name in bound):
                running["advertised.listeners"] = listeners
        return running

    def elements(self, key: str, operation: str) -> list[str]:
        if key not in BROKER_CONFIG or BROKER_CONFIG[key].type is not ConfigType.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Config value {operation.lower()} is not allowed for config key: {key}"
            )
        present = self._stored.get(key)
        return _split(value_text(self._services.config[key]) if present is None else present)

    def _ensure_usable(self, changes: Overrides, after: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_REQUEST) if the settings of listeners, their certificates or trust stores could not
        be used, or may not replace the present ones; also for settings with the values that they have: the files may be
        others.
        """
        of_listeners = [key for key in changes if key.startswith(LISTENER_PREFIX)]
        if not of_listeners:
            return
        from core.broker.config.listener_security import find_unused_settings

        config = self._services.config
        changed = config.with_dynamic(config.dynamic_defaults, after)
        try:
            for ensure_usable in self._services.configs.checks:
                ensure_usable(changed)
        except UsageError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid dynamic configuration: {error.message}") from None
        for key, why in find_unused_settings(changed, of_listeners).items():
            _log.warning("%s changes nothing: %s; it is kept", key, why)

    def _ensure_configurable(self) -> None:
        if self._name != "":
            _ensure_this_broker(self._services, self._name, "Node id", f"expected {self._services.node.node_id}, but")

    def _ensure_valid(self, after: Mapping[str, str]) -> None:
        changed = self._changed(after)
        fixed = [key for key in changed if key in BROKER_CONFIG and not BROKER_CONFIG[key].is_dynamic]
        if fixed:
            raise _refused("Cannot update these configs dynamically", fixed)
        guards = find_guards(self._services.config, changed)
        if guards:  # the broker would have to leave its cluster, or could not be started again
            keys = ", ".join(f"{key} ({why})" for key, why in guards.items())
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"plog can't obey {keys}")
        for key, value in changed.items():
            known = find_broker_key(key)
            if known is None:
                _log.warning("%s is not known to plog and changes nothing; it is kept", key)
                continue
            try:
                known.parse(value)
            except KafkaError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
        self._ensure_of_one_listener(changed)
        for key in changed.keys() & THREAD_COUNTS:
            self._ensure_near_present_threads(key, changed[key])

    def _ensure_of_one_listener(self, changed: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_REQUEST), in Kafka's words, for settings of all listeners, and for those of one
        listener among the defaults of all brokers (kafka.server.DynamicBrokerConfig).
        """
        of_all = [key for key in changed if key.startswith(("ssl.", "sasl."))]
        stores = [key for key in of_all if key.startswith(_STORES)]
        of_one = [key for key in changed if plain_name(key) != key and find_broker_key(key) is not None]
        if stores:
            what = "These security configs can be dynamically updated only per-listener using the listener prefix"
            raise _refused(what, stores)
        if self._name == "" and (of_all or of_one):
            what = "Cannot update these configs at default cluster level, broker id must be specified"
            raise _refused(what, of_all + of_one)
        if of_all and not all(one.is_plaintext for one in self._services.config.served_listeners):
            raise _refused("Configs cannot be updated dynamically for existing listeners, restart broker", of_all)
        passwords = [key for key in of_one if is_secret_config(self.resource_type, key)]
        if passwords and self._services.membership is not None:
            raise _refused("a member of a cluster keeps no password in ZooKeeper", passwords)

    def _ensure_near_present_threads(self, key: str, text: str) -> None:
        """Raises KafkaError(INVALID_REQUEST) if a number of threads would more than double, or fall below half
        (kafka.server.DynamicThreadPool).
        """
        config = self._services.config
        known = value_text(config[key]) if key in BROKER_CONFIG else self._stored.get(key) or config.unknown.get(key)
        present = int(known) if known and known.isdecimal() else THREAD_COUNTS[key]
        wanted = int(text) if text.strip().isdecimal() else 0
        if not max(1, present // 2) <= wanted <= 2 * present:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Dynamic thread count update validation failed for {key}: {text} should be at least half and at "
                f"most double the current value {present}",
            )


def _refused(what: str, keys: Sequence[str]) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{what}: [{', '.join(keys)}]")


THREAD_COUNTS: Mapping[str, int] = {
    "background.threads": 10,
    "log.cleaner.threads": 1,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 2,
    "num.replica.fetchers": 1,
}
"""Kafka's dynamic thread counts, with its defaults."""


def _ensure_this_broker(services: Services, name: str, what: str, expected: str) -> None:
    if not name.removeprefix("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}")
    if name != str(services.node.node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {expected} received {name}")


class GroupConfigs(_StoredConfigs):
    """The settings of a group, whether it exists or not."""

    resource_type = ConfigResourceType.GROUP
    keys = GROUP_CONFIG
    nameless = "Default group resources are not allowed."

    def describe(self) -> list[DescribedConfig]:
        if not self._name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return [
            _described(key, self._stored.get(key.name), ConfigSource.GROUP_CONFIG, self._fallbacks(key))
            for key in GROUP_CONFIG
        ]

    def _fallbacks(self, key: ConfigKey) -> list[Synonym]:
        if key.name in GROUP_DEFAULTS:
            return broker_synonyms(self._services.config, GROUP_DEFAULTS[key.name].key.name)
        return [Synonym(broker_key(key.name), value_text(key.default), ConfigSource.DEFAULT_CONFIG)]

    def _ensure_valid(self, after: Mapping[str, str]) -> None:
        ensure_valid_group_configs(self._changed(after), self._services.config)


_METRICS_INTERVAL_MS = range(100, 3_600_001)
_CLIENT_ATTRIBUTES = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
)  # fmt: skip

CLIENT_METRICS_CONFIG = ConfigDef(
    "client metrics",
    [
        kept("interval.ms", ConfigType.INT, 300_000, "How often clients push their metrics, ms."),
        kept("match", ConfigType.LIST, [], "The clients that push them: attribute=regular expression, ..."),
        kept("metrics", ConfigType.LIST, [], "The metrics that clients push, by the beginnings of their names."),
    ],
)
"""The keys of a subscription of KIP-714. As in a Kafka without a plugin for them, no client is asked."""


class ClientMetricsConfigs(_StoredConfigs):
    resource_type = ConfigResourceType.CLIENT_METRICS
    keys = CLIENT_METRICS_CONFIG
    nameless = "Subscription name can't be empty"

    def describe(self) -> list[DescribedConfig]:
        if not self._name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return [
            _described(key, self._stored.get(key.name), ConfigSource.CLIENT_METRICS_CONFIG, [])
            for key in CLIENT_METRICS_CONFIG
        ]

    def _ensure_valid(self, after: Mapping[str, str]) -> None:
        for key, value in self._changed(after).items():
            if key not in CLIENT_METRICS_CONFIG:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
            parsed = CLIENT_METRICS_CONFIG[key].parse(value)
            if isinstance(parsed, int) and parsed not in _METRICS_INTERVAL_MS:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)",
                )
            if key == "match" and isinstance(parsed, list):
                for pattern in parsed:
                    _ensure_client_pattern(pattern)


def _ensure_client_pattern(text: str) -> None:
    attribute, separator, pattern = text.partition("=")
    try:
        if not separator or attribute.strip() not in _CLIENT_ATTRIBUTES:
            raise ValueError
        matching(pattern.strip(), [])
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}") from None


def _described(key: ConfigKey, own: str | None, source: ConfigSource, fallbacks: list[Synonym]) -> DescribedConfig:
    synonyms = ([Synonym(key.name, own, source)] if own is not None else []) + fallbacks
    value = synonyms[0].value if synonyms else value_text(key.default)
    return described_key(key, value, synonyms)


_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_ROOT = "root"


class BrokerLoggers(ConfigResource):
    """The levels of this process's loggers (KIP-412); not stored."""

    @classmethod
    def names(cls, services: Services) -> Iterable[str]:
        return [str(services.node.node_id)]

    def describe(self) -> list[DescribedConfig]:
        if not self._name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _ensure_this_broker(self._services, self._name, "Broker id", f"expected {self._services.node.node_id} but")
        source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
        return [
            DescribedConfig(logger, level, False, source, config_type=ConfigType.UNKNOWN, documentation=None)
            for logger, level in self._levels().items()
        ]

    def overrides(self) -> Mapping[str, str]:
        if not self._name.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {self._name}")
        if self._name != str(self._services.node.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected node id. Expected {self._services.node.node_id}, but received {self._name}",
            )
        return {}

    def alter(self, changes: Overrides, *, validate_only: bool) -> None:
        loggers = self._levels()
        for logger, level in changes.items():
            if logger not in loggers:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist!")
            if level is None and logger == _ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
            if level is not None and level.upper() not in _LEVELS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
                    f"Valid log levels are {', '.join(_LEVELS)}",
                )
        if not validate_only:
            for logger, level in changes.items():
                _logger(logger).setLevel(logging.NOTSET if level is None else _LEVELS[level.upper()])

    def elements(self, key: str, operation: str) -> list[str]:  # noqa: ARG002 - none of them is a list
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{operation} operation is not allowed for the BROKER_LOGGER resource"
        )

    def _levels(self) -> dict[str, str]:
        names = [_ROOT, "plog", *sorted(n for n in logging.root.manager.loggerDict if n.startswith("plog."))]
        texts = {number: text for text, number in _LEVELS.items()}
        return {name: texts.get(_logger(name).getEffectiveLevel(), "INFO") for name in names}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)


CONFIG_RESOURCES: Mapping[int, type[ConfigResource]] = {
    ConfigResourceType.TOPIC: TopicConfigs,
    ConfigResourceType.BROKER: BrokerConfigs,
    ConfigResourceType.BROKER_LOGGER: BrokerLoggers,
    ConfigResourceType.CLIENT_METRICS: ClientMetricsConfigs,
    ConfigResourceType.GROUP: GroupConfigs,
}
"""The kinds by the numbers of org.apache.kafka.common.config.ConfigResource.Type."""


def find_config_resource(services: Services, resource_type: int, name: str) -> ConfigResource:
    """Returns the resource. Raises KafkaError(INVALID_REQUEST) for an unknown type."""
    kind = CONFIG_RESOURCES.get(resource_type)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    return kind(services, name)
