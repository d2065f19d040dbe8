"""Assigns partitions to the members of a consumer group on the broker (KIP-848).

`range` gives each member neighbouring partitions of every topic, so that topics with equally many partitions are read
together; `uniform` gives all members equally many partitions, and moves as few as it can. Sources:
org.apache.kafka.coordinator.group.assignor.{RangeAssignor,UniformAssignor}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Partitions = dict[bytes, frozenset[int]]
"""Partition numbers by topic id; no topic has an empty set."""


class MemberSpec(NamedTuple):
    """The facts about a member that an assignor uses; `instance_id` is "" for a dynamic member."""

    instance_id: str
    topics: frozenset[bytes]
    assigned: Partitions


Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, int]], dict[str, Partitions]]
"""(members by id, partition counts by topic id) -> partitions by member id; every member is a key."""


def assign_range(members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Assigns in the order of instance ids and member ids: a static member that returns gets its partitions back."""
    order = sorted(
        members, key=lambda member_id: (not members[member_id].instance_id, members[member_id].instance_id, member_id)
    )
    result: dict[str, Partitions] = {member_id: {} for member_id in members}
    for topic_id, count in topics.items():
        readers = [member_id for member_id in order if topic_id in members[member_id].topics]
        start = 0
        for number, member_id in enumerate(readers):
            size = count // len(readers) + (number < count % len(readers))
            if size:
                result[member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return result


def assign_uniform(members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Lets members keep their partitions; gives each free partition to the member that has the fewest, and then moves
    partitions from the member that has the most to the one that has the fewest, while they differ by more than one.
    """
    held: dict[str, set[tuple[bytes, int]]] = {member_id: set() for member_id in members}
    free = {(topic_id, number) for topic_id, count in topics.items() for number in range(count)}
    for member_id, spec in sorted(members.items()):
        kept = {(t, n) for t, numbers in spec.assigned.items() if t in spec.topics for n in numbers} & free
        held[member_id] = kept
        free -= kept
    readers = {topic_id: [m for m, spec in sorted(members.items()) if topic_id in spec.topics] for topic_id in topics}
    for topic_id, number in sorted(free):
        if readers[topic_id]:
            least = min(readers[topic_id], key=lambda member_id: len(held[member_id]))
            held[least].add((topic_id, number))
    _even_out(held, readers)
    return {member_id: by_topic_id(partitions) for member_id, partitions in held.items()}


def _even_out(held: dict[str, set[tuple[bytes, int]]], readers: Mapping[bytes, list[str]]) -> None:
    moved = True
    while moved:
        moved = False
        least = min(map(len, held.values()), default=0)
        for giver in sorted((m for m in held if len(held[m]) > least + 1), key=lambda m: -len(held[m])):
            for topic_id, number in sorted(held[giver], reverse=True):
                taker = min(readers[topic_id], key=lambda member_id: len(held[member_id]))
                if len(held[giver]) - len(held[taker]) <= 1:
                    continue
                held[giver].discard((topic_id, number))
                held[taker].add((topic_id, number))
                moved = True


def by_topic_id(partitions: Iterable[tuple[bytes, int]]) -> Partitions:
    topics: dict[bytes, set[int]] = {}
    for topic_id, number in partitions:
        topics.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in sorted(topics.items())}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by name; the first is the default, for a group whose members name none."""
