"""Creates, grows and deletes topics, as the controller of a cluster.

A request is checked in its turn, against the metadata of that moment. A topic is written with its settings in one
transaction; the request is answered when this broker, like all others, has been told that the topic has leaders.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

from core.broker.config.effective_configs import Configs
from core.broker.controller.active_controller import ActiveController
from core.broker.controller.controller_elector import ControllerElector
from core.cluster.assignment.replica_assignment import place_replicas
from core.cluster.controller.controller_context import ControlledTopic, unwritten_state
from core.cluster.controller.controller_writes import NOT_WRITTEN, DeletionWrite, slices
from core.cluster.image.broker_metadata import BrokerMetadata, NewTopic
from core.cluster.image.metadata_image import NO_LEADER, PartitionState, TopicImage
from core.cluster.image.topic_rules import (
    MOST_PARTITIONS,
    checked_assignments,
    ensure_grows,
    ensure_has_no_gaps,
    ensure_may_be_made,
    too_many,
    wanted_replicas,
)
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending, wait_for
from core.common.task import Task
from core.common.topic_partition import name_in_metrics, random_uuid
from core.protocol.schema.metadata_records import PartitionRecord

Outcomes = dict[str, TopicImage | KafkaError]
Errors = dict[str, KafkaError | None]

T = TypeVar("T")

_GROWTH = 20
"""Growing a topic costs as much as creating so many partitions."""


class Growth(NamedTuple):
    """The new number of partitions of a topic, and the replicas of the added ones, if the request has them."""

    topic: str
    partitions: int
    assignments: Sequence[Sequence[int]] | None


class ControllerTopics:
    """Owned by the broker's loop; made for one request, which the controller's broker answers."""

    def __init__(self, control: ControllerElector, controller: BrokerMetadata, configs: Configs) -> None:
        """Raises KafkaError(NOT_CONTROLLER) if the broker is not the controller."""
        self._control = control
        self._controller = controller
        self._configs = configs
        self._term: ActiveController = control.require_term()
        self._context = self._term.context

    # --- creating

    def create(self, topics: Sequence[NewTopic], *, validate_only: bool, timeout_ms: int) -> Task[Outcomes]:
        """Returns, by name, each new topic or its error. REQUEST_TIMED_OUT is the error of a topic that was created,
        but has no leaders in time.
        """
        names = [topic.name for topic in topics]
        parts = self._in_parts(topics, validate_only=validate_only)
        done = self._term.do_in_turns(names, parts, partial(self._create, validate_only=validate_only))
        outcomes = yield from wait_for(done)
        if validate_only:
            return outcomes
        made = {name: topic for name, topic in outcomes.items() if isinstance(topic, TopicImage)}
        return (yield from self._wait(outcomes, made, lambda name: self._is_led(made[name]), timeout_ms))

    def _wait(
        self, outcomes: Mapping[str, T], going: Collection[str], is_so: Callable[[str], bool], timeout_ms: int
    ) -> Task[dict[str, T | KafkaError]]:
        """Waits until all of the names are so; the outcome of one that is not so in time is REQUEST_TIMED_OUT."""
        yield from wait_for(self._control.when_known(lambda: all(map(is_so, going)), timeout_ms))
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return {name: late if name in going and not is_so(name) else one for name, one in outcomes.items()}

    def _is_led(self, topic: TopicImage) -> bool:
        known = self._controller.image.topics_by_id.get(topic.topic_id)
        return known is not None and all(
            number in known.partitions and known.partitions[number].leader != NO_LEADER for number in topic.partitions
        )

    def _in_parts(self, topics: Sequence[NewTopic], *, validate_only: bool) -> Iterator[Sequence[NewTopic]]:
        """Yields the topics to create in one turn. A preview has a single turn: it must compare each name with the
        earlier ones, which are not created. Raises KafkaError(POLICY_VIOLATION) for too many.
        """

        def count(topic: NewTopic) -> int:
            return topic.count_partitions(self._configs.broker.num_partitions)

        wanted = sum(map(count, topics))
        if wanted > MOST_PARTITIONS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, too_many(wanted))
        yield from [topics] if validate_only else slices(topics, count)

    async def _create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> Outcomes:
        outcomes: Outcomes = {}
        made: dict[str, ControlledTopic] = {}
        names = self._names_in_metrics(topics)
        taken = self._context.topics.keys() | self._context.unreadable
        for some in slices(topics):
            for topic in some:
                try:
                    self._ensure_is_not_going(topic.name)
                    ensure_may_be_made(topic, taken, names, is_kafka_3=True)
                    made[topic.name] = self._placed(topic)
                except KafkaError as error:
                    outcomes[topic.name] = error
                else:
                    names[name_in_metrics(topic.name)] = topic.name
                    outcomes[topic.name] = _image_of(topic.name, made[topic.name])
            await asyncio.sleep(0)  # other tasks have a turn, but no other decision
        if made and not validate_only:
            configs = {topic.name: {k: v for k, v in topic.configs.items() if v is not None} for topic in topics}
            outcomes |= await self._write_new(made, configs)
        return outcomes

    def _ensure_is_not_going(self, name: str) -> None:
        """Raises KafkaError(TOPIC_ALREADY_EXISTS) for a topic that is being deleted, with what that waits for."""
        if name not in self._context.deleted:
            return
        brokers = set(chain.from_iterable(self._term.controller.deletions.find_left(name).values()))
        dead = brokers - self._context.brokers.keys()
        on, gone = (", ".join(map(str, sorted(some))) for some in (brokers, dead))
        left = f", and has replicas left on broker {on}" if brokers else ""
        waits = f"; it waits for broker {gone}, which is not alive" if dead else ""
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists: it is being deleted{left}{waits}."
        )

    async def _write_new(
        self, made: Mapping[str, ControlledTopic], configs: Mapping[str, Mapping[str, str]]
    ) -> dict[str, KafkaError]:
        """Writes topics; returns errors for those that ZooKeeper refuses. If it refuses one of several, none is
        written, and each is tried alone.
        """
        try:
            await self._term.drive(self._term.controller.create_topics(made, configs))
        except KafkaError as error:
            if len(made) == 1:
                return dict.fromkeys(made, error)
            refused: dict[str, KafkaError] = {}
            for name, topic in made.items():
                refused |= await self._write_new({name: topic}, configs)
            return refused
        return {}

    def _names_in_metrics(self, topics: Iterable[NewTopic]) -> dict[str, str]:
        """Returns the names of all topics, by their names in metrics; empty if no new topic's name can collide with
        another's there.
        """
        if not any("." in topic.name or "_" in topic.name for topic in topics):
            return {}
        return {name_in_metrics(name): name for name in (*self._context.topics, *self._context.unreadable)}

    def _placed(self, topic: NewTopic) -> ControlledTopic:
        """Returns the new topic with its replicas placed. Raises KafkaError if that is impossible."""
        config = self._configs.broker
        racks = self._racks()
        wanted = wanted_replicas(topic, config.num_partitions, config.default_replication_factor, racks)
        if isinstance(wanted, dict):
            assigned: Mapping[int, Sequence[int]] = wanted
        else:
            partitions, replication = wanted
            assigned = self._place(racks, range(partitions), replication)
        topic_id = random_uuid()
        states = {number: unwritten_state(replicas) for number, replicas in sorted(assigned.items())}
        return ControlledTopic(topic_id, NOT_WRITTEN, states)

    def _racks(self) -> dict[int, str | None]:
        context = self._context
        return {
            one: broker.registration.rack for one, broker in context.brokers.items() if one not in context.shutting_down
        }

    def _place(
        self, racks: Mapping[int, str | None], partitions: Iterable[int], replication: int
    ) -> dict[int, tuple[int, ...]]:
        return place_replicas(
            racks,
            partitions,
            replication,
            start=random.randrange(len(racks)),  # noqa: S311 - any broker may come first
            shift=random.randrange(len(racks)),  # noqa: S311
        )

    # --- growing

    def create_partitions(self, wanted: Sequence[Growth], *, validate_only: bool) -> Pending[Errors]:
        """Grows topics, each independent of the others; returns the error of each, or None."""
        names = [one.topic for one in wanted]
        return self._term.do_in_turns(names, self._growths(wanted), partial(self._grow, validate_only=validate_only))

    def _growths(self, wanted: Sequence[Growth]) -> Iterator[Sequence[Growth]]:
        """Yields the growths of one turn. Raises KafkaError(INVALID_PARTITIONS) for too many new partitions."""
        added = sum(map(self._count_added, wanted))
        if added > MOST_PARTITIONS:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, too_many(added))
        yield from slices(wanted, lambda one: _GROWTH + self._count_added(one))

    def _count_added(self, wanted: Growth) -> int:
        topic = self._context.topics.get(wanted.topic)
        return max(wanted.partitions - len(topic.partitions), 0) if topic is not None else 0

    async def _grow(self, wanted: Sequence[Growth], *, validate_only: bool) -> Errors:
        outcomes: Errors = {}
        for one in wanted:
            try:
                added = self._added(one)
                if not validate_only:
                    await self._term.drive(self._term.controller.create_partitions(one.topic, added))
                outcomes[one.topic] = None
            except KafkaError as error:
                outcomes[one.topic] = error
        return outcomes

    def _added(self, wanted: Growth) -> dict[int, PartitionState]:
        """Returns the new partitions of a topic. Raises KafkaError if it can't grow like that."""
        name, count, assignments = wanted
        topic = self._context.topics.get(name)
        if topic is None or name in self._context.deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        present = len(topic.partitions)
        ensure_has_no_gaps(name, topic.partitions)
        ensure_grows(name, present, count, assignments)
        if count - present > MOST_PARTITIONS:  # the topic did not exist when all were counted
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, too_many(count - present))
        if any(state.adding_replicas or state.removing_replicas for state in topic.partitions.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
            )
        racks = self._racks()
        if assignments is not None:
            given = dict(zip(range(present, count), assignments, strict=True))
            added: Mapping[int, Sequence[int]] = checked_assignments(given, first=present, brokers=racks)
        else:
            replication = len(topic.partitions[min(topic.partitions)].replicas)
            if replication > len(racks):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"the topic has {replication} replicas, and {len(racks)} brokers live",
                )
            added = self._place(racks, range(present, count), replication)
        return {number: unwritten_state(replicas) for number, replicas in added.items()}

    # --- deleting

    def delete(self, names: Sequence[str], *, timeout_ms: int) -> Task[Errors]:
        """Deletes topics; returns the error of each, or None. For clients a topic is deleted as soon as no live
        broker's metadata have it; its replicas follow.
        """
        topics = self._context.topics
        parts = slices(names, lambda name: len(topics[name].partitions) if name in topics else 1)
        done = self._term.do_in_turns(names, parts, self._delete)
        outcomes = yield from wait_for(done)
        going = {name for name, error in outcomes.items() if error is None}
        return (yield from self._wait(outcomes, going, self._is_gone, timeout_ms))

    def _is_gone(self, name: str) -> bool:
        return name not in self._controller.image.topics

    async def _delete(self, names: Sequence[str]) -> Errors:
        outcomes: Errors = {}
        for name in names:
            is_there = name in self._context.topics and name not in self._context.deleted
            outcomes[name] = None if is_there else KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        known = [name for name, error in outcomes.items() if error is None]
        if known:
            await self._term.write([DeletionWrite(name) for name in known])
            await self._term.drive(self._term.controller.on_deletions(known))
        return outcomes


def _image_of(name: str, topic: ControlledTopic) -> TopicImage:
    partitions = {
        number: PartitionRecord(partition_id=number, topic_id=topic.topic_id, replicas=list(state.replicas))
        for number, state in topic.partitions.items()
    }
    return TopicImage(name, topic.topic_id, partitions)
