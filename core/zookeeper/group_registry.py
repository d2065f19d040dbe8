"""Groups as Kafka had them before 0.9: registries in ZooKeeper, and the rule by which each consumer finds its share.

    /consumers/G/ids/C           a member of group G: a ConsumerNode; ephemeral, it goes with the consumer C
    /consumers/G/owners/T/P      which thread of which consumer reads partition P of topic T; ephemeral
    /consumers/G/offsets/T/P     the offset that the group reads next there, as decimal digits

There is no leader: every consumer sees the same registries, and computes the same division (`divide`). An owner's node
is the lock of its partition. Kreps, Narkhede and Rao describe this in 2011 ("Kafka: a Distributed Messaging System for
Log Processing"), and Kafka's consumers did so until 1.1. Here is no I/O; `registered_consumer.py` has that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.zookeeper.znodes import decode_node, encode_node, malformed, shown

CONSUMERS = "/consumers"
STATIC: Final = "static"
WHITE_LIST: Final = "white_list"
BLACK_LIST: Final = "black_list"
"""How a ConsumerNode names its topics: by name, by a pattern that they match, by one that they do not match."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
_NO_OFFSET = -1
_MOST_THREADS = 10_000
"""The most threads of one consumer that we accept."""


class RegisteredThread(NamedTuple):
    """A thread of a consumer, which owns partitions. plog's consumers have one, of number 0."""

    consumer_id: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.number}"

    @property
    def sort_key(self) -> bytes:
        """Java compares the UTF-16 of names, and all consumers must use the same order."""
        return str(self).encode("utf-16-be", "surrogatepass")


class ConsumerNode(Struct, frozen=True):
    """A consumer's number of threads by topic, or by the one pattern that stands for its topics."""

    subscription: dict[str, Annotated[int, Meta(ge=1, le=_MOST_THREADS)]]
    timestamp: Annotated[str, Meta(pattern=r"^-?[0-9]{1,19}\Z")] | int = "-1"
    """Milliseconds; Kafka 0.8.0 wrote a number, and later ones wrote a text."""
    pattern: Literal["static", "white_list", "black_list"] = STATIC

    def encode(self) -> bytes:
        return encode_node(self, 1)

    def threads(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the number of its threads for each of these topics that it reads. Patterns match no internal ones."""
        if self.pattern == STATIC:
            return {topic: self.subscription[topic] for topic in topics if topic in self.subscription}
        ((text, count),) = self.subscription.items()
        pattern, is_wanted = _compiled(text), self.pattern == WHITE_LIST
        return {
            topic: count
            for topic in topics
            if topic not in INTERNAL_TOPICS and (pattern.fullmatch(topic) is not None) == is_wanted
        }


def decode_consumer(data: bytes, path: str) -> ConsumerNode:
    """Raises MalformedMessageError for a node that is not of this form, or whose pattern is not supported."""
    node = decode_node(data, path, ConsumerNode, 1)
    if node.pattern != STATIC:
        if len(node.subscription) != 1:
            raise malformed(path, f"a {node.pattern} of {len(node.subscription)} patterns, expected one")
        (text,) = node.subscription
        try:
            _compiled(text)
        except re.error as error:
            raise malformed(path, f"{shown(text)} is no pattern that is understood here: {error}") from error
    return node


def _compiled(text: str) -> re.Pattern[str]:
    """Compiles a pattern as org.apache.kafka's old TopicFilter does: a comma separates alternatives."""
    return re.compile(text.strip().replace(",", "|").replace(" ", "").strip("\"'"))


def ensure_registrable_pattern(text: str) -> None:
    """Raises UsageError for a pattern that Kafka's consumers would interpret differently."""
    if re.search(r"[,\s\"']", text):
        raise UsageError(
            f"{text!r}: in a group of --zookeeper a pattern has no commas, spaces or quotes",
            hint="Kafka's old consumers take a comma for an alternative, and leave out the others; write a|b",
        )


# --- paths


def ensure_group_name(group: str) -> None:
    """Raises UsageError for an invalid node name, or a name that Kafka's consumers refuse."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", group) or group in (".", ".."):
        raise UsageError(
            f"group {group!r}: a group of --zookeeper is a node in ZooKeeper, named by ASCII letters, digits, '.', '_' "
            "and '-'",
            hint="choose another name; a group that the brokers keep (--bootstrap-server) may have any",
        )


def ids_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def owners_path(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}"


def offsets_path(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}"


def owner_path(group: str, partition: TopicPartition) -> str:
    return f"{owners_path(group, partition.topic)}/{partition.partition}"


def offset_path(group: str, partition: TopicPartition) -> str:
    return f"{offsets_path(group, partition.topic)}/{partition.partition}"


# --- offsets


def encode_offset(offset: int) -> bytes:
    return str(offset).encode()


def decode_offset(data: bytes, path: str) -> int | None:
    """Returns the offset, or None for Kafka's -1. Raises MalformedMessageError for anything but an offset."""
    if not re.fullmatch(rb"-?[0-9]{1,19}", data) or not _NO_OFFSET <= int(data) < 1 << 63:
        error = malformed(path, f"{shown(data)} is no offset, expected a number")
        error.hint = f"correct it, or delete it to begin at --from: ZooKeeper's zkCli.sh has 'set {path} OFFSET'"
        raise error
    return None if int(data) == _NO_OFFSET else int(data)


# --- who reads what


def divide(
    consumers: Mapping[str, ConsumerNode], partitions: Mapping[str, Collection[int]]
) -> dict[TopicPartition, RegisteredThread]:
    """Assigns each partition to a thread: a topic's partitions go, in order of their numbers, to the threads that read
    it, in order of their names. Shares of a topic differ by one at most, the larger first.

    `consumers` is by id, and `partitions` has the numbers of each topic's. Topics that nobody reads are left out.
    """
    threads: dict[str, list[RegisteredThread]] = {}
    for consumer_id, node in consumers.items():
        for topic, count in node.threads(partitions).items():
            threads.setdefault(topic, []).extend(RegisteredThread(consumer_id, number) for number in range(count))
    owners = {}
    for topic, readers in threads.items():
        readers.sort(key=lambda thread: thread.sort_key)
        numbers = sorted(partitions[topic])
        size, rest = divmod(len(numbers), len(readers))
        for place, reader in enumerate(readers):
            start = place * size + min(place, rest)
            for number in numbers[start : start + size + (place < rest)]:
                owners[TopicPartition(topic, number)] = reader
    return owners


def share_of(
    consumer_id: str, consumers: Mapping[str, ConsumerNode], partitions: Mapping[str, Collection[int]]
) -> dict[TopicPartition, RegisteredThread]:
    """Returns that consumer's part of what `divide` returns."""
    owners = divide(consumers, partitions)
    return {partition: thread for partition, thread in owners.items() if thread.consumer_id == consumer_id}
