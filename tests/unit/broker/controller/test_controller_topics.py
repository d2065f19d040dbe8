"""Topics that a controller makes, grows and deletes: each is answered for itself, and others have turns in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from core.broker.controller.controller_topics import ControllerTopics, Growth
from core.broker.requests.runtime import ImmediateRuntime
from core.broker.requests.stepped_answer import SteppedAnswers
from core.cluster.controller.controller_writes import AssignmentWrite, DeletionWrite, TopicRemoval, Write
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.task import Task
from core.protocol.schema.control_request import STOP_REPLICA, StopReplicaPartitionError, StopReplicaResponse
from core.zookeeper.controller_store import OutOfOfficeError
from tests.support.office import Office
from tests.unit.broker.controller.test_active_controller import codes, outcome

_BATCH = 500
"""Partitions of one turn."""


def topics_of(it: Office) -> ControllerTopics:
    """Its broker hears at once of whatever is made, that it is led, and of what goes."""
    config = SimpleNamespace(num_partitions=1, default_replication_factor=1)
    led = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
    image = SimpleNamespace(topics={}, topics_by_id=SimpleNamespace(get=lambda _topic_id: led))
    control = SimpleNamespace(require_term=lambda: it.term, when_known=lambda is_so, _timeout_ms: is_so())
    controller, configs = SimpleNamespace(image=image), SimpleNamespace(broker=config)
    return ControllerTopics(cast(Any, control), cast(Any, controller), cast(Any, configs))


def begun(task: Task[Any]) -> Pending[Any]:
    pending = SteppedAnswers(ImmediateRuntime()).answer(task)
    assert isinstance(pending, Pending)
    return pending


def create(it: Office, *names: str) -> Pending[Any]:
    return begun(topics_of(it).create([NewTopic(name) for name in names], validate_only=False, timeout_ms=1000))


def names(count: int) -> list[str]:
    return [f"new{number}" for number in range(count)]


def before_each_commit(it: Office, work: Callable[[Sequence[Write]], None]) -> None:
    commit = it.store.commit

    async def commit_after(writes: Sequence[Write]) -> list[int]:
        work(writes)
        return await commit(writes)

    it.store.commit = commit_after  # type: ignore[method-assign]


def made(writes: Sequence[Write]) -> list[str]:
    return [write.topic for write in writes if isinstance(write, AssignmentWrite)]


async def test_segments_may_be_as_small_as_kafka_3_allows(it: Office) -> None:
    """Other brokers of the cluster are Kafka 3's."""
    asked = [NewTopic("small", configs={"segment.bytes": "14"}), NewTopic("none", configs={"segment.bytes": "13"})]
    pending = begun(topics_of(it).create(asked, validate_only=False, timeout_ms=1000))
    await it.settle()
    assert codes(outcome(pending)) == {"small": 0, "none": ErrorCode.INVALID_CONFIG}


async def test_a_topic_that_zookeeper_does_not_take_is_the_only_one_that_is_refused(it: Office) -> None:
    def refuse(writes: Sequence[Write]) -> None:
        if "huge" in made(writes):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "it is too large")

    before_each_commit(it, refuse)
    pending = create(it, "a", "huge", "b")
    await it.settle()
    assert codes(outcome(pending)) == {"a": 0, "huge": ErrorCode.INVALID_REQUEST, "b": 0}
    assert isinstance(outcome(pending)["a"], TopicImage)
    assert made(it.store.written) == ["a", "b"]
    assert it.term.context.topics.keys() == {"t", "a", "b"}


async def test_a_term_that_ends_refuses_only_what_it_had_not_done(it: Office) -> None:
    """A client that tries the refused ones again must not be told that others exist already."""

    def end(writes: Sequence[Write]) -> None:
        if f"new{_BATCH}" in made(writes):
            raise OutOfOfficeError

    before_each_commit(it, end)
    pending = create(it, *names(3 * _BATCH))
    await it.settle()
    expected = [ErrorCode.NONE] * _BATCH + [ErrorCode.NOT_CONTROLLER] * 2 * _BATCH
    assert codes(outcome(pending)) == dict(zip(names(3 * _BATCH), expected, strict=True))
    assert made(it.store.written) == names(_BATCH)


async def test_topics_grow_each_for_itself_when_the_term_ends(it: Office) -> None:
    create(it, *names(100))
    await it.settle()

    def end(writes: Sequence[Write]) -> None:
        if "new30" in made(writes):
            raise OutOfOfficeError

    before_each_commit(it, end)
    wanted = [Growth(name, 2, None) for name in names(100)]
    pending = topics_of(it).create_partitions(wanted, validate_only=False)
    while not pending.is_over:
        await it.settle()
    expected = [ErrorCode.NONE] * 23 + [ErrorCode.NOT_CONTROLLER] * 77
    assert codes(outcome(pending)) == dict(zip(names(100), expected, strict=True))


async def test_others_have_a_turn_while_many_topics_are_deleted(it: Office) -> None:
    create(it, *names(3 * _BATCH))
    await it.settle()
    it.store.written.clear()
    seen: list[int] = []

    async def other() -> None:
        seen.append(sum(isinstance(write, DeletionWrite) for write in it.store.written))

    pending = begun(topics_of(it).delete(["none", *names(3 * _BATCH)], timeout_ms=1000))
    await asyncio.sleep(0)
    it.term.do(other)
    await it.settle()
    assert seen[0] < _BATCH + 1
    expected = {
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        **dict.fromkeys(names(3 * _BATCH), ErrorCode.NONE),
    }
    assert codes(outcome(pending)) == expected


async def test_a_topic_that_is_being_deleted_says_what_it_waits_for(it: Office) -> None:
    await it.term.drive(it.term.controller.on_deletions(["t"]))
    assert it.term.controller.deletions.find_left("t") == {0: [1, 2]}
    it.term.context.brokers.pop(2)
    pending = create(it, "t")
    await it.settle()
    refused = outcome(pending)["t"]
    assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused.message == (
        "Topic 't' already exists: it is being deleted, and has replicas left on broker 1, 2; "
        "it waits for broker 2, which is not alive."
    )


async def test_others_have_a_turn_while_what_is_left_of_many_topics_is_removed(it: Office) -> None:
    create(it, *names(_BATCH))
    await it.settle()
    begun(topics_of(it).delete(names(_BATCH), timeout_ms=1000))
    await it.settle()
    seen: list[int] = []

    async def other() -> None:
        seen.append(sum(isinstance(write, TopicRemoval) for write in it.store.written))

    for _, _, queue in it.queues:
        for request in [one for one in queue.sent if one.api is STOP_REPLICA]:
            deleted = [
                StopReplicaPartitionError(topic.topic_name, one.partition_index, ErrorCode.NONE)
                for topic in request.request.topic_states
                for one in topic.partition_states
            ]
            queue.on_answer(request, StopReplicaResponse(partition_errors=deleted))
            it.term.do(other)
    await it.settle()
    assert 0 < seen[-1] < _BATCH
    removed = [write.topic for write in it.store.written if isinstance(write, TopicRemoval)]
    assert sorted(removed) == sorted(names(_BATCH)), "each once"
    assert it.term.context.topics.keys() == {"t"}
