"""A planned move of a partition's replicas to other brokers, and plans in the format of kafka-reassign-partitions.sh.

    {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}

`log_dirs` names a directory for each replica; plog writes "any", and accepts nothing else: another request tells a
broker which of its directories holds a replica.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition

_FORM = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """`replicas` are the present ones, `target` the planned ones; the first is the preferred leader. `size_bytes` is
    the size of one replica, or None if no broker reports it.
    """

    partition: TopicPartition
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    size_bytes: int | None = None

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers that get a copy."""
        return tuple(broker for broker in self.target if broker not in self.replicas)

    @property
    def moved_bytes(self) -> int:
        """Returns the bytes that are copied to the added replicas, as far as they are known."""
        return (self.size_bytes or 0) * len(self.adding)

    @property
    def changes(self) -> bool:
        return self.replicas != self.target


def plan_json(moves: Iterable[PlannedMove]) -> str:
    """Returns the plan as JSON: the target replicas of each partition."""
    return json.dumps({"version": 1, "partitions": [_entry(move.partition, move.target) for move in moves]})


def _entry(partition: TopicPartition, replicas: tuple[int, ...]) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": list(replicas),
        "log_dirs": ["any"] * len(replicas),
    }


def read_plan(
    text: str, name: str, known: Mapping[str, Collection[int]], brokers: Collection[int]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the target replicas of each partition; `name` is the file's, for messages. Raises UsageError if the text
    is not a plan, or names partitions or brokers that are not `known`.
    """
    try:
        plan = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is no JSON: {error}", hint=f"a plan looks like {_FORM}") from None
    if not isinstance(plan, dict) or plan.get("version") != 1 or not isinstance(plan.get("partitions"), list):
        raise UsageError(f"{name}: expected an object with version 1 and partitions", hint=f"as in {_FORM}")
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for number, entry in enumerate(plan["partitions"]):
        where = f"{name}: partitions[{number}]"
        partition, replicas = _read_entry(entry, where)
        if partition in found:
            raise UsageError(f"{where}: {partition} is there twice")
        _ensure_known(partition, replicas, where, known, brokers)
        found[partition] = replicas
    if not found:
        raise UsageError(f"{name} names no partition", hint=f"a plan looks like {_FORM}")
    return found


def _read_entry(entry: Any, where: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is {json.dumps(entry)}, expected an object", hint=f"as in {_FORM}")
    topic, number, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
    if not isinstance(topic, str) or not _is_number(number):
        raise UsageError(f"{where}: expected a topic and the number of a partition", hint=f"as in {_FORM}")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_number, replicas)):
        raise UsageError(f"{where}: replicas is {json.dumps(replicas)}, expected a list of broker ids")
    if len(set(replicas)) < len(replicas):
        raise UsageError(f"{where}: replicas is {json.dumps(replicas)}, which names a broker twice")
    directories = entry.get("log_dirs", ["any"] * len(replicas))
    if not isinstance(directories, list) or len(directories) != len(replicas):
        raise UsageError(f"{where}: log_dirs must name as many directories as there are replicas")
    if any(directory != "any" for directory in directories):
        raise UsageError(
            f'{where}: log_dirs is {json.dumps(directories)}, expected "any" for each replica',
            hint="plog does not move replicas between the directories of a broker; kafka-reassign-partitions.sh does",
        )
    return TopicPartition(topic, number), tuple(replicas)


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _ensure_known(
    partition: TopicPartition,
    replicas: tuple[int, ...],
    where: str,
    known: Mapping[str, Collection[int]],
    brokers: Collection[int],
) -> None:
    if partition.topic not in known:
        raise UsageError(
            f"{where}: no topic {partition.topic!r}", hint=did_you_mean(partition.topic, known) or "plog topic list"
        )
    if partition.partition not in known[partition.topic]:
        raise UsageError(f"{where}: topic {partition.topic!r} has no partition {partition.partition}")
    unknown = sorted(set(replicas) - set(brokers))
    if unknown:
        raise UsageError(
            f"{where}: broker {unknown[0]} is not in the cluster, expected some of "
            f"{', '.join(map(str, sorted(brokers)))}",
            hint="plog cluster brokers",
        )
