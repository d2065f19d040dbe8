"""`--commit-group`: what was replayed is committed once, whatever is killed on the way. The jobs run without a JVM."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from dataclasses import Field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from cli.commands import spark_replay as command
from cli.data_location import Place
from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import Consumer
from core.client.write.producer import Producer, RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.errors import PlogError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.pipeline.spark_replay_request import ReplayRequest
from core.records.byte_strings import ByteStrings
from core.spark import spark_session
from core.spark.group_commit import CommitNote, commit_replayed
from core.spark.replay import write_range
from core.spark.topic_replay import TopicReplay, write_lane
from plog.testing import RunningBroker, running_broker
from tests.support.logs import NOW

A, B = TopicPartition("s", 0), TopicPartition("s", 1)


# --- the steps


class KilledError(Exception):
    pass


def test_whatever_step_is_the_last(tmp_path: Path) -> None:
    """The group was at 5 and nowhere. Whoever is killed, the next run ends it, and one more does nothing."""
    for fatal in range(8):
        notes: dict[TopicPartition, CommitNote] = {}
        group = {A: 5}
        steps = iter(range(100))

        def step(work: Callable[[Any], None], fields: Any, steps: Iterator[int] = steps, fatal: int = fatal) -> None:
            if next(steps) == fatal:
                raise KilledError
            work(fields)
            if next(steps) == fatal:
                raise KilledError

        def run(
            group: dict[TopicPartition, int] = group,
            notes: dict[TopicPartition, CommitNote] = notes,
            step: Callable[..., None] = step,
        ) -> list[TopicPartition]:
            def save(more: Mapping[TopicPartition, CommitNote]) -> None:
                step(notes.update, more)

            return commit_replayed(
                {A: 100, B: 30}, dict(notes), save, lambda: dict(group), lambda offsets: step(group.update, offsets)
            )

        with contextlib.suppress(KilledError):
            run()
        run()
        assert group == {A: 100, B: 30}
        for moved_to in (170, 40):  # somebody reads on, or begins again
            group[A] = moved_to
            assert run() == []
            assert group == {A: moved_to, B: 30}


def test_a_group_that_was_moved_before_the_commit_was_noted_stays() -> None:
    notes = {A: CommitNote(5, is_done=False)}
    group = {A: 170}
    assert commit_replayed({A: 100}, notes, notes.update, lambda: group, group.update) == []
    assert group == {A: 170}
    assert notes[A].is_done


# --- jobs


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker") / "data", transaction_state_log_num_partitions="1") as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run here, one after the other."""

    def run(replay: TopicReplay, _: Any, lanes: Any, _look: object = None) -> list[str]:
        return [text for lane in lanes if lane.missing for text in write_lane(lane, replay.servers, replay.topic)]

    def run_job(replay: Any, plan: Any, todo: Any, _: Any) -> None:
        for range_ in todo:
            replay.finish(write_range(replay.beside, range_, plan))

    monkeypatch.setattr(spark_session, "spark_session", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(TopicReplay, "run", run)
    monkeypatch.setattr(command, "_run_job", run_job)


class Job:
    """A topic that grows, and a replay of it."""

    def __init__(self, broker: RunningBroker, name: str) -> None:
        self.servers = broker.bootstrap_servers
        self.name, self.target, self.produced = name, f"{name}-target", 0
        broker.create_topic(self.name)
        broker.create_topic(self.target)

    def grow(self, count: int = 10) -> None:
        rows = np.arange(self.produced, self.produced + count)
        values = ByteStrings.of_list([b"%d" % n for n in rows])
        with contextlib.closing(self.connect()) as client:
            producer = Producer(client, self.name)
            producer.send(RecordsToSend(0, NOW + rows, None, values, None, rows))
            producer.flush()
        self.produced += count

    def replay(self, to: str, **options: Any) -> None:
        """By the command, which must not go by options that another command was given before in this process."""
        declared = inspect.signature(command.spark_replay).parameters.values()
        of_command = {one.name: one.default.default for one in declared if isinstance(one.default, Field)}
        of_command |= {name: options.pop(name) for name in ("commit_group", "take_over") if name in options}
        request, place = ReplayRequest(topics=[self.name], to=to, **options), Place(bootstrap_server=self.servers)
        Context().run(command.spark_replay, request, place=place, **of_command | {"master": "local[1]"})

    def to_topic(self, **options: Any) -> None:
        self.replay(f"topic:{self.target}", **options)

    def connect(self) -> KafkaClient:
        return KafkaClient(parse_bootstrap(self.servers))

    def set_group(self, group: str, offset: int) -> None:
        with contextlib.closing(self.connect()) as client:
            GroupAdmin(client).commit(group, {TopicPartition(self.name, 0): offset})

    def group(self, group: str) -> int:
        with contextlib.closing(self.connect()) as client:
            return GroupAdmin(client).offsets(group)[TopicPartition(self.name, 0)].offset

    def in_target(self) -> list[int]:
        partition = TopicPartition(self.target, 0)
        with contextlib.closing(self.connect()) as client:
            ends = Admin(client).list_offsets({partition: LATEST})
            consumer = Consumer(client)
            batches = [batch for _, some in consumer.read({partition: 0}, ends) for batch in some]
        return [int(record.value or b"") for batch in batches for record in batch.records()]


@pytest.fixture
def job(broker: RunningBroker, request: pytest.FixtureRequest) -> Job:
    return Job(broker, "".join(c if c.isalnum() else "-" for c in request.node.name))


@pytest.mark.longer
def test_a_rerun_commits_nothing_new(job: Job) -> None:
    job.grow(100)
    job.to_topic(commit_group="g")
    assert job.group("g") == 100
    job.grow(50)
    job.to_topic(commit_group="g")
    assert job.group("g") == 100
    assert job.in_target() == list(range(100))
    job.set_group("g", 30)
    job.to_topic(commit_group="g")
    assert job.group("g") == 30


@pytest.mark.longer
def test_a_rerun_into_a_folder_commits_nothing_new(job: Job, tmp_path: Path) -> None:
    job.grow(100)
    job.replay(f"parquet:{tmp_path / 'out'}", commit_group="g")
    assert job.group("g") == 100
    job.grow(50)
    for moved_to in (120, 30):
        job.set_group("g", moved_to)
        job.replay(f"parquet:{tmp_path / 'out'}", commit_group="g")
        assert job.group("g") == moved_to
    job.replay(f"parquet:{tmp_path / 'out'}", commit_group="another")
    assert job.group("another") == 100


@pytest.mark.longer
def test_a_group_that_was_set_back_is_told(job: Job) -> None:
    job.grow(100)
    job.set_group("n", 0)
    job.to_topic(from_group="n", commit_group="n")
    job.grow(50)
    job.set_group("n", 60)
    with pytest.raises(PlogError, match=r"group n was set back to offset 60 of .*, and offsets up to 100 are in"):
        job.to_topic(from_group="n", commit_group="n")
    assert job.group("n") == 60


@contextlib.contextmanager
def killed_at(fatal: int) -> Iterator[list[str]]:
    """`fatal` counts what is written, twice: before, and after. Gives what was."""
    written: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in (
            (GroupAdmin, "commit"), (TransactionalProducer, "commit"), (FileSystem, "rename"),
        ):  # fmt: skip
            original = getattr(kind, name)

            def write(*args: Any, original: Any = original, kind: type = kind, **fields: Any) -> Any:
                for moment in ("before", "after"):
                    if len(written) == fatal:
                        raise KilledError
                    written.append(f"{kind.__name__} {moment}")
                    if moment == "before":
                        result = original(*args, **fields)
                return result

            patch.setattr(kind, name, write)
        yield written


def kill_at_every_step(night: Callable[[int, int], None]) -> int:
    """Each night is killed at another step, and once more on the way to that step or after it, and done again while the
    topic has grown; gives how many steps there are.
    """
    for number in range(60):
        try:
            with killed_at(number):
                night(number, 10)
        except KilledError:
            with contextlib.suppress(KilledError), killed_at(number * 5 % 11):
                night(number, 7)
            night(number, 5)
        else:
            return number
    raise AssertionError("no night comes to its end")


@pytest.mark.longer
def test_a_nightly_job_into_a_topic_killed_at_every_step(job: Job) -> None:
    job.set_group("n", 0)

    def night(_: int, count: int) -> None:
        job.grow(count)
        job.to_topic(from_group="n", commit_group="n")

    assert kill_at_every_step(night) > 8
    job.to_topic(from_group="n", commit_group="n")
    assert job.in_target() == list(range(job.produced))
    assert job.group("n") == job.produced


@pytest.mark.longer
def test_nightly_jobs_into_folders_killed_at_every_step(job: Job, tmp_path: Path) -> None:
    job.set_group("n", 0)

    def night(number: int, count: int) -> None:
        job.grow(count)
        job.replay(f"parquet:{tmp_path / str(number)}", from_group="n", commit_group="n")

    steps = kill_at_every_step(night)
    assert steps > 8
    night(steps + 1, 1)
    found = [offset for path in tmp_path.glob("*/*.parquet") for offset in pq.read_table(path)["offset"].to_pylist()]
    assert sorted(found) == list(range(job.produced))
    assert job.group("n") == job.produced


# --- jobs that go on


@pytest.mark.longer
def test_a_topic_that_goes_on_each_night(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """Without news nothing is written; a partition that came since is read from its beginning, and not those before
    the first night.
    """
    job.grow(100)
    job.to_topic(continue_=True, from_="end")
    for count in 10, 0, 5:
        job.grow(count)
        capsys.readouterr()
        job.to_topic(continue_=True, from_="end")
        if count == 0:
            assert capsys.readouterr().err.startswith(f"{job.target} has all of it already")
    assert job.in_target() == list(range(100, 115))
    with contextlib.closing(job.connect()) as client:
        Admin(client).create_partitions(job.name, 2)
        producer = Producer(client, job.name)
        values = ByteStrings.of_list([b"1000", b"1001"])
        producer.send(RecordsToSend(1, NOW + np.arange(2), None, values, None, np.arange(2)))
        producer.flush()
    job.grow(1)
    job.to_topic(continue_=True, from_="end")
    assert job.in_target() == [*range(100, 116), 1000, 1001]
    job.to_topic(from_="end")  # as without it, whatever came
    assert len(job.in_target()) == 18


@pytest.mark.longer
def test_a_topic_whose_replay_was_forgotten_is_not_filled_twice(job: Job) -> None:
    """Of a job that stood still for longer than offsets.retention.minutes."""
    job.grow(10)
    job.to_topic(continue_=True)
    with contextlib.closing(job.connect()) as client:
        admin = GroupAdmin(client)
        (lane,) = [g.group_id for g in admin.list_groups() if g.group_id.endswith(f"-{job.name}-0")]
        admin.delete(lane)
    with pytest.raises(PlogError, match=r"has records, and its cluster has no offsets of this replay") as refused:
        job.to_topic(continue_=True)
    assert "without --continue" in (refused.value.hint or "")
    assert job.in_target() == list(range(10))


@pytest.mark.longer
@pytest.mark.parametrize("metadata", ["", "{}", "[]", '{"start": 0, "end": "x", "topic_id": ""}'], ids=range(4))
def test_groups_of_a_replay_that_others_moved_are_told_of(job: Job, metadata: str) -> None:
    """`kafka-consumer-groups --reset-offsets` leaves no metadata."""
    job.grow(10)
    job.to_topic(continue_=True)
    with contextlib.closing(job.connect()) as client:
        admin = GroupAdmin(client)
        (lane,) = [g.group_id for g in admin.list_groups() if g.group_id.endswith(f"-{job.name}-0")]
        admin.commit(lane, {TopicPartition(job.target, 0): 5}, metadata=metadata)
    for options in ({"continue_": True}, {}):
        with pytest.raises(PlogError, match=rf"group {lane} is at offset 5 and has no plan of a replay"):
            job.to_topic(**options)
    assert job.in_target() == list(range(10))


@pytest.mark.longer
def test_a_topic_whose_id_was_not_known_at_first_goes_on(job: Job) -> None:
    """Of an old data directory, say, without partition.metadata."""
    job.grow(10)
    job.to_topic(continue_=True)
    with contextlib.closing(job.connect()) as client:
        admin, place = GroupAdmin(client), TopicPartition(job.target, 0)
        (lane,) = [g.group_id for g in admin.list_groups() if g.group_id.endswith(f"-{job.name}-0")]
        fields = json.loads(admin.offsets(lane)[place].metadata)
        admin.commit(lane, {place: 10}, metadata=json.dumps(fields | {"topic_id": ""}))
    job.grow(5)
    job.to_topic(continue_=True)
    assert job.in_target() == list(range(15))


@pytest.mark.longer
def test_a_job_that_goes_on_killed_at_every_step(job: Job) -> None:
    def night(_: int, count: int) -> None:
        job.grow(count)
        job.to_topic(continue_=True, commit_group="n")

    assert kill_at_every_step(night) > 8
    job.to_topic(continue_=True, commit_group="n")
    assert job.in_target() == list(range(job.produced))
    assert job.group("n") == job.produced
