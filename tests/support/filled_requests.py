"""Requests to any API in any version, made of its schema: a new API needs no line here."""

from __future__ import annotations

from typing import Any, NamedTuple

from core.protocol.message import Api, Field, schema_of
from tests.support.logs import make_batch

NO_ID = bytes(16)
BATCH = bytes(make_batch(b"v").buffer)

USUAL: Any = object()
"""Stands for the name, the id or the default."""
_BY_NAME_OR_ID = {"name": [USUAL, None], "topic_id": [NO_ID, USUAL]}
_VALUES: dict[str, dict[str, list[Any]]] = {
    "AddPartitionsToTxn": {"verify_only": [True]},
    "AlterConfigs": {"resource_type": [2, 4, 16, 32]},
    "ConsumerGroupHeartbeat": {"subscribed_topic_regex": [None]},
    "CreateTopics": {"num_partitions": [1], "replication_factor": [1], "assignments": [[]], "configs": [[]]},
    "DeleteTopics": _BY_NAME_OR_ID,
    "DescribeConfigs": {"resource_type": [2, 4, 8, 16, 32]},
    "Fetch": {"replica_id": [-1, 5], "max_wait_ms": [500], "min_bytes": [1]},
    "FindCoordinator": {"key_type": [0, 1, 2]},
    "IncrementalAlterConfigs": {"resource_type": [2, 4, 16, 32]},
    "InitProducerId": {"transactional_id": [USUAL, None]},
    "Metadata": {**_BY_NAME_OR_ID, "allow_auto_topic_creation": [True]},
    "OffsetForLeaderEpoch": {"replica_id": [-1, 5]},
    "Produce": {"acks": [-1], "transactional_id": [USUAL, None]},
}
"""What a field holds in turn, where the usual value makes no sense, or one value alone does not ask for all rights."""

_GROUPS = {"group_id", "group_ids", "groups", "groups_names"}
_TRANSACTIONS = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
_TOPICS = {"name", "topic", "topic_name"}


class Names(NamedTuple):
    """What a request is about. A text that is none of these has the name of the first topic."""

    topics: tuple[str, ...]
    group: str
    transactional_id: str
    topic_id: bytes = NO_ID


def requests_to(api: Api[Any, Any], version: int, names: Names) -> list[Any]:
    """Returns requests about these, and one with empty lists, which may be about everything."""
    return [*named_requests(api, version, names), *general_requests(api, version, names)]


def named_requests(api: Api[Any, Any], version: int, names: Names) -> list[Any]:
    return [_filled(api.request, version, names, chosen) for chosen in _choices(api)]


def general_requests(api: Api[Any, Any], version: int, names: Names) -> list[Any]:
    """Returns none if the API has no list."""
    lists = [field for field in schema_of(api.request).fields if field.kind == "array" and version in field.versions]
    empty = {field.name: None if version in field.nullable else [] for field in lists}
    return [_filled(api.request, version, names, {**_choices(api)[0], **empty})] if lists else []


def _choices(api: Api[Any, Any]) -> list[dict[str, Any]]:
    values = _VALUES.get(api.name, {})
    count = max((len(choices) for choices in values.values()), default=1)
    return [{field: choices[number % len(choices)] for field, choices in values.items()} for number in range(count)]


def _filled(cls: type, version: int, names: Names, chosen: dict[str, Any]) -> Any:
    """Returns the message with an element in each list, one for each topic in a list of topics."""

    def value_of(field: Field) -> Any:
        value = chosen.get(field.name, USUAL)
        if value is not USUAL and (value is not None or version in field.nullable):
            return value
        if field.kind != "array":
            return one_of(field, field.kind, names)
        topics = names.topics if _is_of_topics(field) else names.topics[:1]
        return [one_of(field, str(field.element), names._replace(topics=(topic,))) for topic in topics]

    def one_of(field: Field, kind: str, about: Names) -> Any:
        if isinstance(field.element, type):
            return _filled(field.element, version, about, chosen)
        texts = {field.name: about.topics[0]}
        texts |= dict.fromkeys(_GROUPS, about.group) | dict.fromkeys(_TRANSACTIONS, about.transactional_id)
        text = texts[field.name]
        default = 0 if field.kind == "array" else field.default
        return {"string": text, "uuid": about.topic_id, "bytes": text.encode(), "records": BATCH}.get(kind, default)

    return cls(**{field.name: value_of(field) for field in schema_of(cls).fields if version in field.versions})


def _is_of_topics(field: Field) -> bool:
    return isinstance(field.element, type) and not _TOPICS.isdisjoint(f.name for f in schema_of(field.element).fields)
