"""Consumers of a group in ZooKeeper against a slow model: who reads what is worked out again from who is in the group.

Consumers join, leave, crash and lose their sessions; answers of ZooKeeper are lost, partitions are added, and each
consumer goes on at its own pace. A consumer here is what `GroupConsumer` is: it commits what it has read before it
gives a partition up, and goes on where the group has committed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.common.topic_partition import TopicPartition
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.group_registry import WHITE_LIST, ConsumerNode
from core.zookeeper.registered_consumer import RegisteredConsumer
from core.zookeeper.zookeeper_transaction import ZooKeeperError
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.manual_clock import ManualClock
from tests.support.zookeeper_sessions import Fault, FaultyModel

TOPICS = ("t", "u")
_ANY = st.integers(0, 1 << 16)
_Result = TypeVar("_Result")


def topic_node(partitions: int) -> bytes:
    return json.dumps({"version": 2, "partitions": {str(number): [1] for number in range(partitions)}}).encode()


def done(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Nothing here waits for anything: a coroutine runs to its end at once."""

    async def run() -> _Result:
        return await work

    return asyncio.run(run())


@dataclass
class Reader:
    """One consumer, with what it reads from where, and what it has not committed yet."""

    session: FaultyModel
    consumer: RegisteredConsumer
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    uncommitted: dict[TopicPartition, int] = field(default_factory=dict)
    assigned: frozenset[TopicPartition] = frozenset()

    def commit(self) -> None:
        if self.uncommitted and done(self.consumer.commit(self.uncommitted)):
            self.uncommitted = {}

    def look(self) -> None:
        """The first half of a round of a `GroupConsumer`; others may act before the second."""
        self.assigned = self.consumer.owned
        if self.consumer.needs_to_look:
            self.assigned = done(self.consumer.advance(is_reading=bool(self.positions)))

    def take_up(self) -> None:
        given_up = self.positions.keys() - self.assigned
        if given_up:
            self.commit()
            for partition in given_up:
                del self.positions[partition]
                self.uncommitted.pop(partition, None)
        added = sorted(self.assigned - self.positions.keys())
        self.positions |= dict.fromkeys(added, 0) | done(self.consumer.find_offsets(added))


class ConsumersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.zookeeper = FakeZooKeeper()
        self.clock = ManualClock()
        self.readers: list[Reader] = []
        self.read: Counter[tuple[TopicPartition, int]] = Counter()
        self.committed: dict[str, int] = {}
        self.partitions = {"t": 4, "u": 1}
        self.may_double = False
        for topic, count in self.partitions.items():
            self.zookeeper.set(f"/brokers/topics/{topic}", topic_node(count))

    def reader(self, number: int) -> Reader:
        return self.readers[number % len(self.readers)]

    # --- what happens

    @precondition(lambda self: len(self.readers) < 4)
    @rule(
        topics=st.sampled_from([{"t": 1}, {"u": 1}, {"t": 1, "u": 1}, None]),
        lost=st.sampled_from([[], [], [], [Fault.NOT_DONE], [Fault.DONE], [None, Fault.DONE]]),
    )
    def join(self, topics: dict[str, int] | None, lost: list[Fault | None]) -> None:
        self.may_double |= bool(lost)
        wanted = ConsumerNode({".*": 1}, pattern=WHITE_LIST) if topics is None else ConsumerNode(topics)
        session = FaultyModel(self.zookeeper, self.zookeeper.next_session_id())
        view = ClusterView(cast("Any", session))
        consumer = RegisteredConsumer(cast("Any", session), view, "g", wanted, self.clock)
        done(consumer.begin())
        session.faults += lost
        self.readers.append(Reader(session, consumer))

    @precondition(lambda self: self.readers)
    @rule(number=_ANY, rounds=st.integers(1, 3))
    def follow(self, number: int, rounds: int) -> None:
        for _ in range(rounds):
            self.reader(number).take_up()
            self.clock.advance(1)  # which gives each consumer's id its place in the order
            self.reader(number).look()

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def read_some(self, number: int) -> None:
        reader = self.reader(number)
        reader.take_up()
        for partition, offset in reader.positions.items():
            self.read[partition, offset] += 1
            reader.positions[partition] = reader.uncommitted[partition] = offset + 1

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def commit(self, number: int) -> None:
        self.reader(number).commit()

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def leave(self, number: int) -> None:
        reader = self.reader(number)
        reader.commit()
        self.may_double |= bool(reader.uncommitted)
        reader.session.faults.clear()
        reader.session.meanwhile.clear()
        with suppress(ZooKeeperError):  # its id is gone already
            done(reader.consumer.leave())
        reader.session.close()
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def crash(self, number: int) -> None:
        reader = self.reader(number)
        self.may_double = True
        reader.session.close()
        self.readers.remove(reader)

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def expire(self, number: int) -> None:
        """The reader hears of it later: until then it reads what may be others' by now."""
        self.may_double = True
        self.reader(number).session.expire()

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def hear(self, number: int) -> None:
        self.reader(number).session.hear()

    @precondition(lambda self: len(self.readers) > 1)
    @rule(number=_ANY, other=_ANY, quiet=st.integers(0, 4), expires=st.booleans())
    def have_another_go_meanwhile(self, number: int, other: int, quiet: int, *, expires: bool) -> None:
        """Another one's session ends, or partitions are added, between two requests of this one."""
        session = self.reader(other).session

        def act() -> None:
            if expires:
                self.may_double = True
                session.expire()
            else:
                self.add_partition("t")

        self.reader(number).session.meanwhile += [lambda: None] * quiet + [act]

    @precondition(lambda self: self.readers)
    @rule(number=_ANY, lost=st.lists(st.sampled_from([None, *Fault]), min_size=1, max_size=4))
    def lose(self, number: int, lost: list[Fault | None]) -> None:
        self.may_double = True
        self.reader(number).session.faults += lost

    @rule(topic=st.sampled_from(TOPICS))
    def add_partition(self, topic: str) -> None:
        if self.partitions[topic] < 7:
            self.partitions[topic] += 1
            self.zookeeper.set(f"/brokers/topics/{topic}", topic_node(self.partitions[topic]))

    @precondition(lambda self: self.readers)
    @rule(number=_ANY)
    def delete_from_outside(self, number: int) -> None:
        """Somebody deletes a consumer's id with a tool."""
        ids = self.zookeeper.children("/consumers/g/ids") or []
        if ids:
            self.may_double = True
            self.zookeeper.delete(f"/consumers/g/ids/{ids[number % len(ids)]}")

    @rule()
    def settle(self) -> None:
        """Everybody goes on until nothing changes; the model says who owns what then."""
        for reader in self.readers:
            reader.session.faults.clear()
            reader.session.meanwhile.clear()
            reader.session.hear()
        for _ in range(6):
            for reader in self.readers:
                reader.take_up()
                self.clock.advance(1)
                reader.look()
        ids = self.zookeeper.children("/consumers/g/ids") or []
        assert len(ids) == len(self.readers)
        by_id = {one.consumer._consumer_id: one for one in self.readers}
        for topic, count in self.partitions.items():
            names = [name for name in ids if topic in by_id[name].consumer._topics.threads(TOPICS)]
            if not names:
                continue
            for name, part in zip(names, np.array_split(range(count), len(names)), strict=True):
                expected = {TopicPartition(topic, int(number)) for number in part}
                assert {tp for tp in by_id[name].positions if tp.topic == topic} == expected
                for partition in expected:
                    node = self.zookeeper.nodes[f"/consumers/g/owners/{topic}/{partition.partition}"]
                    assert node.data.decode() == f"{name}-0"

    # --- what always holds

    @invariant()
    def nothing_is_passed_over(self) -> None:
        for partition, offset in self.read:
            assert offset == 0 or (partition, offset - 1) in self.read

    @invariant()
    def nothing_is_doubled_while_nobody_crashes(self) -> None:
        assert self.may_double or all(count == 1 for count in self.read.values())

    @invariant()
    def what_is_committed_was_read_and_does_not_go_back(self) -> None:
        for path, node in self.zookeeper.nodes.items():
            if path.startswith("/consumers/g/offsets/") and node.data:
                topic, number = path.split("/")[-2:]
                offset = int(node.data)
                assert (TopicPartition(topic, int(number)), offset - 1) in self.read
                assert offset >= self.committed.get(path, 0)
                self.committed[path] = offset


TestConsumers = ConsumersMachine.TestCase
TestConsumers.settings = settings(stateful_step_count=40)
