"""Replicas that follow whoever is elected: by real logs, plans and epochs, over calls in place of connections.

Anybody may be elected, with whatever it lacks, so that logs part ways. Once a leader stays and the others have caught
up, all logs have the same bytes. Nodes are stopped and killed (without a power cut: what was written is there).
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from core.cluster.partition.divergence import offset_in_range, truncation_offset
from core.cluster.partition.fetch_plan import Action, Append, FetchLimits, FetchPlan, Position, Reset, Truncate
from core.common.errors import KafkaError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.log_config import LogConfig
from core.log.log_loader import LogSettings
from core.log.log_manager import LogManager
from core.log.partition_log import PartitionLog
from core.protocol.frame import decode_response
from core.protocol.message_codec import codec
from core.protocol.schema.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.support.logs import NOW, content, cut_as_follower, make_batch, make_marker
from tests.support.manual_clock import ManualClock
from tests.support.scripted_leader import read_as_leader

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
ID = bytes(15) + b"\1"
FETCH_CODEC = codec(FetchResponse, 17)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)


class Node:
    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.manager = self._manager()
        for partition in PARTITIONS:
            self.manager.create(partition, ID, CONFIG)

    def _manager(self) -> LogManager:
        manager = LogManager(self.directory, LogSettings(ManualClock(NOW), FileSystem()))
        manager.open_existing(manager.find_partitions(), lambda _: CONFIG)
        manager.forget_clean_shutdown()
        return manager

    def restart(self, *, is_killed: bool) -> None:
        if not is_killed:
            self.manager.close(broker_epoch=1)
        self.manager = self._manager()

    def log(self, partition: TopicPartition) -> PartitionLog:
        return self.manager.logs[partition]

    def position(self, partition: TopicPartition) -> Position:
        log = self.log(partition)
        return Position(log.log_end_offset, log.leader_epochs.latest_epoch, log.log_start_offset)

    # --- as leader

    def answer(self, request: FetchRequest, rng: random.Random) -> FetchResponse:
        """Sessions apart, as a leader answers a replica: records up to its log's end."""
        topics = [
            FetchableTopicResponse("", topic.topic_id, [self._data(wanted, rng) for wanted in topic.partitions])
            for topic in request.topics
        ]
        pieces: list[object] = []
        FETCH_CODEC.encode_into(FetchResponse(responses=topics), pieces.append)
        frame = bytes(4) + b"\0" + b"".join(bytes(piece) for piece in pieces)  # type: ignore[call-overload]
        return decode_response(FETCH, 17, memoryview(frame))[1]

    def _data(self, wanted: FetchPartition, rng: random.Random) -> PartitionData:
        try:
            return read_as_leader(self.log(TopicPartition("t", wanted.partition)), wanted, rng.choice([1, 300, 5000]))
        except KafkaError as error:
            return PartitionData(wanted.partition, error.code, -1, records=b"")

    # --- as follower

    def take(self, action: Action, leader: Node) -> None:
        partition = action.partition
        assert partition is not None
        log = self.log(partition)
        if isinstance(action, Append):
            start = action.log_start_offset
            log.append_as_follower(action.records, action.leader_epoch, leader_log_start=start)
            log.update_high_watermark(action.high_watermark)
            log.increment_log_start_offset(min(start, log.high_watermark))
        elif isinstance(action, Truncate):
            offset = truncation_offset(log.leader_epochs, log_end=log.log_end_offset, diverging=action.diverging)
            cut_as_follower(self.manager, partition, offset)
        elif isinstance(action, Reset):
            other = leader.log(partition)
            offset = offset_in_range(
                log_start=log.log_start_offset,
                log_end=log.log_end_offset,
                leader_start=other.log_start_offset,
                leader_end=other.log_end_offset,
            )
            if log.log_start_offset <= offset <= log.log_end_offset:
                cut_as_follower(self.manager, partition, offset)
            else:
                log.truncate_fully_and_start_at(offset)


class Cluster:
    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.nodes = [Node(folder / str(number)) for number in range(3)]
        self.epoch = 0
        self.elect()

    def elect(self) -> None:
        self.epoch += 1
        self.leader = self.rng.choice(self.nodes)
        for partition in PARTITIONS:
            log = self.leader.log(partition)
            log.leader_epochs.assign(self.epoch, log.log_end_offset)
        self.plans = {node: self._plan(node) for node in self.nodes if node is not self.leader}

    def _plan(self, node: Node) -> FetchPlan:
        plan = FetchPlan(1, limits=FetchLimits(max_wait_ms=0))
        for partition in PARTITIONS:
            plan.add(partition, ID, self.epoch, node.position(partition))
        return plan

    def write(self) -> None:
        log = self.leader.log(self.rng.choice(PARTITIONS))
        if self.rng.random() < 0.2:
            marker = make_marker(5, is_commit=self.rng.random() < 0.5)
            log.append_as_leader(marker, self.epoch, from_client=False)
            return
        values = [self.rng.randbytes(self.rng.choice([1, 50, 200])) for _ in range(self.rng.choice([1, 3]))]
        log.append_as_leader(make_batch(*values, timestamp=NOW - 1000), self.epoch)

    def follow(self, node: Node) -> bool:
        """One round; whether there was news."""
        plan = self.plans[node]
        request = plan.request(0)
        assert request is not None
        before = [node.position(partition) for partition in PARTITIONS]
        for action in plan.on_answer(self.leader.answer(request, self.rng), 0):
            node.take(action, self.leader)
            assert action.partition is not None
            plan.move(action.partition, node.position(action.partition))
        return before != [node.position(partition) for partition in PARTITIONS]

    def restart(self) -> None:
        """Stops or kills a node, which forgets what it asked for, or is elected no more."""
        node = self.rng.choice(self.nodes)
        for partition in PARTITIONS:
            if self.rng.random() < 0.5:
                node.log(partition).flush()
        node.restart(is_killed=self.rng.random() < 0.7)
        if node is self.leader:
            self.elect()
        else:
            self.plans[node] = self._plan(node)

    def delete_records(self) -> None:
        log = self.leader.log(self.rng.choice(PARTITIONS))
        log.update_high_watermark(log.log_end_offset)
        log.increment_log_start_offset(self.rng.randint(log.log_start_offset, log.log_end_offset))


@given(st.integers(0, 1 << 32))
def test_replicas_have_the_same_bytes_once_they_caught_up(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        cluster = Cluster(Path(folder), rng)
        for _ in range(rng.choice([10, 60])):
            step = rng.random()
            if step < 0.5:
                cluster.write()
            elif step < 0.85:
                cluster.follow(rng.choice(list(cluster.plans)))
            elif step < 0.92:
                cluster.elect()
            elif step < 0.97:
                cluster.restart()
            else:
                cluster.delete_records()
        cluster.write()
        for node in cluster.plans:
            rounds = 0
            while cluster.follow(node):
                rounds += 1
                assert rounds < 500
        for partition in PARTITIONS:
            check_equal([node.log(partition) for node in cluster.nodes])


def check_equal(logs: list[PartitionLog]) -> None:
    start = max(log.log_start_offset for log in logs)
    assert len({log.log_end_offset for log in logs}) == 1
    assert len({content(log, start) for log in logs}) == 1
    last = logs[0].log_end_offset - 1
    assert last < start or len({log.leader_epochs.epoch_of(last) for log in logs}) == 1
    for log in logs:
        log.check_invariants()
        assert not log.gaps
