"""Configuration as Kafka has it: tables of keys, each with a type, a default, a validator and a line of documentation.

One table a scope feeds server.properties, `--set key=value`, DescribeConfigs and the docs. Values travel as text and
are parsed by the key's type; what a message says about a bad one is what Kafka says
(org.apache.kafka.common.config.ConfigDef).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.printable import did_you_mean

Value = bool | int | float | str | list[str] | None
Validator = Callable[[Value], str | None]
"""Returns the problem of a parsed value, or None."""


KEPT_ONLY = "plog keeps this setting and does not act on it."
"""The last sentence of the text of a key without effect."""

ZOOKEEPER_SILENCE = "plog.zookeeper.silence.ms"
"""The key in a broker's DescribeConfigs that reports for how long ZooKeeper has been away."""

HIDDEN = "[hidden]"
"""Replaces a secret in output; Kafka's word."""


class ConfigType(IntEnum):
    """Numbers as DescribeConfigs reports them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigResourceType(IntEnum):
    """The type of a resource with settings: the numbers of org.apache.kafka.common.config.ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from: the numbers of
    org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource.
    """

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


_REPLICA = re.compile("[0-9]+:[0-9]+")
_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """`default` is a parsed value. `is_dynamic`: may change while the broker runs. `is_kept_only`: it is checked, kept
    and shown, so that tools that set it work, and it changes nothing.
    """

    name: str
    type: ConfigType
    default: Value
    doc: str
    validator: Validator | None = None
    is_dynamic: bool = False
    is_kept_only: bool = False

    @property
    def full_doc(self) -> str:
        """Returns the text that people read about the key."""
        return f"{self.doc} {KEPT_ONLY}" if self.is_kept_only else self.doc

    def parse(self, text: str | None) -> Value:
        """Parses a value. Raises KafkaError(INVALID_CONFIG) with Kafka's message if the text is invalid."""
        if text is None:
            if self.default is None:
                return None
            raise self._invalid(text, "value must be non-null")
        value = self._parse_type(text.strip())
        problem = self.validator(value) if self.validator else None
        if problem:
            raise self._invalid(text, problem)
        return value

    def _parse_type(self, text: str) -> Value:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._invalid(text, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                bits = _INTEGER_BITS[self.type]
                try:
                    number = int(text)
                except ValueError:
                    number = 1 << bits
                if not -(1 << bits - 1) <= number < 1 << bits - 1:
                    raise self._invalid(text, f"Not a number of type {self.type.name}")
                return number
            case ConfigType.DOUBLE:
                try:
                    return float(text)
                except ValueError:
                    raise self._invalid(text, "Not a number of type DOUBLE") from None
            case ConfigType.LIST:
                return [part.strip() for part in text.split(",")] if text else []
        return text

    def _invalid(self, text: str | None, problem: str) -> KafkaError:
        shown = "null" if text is None else HIDDEN if self.type is ConfigType.PASSWORD else text
        return KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {shown} for configuration {self.name}: {problem}")


kept = partial(ConfigKey, is_kept_only=True)
"""Makes the key of a setting that is kept, and changes nothing."""


class ConfigDef:
    """The keys of one scope, in order; immutable."""

    def __init__(self, scope: str, keys: Iterable[ConfigKey]) -> None:
        self.scope = scope
        self._keys = {key.name: key for key in keys}

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        """Finds the key; raises KafkaError(INVALID_CONFIG) for a name that the scope does not have."""
        try:
            return self._keys[name]
        except KeyError:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Unknown {self.scope} config name: {name}",
                hint=did_you_mean(name, self._keys),
            ) from None

    def find(self, name: str) -> ConfigKey | None:
        return self._keys.get(name)

    def kept_only(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self._keys and self._keys[name].is_kept_only]


def value_text(value: Value) -> str | None:
    """Formats a parsed value as Kafka does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    return None if value is None else str(value)


def at_least(minimum: float) -> Validator:
    return lambda value: (
        f"Value must be at least {minimum}" if isinstance(value, int | float) and value < minimum else None
    )


def between(minimum: float, maximum: float) -> Validator:
    def check(value: Value) -> str | None:
        if isinstance(value, int | float) and value > maximum:
            return f"Value must be no more than {maximum}"
        return at_least(minimum)(value)

    return check


def one_of(*choices: str) -> Validator:
    return lambda value: None if value in choices else f"String must be one of: {', '.join(choices)}"


def throttled_replicas(value: Value) -> str | None:
    """Checks a list of replicas, `partition:broker` each, or `*` alone
    (org.apache.kafka.server.config.ThrottledReplicaListValidator).
    """
    assert isinstance(value, list)
    if value == ["*"] or all(_REPLICA.fullmatch(replica) for replica in value):
        return None
    return "Must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],..."


def each_of(*choices: str) -> Validator:
    """Checks a list whose elements are all among the choices. It may be empty, and name one twice, as in Kafka 4.4."""

    def check(value: Value) -> str | None:
        assert isinstance(value, list)
        return next((one_of(*choices)(v) for v in value if v not in choices), None)

    return check
