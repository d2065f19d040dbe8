"""The quotas of users, clients and addresses, as a cluster keeps them in ZooKeeper or a metadata log (KIP-13, KIP-546).

plog keeps and shows them, for Kafka's brokers of the cluster, which enforce them; it does not throttle its own clients.
In ZooKeeper they are in the same nodes as the credentials of users: only the keys known here are read.

Source: kafka.server.ZkAdminManager of Kafka 3.9, org.apache.kafka.server.config.QuotaConfig.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from core.cluster.image.security_image import SecurityImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.zookeeper.znodes import DEFAULT_ENTITY, ConfigEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types in an entity's name: it is a user, a client, a client of a user, or an address."""

Named = Mapping[str, str | None]
"""An entity by its types; None stands for all without quotas of their own."""

_OF_CLIENTS = {
    "producer_byte_rate": int,
    "consumer_byte_rate": int,
    "request_percentage": float,
    "controller_mutation_rate": float,
}
_OF_ADDRESSES = {"connection_creation_rate": int}

_LONGEST_NAME = 10_000
"""ZooKeeper closes the connection of a client that sends a megabyte, which would cost the broker its registration."""

WriteSettings = Callable[[ConfigEntity, Mapping[str, str | None]], Pending[KafkaError | None]]


class MatchType:
    """How a filter matches the name of one type: the name itself, the default, or any of them."""

    EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class Filter(NamedTuple):
    """The condition of a filter on one type."""

    match_type: int
    name: str | None

    def matches(self, name: str | None) -> bool:
        if self.match_type == MatchType.EXACT:
            return name is not None and name == self.name
        return name is None if self.match_type == MatchType.DEFAULT else True


class FoundQuotas(NamedTuple):
    """An entity by its types, and its quotas."""

    named: dict[str, str | None]
    quotas: dict[str, float]


class ClientQuotas:
    """Owned by the broker's loop."""

    def __init__(self, write: WriteSettings) -> None:
        self._write = write
        self._known: dict[ConfigEntity, dict[str, float]] = {}

    def take(self, entity: ConfigEntity, settings: Mapping[str, str]) -> None:
        """Notes the present settings of an entity. A value that is not a number is no quota."""
        quotas = dict(_quotas_in(_keys_of(entity), settings))
        if quotas:
            self._known[entity] = quotas
        else:
            self._known.pop(entity, None)

    @property
    def count(self) -> int:
        """The number of quotas of all entities."""
        return sum(map(len, self._known.values()))

    def all(self) -> Iterator[FoundQuotas]:
        for entity, quotas in self._known.items():
            yield FoundQuotas(_named(entity), dict(quotas))

    def alter(
        self, named: Named, changes: Mapping[str, float | None], *, validate_only: bool
    ) -> Pending[KafkaError | None] | None:
        """Sets quotas, or removes those with None. Returns a Pending to wait for, or None. Raises
        KafkaError(INVALID_REQUEST) for an invalid entity or quota.
        """
        entity = _entity_of(named)
        texts = {key: None if value is None else _text(_keys_of(entity), key, value) for key, value in changes.items()}
        for key in texts:
            _kind_of(_keys_of(entity), key)
        return None if validate_only else self._write(entity, texts)


def quotas_in_image(image: SecurityImage) -> list[FoundQuotas]:
    """Returns the quotas in the metadata log."""
    found: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}
    for (entity, key), record in image.client_quotas.items():
        found.setdefault(entity, {})[key] = record.value
    return [FoundQuotas(dict(entity), quotas) for entity, quotas in found.items()]


def ensure_filters(filters: Sequence[tuple[str, Filter]]) -> None:
    """Raises KafkaError: UNSUPPORTED_VERSION for a type that Kafka does not know, INVALID_REQUEST for filters that
    nothing could match.
    """
    kinds = Counter(kind for kind, _ in filters)
    for kind, one in filters:
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter has an empty entity type")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {kind}")
        if one.match_type not in (MatchType.EXACT, MatchType.DEFAULT, MatchType.SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match type {one.match_type}")
        if (one.name is None) == (one.match_type == MatchType.EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an exact match has a name, and no other one has")
        if kinds[kind] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the entity type {kind} has several filters")
    if IP in kinds and len(filters) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address is of no user or client")


def find_quotas(known: Iterable[FoundQuotas], filters: Mapping[str, Filter], *, is_strict: bool) -> list[FoundQuotas]:
    """Returns the entities for which each filter matches a name; with `is_strict` only those without other types."""
    return [
        one
        for one in known
        if filters.keys() <= one.named.keys()
        and (not is_strict or len(one.named) == len(filters))
        and all(wanted.matches(one.named[kind]) for kind, wanted in filters.items())
    ]


def _quotas_in(keys: Mapping[str, type], settings: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for key, text in settings.items():
        if key in keys:
            try:
                yield key, float(text)
            except ValueError:
                continue


def _keys_of(entity: ConfigEntity) -> Mapping[str, type]:
    return _OF_ADDRESSES if entity.kind == "ips" else _OF_CLIENTS


def _kind_of(keys: Mapping[str, type], key: str) -> type:
    kind = keys.get(key)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    return kind


def _text(keys: Mapping[str, type], key: str, value: float) -> str:
    kind = _kind_of(keys, key)
    if not math.isfinite(value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a number, and is {value}")
    if kind is float:
        return str(value)
    if value != int(value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {key} must be a Long value")
    return str(int(value))


def _entity_of(named: Named) -> ConfigEntity:
    """Raises KafkaError(INVALID_REQUEST) for an invalid entity."""
    unknown = [kind for kind in named if kind not in (USER, CLIENT_ID, IP)]
    if unknown:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {unknown[0]}")
    if any(name == "" for name in named.values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Empty name of a client quota entity")
    for kind, name in named.items():
        if name is not None and not is_legal_name(kind, name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r:.100} can't be the {kind} of a client quota entity")
    names = {kind: DEFAULT_ENTITY if name is None else name for kind, name in named.items()}
    if names.keys() == {IP}:
        return ConfigEntity("ips", names[IP])
    if IP in names or not names:
        problem = "Invalid empty client quota entity" if not names else "Invalid quota entity combination"
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    if USER in names:
        return ConfigEntity("users", names[USER], names.get(CLIENT_ID))
    return ConfigEntity("clients", names[CLIENT_ID])


def is_legal_name(kind: str, name: str) -> bool:
    """Returns whether the name can be a ZooKeeper node's. Unlike a user, an address is not sanitised for that; it may
    be a host name.
    """
    if name in (".", "..") or len(name) > _LONGEST_NAME:
        return False
    return kind != IP or re.fullmatch(r"[A-Za-z0-9.:_-]+", name) is not None


def _named(entity: ConfigEntity) -> dict[str, str | None]:
    kind = {"users": USER, "clients": CLIENT_ID, "ips": IP}[entity.kind]
    names = {kind: entity.name} if entity.client is None else {kind: entity.name, CLIENT_ID: entity.client}
    return {one: None if name == DEFAULT_ENTITY else name for one, name in names.items()}
