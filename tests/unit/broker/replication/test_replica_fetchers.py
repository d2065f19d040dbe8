"""A broker that follows others, over real connections; those others are scripts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import cast

import pytest

from core.broker.replication import replica_fetcher
from core.broker.replication.replica_fetcher import FollowingBroker, ReplicaFetcherManager
from core.broker.serving import loop_tasks
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.image.single_node_controller import SingleNodeController
from core.cluster.partition.partition import Partition, Role
from core.common.background import run_now
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.filesystem import File, FileSystem
from core.common.java_limits import LONG_MAX
from core.common.topic_partition import TopicPartition
from core.log.partition_log import PartitionLog
from core.protocol.schema.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, PartitionData
from core.protocol.schema.list_offsets import ListOffsetsPartitionResponse
from core.protocol.schema.metadata_records import ConfigRecord, PartitionChangeRecord
from tests.support.broker import Background, SteeredNode, add_topic, delete_topic, open_broker
from tests.support.fetched import as_leader
from tests.support.logs import content, make_batch, read_all
from tests.support.replication import KnownPeers
from tests.support.scripted_leader import Answer, Reply, ScriptedLeader, answer_each

OTHER, THIRD = 8, 9
HOUR_MS = "3600000"


@pytest.fixture
def socket_timeout_ms() -> str:
    """A fetch is not given up after some time, unless the test says so: that would mend what something else has to."""
    return HOUR_MS


@pytest.fixture
def broker(tmp_path: Path, socket_timeout_ms: str) -> Iterator[SteeredNode]:
    opened = open_broker(
        tmp_path / "data",
        SystemClock(),
        log_retention_ms="-1",
        replica_fetch_backoff_ms="2",
        replica_fetch_wait_max_ms="20",
        replica_socket_timeout_ms=socket_timeout_ms,
    )
    yield opened
    opened.close()


class Following:
    """A topic "t" of two partitions that the broker has replicas of, two others that may lead it, and the fetchers."""

    def __init__(self, broker: SteeredNode, leaders: dict[int, ScriptedLeader], changes: Path) -> None:
        self.broker = broker
        self.replicas = broker.services.replicas
        self.leaders = leaders
        self.leader = leaders[OTHER]
        self.endpoints: dict[int, Endpoint] = {}
        self.topic_id = add_topic(broker, partitions=2)
        self.changes = changes
        self.broker_epoch = 5
        self.fetchers = ReplicaFetcherManager(
            FollowingBroker(
                node_id=broker.services.node.node_id,
                replicas=self.replicas,
                log_manager=broker.services.log_manager,
                find_endpoint=self.endpoints.get,
                broker_epoch=lambda: self.broker_epoch,
                config=lambda: broker.services.configs.broker,
                runtime=broker.services.runtime,
                buffers=ReceiveBuffers(),
                quota=broker.services.quotas.follower,
            )
        )

    async def start(self) -> None:
        for node_id, leader in self.leaders.items():
            leader.topic_id = self.topic_id
            self.endpoints[node_id] = await leader.start()

    async def stop(self) -> None:
        await self.fetchers.close()
        for leader in self.leaders.values():
            await leader.stop()

    def elect(self, leader: int, *partitions: int) -> None:
        """Another leader epoch begins; that broker leads in it, of those partitions or of all."""
        replicas = [self.broker.services.node.node_id, OTHER, THIRD]
        for number in partitions or (0, 1):
            change = PartitionChangeRecord(number, self.topic_id, leader=leader, replicas=replicas, isr=replicas)
            cast(SingleNodeController, self.broker.services.controller)._submit([change])
            if leader in self.leaders:
                self.leaders[leader].lead(self.partition(number).leader_epoch, number)

    async def follow(self, *values: bytes) -> None:
        """Another one leads, and has these values more; returns when they are here."""
        self.leader.write(*values)
        self.elect(OTHER)
        await self.catch_up()

    def partition(self, number: int = 0) -> Partition:
        return self.replicas.partitions[TopicPartition("t", number)]

    def log(self, number: int = 0) -> PartitionLog:
        return self.partition(number).log

    def has_all(self, *numbers: int) -> bool:
        """Whether those partitions, or all, end as their leader's do."""
        return all(self._has_all_of(number) for number in numbers or (0, 1))

    def _has_all_of(self, number: int) -> bool:
        """The epoch of the last record says the rest: two logs that have the same are the same. One that began again at
        the leader's end, in an epoch before, has none.
        """
        log, other = self.log(number), self.leader.logs[number]
        last = log.log_end_offset - 1
        if (last, log.high_watermark) != (other.log_end_offset - 1, other.high_watermark):
            return False
        return last < log.log_start_offset or log.leader_epochs.epoch_of(last) == other.leader_epochs.epoch_of(last)

    async def catch_up(self, *numbers: int) -> None:
        await until(lambda: self.has_all(*numbers))
        for number in numbers or (0, 1):
            log, other = self.log(number), self.leader.logs[number]
            start = max(log.log_start_offset, other.log_start_offset)
            assert read_all(log, start) == read_all(other, start)
            log.check_invariants()
        self.fetchers.check_invariants()


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.0005)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with loop_tasks.new_runner() as runner:
        yield runner


@pytest.fixture
def at(
    broker: SteeredNode, runner: asyncio.Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Following]:
    monkeypatch.setattr(broker.services.replicas, "_peers", KnownPeers(OTHER, THIRD))
    leaders = {number: ScriptedLeader(tmp_path / str(number), partitions=2) for number in (OTHER, THIRD)}
    runtime = broker.runtime.follow(LoopRuntime(runner.get_loop(), broker.directory))
    following = Following(broker, leaders, tmp_path)
    runner.run(following.start())
    yield following
    runner.run(following.stop())
    runtime.stop(waits_for_loading=True)


# --- what comes


async def test_a_follower_gets_what_its_leader_has(at: Following) -> None:
    await at.follow(b"a", b"b")
    at.leader.write(b"c", partition=1)
    await at.catch_up()
    (fetch,) = {(one.replica_state.replica_id, one.replica_state.replica_epoch) for one in at.leader.fetches}
    assert fetch == (at.broker.services.node.node_id, 5)
    assert at.leader.connections == 1


async def test_a_follower_begins_and_is_committed_as_far_as_its_leader(at: Following) -> None:
    at.leader.write(b"a", b"b", b"c")
    at.elect(OTHER)
    at.leader.write(b"d", is_committed=False)
    await until(lambda: at.log().log_end_offset == 4)
    assert at.log().high_watermark == 3
    at.leader.logs[0].update_high_watermark(4)
    at.leader.logs[0].increment_log_start_offset(2)
    await at.catch_up()
    assert at.log().log_start_offset == 2


async def test_consumers_of_a_follower_are_woken(at: Following) -> None:
    class Watching:
        seen = 0

        def on_change(self, _partition: TopicPartition) -> None:
            self.seen += 1

    await at.follow()
    watching = Watching()
    at.replicas.watch(watching, [TopicPartition("t", 0)])
    at.leader.write(b"a")
    await until(lambda: watching.seen)
    await at.catch_up()


async def test_another_life_of_the_broker_is_named_from_then_on(at: Following) -> None:
    await at.follow()
    at.broker_epoch = 6
    await until(lambda: at.leader.fetches and at.leader.fetches[-1].replica_state.replica_epoch == 6)


async def test_a_partition_that_is_led_here_is_not_fetched_any_more(at: Following) -> None:
    await at.follow(b"a")
    at.elect(at.broker.services.node.node_id)
    at.leader.write(b"b")
    await until(lambda: not at.leader.open_connections)
    assert at.partition().role is Role.LEADING
    assert at.log().log_end_offset == 1


async def test_a_large_answer_comes_in_pieces_and_others_have_turns(
    at: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "_TURN_SECONDS", 0)
    monkeypatch.setattr(replica_fetcher, "_PIECE_BYTES", 2000)
    at.leader.write(*[b"v" * 900] * 20)
    at.elect(OTHER)
    seen = set()
    while not at.has_all():
        seen.add(at.log().log_end_offset)
        await asyncio.sleep(0)
    await at.catch_up()
    assert len(seen) > 5


# --- throttles


def throttle(at: Following, rate: int, replicas: str = "*") -> None:
    node = str(at.broker.services.node.node_id)
    for kind, name, key, value in (
        (ConfigResourceType.BROKER, node, "follower.replication.throttled.rate", str(rate)),
        (ConfigResourceType.TOPIC, "t", "follower.replication.throttled.replicas", replicas),
    ):
        cast(SingleNodeController, at.broker.services.controller)._submit([ConfigRecord(kind, name, key, value)])


async def test_a_throttled_partition_is_fetched_no_more_once_too_much_has_come(at: Following) -> None:
    """Until the throttle is lifted; the other one goes on."""
    size = cast(int, at.broker.services.config.replica_fetch_max_bytes)
    at.leader.write(*[b"x" * (size // 2 + 1)] * 4)
    throttle(at, 1, f"0:{at.broker.services.node.node_id}")
    at.elect(OTHER)
    await until(lambda: at.log().log_end_offset == 1)
    at.leader.write(b"a", b"b", partition=1)
    await at.catch_up(1)
    asked = len(at.leader.fetches)
    at.leader.write(b"c", partition=1)
    await until(lambda: len(at.leader.fetches) > asked + 3)
    assert {p.partition for fetch in at.leader.fetches[asked + 1 :] for p in fetch.topics[0].partitions} == {1}
    assert at.log().log_end_offset == 1
    throttle(at, LONG_MAX)
    await at.catch_up()


async def test_a_throttled_partition_that_is_caught_up_goes_on(at: Following) -> None:
    await at.follow(b"a")
    throttle(at, 1)
    for value in (b"b", b"c", b"d"):
        at.leader.write(value, is_committed=False)
        await until(lambda: at.log().log_end_offset == at.leader.logs[0].log_end_offset)
    assert at.broker.services.quotas.follower.is_exceeded


# --- where the leader is


async def test_a_leader_is_asked_as_soon_as_it_is_known_where_it_listens(
    at: Following, caplog: pytest.LogCaptureFixture
) -> None:
    at.leader.write(b"a")
    del at.endpoints[OTHER]
    at.elect(OTHER)
    await until(lambda: "its address is not known yet" in caplog.text)
    assert at.leader.address is not None
    at.endpoints[OTHER] = at.leader.address
    at.fetchers.on_brokers_changed()
    await at.catch_up()


async def test_a_leader_that_listens_elsewhere_now_is_asked_there(at: Following) -> None:
    await at.follow()
    moved = at.leaders[THIRD]
    moved.lead(at.partition().leader_epoch)
    at.leader = moved
    moved.write(b"a")
    at.endpoints[OTHER] = at.endpoints[THIRD]
    at.fetchers.on_brokers_changed()
    await at.catch_up()
    await until(lambda: not at.leaders[OTHER].open_connections)


async def test_a_leader_that_is_not_known_any_more_is_asked_on(at: Following) -> None:
    await at.follow(b"a")
    del at.endpoints[OTHER]
    at.fetchers.on_brokers_changed()
    at.leader.write(b"b")
    await at.catch_up()
    assert at.leader.connections == 1


async def test_a_leader_that_nobody_reaches_is_asked_again(at: Following, caplog: pytest.LogCaptureFixture) -> None:
    at.leader.write(b"a")
    at.endpoints[OTHER] = Endpoint("127.0.0.1", 1)
    at.elect(OTHER)
    await until(lambda: "could not connect" in caplog.text)
    assert at.leader.address is not None
    at.endpoints[OTHER] = at.leader.address
    await at.catch_up()
    assert caplog.text.count("could not connect") == 1


# --- the leader changes


async def test_nothing_counts_that_an_old_leader_answers(at: Following) -> None:
    asked, may_answer = hold(at.leader)
    at.leader.write(b"old")
    at.elect(OTHER)
    await asked.wait()
    new = at.leaders[THIRD]
    at.elect(THIRD)
    may_answer.set()
    await until(lambda: not at.leader.open_connections and new.fetches)
    assert at.log().log_end_offset == 0
    at.leader = new
    new.write(b"new")
    await at.catch_up()


async def test_nothing_counts_that_was_asked_in_an_earlier_epoch_of_the_leader(at: Following) -> None:
    asked, may_answer = hold(at.leader)
    at.leader.write(b"old")
    at.elect(OTHER)
    await asked.wait()
    at.elect(OTHER)
    at.leader.logs[0].truncate_fully_and_start_at(0)
    at.leader.lead(at.partition().leader_epoch)
    at.leader.write(b"new")
    may_answer.set()
    await at.catch_up()


def hold(leader: ScriptedLeader) -> tuple[asyncio.Event, asyncio.Event]:
    """Has it read the logs for the next fetch when that comes, which is the first event, and answer at the second."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: FetchRequest) -> Reply:
        response = await leader.by_logs(request)
        asked.set()
        await may_answer.wait()
        return response

    leader.script.append(answer)
    return asked, may_answer


@pytest.mark.parametrize("becomes", ["stopped", "led here", "of another epoch"])
async def test_what_changes_between_two_appends_of_an_answer_is_respected(
    at: Following, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    monkeypatch.setattr(replica_fetcher, "_TURN_SECONDS", 0)
    real = PartitionLog.append_as_follower
    changed_at = 0
    appended: list[tuple[int, int]] = []  # the partition, and how many fetches the leader had seen

    def change(number: int) -> None:
        nonlocal changed_at
        if becomes == "stopped":
            at.fetchers.stop(TopicPartition("t", number))
        elif becomes == "led here":
            at.elect(at.broker.services.node.node_id, number)
        else:
            at.elect(OTHER, number)
        changed_at = len(at.leader.fetches)

    def append_as_follower(log: PartitionLog, *args: object, **fields: object) -> object:
        number = log.partition.partition
        if not appended:
            asyncio.get_running_loop().call_soon(change, 1 - number)
        appended.append((number, len(at.leader.fetches)))
        return real(log, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionLog, "append_as_follower", append_as_follower)
    for number in (0, 1):
        at.leader.write(b"a", b"b", partition=number)
    at.elect(OTHER)
    await until(lambda: changed_at and len(at.leader.fetches) > changed_at + 1)
    other = [fetches for number, fetches in appended if number != appended[0][0]]
    assert not [fetches for fetches in other if fetches <= changed_at]
    assert bool(other) is (becomes == "of another epoch")


async def test_a_topic_that_is_made_again_gets_nothing_of_the_old_one(at: Following) -> None:
    await at.follow(b"old")
    asked, may_answer = hold(at.leader)
    at.leader.write(b"older")
    await asked.wait()
    delete_topic(at.broker, "t")
    at.topic_id = at.leader.topic_id = add_topic(at.broker, partitions=2)
    for log in at.leader.logs:
        log.truncate_fully_and_start_at(0)
    at.elect(OTHER)
    may_answer.set()
    at.leader.write(b"n", b"e", b"w")
    await at.catch_up()


# --- logs that part ways


async def test_a_follower_cuts_what_its_leader_does_not_have(at: Following, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plog.broker")
    await at.follow(b"a", b"b")
    at.leader.write(*[b"lost"] * 3, is_committed=False)
    await until(lambda: at.log().log_end_offset == 5)
    new = at.leader = at.leaders[THIRD]
    new.lead(1)
    new.write(b"a", b"b")
    at.elect(THIRD)
    new.write(b"c")
    await at.catch_up()
    assert "t-0: broker 9, its leader in epoch 2, has other records; " in caplog.text
    assert "failed" not in caplog.text


async def test_an_epoch_without_a_record_is_not_named_to_a_leader_that_does_not_know_it(at: Following) -> None:
    """It led in that epoch before ZooKeeper came back from a backup: the leader's epochs are lower."""
    await at.follow(b"a", b"b")
    at.log().leader_epochs.assign(99, at.log().log_end_offset)
    at.elect(OTHER)
    at.leader.write(b"c")
    await at.catch_up()


async def test_a_leader_that_does_not_know_the_epoch_of_the_last_record_is_complained_of(
    at: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await at.follow(b"a", b"b")
    at.log().leader_epochs.assign(99, 1)
    at.elect(OTHER)
    await until(lambda: "; it may not know epoch 99 of the last record here" in caplog.text)
    assert at.log().log_end_offset == 2


async def part(at: Following) -> Background:
    """The follower has records on the disk that another one, which is elected then, does not have."""
    background = Background()
    await at.follow(b"a", b"b")
    at.log().flush()
    at.broker.services.log_manager.checkpoints.write_recovery_points()
    at.broker.runtime.use(run_in_background=background)
    at.leader = at.leaders[THIRD]
    at.elect(THIRD)
    await until(lambda: background.waiting)
    return background


async def test_nothing_is_cut_of_a_partition_that_is_led_here_by_then(at: Following) -> None:
    background = await part(at)
    at.elect(at.broker.services.node.node_id, 0)
    at.leader.write(b"c", partition=1)
    background.run_all()
    await at.catch_up(1)
    assert at.log().log_end_offset == 2


async def test_others_are_fetched_while_one_is_about_to_be_cut(at: Following) -> None:
    background = await part(at)
    at.leader.write(b"c", partition=1)
    await at.catch_up(1)
    assert at.log().log_end_offset == 2
    while not at.has_all():
        background.run_all()
        await asyncio.sleep(0)
    await at.catch_up()


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_follower_is_cut_if_its_leaders_log_ends_before(
    at: Following, caplog: pytest.LogCaptureFixture, *, is_flushed: bool
) -> None:
    """A leader that says of which epoch its records are would answer that the logs part ways."""
    await at.follow(b"a", b"b", b"c")
    if is_flushed:
        at.log().flush()
        at.broker.services.log_manager.checkpoints.write_recovery_points()
    at.leader.script.append(out_of_range)
    at.leader.logs[0].truncate_to(1)
    at.leader.notify()
    await at.catch_up()
    assert "is cut at 1" in caplog.text


async def out_of_range(request: FetchRequest) -> Reply:
    return answer_first(request, error=ErrorCode.OFFSET_OUT_OF_RANGE)


def answer_first(request: FetchRequest, *, error: ErrorCode = ErrorCode.NONE, records: bytes = b"") -> FetchResponse:
    """Answers so for partition 0, and nothing of the others."""

    def answer(_topic_id: bytes, wanted: FetchPartition) -> PartitionData:
        if wanted.partition:
            return PartitionData(wanted.partition, records=b"")
        return PartitionData(wanted.partition, error, 0, -1, 0, records=records)

    return answer_each(request, answer)


async def test_a_follower_begins_again_if_its_leader_has_only_later_records(
    at: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await at.follow(b"a")

    async def go_far_ahead(request: FetchRequest) -> Reply:
        at.leader.write(b"b", b"c", b"d")
        at.leader.logs[0].increment_log_start_offset(3)
        return await at.leader.by_logs(request)

    at.leader.script.append(go_far_ahead)
    await until(lambda: at.leader.logs[0].log_start_offset == 3)
    await at.catch_up()
    assert (at.log().log_start_offset, at.log().high_watermark) == (3, 4)
    assert "begins again at 3, without a record" in caplog.text


async def test_a_leader_that_cannot_say_where_its_log_ends_is_asked_again(
    at: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await at.follow(b"a", b"b", b"c")
    at.leader.script += [out_of_range, out_of_range]
    at.leader.ends_script.append(ErrorCode.UNKNOWN_LEADER_EPOCH)
    at.leader.logs[0].truncate_to(1)
    await at.catch_up()
    assert "the leader answers UNKNOWN_LEADER_EPOCH when it is asked where its log begins and ends" in caplog.text


@pytest.mark.parametrize("nonsense", [-1, 2**63 - 1])
async def test_a_leader_that_says_nonsense_of_where_its_log_ends_is_asked_again(
    at: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, nonsense: int
) -> None:
    """A log that began there would have no name for its first file, or soon take no more records."""
    await at.follow(b"a", b"b", b"c")
    with monkeypatch.context() as patch:
        answer = ListOffsetsPartitionResponse(0, 0, offset=nonsense)
        patch.setattr(ScriptedLeader, "_end", lambda *_: answer)
        at.leader.script += [out_of_range]
        text = f"the leader says that its log begins at {nonsense} and ends at {nonsense}"
        await until(lambda: text in caplog.text)
    assert at.log().log_end_offset == 3
    at.leader.write(b"d")
    await at.catch_up()


async def test_a_leader_that_nobody_reaches_to_ask_where_its_log_ends(
    at: Following, caplog: pytest.LogCaptureFixture
) -> None:
    await at.follow(b"a", b"b", b"c")
    listens_at = at.endpoints[OTHER]

    async def out_of_reach(request: FetchRequest) -> Reply:
        at.endpoints[OTHER] = Endpoint("127.0.0.1", 1)
        return await out_of_range(request)

    at.leader.script.append(out_of_reach)
    at.leader.logs[0].truncate_to(1)
    at.leader.notify()
    await until(lambda: "could not connect to 127.0.0.1:1" in caplog.text)
    at.endpoints[OTHER] = listens_at
    await at.catch_up()


async def test_what_a_leader_of_before_says_of_its_end_delays_nobody(
    at: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at.follow(b"a")

    def resign(*_: object) -> ListOffsetsPartitionResponse:
        at.elect(THIRD, 0)  # it still leads the other one
        return ListOffsetsPartitionResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with monkeypatch.context() as patch:
        patch.setattr(ScriptedLeader, "_end", resign)
        at.leader.script.append(out_of_range)
        at.leader.notify()
        at.leader = at.leaders[THIRD]
        at.leader.write(b"a", b"b")
        await at.catch_up(0)
    assert "asked where its log begins and ends" not in caplog.text


# --- what goes wrong at the leader


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
async def test_what_a_leader_refuses_is_asked_for_again_and_others_go_on(
    at: Following, caplog: pytest.LogCaptureFixture, error: ErrorCode
) -> None:
    caplog.set_level(logging.INFO, "plog.broker")

    async def refuse(request: FetchRequest) -> Reply:
        if "does not follow" not in caplog.text:  # not every request asks for t-0
            at.leader.script.append(refuse)
        return answer_first(request, error=error)

    at.leader.script += [refuse] * 3
    at.leader.write(b"a")
    at.leader.write(b"b", partition=1)
    await at.follow()
    told = [one for one in caplog.records if "t-0 does not follow broker 8 in epoch 1 for now" in one.message]
    assert [one.levelname for one in told] == ["INFO" if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else "ERROR"]


async def test_a_leader_that_knows_the_epoch_later_is_asked_again(at: Following) -> None:
    at.leader.write(b"a")
    at.elect(OTHER)
    at.leader.epochs[0] -= 1
    await until(lambda: len(at.leader.fetches) > 3)
    at.leader.epochs[0] += 1
    await at.catch_up()


async def test_a_session_that_the_leader_lost_begins_again(at: Following) -> None:
    async def in_session(request: FetchRequest) -> Reply:
        response = await at.leader.by_logs(request)
        response.session_id = 7
        return response

    async def lost(_request: FetchRequest) -> Reply:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    at.leader.script += [in_session, lost]
    at.leader.write(b"a")
    at.elect(OTHER)
    await until(lambda: len(at.leader.fetches) > 2)
    at.leader.write(b"b")
    await at.catch_up()
    sessions = [(one.session_id, one.session_epoch) for one in at.leader.fetches[:3]]
    assert sessions == [(0, 0), (7, 1), (0, 0)]


async def refuse_all(_request: FetchRequest) -> Reply:
    return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def know_nothing(request: FetchRequest) -> Reply:
    return answer_first(request, error=ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize(
    ("answer", "times", "text", "count"),
    [
        (refuse_all, 2, "it answers CLUSTER_AUTHORIZATION_FAILED", 1),
        (out_of_range, 3, "the leader has offsets 0 to 1, and says that 0 is out of range", 1),
        (know_nothing, 1, "does not follow", 0),
    ],
)
async def test_a_leader_that_refuses_for_a_while_is_asked_again_and_that_is_told_once(
    at: Following, caplog: pytest.LogCaptureFixture, answer: Answer, times: int, text: str, count: int
) -> None:
    """Or not, if it is usual for a moment: a topic with many partitions would have as many lines when it is made."""
    caplog.set_level(logging.INFO, "plog.broker")
    at.leader.script += [answer] * times
    await at.follow(b"a")
    assert caplog.text.count(text) == count


async def cut_short(_request: FetchRequest) -> Reply:
    return struct.pack(">ii", 1000, 1) + bytes(100)


async def nonsense(_request: FetchRequest) -> Reply:
    return struct.pack(">iib", 30, 1, 0) + b"\x7f" * 40


async def nothing(_request: FetchRequest) -> Reply:
    return b""


async def never(_request: FetchRequest) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "socket_timeout_ms"),
    [(cut_short, HOUR_MS), (nonsense, HOUR_MS), (nothing, HOUR_MS), (never, "300")],
)
async def test_an_answer_that_does_not_come_is_asked_for_again(
    at: Following, caplog: pytest.LogCaptureFixture, answer: Answer
) -> None:
    at.leader.script.append(answer)
    await at.follow(b"a")
    assert at.leader.connections == 2 or (answer is never and at.leader.connections > 2)
    assert "nothing comes from broker 8, which leads 2 partitions followed here: lost the connection" in caplog.text


def flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (flipped(bytes(make_batch(b"v").buffer)), "crc mismatch"),
        (bytes(make_batch(b"v").buffer)[:-1], "cut short"),
        (b"garbage" * 20, "magic"),
        (bytes(16) + b"\x01" + bytes(40), ""),
    ],
    ids=["a flipped bit", "cut short", "no batch", "an old message"],
)
async def test_records_that_are_not_sound_are_not_appended_and_asked_for_again(
    at: Following, caplog: pytest.LogCaptureFixture, records: bytes, text: str
) -> None:
    async def damaged(request: FetchRequest) -> Reply:
        return answer_first(request, records=records)

    at.leader.script += [damaged, damaged]
    at.leader.write(b"a")
    at.leader.write(b"b", partition=1)
    await at.follow()
    (told,) = [one for one in caplog.messages if one.startswith("t-0 does not follow")]
    assert text in told


async def test_what_comes_before_damage_stays(
    at: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next fetch begins after that."""
    monkeypatch.setattr(replica_fetcher, "_PIECE_BYTES", 10)

    async def damaged(request: FetchRequest) -> Reply:
        batches = at.leader.logs[0].read(0, 10_000, 2).region
        assert batches is not None
        return answer_first(request, records=flipped(batches.read()))

    at.leader.script.append(damaged)
    await at.follow(b"a", b"b")
    assert at.leader.fetches[1].topics[0].partitions[0].partition == 1
    asked = [one.fetch_offset for fetch in at.leader.fetches for one in asked_of(fetch)]
    assert asked[:2] == [0, 1]
    assert caplog.text.count("t-0 does not follow") == 1


def asked_of(request: FetchRequest) -> list[FetchPartition]:
    return [one for topic in request.topics for one in topic.partitions if one.partition == 0]


# --- what goes wrong here


async def test_a_full_disk_is_tried_again_until_there_is_room(
    at: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RefusingDisk(monkeypatch, errno.ENOSPC, "t-0")
    await at.follow(b"a")
    disk.is_refusing = True
    at.leader.write(b"b", b"c")
    at.leader.write(b"d", partition=1)
    await until(lambda: disk.refusals > 2)
    await at.catch_up(1)
    assert at.log().log_end_offset == 1
    disk.is_refusing = False
    await at.catch_up()
    assert caplog.text.count("t-0 does not follow") == 1
    assert "no space left" in caplog.text.lower()


class RefusingDisk:
    """A disk that takes half of what is written to the segments of a partition, and refuses the rest, while it is
    told to.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int, folder: str) -> None:
        self.is_refusing = False
        self.refusals = 0
        real = File.write_at

        def write_at(file: File, data: bytes, position: int) -> None:
            if self.is_refusing and file.path.parent.name == folder and file.path.suffix == ".log":
                self.refusals += 1
                real(file, memoryview(data)[: len(data) // 2], position)
                raise OSError(code, os.strerror(code), str(file.path))
            real(file, data, position)

        monkeypatch.setattr(File, "write_at", write_at)


async def test_a_disk_that_fails_takes_its_partition_offline_and_no_other(
    at: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RefusingDisk(monkeypatch, errno.EIO, "t-0")
    await at.follow()
    disk.is_refusing = True
    at.leader.write(b"b", b"c")
    await until(lambda: TopicPartition("t", 0) in at.broker.services.log_manager.offline)
    at.leader.write(b"d", partition=1)
    await until(lambda: at.has_all(1))
    assert disk.refusals == 1
    at.fetchers.check_invariants()
    assert "t-0 is offline: " in caplog.text


@pytest.mark.parametrize("is_ours", [False, True])
async def test_a_log_that_cannot_be_cut_is_offline_unless_the_mistake_is_plogs_own(
    at: Following, monkeypatch: pytest.MonkeyPatch, *, is_ours: bool
) -> None:
    method = "forget_safety_from" if is_ours else "truncate_to"
    real = getattr(PartitionLog, method)
    failures = 0

    def fail_once(log: PartitionLog, offset: int) -> object:
        nonlocal failures
        if log.partition.partition == 0 and not failures:
            failures += 1
            raise RuntimeError("a mistake") if is_ours else OSError(errno.EIO, "no")
        return real(log, offset)

    monkeypatch.setattr(PartitionLog, method, fail_once)
    background = await part(at)
    at.broker.runtime.use(run_in_background=run_now)
    at.leader.write(b"c", partition=1)
    background.run_all()
    if is_ours:
        await at.catch_up()
    else:
        await until(lambda: TopicPartition("t", 0) in at.broker.services.log_manager.offline)
        await until(lambda: at.has_all(1))
    assert failures


async def test_a_checkpoint_that_a_full_disk_refuses_is_tried_again_before_anything_is_cut(
    at: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = FileSystem.write_atomic
    refusals = 0

    def write_atomic(filesystem: FileSystem, path: Path, content: bytes, *, sync: bool = True) -> None:
        nonlocal refusals
        if path.name == "recovery-point-offset-checkpoint" and refusals < 3:
            refusals += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(filesystem, path, content, sync=sync)

    await at.follow(b"a", b"b")
    at.log().flush()
    at.broker.services.log_manager.checkpoints.write_recovery_points()
    monkeypatch.setattr(FileSystem, "write_atomic", write_atomic)
    at.leader = at.leaders[THIRD]
    at.elect(THIRD)
    await until(lambda: refusals == 3)
    await at.catch_up()
    assert caplog.text.count("t-0 does not follow") == 1


async def test_a_mistake_of_plogs_own_ends_no_fetcher(
    at: Following, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = PartitionLog.append_as_follower
    failures = 0

    def fail_once(log: PartitionLog, *args: object, **fields: object) -> object:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise RuntimeError("a mistake")
        return real(log, *args, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionLog, "append_as_follower", fail_once)
    at.leader.write(b"a")
    at.leader.write(b"b", partition=1)
    await at.follow()
    assert "following broker 8 failed" in caplog.text


# --- anything, in any order


@pytest.mark.parametrize("seed", range(3))
async def test_a_follower_has_its_leaders_bytes_whatever_happened_before(
    at: Following, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Anybody is elected, with whatever it lacks; answers are lost, damaged and late, and the disk is full at times."""
    random = Random(seed)
    disk = RefusingDisk(monkeypatch, errno.ENOSPC, "t-0")
    monkeypatch.setattr(replica_fetcher, "_TURN_SECONDS", 0)
    monkeypatch.setattr(replica_fetcher, "_PIECE_BYTES", 200)
    chaos = Chaos(at, disk, random)
    for _ in range(150):
        chaos.step()
        for _ in range(random.choice([0, 1, 5, 30])):
            await asyncio.sleep(0)
        at.fetchers.check_invariants()
    chaos.calm()
    await at.catch_up()
    for number in (0, 1):
        start = max(at.log(number).log_start_offset, at.leader.logs[number].log_start_offset)
        assert content(at.log(number), start) == content(at.leader.logs[number], start)
        at.log(number).check_invariants()


class Chaos:
    def __init__(self, at: Following, disk: RefusingDisk, random: Random) -> None:
        self._at = at
        self._disk = disk
        self._random = random
        self._held: list[asyncio.Event] = []
        self._us = at.broker.services.node.node_id

    def step(self) -> None:
        self._random.choice([self._write, self._write, self._elect, self._spoil, self._hold, self._trim, self._fill])()

    def _write(self) -> None:
        """Not as a leader whose disk is full: it would leave office for good."""
        number = self._random.randrange(2)
        values = [self._random.randbytes(self._random.choice([1, 90, 400])) for _ in range(self._random.choice([1, 4]))]
        partition = self._at.partition(number)
        if partition.is_leading and not self._disk.is_refusing:
            self._at.replicas.append(partition, make_batch(*values), required_acks=1)
        elif not partition.is_leading:
            self._at.leaders[partition.state.leader].write(*values, partition=number)

    def _elect(self) -> None:
        number, leader = self._random.randrange(2), self._random.choice([OTHER, THIRD, self._us])
        self._at.elect(leader, number)

    def _spoil(self) -> None:
        async def damaged(request: FetchRequest) -> Reply:
            return answer_first(request, records=self._random.randbytes(100))

        leader = self._at.leaders[self._random.choice([OTHER, THIRD])]
        leader.script.append(self._random.choice([cut_short, nonsense, nothing, damaged]))

    def _hold(self) -> None:
        leader = self._at.leaders[self._random.choice([OTHER, THIRD])]
        self._held.append(hold(leader)[1])
        if len(self._held) > 2:
            self._held.pop(0).set()

    def _trim(self) -> None:
        log = self._at.leaders[self._random.choice([OTHER, THIRD])].logs[self._random.randrange(2)]
        log.increment_log_start_offset(self._random.randint(log.log_start_offset, log.high_watermark))

    def _fill(self) -> None:
        self._disk.is_refusing = not self._disk.is_refusing

    def calm(self) -> None:
        self._disk.is_refusing = False
        for event in self._held:
            event.set()
        for leader in self._at.leaders.values():
            leader.script.clear()
        self._at.elect(OTHER)
        for number in (0, 1):
            self._at.leader.write(b"last", partition=number)


# --- anything that a leader may say


class HostileLeader:
    """Answers for partition 0 with whatever an answer has room for: errors that there are not, offsets from one end of
    the numbers to the other, and sound batches that belong anywhere.
    """

    _OFFSETS = (-LONG_MAX - 1, -5, -1, 0, 1, 2, 5, 9, 1 << 31, LONG_MAX - 1, LONG_MAX)
    _ERRORS = (1, 3, 6, 56, 74, 75, 76, -1, 999)

    def __init__(self, at: Following, random: Random) -> None:
        self._at = at
        self._random = random
        self.answers = 0

    async def answer(self, request: FetchRequest) -> Reply:
        self.answers += 1
        return answer_each(request, lambda _id, wanted: self._answer(wanted.partition))

    def _answer(self, number: int) -> PartitionData:
        random = self._random
        data = PartitionData(number, high_watermark=0, log_start_offset=0, records=b"")
        if number == 0:
            data.error_code = random.choice(self._ERRORS) if random.random() < 0.3 else 0
            data.high_watermark, data.log_start_offset = random.choice(self._OFFSETS), random.choice(self._OFFSETS)
            if random.random() < 0.3:
                epoch = random.choice([-3, 0, 1, 5, (1 << 31) - 1])
                data.diverging_epoch = EpochEndOffset(epoch, random.choice(self._OFFSETS))
            data.records = self._records() if random.random() < 0.6 else b""
        return data

    def _records(self) -> bytes:
        random, end = self._random, self._at.log().log_end_offset
        batches = [
            as_leader(
                make_batch(*[b"v"] * random.randrange(1, 4)),
                min(random.choice([end, end, end + 1, end + 4, *self._OFFSETS]), LONG_MAX),
                random.choice([-1, 0, 1, 2, 5]),
            )
            for _ in range(random.randrange(1, 4))
        ]
        records = b"".join(batches)
        return records if random.random() < 0.7 else records[: random.randrange(len(records))]


@pytest.mark.parametrize("seed", range(5))
async def test_a_hostile_leader_breaks_nothing_but_the_partition_that_it_leads(
    at: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    limits = replica_fetcher._limits
    monkeypatch.setattr(replica_fetcher, "_limits", lambda config: limits(config)._replace(backoff_ms=1))
    random = Random(seed)
    await at.follow(b"a", b"b", b"c")
    hostile = HostileLeader(at, random)
    at.leader.script.extend([hostile.answer] * 60)
    while hostile.answers < 60:
        await asyncio.sleep(0.001)
        at.log().check_invariants()
        at.fetchers.check_invariants()
        if random.random() < 0.05:
            at.elect(OTHER)
    at.leader.write(b"d", partition=1)
    await at.catch_up(1)
    assert "Traceback" not in caplog.text
    assert "failed; it begins again" not in caplog.text


# --- the end


async def test_nothing_happens_after_the_end(at: Following) -> None:
    await part(at)  # whose cut waits for the other thread for ever
    at.leader.script.append(never)
    await until(lambda: not at.leader.script)
    await at.fetchers.close()
    at.elect(OTHER)
    others = {task for leader in at.leaders.values() for task in leader.tasks}
    assert asyncio.all_tasks() - {asyncio.current_task()} <= others
