"""Requests at random, in lives: a life makes three topics of its own and asks 40 requests about one theme.

A table says what each field of Kafka's definitions may hold; what it does not name gets numbers at the bounds and odd
texts. Now and then a list is empty or repeats an element, what may be null is null, a number is at a bound, and a tag
is unknown. The same seed asks every broker the same. What a broker gave (ids, epochs, members) is filled in when the
request goes out, and stands in the step's name as a symbol.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support.answers.asked_broker import AskedBroker, Topic
from tests.support.answers.message_codec import NO_ID, UNKNOWN_TAGS, Field, Fields, fields_of_request, versions_of
from tests.support.answers.record_batches import (
    FIXED_TIME,
    GZIP,
    LZ4,
    SNAPPY,
    THREE,
    TRANSACTIONAL,
    ZSTD,
    batch,
    old_message,
)
from tests.support.answers.scenarios.classic_groups import SUBSCRIPTION
from tests.support.answers.scenarios.configs import BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC, TOPIC_CONFIGS, VALUES
from tests.support.answers.scenarios.registry import scenario
from tests.support.waiting import wait_until

REQUESTS_OF_A_LIFE = 40
_BOUNDS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_ODD_TEXTS = ("", "nope", "a b", "é", "x" * 300)
_GIVEN_BY_THE_BROKER = {"ClusterId", "TotalBytes", "UsableBytes", "SessionId"}
_CONCURRENT_TRANSACTIONS = 51
_MEMBER_ID_REQUIRED = 79
_NOT_THERE_YET = (3, 5)
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE."""
_FIRST_OF_NEW_CLIENTS = {"Produce": 12, "AddPartitionsToTxn": 4, "EndTxn": 5, "TxnOffsetCommit": 5}
"""Versions of transaction.version 2 (KIP-890). All lives' producers are of the one or the other: a transaction that
AddPartitionsToTxn 4 begins and EndTxn 4 ends is never ended in Kafka, for its markers are refused.
"""
_NAMES = ("Name", "Topic", "TopicName", "GroupId", "TransactionalId", "ResourceName")
_KEYS = (
    *_NAMES, "TopicId", "PartitionIndex", "Partition", "Index", "MemberId", "ResourceType", "ProducerId", "Feature",
    "EntityType",
)  # fmt: skip
_MERGED = {"Produce", "JoinGroup", "WriteTxnMarkers", "DeleteTopics"}
"""What Kafka does with one that is named twice shows in all answers after it, or is no answer."""
_LISTING = {
    "DescribeLogDirs", "DescribeTopicPartitions", "ElectLeaders", "ListConfigResources", "ListGroups",
    "ListTransactions", "Metadata",
}  # fmt: skip
"""What these list may be of other lives: only this life's own is compared."""
_CHANGING = {"CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs"}

THEMES: dict[str, dict[str, int]] = {
    "reads": {
        "Fetch": 6, "ListOffsets": 4, "OffsetForLeaderEpoch": 2, "Produce": 6, "Metadata": 3, "DeleteRecords": 2,
        "DescribeTopicPartitions": 2, "DescribeProducers": 1, "InitProducerId": 1, "WriteTxnMarkers": 1,
    },
    "topics": {
        "CreateTopics": 4, "DeleteTopics": 1, "CreatePartitions": 2, "AlterConfigs": 2, "IncrementalAlterConfigs": 3,
        "DescribeConfigs": 4, "Metadata": 2, "DescribeTopicPartitions": 1, "Produce": 2, "ListOffsets": 1,
    },
    "cluster": {
        "ApiVersions": 1, "DescribeCluster": 1, "DescribeLogDirs": 2, "DescribeClientQuotas": 2, "FindCoordinator": 3,
        "DescribeUserScramCredentials": 1, "ElectLeaders": 2, "ListConfigResources": 1, "ListGroups": 1,
        "ListPartitionReassignments": 1, "ListTransactions": 2, "UpdateFeatures": 2, "UnregisterController": 1,
        "DescribeTransactions": 1,
    },
    "consumers": {
        "ConsumerGroupHeartbeat": 12, "ConsumerGroupDescribe": 2, "OffsetCommit": 3, "OffsetFetch": 3, "LeaveGroup": 1,
        "DescribeGroups": 1, "DeleteGroups": 1, "ListGroups": 1, "OffsetDelete": 1, "Heartbeat": 1,
    },
    "classic groups": {
        "JoinGroup": 6, "SyncGroup": 5, "Heartbeat": 4, "LeaveGroup": 1, "OffsetCommit": 4, "OffsetFetch": 3,
        "DescribeGroups": 2, "ConsumerGroupDescribe": 1, "DeleteGroups": 1, "OffsetDelete": 1, "TxnOffsetCommit": 1,
    },
    "transactions": {
        "InitProducerId": 2, "AddPartitionsToTxn": 4, "AddOffsetsToTxn": 2, "TxnOffsetCommit": 4, "Produce": 8,
        "EndTxn": 6, "Fetch": 4, "ListOffsets": 2, "OffsetFetch": 2, "DescribeTransactions": 2, "ListTransactions": 1,
        "DescribeProducers": 1,
    },
}  # fmt: skip
"""How often each API is asked, one beside the others."""


@dataclass
class World:
    """What one broker gave in one life. Owned by one thread.

    `known` is by kind and key, `sequences` by producer, topic and partition the next of each. `written` is what the
    request at hand would append: by topic and partition the place in `sequences`, and how many records.
    """

    broker: AskedBroker
    prefix: str
    topics: dict[str, Topic] = field(default_factory=dict)
    known: dict[tuple[str, str], Any] = field(default_factory=dict)
    sequences: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    written: dict[tuple[str, int], tuple[tuple[str, str, int], int]] = field(default_factory=dict)
    broker_id: int = -1
    cluster_id: str = ""

    def begin(self) -> None:
        self.broker_id = self.broker.id
        self.cluster_id = self.broker.query("DescribeCluster")["ClusterId"]
        for name, partitions, configs in (("a", 3, {}), ("b", 1, {}), ("c", 2, {"cleanup_policy": "compact"})):
            self.topics[name] = self.broker.create_topic(self.prefix + name, partitions, **configs)
            for partition in range(partitions):  # an empty log takes no batch but a producer's first
                self.broker.produce(self.topics[name], batch(THREE[:2]), partition)
        self.broker.wait_until_applied()

    def ask(self, step: str, api: str, version: int, drawn: Fields, *, is_twice: bool = False) -> None:
        self.written.clear()
        fields = _filled(drawn, self)
        answer = self.broker.query(api, version, **fields)
        if api == "InitProducerId":
            answer = self._until_ended(answer, version, fields)
        kept = answer if isinstance(answer, str) else self._comparable(api, answer, is_twice=is_twice)
        self.broker.keep(step, kept, api, version)
        if isinstance(answer, str):
            return
        self._learn(api, fields, answer)
        if api == "Metadata" and fields.get("AllowAutoTopicCreation", True):
            wait_until(lambda: self._are_made(answer))
            self._wait_for_leaders()
        if api in _CHANGING:
            self.broker.wait_until_applied()
            self._wait_for_leaders()

    def _wait_for_leaders(self) -> None:
        """Of the topics that are there now."""
        asked = [{"Name": self.prefix + name} for name in (*"abcd", "none")]
        for topic in self.broker.query("Metadata", Topics=asked, AllowAutoTopicCreation=False)["Topics"]:
            if not topic["ErrorCode"]:
                wait_until(partial(self.broker.leads, topic["Name"], len(topic["Partitions"])))

    def _are_made(self, answer: Fields) -> bool:
        """Whether the topics are there that a Metadata request creates."""
        wanted = [{"Name": topic["Name"]} for topic in answer["Topics"] if topic["Name"]]
        found = self.broker.query("Metadata", Topics=wanted, AllowAutoTopicCreation=False)["Topics"]
        return not any(topic["ErrorCode"] in _NOT_THERE_YET for topic in found)

    def _until_ended(self, answer: Any, version: int, fields: Fields) -> Any:
        """The answer, once the transaction before is no longer being ended."""

        def is_ended() -> bool:
            nonlocal answer
            if isinstance(answer, str) or answer["ErrorCode"] != _CONCURRENT_TRANSACTIONS:
                return True
            answer = self.broker.query("InitProducerId", version, **fields)
            return False

        wait_until(is_ended)
        return answer

    def _comparable(self, api: str, answer: Fields, *, is_twice: bool) -> Any:
        if api == "ApiVersions":
            return {"ErrorCode": answer["ErrorCode"], "lists apis": bool(answer["ApiKeys"])}
        if api == "WriteTxnMarkers":  # these producers are made up
            return {"Markers": [{**marker, "ProducerId": str(marker["ProducerId"])} for marker in answer["Markers"]]}
        if is_twice or api == "Fetch":
            answer = _merged([answer])[0]
        return _without_others(answer, self.prefix if api in _LISTING else "")

    def _learn(self, api: str, fields: Fields, answer: Fields) -> None:
        """Keeps what the answer gave, for the requests after it."""
        error = answer.get("ErrorCode", 0)
        if api in ("InitProducerId", "EndTxn"):
            self._learn_producer(fields["TransactionalId"], answer)
        elif api == "Produce":
            nothing = (("", "", 0), 0)
            for topic in answer["Responses"]:
                name = topic.get("Name") or topic.get("TopicId")
                for partition in topic["PartitionResponses"]:
                    sequence, count = self.written.get((name, partition["Index"]), nothing)
                    self.sequences[sequence] += 0 if partition["ErrorCode"] else count
        elif api == "ConsumerGroupHeartbeat" and not error:
            member = fields["GroupId"] + fields["MemberId"]
            self.known["member epoch", member] = max(answer["MemberEpoch"], 0)
            if answer["Assignment"] is not None:
                self.known["assigned", member] = answer["Assignment"]["TopicPartitions"]
        elif api == "JoinGroup" and answer["MemberId"] and error in (0, _MEMBER_ID_REQUIRED):
            self.known["member", fields["GroupId"]] = answer["MemberId"]
            self.known["generation", fields["GroupId"]] = answer["GenerationId"]
        elif api == "LeaveGroup" and not error:
            left = [each["MemberId"] for each in answer.get("Members", ()) if not each["ErrorCode"]]
            if self.known.get(("member", fields["GroupId"]), "") in [*left, fields.get("MemberId")]:
                self.known.pop(("member", fields["GroupId"]), None)

    def _learn_producer(self, transactional_id: str | None, answer: Fields) -> None:
        key = str(transactional_id)
        if not answer["ErrorCode"] and answer.get("ProducerId", -1) >= 0:
            self.known["producer", key], self.known["epoch", key] = answer["ProducerId"], answer["ProducerEpoch"]
            self.sequences = Counter({place: count for place, count in self.sequences.items() if place[0] != key})
        if transactional_id:
            wait_until(lambda: not self._state(transactional_id).startswith("Prepare"))

    def _state(self, transactional_id: str) -> str:
        found = self.broker.query("DescribeTransactions", TransactionalIds=[transactional_id])
        return str(found["TransactionStates"][0]["TransactionState"])


@dataclass(frozen=True)
class Later:
    """A value that is known when the request goes out; `shown` stands in the step's name."""

    shown: str
    value: Callable[[World], Any]


def _known(kind: str, key: str, default: Any, plus: int = 0) -> Later:
    def value(world: World) -> Any:
        found = world.known.get((kind, key), default)
        return found + plus if plus else found

    return Later(f"<{kind} of {key}{f'{plus:+}' if plus else ''}>", value)


def _filled(value: Any, world: World) -> Any:
    if isinstance(value, Later):
        return value.value(world)
    if isinstance(value, dict):
        return {name: _filled(each, world) for name, each in value.items()}
    return [_filled(each, world) for each in value] if isinstance(value, list) else value


def _shown(value: Any) -> Any:
    if isinstance(value, Later):
        return value.shown
    if isinstance(value, bytes):
        return value.hex()[:40]
    if isinstance(value, dict):
        return {str(name): _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return value[:60] if isinstance(value, str) else value


def _merged(elements: list[Any]) -> list[Any]:
    """Equal elements of a list as one, and those that differ in their lists alone.

    A broker may answer twice what is named twice, or once; and Fetch may name a topic again for partitions with errors.
    """
    merged: dict[str, Any] = {}
    for element in elements:
        if not isinstance(element, dict):
            merged[json.dumps(element)] = element
            continue
        lists = {name: each for name, each in element.items() if isinstance(each, list)}
        rest = {name: None if name in lists else each for name, each in element.items()}
        known = merged.setdefault(json.dumps(rest), {**element, **{name: [] for name in lists}})
        known.update({name: _merged([*known[name], *each]) for name, each in lists.items()})
    return list(merged.values())


def _without_others(value: Any, prefix: str) -> Any:
    """Without what each broker makes up, and without elements of lists that are not named by the prefix."""
    if isinstance(value, dict):
        return {
            name: bool(each) if name in _GIVEN_BY_THE_BROKER else _without_others(each, prefix)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without_others(each, prefix) for each in value if _is_own(each, prefix)]
    return value


def _is_own(element: Any, prefix: str) -> bool:
    names = (
        [element[name] for name in _NAMES if isinstance(element.get(name), str)] if isinstance(element, dict) else []
    )
    return not names or any(name.startswith(prefix) for name in names)


class Draw:
    """Draws one request after the other.

    `chosen` has the values of the fields before, by name; `topic` is the letter of the last topic; `is_twice` says that
    something is named twice, `is_by_id` that topics are named by their ids where there is a choice for all. In a life
    that `is_uniform` consumer groups have one member: of several, the ids of topics decide who gets what.
    """

    def __init__(self, source: random.Random, prefix: str, theme: str) -> None:
        self.random = source
        self.prefix = prefix
        self.theme = theme
        self.api = ""
        self.version = 0
        self.topic = "a"
        self.chosen: Fields = {}
        self.is_twice = False
        self.is_by_id = False
        self._oddness = 0.0
        self._is_new = self.one_of(True, False)
        self.is_uniform = self.one_of(True, False, False)

    def request(self) -> tuple[str, int, Fields]:
        weights = THEMES[self.theme]
        (self.api,) = self.random.choices(list(weights), list(weights.values()))
        versions = versions_of(self.api)
        if self.api in ("UpdateFeatures", "CreateTopics"):  # the first can't only validate
            versions = versions[1:]
        first = _FIRST_OF_NEW_CLIENTS.get(self.api)
        if first is not None and self.theme == "transactions":
            versions = versions_of(self.api, first) if self._is_new else versions_of(self.api, 0, first - 1)
        self.version = self.random.choice([*versions, *[versions[-1]] * (len(versions) // 2)])
        self._oddness = self.random.choice((0.0, 0.0, 0.04, 0.15))
        self.chosen, self.is_twice, self.is_by_id = {}, False, self.one_of(True, False, False)
        return self.api, self.version, self._struct(fields_of_request(self.api, self.version))

    def is_odd(self) -> bool:
        return self.random.random() < self._oddness

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def mostly(self, usual: Any, *others: Any) -> Any:
        return usual if self.random.random() < 0.85 else self.random.choice(others)

    def _struct(self, fields: Sequence[Field]) -> Fields:
        values: Fields = {}
        for each in fields:
            values[each.name] = self.chosen[each.name.removeprefix("V3AndBelow")] = self._value(each)
        if self.is_odd():
            values[UNKNOWN_TAGS] = {self.one_of(77, 10_000): self.one_of(b"", b"tag")}
        return values

    def _value(self, wanted: Field) -> Any:
        name = wanted.name.removeprefix("V3AndBelow")
        maker = TABLE.get(f"{self.api}.{name}", TABLE.get(name))
        if wanted.is_nullable and maker is None and self.is_odd():
            return None
        if wanted.kind.startswith("[]"):
            return self._list(wanted, maker)
        if wanted.fields:
            return None if wanted.is_nullable and self.random.random() < 0.7 else self._struct(wanted.fields)
        if wanted.kind == "bool":
            return maker(self) if maker else self.one_of(True, False)
        odd = ODD.get(f"{self.api}.{name}", ODD.get(name, self._odd_values(wanted)))
        if odd and self.is_odd():
            return self.one_of(*odd)
        if maker is not None:
            return maker(self)
        defaults = {"string": "", "uuid": NO_ID, "bytes": b"", "records": b""}
        return defaults[wanted.kind] if wanted.kind in defaults else self.one_of(-1, 0, 1)

    def _odd_values(self, wanted: Field) -> tuple[Any, ...]:
        if wanted.is_nullable:
            return (None,)
        bits = _BOUNDS.get(wanted.kind)
        if bits is not None:
            return (0, -1, 1, -2, 2**bits - 1, -(2**bits))
        return _ODD_TEXTS if wanted.kind == "string" else ()

    def _list(self, wanted: Field, maker: Maker | None) -> Any:
        if maker is not None and maker in WHOLE_LISTS:
            return maker(self)
        if wanted.is_nullable and self.random.random() < 0.1 + self._oddness:
            return None
        count = 0 if self.is_odd() else self.one_of(1, 1, 1, 2, 3)
        if wanted.fields:
            found: list[Any] = [self._struct(wanted.fields) for _ in range(count)]
        else:
            found = [self._value(wanted._replace(kind=wanted.kind[2:], is_nullable=False)) for _ in range(count)]
        found = list({_identity(each): each for each in found}.values())
        if found and self.api not in _MERGED and self.is_odd():
            self.is_twice = True
            found.append(self.random.choice(found))
        return found


def _identity(element: Any) -> str:
    """What a request should name once."""
    if isinstance(element, dict) and "TransactionalId" in element:
        element = element["TransactionalId"]
    elif isinstance(element, dict) and (named := {name: element[name] for name in _KEYS if name in element}):
        element = named
    return json.dumps(_shown(element))


Maker = Callable[[Draw], Any]


# --- what fields hold


def _topic(draw: Draw) -> str:
    draw.topic = draw.random.choices("abcd", (6, 2, 2, 1))[0]
    if draw.is_odd():
        return str(draw.one_of("", draw.prefix + "none", "a b", "x" * 250, "é"))
    return draw.prefix + draw.topic


def _topic_id(draw: Draw) -> Any:
    letter = draw.topic = draw.random.choices("abc", (6, 2, 2))[0]
    if draw.is_odd():
        return draw.one_of(NO_ID, "a" * 32, "f" * 32)
    return Later(f"<id of {letter}>", lambda world: world.topics[letter].id)


def _name_beside_an_id(draw: Draw) -> Any:
    """Where a request has both, one of them."""
    given = draw.chosen.get("TopicId", NO_ID)
    return None if given != NO_ID and draw.version >= 10 and not draw.is_odd() else _topic(draw)


def _id_beside_a_name(draw: Draw) -> Any:
    return _topic_id(draw) if draw.random.random() < 0.3 else NO_ID


def _partition(draw: Draw) -> int:
    return int(draw.random.choices((0, 1, 2, 9, -1), (10, 4, 3, 1, 1))[0])


def _offset(draw: Draw) -> int:
    return int(draw.one_of(0, 0, 1, 2, 3, 4, 7, 20))


def _timestamp(draw: Draw) -> int:
    return int(draw.one_of(-1, -2, -3, -4, -5, -6, 0, FIXED_TIME, FIXED_TIME + 1))


def _group(draw: Draw) -> str:
    return draw.prefix + draw.one_of("g1", "g1", "g1", "g2", "g3")


def _consumer(draw: Draw) -> Any:
    return ("m1" if draw.is_uniform else draw.one_of("m1", "m1", "m2", "m3")) * 11


def _assignor(draw: Draw) -> Any:
    if draw.is_uniform:
        return draw.mostly(None, "uniform", "range")
    return "range" if draw.chosen["SubscribedTopicNames"] else draw.one_of(None, "range")


def _key_of_a_member(draw: Draw) -> str:
    return f"{_shown(draw.chosen['GroupId'])}{_shown(draw.chosen['MemberId'])}"


def _consumer_epoch(draw: Draw) -> Any:
    key = _key_of_a_member(draw)
    own, next_ = _known("member epoch", key, 0), _known("member epoch", key, 0, 1)
    return 0 if draw.random.random() < 0.2 else draw.mostly(own, -1, -2, next_, 777)


def _is_joining(draw: Draw) -> bool:
    return draw.chosen["MemberEpoch"] == 0 or draw.random.random() < 0.3


def _owned(draw: Draw) -> Any:
    if draw.chosen["MemberEpoch"] == 0 and not draw.is_odd():
        return []
    key = _key_of_a_member(draw)
    some = [{"TopicId": _topic_id(draw), "Partitions": [_partition(draw)]}]
    return draw.mostly(draw.one_of(None, _known("assigned", key, [])), [], some)


def _subscription(draw: Draw) -> Any:
    if not _is_joining(draw):
        return None
    known = draw.random.sample("abc", draw.one_of(1, 1, 2))  # of a group for no topic Kafka counts otherwise
    return [draw.prefix + letter for letter in (*known, *draw.one_of("", "", "d"))]


def _member(draw: Draw) -> Any:
    """Of a consumer group or a classic one: what the theme has."""
    if draw.theme == "consumers":
        return _consumer(draw)
    if draw.api == "TxnOffsetCommit" and draw.theme == "transactions":
        return draw.mostly("", "nope")
    return draw.mostly(_known("member", str(draw.chosen.get("GroupId", "")), ""), "nope")


def _generation(draw: Draw) -> Any:
    group = str(draw.chosen.get("GroupId", ""))
    if draw.theme == "consumers":
        return _consumer_epoch(draw) if "MemberId" in draw.chosen else -1
    if draw.theme == "transactions":
        return draw.mostly(-1, 0, 1)
    return draw.mostly(_known("generation", group, -1), _known("generation", group, -1, 1), -1, 0)


def _transactional_id(draw: Draw) -> Any:
    if draw.api == "Produce" and draw.theme != "transactions":
        return draw.mostly(None, draw.prefix + "t1")
    if draw.api == "InitProducerId" and draw.theme != "transactions":
        return None
    return draw.prefix + draw.one_of("t1", "t1", "t2")


def _producer(draw: Draw) -> Any:
    key = str(draw.chosen.get("TransactionalId"))
    if draw.api == "WriteTxnMarkers":
        return draw.one_of(1 << 40, 1 << 41)
    if draw.api == "InitProducerId":
        return draw.mostly(-1, _known("producer", key, -1))
    return draw.mostly(_known("producer", key, -1), 1 << 40) if draw.is_odd() else _known("producer", key, -1)


def _producer_epoch(draw: Draw) -> Any:
    key = str(draw.chosen.get("TransactionalId"))
    if draw.api == "WriteTxnMarkers":
        return draw.one_of(0, 0, 1, 5)
    if draw.api == "InitProducerId":
        return -1 if draw.chosen["ProducerId"] == -1 else _known("epoch", key, -1)
    return draw.mostly(_known("epoch", key, -1), _known("epoch", key, 0, -1), _known("epoch", key, -1, 1))


def _records(draw: Draw) -> Any:
    key, letter, partition = str(draw.chosen["TransactionalId"]), draw.topic, draw.chosen["Index"]
    if draw.is_odd():
        return draw.one_of(
            b"", old_message(0), old_message(1), batch()[:-1], batch(crc=1), batch() * 2, batch(count=2),
            batch(timestamp=-1), batch(THREE[:0]), batch(leader_epoch=3),
        )  # fmt: skip
    count = draw.one_of(1, 2, 3)
    attributes = draw.one_of(0, 0, GZIP, SNAPPY, LZ4, ZSTD)
    if draw.theme != "transactions" and draw.random.random() < 0.6:
        return batch(THREE[:count], attributes=attributes, timestamp=FIXED_TIME + draw.one_of(0, 5, -5))
    attributes |= TRANSACTIONAL if draw.chosen["TransactionalId"] is not None and not draw.is_odd() else 0
    off = draw.mostly(0, 1, -1)
    older = draw.mostly(0, -1, 1)

    def value(world: World) -> bytes:
        place = (key, letter, partition)
        producer = world.known.get(("producer", key), -1)
        epoch = world.known.get(("epoch", key), -1)
        sequence = max(world.sequences[place] + off, 0)
        topic = world.topics.get(letter, Topic(world.prefix + letter, NO_ID))
        for name in (topic.name, topic.id):
            world.written[name, partition] = (place, count)
        if producer < 0:
            return batch(THREE[:count], attributes=attributes & ~TRANSACTIONAL)
        whose = (producer, max(epoch + older, 0))
        return batch(THREE[:count], attributes=attributes, producer=whose, sequence=sequence)

    shown = f"<{count} records of producer {key}, attributes {attributes}, epoch {older:+}, sequence {off:+}>"
    return Later(shown, value)


def _resource_type(draw: Draw) -> int:
    return int(
        draw.one_of(CLIENT_METRICS, LOGGER, 0, 3, -1) if draw.is_odd() else draw.one_of(TOPIC, TOPIC, BROKER, GROUP)
    )


def _resource_name(draw: Draw) -> Any:
    kind = draw.chosen["ResourceType"]
    if kind == BROKER:
        return draw.mostly(Later("<broker>", lambda world: str(world.broker_id)), "", "99", "x")
    return _group(draw) if kind == GROUP else _topic(draw)


_BROKER_CONFIGS = (
    "log.retention.ms", "log.retention.bytes", "num.partitions", "message.max.bytes", "compression.type", "nope",
    "log.cleaner.threads", "log.segment.bytes", "offsets.retention.minutes", "background.threads",
)  # fmt: skip
_GROUP_CONFIGS = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "nope", "retention.ms")
_COMMON_CONFIGS = (
    "retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "retention.bytes", "segment.bytes",
    "message.timestamp.type", "unclean.leader.election.enable", "file.delete.delay.ms",
)  # fmt: skip


def _config(draw: Draw) -> Any:
    kind = draw.chosen.get("ResourceType", TOPIC)
    if kind == BROKER:
        return draw.one_of(*_BROKER_CONFIGS)
    if kind == GROUP:
        return draw.one_of(*_GROUP_CONFIGS)
    return draw.one_of(*TOPIC_CONFIGS) if draw.is_odd() else draw.one_of(*_COMMON_CONFIGS)


def _some_configs(draw: Draw) -> Any:
    """All of a topic's, never of others: most of Kafka's are none of plog's."""
    if draw.chosen["ResourceType"] == TOPIC and draw.random.random() < 0.2:
        return draw.one_of(None, [])
    return list(dict.fromkeys(_config(draw) for _ in range(draw.one_of(1, 2, 3))))


def _broker_of_a_request(draw: Draw) -> Any:
    return draw.mostly(Later("<broker>", lambda world: world.broker_id), -1, 99)


def _cluster(draw: Draw) -> Any:
    return draw.mostly(Later("<cluster>", lambda world: world.cluster_id), None, "nope")


def _config_value(draw: Draw) -> Any:
    good = {
        "cleanup.policy": ("compact", "delete", "compact,delete"), "compression.type": ("gzip", "producer", "zstd"),
        "message.timestamp.type": ("CreateTime", "LogAppendTime"), "unclean.leader.election.enable": ("true", "false"),
    }  # fmt: skip
    if draw.random.random() < 0.25:
        return draw.one_of(*VALUES)
    return draw.one_of(*good.get(draw.chosen["Name"], ("-1", "1000", "100000", "10000000")))


def _only_validates(draw: Draw) -> Any:
    """What is set for a broker would change what other lives see."""
    return any(each["ResourceType"] == BROKER for each in draw.chosen["Resources"] or ()) or draw.one_of(True, False)


def _placements(draw: Draw) -> Any:
    some = [{"PartitionIndex": _partition(draw), "BrokerIds": [_broker_of_a_request(draw)]}]
    return [] if draw.random.random() < 0.9 else draw.mostly(some, some * 2)


def _protocols(draw: Draw) -> Any:
    """The one that all members of a group have: else they would wait for each other."""
    usual = {"Name": "range", "Metadata": draw.mostly(SUBSCRIPTION, SUBSCRIPTION + b"x")}
    return [] if draw.is_odd() else [usual, *([{"Name": "roundrobin", "Metadata": b""}] if draw.is_odd() else ())]


def _of(*choices: Any) -> Maker:
    return lambda draw: draw.one_of(*choices)


def _mostly(usual: Any, *others: Any) -> Maker:
    return lambda draw: draw.mostly(usual, *others)


def _leaving(draw: Draw) -> Any:
    """One of a consumer group: each that is removed raises the group's epoch, and in Kafka all of them together."""
    count = 1 if draw.theme == "consumers" else draw.one_of(0, 1, 2)
    return [{"MemberId": _member(draw), "GroupInstanceId": None, "Reason": "why"} for _ in range(count)]


TABLE: dict[str, Maker] = {
    "Name": _topic, "Topic": _topic, "TopicName": _topic, "TopicNames": _topic, "TopicId": _topic_id,
    "Metadata.TopicId": _id_beside_a_name, "Metadata.Name": _name_beside_an_id,
    "DeleteTopics.TopicId": lambda draw: NO_ID if draw.chosen["Name"] else _topic_id(draw),
    "DeleteTopics.Name": lambda draw: None if draw.is_by_id else _topic(draw),
    "PartitionIndex": _partition, "Partition": _partition, "Index": _partition, "PartitionIndexes": _partition,
    "Partitions": _partition,
    "FetchOffset": _offset, "Offset": _offset, "CommittedOffset": _offset, "Timestamp": _timestamp,
    "LogStartOffset": _of(-1), "CurrentLeaderEpoch": _mostly(-1, 0, 1), "LastFetchedEpoch": _mostly(-1, 0, 1),
    "LeaderEpoch": _of(0, 0, 1, -1), "CommittedLeaderEpoch": _mostly(-1, 0, 5), "CommittedMetadata": _of("", "m", None),
    "MaxWaitMs": _of(0, 1, 20), "MinBytes": _of(0, 1), "MaxBytes": _of(1 << 20, 100, 0),
    "PartitionMaxBytes": _of(1 << 20, 100, 0), "IsolationLevel": _of(0, 1), "SessionId": _of(0),
    "SessionEpoch": _mostly(-1, 0), "ReplicaId": _of(-1), "ReplicaEpoch": _of(-1), "ReplicaState": _of({}),
    "HighWatermark": _of(2**63 - 1), "RackId": _of("", "r"),
    "Acks": _of(-1, 1), "TimeoutMs": _of(5000), "timeoutMs": _of(5000), "Records": _records,
    "NumPartitions": _of(1, 2, 3, -1), "ReplicationFactor": _of(1, 1, -1), "Count": _of(1, 2, 3, 4, 5),
    "BrokerIds": _broker_of_a_request, "CreateTopics.Assignments": _placements, "JoinGroup.Protocols": _protocols,
    "validateOnly": _of(True, False), "ValidateOnly": _of(True, False),
    "UpdateFeatures.ValidateOnly": _of(True),
    "AlterConfigs.ValidateOnly": _only_validates, "IncrementalAlterConfigs.ValidateOnly": _only_validates,
    "AlterConfigs.Name": _config, "IncrementalAlterConfigs.Name": _config,
    "ConfigurationKeys": _some_configs, "Value": _config_value, "ConfigOperation": _of(0, 0, 1, 2, 3),
    "ResourceType": _resource_type, "ResourceName": _resource_name, "ResourceTypes": _of(TOPIC, GROUP, 16, 4, 99),
    "GroupId": _group, "GroupIds": _group, "Groups": _group, "GroupsNames": _group, "MemberId": _member,
    "MemberEpoch": _consumer_epoch, "GenerationId": _generation, "GenerationIdOrMemberEpoch": _generation,
    "InstanceId": _of(None), "GroupInstanceId": _of(None), "ServerAssignor": _assignor,
    "ConsumerGroupHeartbeat.RackId": _of(None, "r"),
    "RebalanceTimeoutMs": lambda draw: 300_000 if draw.chosen.get("MemberEpoch", 0) == 0 else draw.one_of(-1, 300_000),
    "SubscribedTopicNames": _subscription,
    "SubscribedTopicRegex": lambda draw: draw.chosen["SubscribedTopicNames"] and draw.one_of(None, ""),
    "ConsumerGroupHeartbeat.TopicPartitions": _owned,
    "SessionTimeoutMs": _of(60_000), "ProtocolType": _mostly("consumer", "connect"), "ProtocolName": _of("range", None),
    "Assignment": _of(b"x", b""), "Reason": _of("why", None), "RetentionTimeMs": _of(-1),
    "TransactionalId": _transactional_id, "TransactionalIds": _transactional_id, "ProducerId": _producer,
    "ProducerEpoch": _producer_epoch, "TransactionTimeoutMs": _of(60_000), "TransactionResult": _of(True, False),
    "CoordinatorEpoch": _of(0, 0, 1), "TransactionVersion": _of(0, 1), "StateFilters": _of("Ongoing",
    "Empty", "CompleteCommit", "nope"),
    "ProducerIdFilters": _of(7), "DurationFilter": _of(-1, -1, -2, 100_000),
    "TransactionalIdPattern": _of(None, ".*t1", "", "("), "StatesFilter": _of("Stable", "Empty", "nope", "stable"),
    "TypesFilter": _of("classic", "consumer", "share", "nope"), "KeyType": _of(0, 0, 1, 2), "Key": _group,
    "CoordinatorKeys": _group, "ElectionType": _of(0, 0, 1), "EndpointType": _of(1, 1, 2),
    "EntityType": _of("user", "client-id", "ip"), "MatchType": _of(0, 1, 2), "Match": _of(None, "ann", "127.0.0.1"),
    "DescribeUserScramCredentials.Name": _of("ann", "bob"), "Feature": _of("group.version", "nope"),
    "MaxVersionLevel": _of(0, 1, 2), "UpgradeType": _of(1, 2, 3), "ResponsePartitionLimit": _of(2000, 1, 2, 0),
    "ControllerId": _broker_of_a_request, "NodeId": _broker_of_a_request, "ClusterId": _cluster,
    "ClientSoftwareName": _of("n", "a-b"), "ClientSoftwareVersion": _of("1", "1.0"),
    "AllowAutoTopicCreation": _of(False), "LeaveGroup.Members": _leaving,
}  # fmt: skip
"""By the name of a field, or the API's name and it."""
WHOLE_LISTS = {TABLE[name] for name in (
    "SubscribedTopicNames", "ConsumerGroupHeartbeat.TopicPartitions", "CreateTopics.Assignments",
    "JoinGroup.Protocols", "ConfigurationKeys", "LeaveGroup.Members",
)}  # fmt: skip
"""Makers of a list, not of one of its elements."""
ODD: dict[str, tuple[Any, ...]] = {
    "Acks": (2, -2, 32767), "TimeoutMs": (2**31 - 1,), "timeoutMs": (2**31 - 1,), "MaxWaitMs": (-1, 0),
    "RebalanceTimeoutMs": (-1, 0, 2**31 - 1), "JoinGroup.RebalanceTimeoutMs": (2**31 - 1,),
    "SessionTimeoutMs": (-1, 0, 5999, 1_800_001),
    "TransactionTimeoutMs": (-1, 0, 900_001, 2**31 - 1), "GroupInstanceId": (None,), "InstanceId": (None, ""),
    "ProtocolType": ("", "connect"), "TransactionalIdPattern": ("[", "(?=x)"), "ReplicaId": (-2, 1, 5),
    "TransactionalId": ("", "é", "x" * 300), "MaxVersionLevel": (-1, 100), "ElectionType": (2, -1),
    "CoordinatorEpoch": (0,), "ProducerId": (1 << 40, -2), "SessionEpoch": (0, 1), "SessionId": (0, 12345),
    "DurationFilter": (), "Records": (), "WriteTxnMarkers.ProducerId": (), "TransactionVersion": (),
    "SubscribedTopicRegex": (), "MemberEpoch": (-3, 2**31 - 1), "GenerationIdOrMemberEpoch": (-2, 2**31 - 1),
    "GroupId": ("",), "MemberId": ("nope",), "ServerAssignor": ("nope",),
}  # fmt: skip
"""What odd values a field may have, if not any: of some, requests would wait, or change what other lives see."""


def live(broker: AskedBroker, seed: int, number: int, requests: int = REQUESTS_OF_A_LIFE) -> None:
    """One life. Its theme goes by its number."""
    theme = list(THEMES)[number % len(THEMES)]
    world = World(broker, f"r{seed}-{number}-")
    world.begin()
    draw = Draw(random.Random(f"{seed}/{number}"), world.prefix, theme)
    for name in ("t1", "t2") if theme == "transactions" else ():
        start = {"TransactionalId": world.prefix + name, "TransactionTimeoutMs": 60_000, "ProducerId": -1}
        world.ask(f"{name} begins", "InitProducerId", 5, {**start, "ProducerEpoch": -1})
    deletes_records = False
    for index in range(requests):
        api, version, drawn = draw.request()
        marks = f"{' twice' if draw.is_twice else ''}{' after DeleteRecords' if deletes_records else ''}"
        step = f"{number}.{index}{marks} {json.dumps(_shown(drawn), ensure_ascii=False)}"
        deletes_records |= api == "DeleteRecords"
        world.ask(step, api, version, drawn, is_twice=draw.is_twice)
    for topic in world.topics.values():
        broker.query("DeleteTopics", Topics=[{"Name": topic.name}], TimeoutMs=5000)


@scenario
def random_requests(broker: AskedBroker) -> None:
    """A sample: the first half of a life of each theme."""
    for number in range(len(THEMES)):
        live(broker, 0, number, REQUESTS_OF_A_LIFE // 2)
