"""What tasks of Spark wrote to a topic counts whole or not at all, whichever of their attempts come late: the attempts
and the driver as Spark runs them, without Spark. What counts is what librdkafka reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from core.client.admin.admin import Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED
from core.client.write.transaction_admin import TransactionAdmin
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.errors import KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.spark import job_commit
from core.spark.job_commit import Attempt, BatchJob, Job, Prepared, StreamBatch, write_attempt
from plog.testing import RunningBroker, running_broker
from tests.support.topic_reader import read_topic
from tests.support.waiting import wait_until

TASKS = 3
KINDS = [
    pytest.param(0, id="job", marks=pytest.mark.longer),
    pytest.param(1, id="named"),
    pytest.param(2, id="stream", marks=pytest.mark.longer),
]
EACH = 10
WHOLE = sorted(f"task{task}-{n}" for task in range(TASKS) for n in range(EACH))


class DriverDiesError(Exception):
    pass


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.translate(dict.fromkeys(map(ord, "[]<> "), "-"))
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def connect(broker: RunningBroker) -> Callable[[], KafkaClient]:
    return partial(KafkaClient, parse_bootstrap(broker.bootstrap_servers))


@pytest.fixture
def client(connect: Callable[[], KafkaClient]) -> Iterator[KafkaClient]:
    with closing(connect()) as found:
        yield found


def write(
    job: Job, task: int, topic: str, connect: Callable[[], KafkaClient], *, attempt: int = 0, text: str = "task"
) -> Prepared:
    """An attempt at a task, to its end."""
    rows = pa.record_batch({"value": [f"{text}{task}-{n}" for n in range(EACH)]})
    # a late one is the second at its task, and Spark numbers all attempts of an application
    found = write_attempt(job, Attempt(task, 100 * task + attempt, attempt), topic, [rows], connect)
    assert found is not None
    return found


def whole(job: Job, topic: str, connect: Callable[[], KafkaClient], **options: Any) -> list[Prepared]:
    return [write(job, task, topic, connect, **options) for task in range(TASKS)]


def ensure_counts(broker: RunningBroker, topic: str, client: KafkaClient, expected: list[str]) -> None:
    """No transaction is open, either."""
    ends = dict.fromkeys((TopicPartition(topic, 0), TopicPartition(topic, 1)), -1)
    admin = Admin(client)
    wait_until(
        lambda: admin.list_offsets(ends, isolation_level=READ_COMMITTED) == admin.list_offsets(ends),
        lambda: f"open: {TransactionAdmin(client).open_transactions([topic])}",
    )
    found = read_topic(broker.bootstrap_servers, topic, 2)
    assert sorted((message.value() or b"").decode() for message in found) == expected


def batch(run: str = "0123456789abcdef", *, prefix: str = "plog", is_named: bool = False) -> BatchJob:
    return BatchJob(prefix, run, is_named)


def jobs(topic: str) -> list[Job]:
    return [
        BatchJob(f"job-{topic}", "0123456789abcdef", is_named=False),
        BatchJob(f"named-{topic}", "0123456789abcdef", is_named=True),
        StreamBatch(f"stream-{topic}", "run", 7),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before", "between"])
def test_an_attempt_that_comes_late_changes_nothing(
    broker: RunningBroker,
    topic: str,
    client: KafkaClient,
    connect: Callable[[], KafkaClient],
    monkeypatch: pytest.MonkeyPatch,
    kind: int,
    moment: str,
) -> None:
    """It has written, and is killed; or it starts while the driver commits, after a first task."""
    job = jobs(topic)[kind]
    tasks = whole(job, topic, connect)
    ended: list[Prepared] = []
    end = job_commit.end_transaction

    def end_and_come(*arguments: Any, **options: Any) -> Any:
        found = end(*arguments, **options)
        if not ended:
            ended.append(tasks[0])
            with pytest.raises(PlogError, match="comes too late: the job is being ended"):
                write(job, 1, topic, connect, attempt=1)
        return found

    if moment == "before":
        write(job, 1, topic, connect, attempt=1)
    else:
        monkeypatch.setattr(job_commit, "end_transaction", end_and_come)
    job.commit(client, tasks, TASKS)
    ensure_counts(broker, topic, client, WHOLE)


def test_an_attempt_that_has_looked_when_the_job_is_closed_writes_nothing(
    broker: RunningBroker, topic: str, client: KafkaClient, connect: Callable[[], KafkaClient]
) -> None:
    job = batch(prefix=topic)
    tasks = whole(job, topic, connect)

    def rows() -> Iterator[Any]:
        job.commit(client, tasks, TASKS)
        yield pa.record_batch({"value": ["late"]})

    with pytest.raises(KafkaError):
        write_attempt(job, Attempt(1, 1, 1), topic, rows(), connect)
    ensure_counts(broker, topic, client, WHOLE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_that_has_ended_before_its_job_leaves_nothing(
    broker: RunningBroker, topic: str, client: KafkaClient, connect: Callable[[], KafkaClient], kind: int
) -> None:
    """Because its time was over, or because somebody took the id."""
    job = jobs(topic)[kind]
    tasks = whole(job, topic, connect)
    TransactionAdmin(client).fence(tasks[1].identity.transactional_id)
    with pytest.raises(PlogError, match=f"{tasks[1].identity.transactional_id} has ended before the job"):
        job.commit(client, tasks, TASKS)
    job.abort(client, tasks)
    ensure_counts(broker, topic, client, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_fails_leaves_nothing_open(
    broker: RunningBroker, topic: str, client: KafkaClient, connect: Callable[[], KafkaClient], kind: int
) -> None:
    """Not of attempts of which the driver knows nothing, either."""
    job = jobs(topic)[kind]
    write(job, 2, topic, connect, attempt=1)
    job.abort(client, [write(job, 0, topic, connect)])
    ensure_counts(broker, topic, client, [])
    with pytest.raises(PlogError, match="comes too late"):
        write(job, 1, topic, connect)


def dies_after(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver, among its commits."""
    end, left = job_commit.end_transaction, iter(range(number))

    def maybe_end(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise DriverDiesError
        return end(*arguments, **options)

    monkeypatch.setattr(job_commit, "end_transaction", maybe_end)


@pytest.mark.parametrize("ended", [0, TASKS, *(pytest.param(one, marks=pytest.mark.longer) for one in range(1, TASKS))])
@pytest.mark.parametrize("kind", ["named", "stream"])
def test_a_driver_that_dies_among_its_commits_is_completed(
    broker: RunningBroker, topic: str, client: KafkaClient, connect: Callable[[], KafkaClient], kind: str, ended: int
) -> None:
    def job(run: int) -> Job:
        return batch(f"{run:016x}", prefix=topic, is_named=True) if kind == "named" else StreamBatch(topic, f"{run}", 0)

    with pytest.MonkeyPatch.context() as patch:
        dies_after(ended, patch)
        write(job(1), 0, topic, connect, attempt=1)  # open, too
        tasks = whole(job(1), topic, connect)
        if ended < TASKS:
            with pytest.raises(DriverDiesError):
                job(1).commit(client, tasks, TASKS)
        else:
            job(1).commit(client, tasks, TASKS)
    again = job(2)
    tasks = whole(again, topic, connect)
    again.commit(client, tasks, TASKS)
    for task in tasks:
        assert GroupAdmin(client).offsets(task.group).keys() == {TopicPartition(topic, 0)}, "one that each topic has"
    is_another = kind == "named" and ended == TASKS  # a job that was whole is done again
    ensure_counts(broker, topic, client, sorted([*WHOLE, *WHOLE]) if is_another else WHOLE)


def test_a_job_is_not_taken_for_another_one_that_was_half_committed(
    broker: RunningBroker, topic: str, client: KafkaClient, connect: Callable[[], KafkaClient]
) -> None:
    """Its records would be left out. Once that other one is whole, the next one is written."""
    first, other, again = (batch(f"{n:016x}", prefix=topic, is_named=True) for n in range(3))
    with pytest.MonkeyPatch.context() as patch:
        dies_after(1, patch)
        with pytest.raises(DriverDiesError):
            first.commit(client, whole(first, topic, connect), TASKS)
    tasks = whole(other, topic, connect, text="night")
    with pytest.raises(PlogError, match="committed another job of transactionalIdPrefix"):
        other.commit(client, tasks, TASKS)
    other.abort(client, tasks)
    again.commit(client, whole(again, topic, connect), TASKS)
    ensure_counts(broker, topic, client, WHOLE)
    last = batch("f" * 16, prefix=topic, is_named=True)
    last.commit(client, whole(last, topic, connect, text="night"), TASKS)
    of_night = [f"night{task}-{n}" for task in range(TASKS) for n in range(EACH)]
    ensure_counts(broker, topic, client, sorted([*WHOLE, *of_night]))


def test_a_job_ends_no_transaction_of_others(
    broker: RunningBroker, topic: str, client: KafkaClient, connect: Callable[[], KafkaClient]
) -> None:
    """Their names begin as its own do."""
    job = batch(prefix=topic, is_named=True)
    others = [f"{topic}-0", f"{topic}-other-0123456789abcdef-0-0", f"{topic}-0123456789abcdef-0"]
    for name in others:
        with closing(TransactionalProducer(connect, name)) as producer:
            producer.send_offsets(f"group-{topic}", {TopicPartition(topic, 0): 1})
    job.commit(client, whole(job, topic, connect), TASKS)
    found = {t.transactional_id: t.state for t in TransactionAdmin(client).list_transactions()}
    assert [found[name] for name in others] == ["Ongoing"] * 3
