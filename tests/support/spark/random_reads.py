"""Random options of Spark's Kafka source, good ones and bad ones, and random queries of what they read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ALL = "key, value, unix_micros(timestamp), timestampType"
_NEVER = "not (true and true)"
_MOST = 3
"""Of topics in one reading."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What there is to read: the offsets [start, end) of each partition, and some timestamps that records have, none of
    them before 1970: the connector hands those to servers, which take them for words.
    """

    offsets: Mapping[TopicPartition, tuple[int, int]]
    timestamps: Sequence[int]

    @property
    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.offsets})


@dataclass(frozen=True, slots=True)
class Query:
    """`ask` gives something that can be compared; `text` says what. `reads_all`: else it may end before that.
    `reads_nothing`: Spark sees that there can be no rows, and plans no reading.
    """

    text: str
    ask: Callable[[DataFrame], Any]
    reads_all: bool = True
    reads_nothing: bool = False


# --- options


def random_options(random: Random, contents: Contents) -> dict[str, str]:
    """Of those that both sources have; one in four readings has something that makes no sense."""
    options, partitions = _which(random, contents)
    bad = random.choice(["which", "starting", "ending", "other"]) if random.random() < 0.25 else ""
    options |= _bound(random, contents, partitions, "starting", is_bad=bad == "starting")
    options |= _bound(random, contents, partitions, "ending", is_bad=bad == "ending")
    options |= _others(random)
    if bad == "which":
        options |= random.choice([
            {"subscribe": "t", "subscribePattern": "t"}, {"subscribe": "nosuch"}, {"subscribe": ""},
            {"assign": "t"}, {"assign": '{"nosuch":[0]}'}, {"subscribePattern": "("}, {"subscribePattern": ""},
            {"assign": '{"t":0}'}, {"assign": '{"t":["x"]}'}, {"subscribe": "t,,nosuch"}, {"subscribe": "no such"},
        ])  # fmt: skip
    if bad == "other":
        options |= random.choice([
            {"minPartitions": "0"}, {"minPartitions": "x"}, {"minPartitions": "-1"}, {"maxRecordsPerPartition": "0"},
            {"maxRecordsPerPartition": "1.5"}, {"includeHeaders": "perhaps"}, {"failOnDataLoss": "1"},
            {"startingOffsetsByTimestampStrategy": "never"}, {"kafka.isolation.level": "serializable"},
            {"kafka.auto.offset.reset": "earliest"}, {"kafka.enable.auto.commit": "true"},
            {"kafka.key.deserializer": "x"}, {"kafka.value.deserializer": "x"},
            {"kafka.interceptor.classes": "x"}, {"kafka.security.protocol": "none"},
        ])  # fmt: skip
    return options


def _which(random: Random, contents: Contents) -> tuple[dict[str, str], list[TopicPartition]]:
    """The option that names topics, and what it names."""
    topics = random.sample(contents.topics, random.randint(1, _MOST))
    of_topics = [partition for partition in contents.offsets if partition.topic in topics]
    kind = random.choice(["subscribe", "subscribe", "assign", "assign", "subscribePattern"])
    if kind == "subscribe":
        return {"subscribe": random.choice([",", ", "]).join(topics)}, of_topics
    if kind == "assign":
        assigned = random.sample(of_topics, random.randint(1, len(of_topics)))
        return {"assign": _json(dict.fromkeys(assigned), is_assign=True)}, assigned
    pattern = random.choice(["|".join(topics), f"^{topics[0]}$", "^t", "tx?$", "__", "_txn|^[ut]$", "s.*d", "nothing"])
    return {"subscribePattern": pattern}, [tp for tp in contents.offsets if re.search(pattern, tp.topic)]


def _bound(
    random: Random, contents: Contents, partitions: Sequence[TopicPartition], which: str, *, is_bad: bool
) -> dict[str, str]:
    if is_bad:
        return _bad_bound(random, partitions, which)
    kind = random.choice(["none", "none", "word", "offsets", "offsets", "time", "times", "several"])
    found: dict[str, str] = {}
    if kind == "word":
        word = "earliest" if which == "starting" else "latest"
        found[f"{which}Offsets"] = random.choice([word, word.upper()])
    if kind in ("offsets", "several"):
        chosen = {tp: _offset(random, *contents.offsets[tp], which) for tp in partitions}
        found[f"{which}Offsets"] = _json(chosen)
    if kind in ("time", "several"):
        found[f"{which}Timestamp"] = str(_time(random, contents))
    if kind in ("times", "several"):
        found[f"{which}OffsetsByTimestamp"] = _json({tp: _time(random, contents) for tp in partitions})
    if kind in ("time", "times", "several") and which == "starting" and random.random() < 0.8:
        found["startingOffsetsByTimestampStrategy"] = random.choice(["latest", "latest", "error"])
    return found


def _bad_bound(random: Random, partitions: Sequence[TopicPartition], which: str) -> dict[str, str]:
    none, word = (-1, "latest") if which == "starting" else (-2, "earliest")
    if random.random() < 0.2:
        return {f"{which}Offsets": _json(dict.fromkeys(partitions, random.choice([-3, none])))}
    if random.random() < 0.2:
        return {f"{which}Timestamp": random.choice(["x", "", "1.5"])}
    return {random.choice([f"{which}Offsets", f"{which}OffsetsByTimestamp"]): random.choice([
        "soon", "{", "[]", '{"t":{"x":1}}', '{"t":{"0":"x"}}', '{"t":{"0":1.5}}', '{"t":[1]}', "5", "", word,
        _json({TopicPartition("nosuch", 0): 1}), _json(dict.fromkeys(partitions[1:], 1)),
        _json(dict.fromkeys([*partitions, TopicPartition("t", 9)], 1)),
    ])}  # fmt: skip


def _offset(random: Random, start: int, end: int, which: str) -> int:
    """Mostly so that the reading goes forward."""
    middle = (start + end) // 2
    if which == "starting":
        return random.choice([-2, start, *[random.randint(start, middle)] * 8, random.choice([end, end + 2, 0])])
    return random.choice([-1, end, *[random.randint(middle, end)] * 8, random.choice([end + 3, start])])


def _time(random: Random, contents: Contents) -> int:
    return random.choice([*[random.choice(contents.timestamps)] * 6, 0, 1, 1 << 42])


def _others(random: Random) -> dict[str, str]:
    found = {"kafka.isolation.level": random.choice(["read_committed", "read_uncommitted"])}
    for chance, name, values in (
        (0.6, "includeHeaders", ["true", "TRUE", "false"]),
        (0.3, "failOnDataLoss", ["true", "false", "False"]),
        (0.3, "minPartitions", ["1", "2", "5"]),
        (0.3, "maxRecordsPerPartition", ["50", "200", "1000"]),
        (0.1, "groupIdPrefix", ["us"]),
        (0.1, "kafka.max.poll.records", ["17"]),
    ):
        if random.random() < chance:
            found[name] = random.choice(values)
    return found


def _json(values: Mapping[TopicPartition, Any], *, is_assign: bool = False) -> str:
    found: dict[str, Any] = {}
    for partition, value in values.items():
        if is_assign:
            found.setdefault(partition.topic, []).append(partition.partition)
        else:
            found.setdefault(partition.topic, {})[str(partition.partition)] = value
    return json.dumps(found)


# --- queries


def random_query(random: Random, contents: Contents) -> Query:
    where, other = _condition(random, contents), _condition(random, contents)
    limit = random.choice([0, 1, 7, 100_000])

    def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
        headers = ", headers" if "headers" in frame.columns else ""
        hash_ = f"xxhash64({_ALL}{headers}) hash"
        return _collected(frame.where(where).selectExpr("topic", "partition", "offset", hash_))

    def groups(frame: DataFrame) -> list[tuple[Any, ...]]:
        found = frame.where(where).groupBy("topic", "partition")
        return _collected(found.agg({"offset": "max", "*": "count", "timestamp": "min", "timestampType": "sum"}))

    def keys(frame: DataFrame) -> list[tuple[Any, ...]]:
        return _collected(frame.where(where).groupBy("key").count().where("count > 1"))

    def first(frame: DataFrame) -> list[tuple[Any, ...]]:
        in_order = frame.where(where).orderBy("timestamp", "topic", "partition", "offset").limit(limit)
        return [tuple(row) for row in in_order.select("topic", "partition", "offset", "value").collect()]

    def union(frame: DataFrame) -> list[tuple[Any, ...]]:
        place = ["topic", "partition", "offset"]
        return _collected(frame.where(where).select(*place).union(frame.where(other).select(*place)))

    def schema(frame: DataFrame) -> Any:
        return frame.schema.simpleString(), frame.where(where).isEmpty()

    found = random.choice([
        Query(f"rows where {where}", rows),
        Query(f"rows where {where}", rows),
        Query(f"count where {where}", lambda frame: frame.where(where).count()),
        Query(f"groups where {where}", groups),
        Query(f"keys more than once where {where}", keys),
        Query(f"offsets where {where}", lambda f: _collected(f.where(where).select("offset").distinct())),
        Query(f"{limit} of those where {where}", lambda f: f.where(where).limit(limit).count(), False, not limit),
        Query(f"the first {limit} where {where}", first, reads_nothing=not limit),
        Query(f"where {where} and where {other}", union),
        Query(f"columns, and whether any where {where}", schema, False),
    ])  # fmt: skip
    is_never = where == _NEVER and found.text.endswith(f" where {where}") and not found.text.startswith("where ")
    return replace(found, reads_nothing=found.reads_nothing or is_never)


def _collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def _condition(random: Random, contents: Contents) -> str:
    partition, (start, end) = random.choice(sorted(contents.offsets.items()))
    offset = random.randint(start, end)
    moment = random.choice(contents.timestamps)
    atoms = [
        f"partition = {partition.partition}", f"partition in (1, {partition.partition})", f"offset < {offset}",
        f"offset >= {offset}", f"offset % 3 = {offset % 3}", f"topic = '{partition.topic}'", "topic like 't%'",
        f"timestamp >= timestamp_millis({moment})", f"timestamp < timestamp_millis({moment})", "key is null",
        "value is not null", "length(value) > 20", "timestampType = 0", "true",
    ]  # fmt: skip
    a, b = random.choice(atoms), random.choice(atoms)
    return random.choice([a, a, f"{a} and {b}", f"{a} or {b}", f"not ({a} and {b})"])
