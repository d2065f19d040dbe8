"""Topic names, partitions and topic ids.

A topic id is 16 bytes, written as Kafka writes it: URL-safe base64 without padding, 22 characters
(org.apache.kafka.common.Uuid).
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

T = TypeVar("T")

ZERO_UUID = bytes(16)
"""No topic id: partitions of old formats and sessions without ids have it."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that brokers write themselves (org.apache.kafka.common.internals.Topic)."""

_METADATA_TOPIC_ID = bytes(15) + b"\x01"
_RESERVED_UUIDS = frozenset({ZERO_UUID, _METADATA_TOPIC_ID, bytes(15) + b"\x02"})
_MAX_TOPIC_NAME_LENGTH = 249
_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(entries: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[T]]:
    """Groups the entries of partitions by topic, as requests and answers have them."""
    found: dict[str, list[T]] = {}
    for partition, entry in entries:
        found.setdefault(partition.topic, []).append(entry)
    return found


class _OfPartition(Protocol):
    @property
    def partition_index(self) -> int: ...


P = TypeVar("P", bound=_OfPartition)
P_co = TypeVar("P_co", bound=_OfPartition, covariant=True)


class _OfTopic(Protocol[P_co]):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[P_co]: ...


def by_partition(topics: Iterable[_OfTopic[P]]) -> Iterator[tuple[TopicPartition, P]]:
    """Yields the entries of partitions that requests and answers have by topic."""
    for topic in topics:
        for entry in topic.partitions:
            yield TopicPartition(topic.name, entry.partition_index), entry


def ensure_valid_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) as org.apache.kafka.common.internals.Topic.validate does."""
    if not name:
        problem = "a topic name may not be empty"
    elif name in (".", ".."):
        problem = f"topic name {name!r} is invalid: '.' and '..' are directories"
    elif len(name) > _MAX_TOPIC_NAME_LENGTH:
        problem = f"topic name of {len(name)} characters is invalid: at most {_MAX_TOPIC_NAME_LENGTH} are allowed"
    elif not _LEGAL_TOPIC_NAME.fullmatch(name):
        problem = f"topic name {name!r} is invalid: only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_valid_topic_name(name: str) -> bool:
    try:
        ensure_valid_topic_name(name)
    except KafkaError:
        return False
    return True


def name_in_metrics(name: str) -> str:
    """Returns the topic's name in Kafka's metrics, where '.' and '_' are the same. No two topics may share it."""
    return name.replace(".", "_")


def random_uuid() -> bytes:
    """Makes a new random id: version 4, never one of Kafka's reserved ids, text never starting with '-'."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = bytes(raw)
        if uuid not in _RESERVED_UUIDS and not uuid_text(uuid).startswith("-"):
            return uuid


def uuid_text(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> bytes:
    """Reads the 16 bytes of an id in Kafka's text form; raises ValueError if it is not one."""
    if len(text) > 24 or not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise ValueError(f"not a Kafka uuid: {text!r}")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"not a Kafka uuid: {text!r} holds {len(raw)} bytes, expected 16")
    return raw
