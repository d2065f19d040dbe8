"""A member of a consumer group, and how it moves from its assignment to its target (KIP-848).

Sources: org.apache.kafka.coordinator.group.modern.consumer.{ConsumerGroupMember,CurrentAssignmentBuilder}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from enum import IntEnum
from typing import NamedTuple, Protocol

from core.coordinator.assignors import ASSIGNORS, Partitions, by_topic_id
from core.protocol.schema.group_records import ConsumerGroupMemberMetadataValue as Subscription

JOIN_EPOCH = 0


class MemberState(IntEnum):
    """The states in records. UNKNOWN is one that a newer broker wrote; the next heartbeat replaces it."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:  # noqa: ARG003
        return cls.UNKNOWN


NO_SUBSCRIPTION = Subscription(
    instance_id=None,
    rack_id=None,
    subscribed_topic_regex=None,
    server_assignor=None,
    classic_member_metadata=None,
)


class ConsumerMember(NamedTuple):
    """A member as in the records. It must give up the `revoking` partitions before it gets its next epoch.

    The subscription is the member's description of itself, with sorted topics, and with its protocols if it joined by
    JoinGroup; it is never changed in place.
    """

    member_id: str
    subscription: Subscription = NO_SUBSCRIPTION
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = {}  # noqa: RUF012 - never changed in place
    revoking: Partitions = {}  # noqa: RUF012
    since: Mapping[tuple[bytes, int], int] = {}
    """The epoch in which each assigned partition was assigned to the member (KIP-1251)."""

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic_member_metadata is not None

    @property
    def held(self) -> set[tuple[bytes, int]]:
        """The partitions that the member reads, or may still read."""
        return {(t, n) for part in (self.assigned, self.revoking) for t, numbers in part.items() for n in numbers}


class _TopicPartitions(Protocol):
    """How messages and records list partitions of a topic."""

    topic_id: bytes
    partitions: list[int]


def reconcile(
    member: ConsumerMember,
    target: Partitions,
    target_epoch: int,
    held_by_others: set[tuple[bytes, int]],
    owned: Partitions | None,
    subscribed: Set[bytes] | None,
) -> ConsumerMember:
    """Takes the member's next step to its target. `owned` is what the member reports to own, if it reports that;
    `subscribed` are the topics of its new subscription, if that changed.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and (owned is None or overlap(owned, member.revoking)):
        unwanted = member.assigned.keys() - (member.assigned.keys() if subscribed is None else subscribed)
        if not unwanted:
            return member
        revoking = dict(member.revoking)
        for topic_id in unwanted:
            revoking[topic_id] = member.assigned[topic_id] | revoking.get(topic_id, frozenset())
        kept = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in unwanted}
        return member._replace(previous_epoch=member.epoch, assigned=kept, revoking=revoking)
    kept = common(member.assigned, target)
    revoking = without(member.assigned, target)
    if revoking and (owned is None or overlap(owned, revoking)):
        return member._replace(
            previous_epoch=member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )
    wanted = {(t, n) for t, numbers in target.items() for n in numbers}
    free = wanted - held_by_others
    since = {}
    for topic_id, number in sorted(free):
        is_new = number not in kept.get(topic_id, ())
        since[topic_id, number] = target_epoch if is_new else member.since[topic_id, number]
    return member._replace(
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS,
        assigned=by_topic_id(free),
        revoking={},
        since=since,
    )


def wishes(subscription: Subscription) -> tuple[object, ...]:
    """Returns the fields whose change raises the group epoch."""
    return subscription.subscribed_topic_names, subscription.subscribed_topic_regex or None


def preferred_assignor(members: Iterable[ConsumerMember]) -> str:
    """Returns the assignor that most members name; of several the first in `ASSIGNORS`, as Kafka does."""
    asked = Counter(member.subscription.server_assignor for member in members)
    return max(ASSIGNORS, key=lambda name: asked[name])


def regexes_of(members: Iterable[ConsumerMember]) -> set[str]:
    return {
        member.subscription.subscribed_topic_regex for member in members if member.subscription.subscribed_topic_regex
    }


def topic_names(subscription: Subscription, regexes: Mapping[str, frozenset[str]]) -> set[str]:
    names = set(subscription.subscribed_topic_names)
    if subscription.subscribed_topic_regex:
        names |= regexes.get(subscription.subscribed_topic_regex, frozenset())
    return names


def partitions_of(topics: Iterable[_TopicPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def common(left: Partitions, right: Partitions) -> Partitions:
    found = {topic_id: numbers & right.get(topic_id, frozenset()) for topic_id, numbers in left.items()}
    return {topic_id: numbers for topic_id, numbers in found.items() if numbers}


def without(left: Partitions, right: Partitions) -> Partitions:
    found = {topic_id: numbers - right.get(topic_id, frozenset()) for topic_id, numbers in left.items()}
    return {topic_id: numbers for topic_id, numbers in found.items() if numbers}


def union(left: Partitions, right: Partitions) -> Partitions:
    none: frozenset[int] = frozenset()
    return {topic_id: left.get(topic_id, none) | right.get(topic_id, none) for topic_id in (*left, *right)}


def overlap(left: Partitions, right: Partitions) -> bool:
    return bool(common(left, right))
