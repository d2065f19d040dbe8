"""Replays to a topic of a real Kafka: exactly once, whoever dies on the way."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import READ_COMMITTED, Consumer
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.errors import CorruptRecordError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import PartitionReader
from core.records.record import Record
from core.spark.offset_range import OffsetRange
from core.spark.range_output import OutputFormat
from core.spark.replay_plan import ReplayPlan
from core.spark.source import split_by_index
from core.spark.topic_replay import TopicReplay, write_lane
from tests.support.kafka_server import KafkaServer
from tests.support.logs import NOW, append, append_marker, make_batch, open_log
from tests.support.oracle import requires_kafka
from tests.support.server import Server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [requires_kafka, pytest.mark.java]


@pytest.fixture
def kafka(transactional_server: KafkaServer | Server) -> KafkaServer | Server:
    return transactional_server


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """s-0 and s-1: 3,000 and 1,200 records, headers, tombstones, and transactions that were aborted."""
    directory = tmp_path_factory.mktemp("source")
    for number, count in ((0, 3000), (1, 1200)):
        log = open_log(directory / f"s-{number}", segment_bytes=20_000, index_interval_bytes=300)
        fields = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
        for n in range(0, count, 10):
            values = [b"%d" % (n + i) for i in range(10)]
            append(log, make_batch(*values, timestamp=NOW + n, key=b"k%d" % (n % 70)))
            if n % 500 == 0:
                append(log, make_batch(b"aborted", base_sequence=n // 500, **fields))
                append_marker(log, 9, is_commit=False)
        log.close()
    return directory


def connect(kafka: KafkaServer | Server) -> KafkaClient:
    return KafkaClient(parse_bootstrap(kafka.address))


@pytest.fixture
def topic(kafka: KafkaServer | Server, request: pytest.FixtureRequest) -> str:
    name = "to-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-40:]
    with contextlib.closing(connect(kafka)) as client:
        Admin(client).create_topic(name, partitions=2)
        wait_until(lambda: name in client.refresh(None))  # Kafka's broker learns of it from its controller
    return name


def plan_of(source: Path, name: str, target_bytes: int = 2000) -> ReplayPlan:
    ranges: list[OffsetRange] = []
    for number in (0, 1):
        directory = source / f"s-{number}"
        reader = PartitionReader(directory)
        pieces = split_by_index(reader, 0, reader.end_offset, target_bytes)
        ranges += (OffsetRange("s", number, *piece, directory=str(directory)) for piece in pieces)
        reader.close()
    return ReplayPlan({"name": name}, tuple(ranges), OutputFormat("topic", "binary", "binary"))


def wanted(
    source: Path, ends: Mapping[int, int] | None = None
) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    found = {}
    for number in (0, 1):
        reader = PartitionReader(source / f"s-{number}")
        end = reader.end_offset if ends is None else ends[number]
        records = [r for batch in reader.read(0, end) for r in batch.records() if r.offset < end]
        found[number] = [(r.timestamp, r.key, r.value) for r in records]
        reader.close()
    return found


def in_topic(kafka: KafkaServer | Server, topic: str) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    with contextlib.closing(connect(kafka)) as client:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        latest = dict.fromkeys(partitions, LATEST)
        ends: dict[TopicPartition, int] = {}

        def are_ended() -> bool:
            ends.update(Admin(client).list_offsets(latest, isolation_level=READ_COMMITTED))
            return ends == Admin(client).list_offsets(latest)

        wait_until(are_ended, "all transactions are ended")
        records: dict[int, list[Record]] = {0: [], 1: []}
        for partition, batches in Consumer(client).read(dict.fromkeys(partitions, 0), ends):
            records[partition.partition] += [r for batch in batches for r in batch.records()]
    return {number: [(r.timestamp, r.key, r.value) for r in found] for number, found in records.items()}


def test_every_committed_record_once_in_order(kafka: KafkaServer | Server, source: Path, topic: str) -> None:
    replay = TopicReplay(kafka.address, topic)
    lanes = replay.freeze(plan_of(source, topic))
    assert [len(lane.missing) > 5 for lane in lanes] == [True, True]
    assert [write_lane(lane, kafka.address, topic) for lane in lanes] == [[], []]
    assert sum(map(len, in_topic(kafka, topic).values())) == 4200
    assert in_topic(kafka, topic) == wanted(source)
    again = replay.freeze(plan_of(source, topic))
    assert [lane.missing for lane in again] == [[], []]
    assert [write_lane(lane, kafka.address, topic) for lane in lanes] == [[], []]  # whatever the lanes knew
    assert in_topic(kafka, topic) == wanted(source)


def test_a_job_of_sparks(spark: SparkSession, kafka: KafkaServer | Server, source: Path, topic: str) -> None:
    replay = TopicReplay(kafka.address, topic)
    lanes = replay.freeze(plan_of(source, topic))
    replay.run(spark, lanes)
    assert in_topic(kafka, topic) == wanted(source)
    assert [lane.missing for lane in replay.look(lanes)] == [[], []]


def test_damage_fails_a_lane_or_is_told_and_noted(
    kafka: KafkaServer | Server, source: Path, topic: str, tmp_path: Path
) -> None:
    """One batch of partition 0; of a replay into a topic nothing else keeps what was left out. Whoever allows the loss
    goes on in the lanes of the replay that failed: no record is there twice.
    """
    whole, replay = wanted(source), TopicReplay(kafka.address, topic)
    source = Path(shutil.copytree(source, tmp_path / "damaged"))
    log = sorted((source / "s-0").glob("*.log"))[1]
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    plan = replace(plan_of(source, topic), request={"name": topic, "allow_loss": False})
    damaged, sound = replay.freeze(plan)
    write_lane(sound, kafka.address, topic)
    with pytest.raises(CorruptRecordError, match="crc-mismatch"):
        write_lane(damaged, kafka.address, topic)
    ranges = tuple(replace(range_, fails_if_gone=False) for range_ in plan.ranges)
    allowing = replace(plan, ranges=ranges, request={"name": topic, "allow_loss": True})
    lanes = replay.freeze(allowing)
    assert [(lane.name, lane.done_offset > 0) for lane in lanes] == [(damaged.name, True), (sound.name, True)]
    (told,), nothing = [write_lane(lane, kafka.address, topic) for lane in lanes]
    assert nothing == []
    assert told.startswith(f"s-0: passed over: offsets {int(log.stem)} to ")
    assert [lane.plan.is_lacking for lane in replay.look(lanes)] == [True, False]
    assert [lane.plan.is_lacking for lane in replay.freeze(allowing)] == [True, False]
    found, of_sound = in_topic(kafka, topic).values()
    assert of_sound == whole[1]
    assert found[-10:] == whole[0][-10:]
    assert set(found) < set(whole[0])
    assert len(set(found)) == len(found)


def test_a_log_that_was_trimmed_meanwhile(
    kafka: KafkaServer | Server, source: Path, topic: str, tmp_path: Path
) -> None:
    """Whoever allows the loss goes on with what there is, and is told which offsets are gone."""
    replay, whole = TopicReplay(kafka.address, topic), wanted(source)
    source = Path(shutil.copytree(source, tmp_path / "trimmed"))
    plan = replace(plan_of(source, topic), request={"name": topic, "allow_loss": False})
    replay.freeze(plan)
    first, second, third, *_ = sorted((source / "s-0").glob("*.log"))
    for path in (*first.parent.glob(f"{first.stem}.*"), *first.parent.glob(f"{second.stem}.*")):
        path.unlink()
    (source / "s-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {int(third.stem)}\n")  # as a deletion leaves it
    left = tuple(
        replace(r, start_offset=max(r.start_offset, int(third.stem) if r.partition == 0 else 0))
        for r in plan.ranges
        if r.partition == 1 or r.end_offset > int(third.stem)
    )
    with pytest.raises(PlogError, match=r"s-0: offsets 0 to .* still to be replayed") as caught:
        replay.freeze(replace(plan, ranges=left))
    assert "--allow-loss goes on with what there is" in (caught.value.hint or "")
    ranges = tuple(replace(range_, fails_if_gone=False) for range_ in left)
    lanes = replay.freeze(replace(plan, ranges=ranges, request={"name": topic, "allow_loss": True}))
    (told,), nothing = [write_lane(lane, kafka.address, topic) for lane in lanes]
    assert nothing == []
    assert told == f"s-0: offsets 0 to {int(third.stem) - 1} are gone, deleted since the reading was planned"
    found, of_other = in_topic(kafka, topic).values()
    assert of_other == whole[1]
    assert found == whole[0][-len(found) :]
    assert len(found) > 500
    assert [lane.plan.is_lacking for lane in replay.look(lanes)] == [True, False]


def test_a_frozen_plan_holds_while_the_log_grows(kafka: KafkaServer | Server, source: Path, topic: str) -> None:
    first = plan_of(source, topic)
    half = replace(first, ranges=tuple(r for r in first.ranges if r.end_offset < 1500))
    ends = {r.partition: r.end_offset for r in half.ranges}
    replay = TopicReplay(kafka.address, topic)
    replay.freeze(half)
    lanes = replay.freeze(plan_of(source, topic, 11_000))  # the log has more now, and is cut otherwise
    assert {lane.ranges[0].partition: lane.plan.end for lane in lanes} == ends
    for lane in lanes:
        write_lane(lane, kafka.address, topic)
    assert in_topic(kafka, topic) == wanted(source, ends)


def test_what_is_not_the_same_any_more(kafka: KafkaServer | Server, source: Path, topic: str) -> None:
    replay = TopicReplay(kafka.address, topic)
    plan = plan_of(source, topic)
    replay.freeze(replace(plan, topic_ids={"s": "AAAA"}))
    with pytest.raises(PlogError, match="is of another topic than when its replay began"):
        replay.freeze(replace(plan, topic_ids={"s": "BBBB"}))
    later = tuple(r for r in plan.ranges if r.start_offset > 0)
    with pytest.raises(PlogError, match=r"offsets 0 to \d+ are still to be replayed"):
        replay.freeze(replace(plan, topic_ids={"s": "AAAA"}, ranges=later))
    with pytest.raises(KafkaError, match="no topic 'nope'"):
        TopicReplay(kafka.address, "nope").freeze(plan)


def test_a_lane_does_not_begin_while_a_transaction_is_about_to_move_it(
    kafka: KafkaServer | Server, source: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its last task, say, whose end a coordinator has not written down everywhere yet."""
    monkeypatch.setattr(GroupAdmin, "stable_offsets", partialmethod(GroupAdmin.stable_offsets, seconds=0))
    lane = TopicReplay(kafka.address, topic).freeze(plan_of(source, topic))[0]
    with contextlib.closing(TransactionalProducer(partial(connect, kafka), f"{lane.name}-before")) as before:
        before.send_offsets(lane.name, {TopicPartition(topic, 0): lane.plan.end}, lane.metadata)
        with pytest.raises(KafkaError, match=f"a transaction that moves group {lane.name} on {topic}-0 has not ended"):
            write_lane(lane, kafka.address, topic)
        before.commit()
    monkeypatch.undo()
    write_lane(lane, kafka.address, topic)
    assert in_topic(kafka, topic) == {0: [], 1: []}


def test_a_task_that_is_killed_at_any_moment(kafka: KafkaServer | Server, source: Path, topic: str) -> None:
    """Again and again, a little later each time, until it is through."""
    replay = TopicReplay(kafka.address, topic)
    random = Random(topic)
    kills = 0
    for turn in range(40):
        lanes = [lane for lane in replay.freeze(plan_of(source, topic, 500)) if lane.missing]
        if not lanes:
            break
        if turn > 7:
            write_lane(lanes[0], kafka.address, topic)
            continue
        code = (
            "import sys, pickle, pathlib; from core.spark.topic_replay import write_lane; print(flush=True); "
            "write_lane(pickle.loads(bytes.fromhex(sys.argv[1])), sys.argv[2], sys.argv[3])"
        )
        task = subprocess.Popen(
            [sys.executable, "-c", code, pickle.dumps(lanes[0]).hex(), kafka.address, topic],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        assert task.stdout is not None
        task.stdout.readline()  # it begins
        with contextlib.suppress(subprocess.TimeoutExpired):
            task.wait(0.005 * 2.2**kills * random.uniform(0.5, 1))
        if task.poll() is None:
            os.kill(task.pid, signal.SIGKILL)
            kills += 1
        task.communicate()
    assert kills > 2
    assert in_topic(kafka, topic) == wanted(source)
    with contextlib.closing(connect(kafka)) as client:
        for lane in replay.freeze(plan_of(source, topic)):
            offsets = GroupAdmin(client).offsets(lane.name)
            assert offsets[TopicPartition(topic, 0)].offset == lane.plan.end
