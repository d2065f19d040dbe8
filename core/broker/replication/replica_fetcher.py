"""Follows one other broker: fetches the records of all partitions that it leads and this broker follows.

One request after the other goes over one connection; `core.cluster.partition.fetch_plan` makes the requests. A response
is processed partition by partition, with turns for other tasks in between. It may have three effects:

    append     at once, from where the records were received
    cut        the logs diverge
    reset      the leader's log does not reach to where this one ends: it is asked for its ends, over another connection

The last two run beside the loop, which goes on with the other partitions. A partition may be stopped, or get another
leader epoch, while a task waits: then earlier responses no longer change its log.

Source: kafka.server.AbstractFetcherThread, ReplicaFetcherThread, RemoteLeaderEndPoint.

A `FollowedPartition` is one that this broker follows, in one leader epoch. Its log is cut where the leader has other
records: checkpoints that must be on the disk before (`LogManager.forget_safety`) are written in the background, for all
logs that one response cuts. The partition's role may change meanwhile: then nothing is cut.

`ReplicaFetcherManager` follows the leaders of all partitions that this broker has a replica of and does not lead: there
is one `ReplicaFetcher` for each leading broker; it ends when no partition of that broker is followed any longer.
Source: kafka.server.ReplicaFetcherManager.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from core.broker.config.broker_config import BrokerConfig
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.replication.peer_connection import DESCRIBE_TOPICS, PeerLink
from core.broker.replication.replication_quota import ReplicationQuota, follows_throttled
from core.broker.requests.runtime import Runtime
from core.broker.serving.loop_tasks import LoopTasks
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.partition.divergence import offset_in_range, truncation_offset
from core.cluster.partition.fetch_plan import (
    FETCH_VERSION,
    Append,
    FetchLimits,
    FetchPlan,
    Position,
    Reset,
    Retry,
    Truncate,
)
from core.cluster.partition.partition import Partition, Role
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, ConnectionFailedError, CorruptRecordError, KafkaError
from core.common.fd_limits import OUT_OF_DESCRIPTORS
from core.common.filesystem import access_error
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.log.fetched_batches import pieces_of
from core.log.log_manager import LogManager, Write
from core.log.partition_log import PartitionLog
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from core.broker.replication.peer_security import PeerSecurity

_log = logging.getLogger("plog.broker")

LIST_OFFSETS_VERSION = 9
"""The version that Kafka 3.9's followers use."""

_LATEST, _EARLIEST = -1, -2
_HIGHEST_END = 2**62
"""No log gets that far; one that began there would soon be unable to take records."""

_TURN_SECONDS = 0.002
_PIECE_BYTES = 1024 * 1024
"""The most bytes appended at once, in whole batches."""

_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, *OUT_OF_DESCRIPTORS)
"""Errors of the disk that may be temporary."""

_USUAL = {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
}
"""Errors that are normal until both brokers know of the same election."""

_Ends = Mapping[TopicPartition, ListOffsetsPartitionResponse]


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """Owned by the loop's task. Another leader epoch makes another object; a task that has waited checks whether this
    one `is_current`.
    """

    partition: Partition
    leader_epoch: int
    is_over: bool = False
    """Whether it is no longer followed, or in another epoch."""
    complaint: str = ""
    """The last logged reason why nothing is appended; empty if nothing is wrong."""
    first_sign: str = ""
    """A usual error, which is logged if it comes again before anything is fetched."""
    log: PartitionLog = field(init=False)
    name: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.partition.log
        self.name = self.log.partition

    @property
    def is_current(self) -> bool:
        """Whether responses of that epoch's leader may change its log."""
        partition = self.partition
        return (
            not self.is_over
            and partition.is_served
            and partition.role is Role.FOLLOWING
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def position(self) -> Position:
        """The present end of the log."""
        log = self.log
        return Position(log.log_end_offset, log.leader_epochs.latest_epoch, log.log_start_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingBroker:
    """The broker that follows others, for its fetchers. Immutable."""

    node_id: int
    replicas: ReplicaManager
    log_manager: LogManager
    find_endpoint: Callable[[int], Endpoint | None]
    """Returns another broker's endpoint, or None."""
    broker_epoch: Callable[[], int]
    """Returns the epoch of this broker's present registration."""
    config: Callable[[], BrokerConfig]
    runtime: Runtime
    buffers: ReceiveBuffers
    quota: ReplicationQuota
    """The quota for throttled partitions."""
    security: PeerSecurity | None = None


class ReplicaFetcher:
    """Owned by the loop's task. Its own task starts at once, and ends with `close`.

    I1 the plan has the partitions of `_followed`, and no others
    """

    def __init__(self, leader: int, broker: FollowingBroker) -> None:
        config = broker.config()
        self.leader = leader
        self._broker = broker
        self._clock = broker.runtime.clock
        self._loop = asyncio.get_running_loop()
        self._plan = FetchPlan(broker.node_id, limits=_limits(config))
        self._backoff_ms = config.replica_fetch_backoff_ms
        self._link = self._new_link()
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._complaint = ""
        self._wake = asyncio.Event()
        self._beside = LoopTasks()
        self._task = self._loop.create_task(self._run())

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def max_lag(self) -> int:
        """See `FetchPlan.max_lag`."""
        return self._plan.max_lag

    # --- the followed partitions

    def follow(self, partition: Partition) -> None:
        """Follows the partition from its log's end, in its present leader epoch; does nothing if it does so already.

        Drops an epoch in which this broker led, and wrote nothing: the leader may not know it, and if ZooKeeper came
        back from an older backup, it has a higher number than the leader's.
        """
        name = partition.log.partition
        known = self._followed.get(name)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.leader_epoch:
                return
            known.is_over = True
        partition.log.leader_epochs.truncate_from_end(partition.log.log_end_offset)
        followed = self._followed[name] = FollowedPartition(partition, partition.leader_epoch)
        self._add(followed)

    def _add(self, followed: FollowedPartition) -> None:
        self._plan.add(followed.name, followed.partition.topic_id, followed.leader_epoch, followed.position)
        self._wake.set()

    def stop(self, name: TopicPartition) -> None:
        """Stops following the partition, if it was followed: its log does not change from now on."""
        followed = self._followed.pop(name, None)
        if followed is not None:
            followed.is_over = True
            self._plan.remove(name)
            self._wake.set()

    def on_brokers_changed(self) -> None:
        """Closes a connection if the leader has moved, and looks up its endpoint again. A leader that is no longer
        known may still be alive: it is asked until another one leads.
        """
        if self._link.endpoint is not None and self._find_endpoint() != self._link.endpoint:
            self._link.leave()
        self._wake.set()

    def check_invariants(self) -> None:
        assert len(self._followed) == len(self._plan), "I1"
        assert all(name in self._plan for name in self._followed), "I1"
        self._plan.check_invariants()

    async def close(self) -> None:
        """Stops following all partitions at once; returns when all tasks have ended."""
        for name in list(self._followed):
            self.stop(name)
        self._task.cancel()
        self._link.close()
        await self._beside.close()
        await asyncio.wait([self._task])

    # --- the loop

    async def _run(self) -> None:
        while True:
            try:
                await self._go_round()
            except Exception:  # noqa: BLE001 - the door of this task: whatever happens, the partitions must be followed
                _log.exception("following broker %d failed; it begins again", self.leader)
                self._begin_again()
                await self._wait(self._clock.monotonic_ms() + self._backoff_ms)

    def _begin_again(self) -> None:
        self._link.leave()
        self._plan.on_lost(self._clock.monotonic_ms())
        for followed in self._followed.values():
            self._add(followed)

    async def _go_round(self) -> None:
        """Sends one request and processes the response, or waits until there is something to request."""
        endpoint = self._find_endpoint()
        if endpoint is None:
            if self._followed:
                self._complain("its address is not known yet")
            await self._wait(None)
            return
        quota = self._broker.quota
        request = self._plan.request(
            self._clock.monotonic_ms(),
            replica_epoch=self._broker.broker_epoch(),
            must_wait=self._is_throttled if quota.is_limited and quota.is_exceeded else None,
        )
        if request is None:
            await self._wait(self._plan.next_due_ms)
            return
        try:
            connection = await self._link.connect(endpoint)
            response = await connection.send(FETCH, FETCH_VERSION, request)
        except ConnectionFailedError as error:
            self._link.leave()
            self._plan.on_lost(self._clock.monotonic_ms())
            self._complain(error.message)
            return
        if not response.error_code:
            self._complaint = ""
        await self._take_up(self._plan.on_answer(response, self._clock.monotonic_ms()))

    async def _wait(self, due_ms: int | None) -> None:
        self._wake.clear()
        delay_s = None if due_ms is None else max(due_ms - self._clock.monotonic_ms(), 1) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wake.wait()

    def _is_throttled(self, name: TopicPartition) -> bool:
        log = self._followed[name].log
        return follows_throttled(log.config, name.partition, self._broker.node_id)

    def _find_endpoint(self) -> Endpoint | None:
        """Returns the leader's endpoint; if that is no longer known, that of the present connection."""
        return self._broker.find_endpoint(self.leader) or self._link.endpoint

    def _new_link(self) -> PeerLink:
        config = self._broker.config()
        return PeerLink(
            self._broker.buffers,
            config,
            client_id=f"broker-{self._broker.node_id}-fetcher-0",
            request_timeout_ms=config.replica_socket_timeout_ms,
            security=self._broker.security,
        )

    # --- answers

    async def _take_up(self, actions: Sequence[Append | Truncate | Reset | Retry]) -> None:
        """Appends while the records are valid: before the next request is sent."""
        found = [(action, self._followed.get(action.partition)) for action in actions if action.partition is not None]
        others: list[tuple[Truncate | Reset, FollowedPartition]] = []
        end_s = self._loop.time() + _TURN_SECONDS
        for action, followed in found:
            if followed is None:
                continue
            if isinstance(action, Append):
                end_s = await self._append(action, followed, end_s)
            elif isinstance(action, Retry):
                text = f"the leader answers {self._link.reason(action.error)}"
                self._complain_of(followed, text, is_usual=action.error in _USUAL)
            else:
                others.append((action, followed))
        for action in actions:
            if action.partition is None:
                self._complain(f"it answers {self._link.reason(action.error)}")
        if others:
            self._beside.begin(self._move_beside(others))

    async def _append(self, action: Append, followed: FollowedPartition, end_s: float) -> float:
        """Appends the records, and gives other tasks a turn from `end_s` on; returns when their next turn is due."""
        if self._broker.quota.is_limited and self._is_throttled(followed.name):
            self._broker.quota.record(len(action.records))
        try:
            is_small = len(action.records) <= _PIECE_BYTES
            for piece in (action.records,) if is_small else pieces_of(action.records, _PIECE_BYTES):
                if not followed.is_current:
                    return end_s
                self._broker.replicas.append_as_follower(
                    followed.partition,
                    piece,
                    action.leader_epoch,
                    high_watermark=action.high_watermark,
                    log_start_offset=action.log_start_offset,
                )
                if self._loop.time() >= end_s:
                    await asyncio.sleep(0)
                    end_s = self._loop.time() + _TURN_SECONDS
        except (CorruptRecordError, KafkaError) as error:
            self._delay(followed, str(error))
        except OSError as error:
            self._on_refused_by_disk(followed, error)
        else:
            self._go_on(followed)
        return end_s

    def _go_on(self, followed: FollowedPartition) -> None:
        if followed.is_current:
            followed.complaint = followed.first_sign = ""
            self._plan.move(followed.name, followed.position)

    def _delay(self, followed: FollowedPartition, reason: str) -> None:
        if followed.is_current:
            self._complain_of(followed, reason)
            self._plan.move(followed.name, followed.position)  # a part may have been done
            self._plan.delay(followed.name, self._clock.monotonic_ms())
            self._wake.set()

    def _on_refused_by_disk(self, followed: FollowedPartition, error: OSError) -> None:
        """Tries again if the error may be temporary, and the log is intact; otherwise takes the partition offline."""
        reason = access_error(error, followed.log.directory, "write to")
        if error.errno in _MAY_PASS and followed.log.is_settled:
            self._delay(followed, str(reason))
        else:
            self._broker.replicas.take_offline(followed.partition, reason)

    # --- cut and reset

    async def _move_beside(self, answered: Sequence[tuple[Truncate | Reset, FollowedPartition]]) -> None:
        """Cuts the logs to where they can join the leader's, and goes on from there; retries later on any failure."""
        moved = [followed for _, followed in answered]
        try:
            await self._move(answered)
        except (AccessError, KafkaError) as error:
            for followed in moved:
                self._delay(followed, error.message)
        except Exception as error:  # noqa: BLE001 - the door of this task: whatever happens, they must be followed
            _log.exception("cutting off records that broker %d does not have failed", self.leader)
            for followed in moved:
                self._delay(followed, f"{type(error).__name__}: {error}")

    async def _move(self, answered: Sequence[tuple[Truncate | Reset, FollowedPartition]]) -> None:
        """Cuts the logs that diverge from the leader's above their start. For the others, asks the leader for its start
        and end offsets.
        """
        cuts: dict[FollowedPartition, Cut] = {}
        kept: dict[FollowedPartition, int] = {}  # the end of the common part
        for action, followed in answered:
            end = _common_end(followed.log, action)
            if isinstance(action, Truncate) and end >= followed.log.log_start_offset:
                cuts[followed] = Cut(end)
            else:
                kept[followed] = end
        await self._cut(cuts)
        if kept:
            await self._cut(await self._find_cuts(kept))

    async def _cut(self, cuts: Mapping[FollowedPartition, Cut]) -> None:
        """Cuts the logs, and goes on from there. One that the disk refuses to cut is offline then. Raises AccessError
        if a checkpoint can't be written: then nothing was cut, or a little more than the checkpoints say.
        """
        for followed, cut in cuts.items():
            if followed.is_current:
                self._log_cut(followed, cut)
        for followed in await self._forget_safety({followed: cut.offset for followed, cut in cuts.items()}):
            self._cut_now(followed, cuts[followed])
        await self._forget_safety({followed: followed.log.log_end_offset for followed in cuts if followed.is_current})
        for followed in cuts:
            self._go_on(followed)
        self._wake.set()

    def _log_cut(self, followed: FollowedPartition, cut: Cut) -> None:
        log = followed.log
        if not cut.begins_again and cut.offset >= log.log_end_offset:
            return
        _log.log(
            logging.WARNING if cut.begins_again or cut.offset < log.high_watermark else logging.INFO,
            "%s: broker %d, its leader in epoch %d, has other records; the log, %d to %d, committed to %d, %s",
            followed.name,
            self.leader,
            followed.leader_epoch,
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
            f"begins again at {cut.offset}, without a record" if cut.begins_again else f"is cut at {cut.offset}",
        )

    def _cut_now(self, followed: FollowedPartition, cut: Cut) -> None:
        log = followed.log
        try:
            if cut.begins_again:
                log.truncate_fully_and_start_at(cut.offset)
            else:
                log.truncate_to(cut.offset)
        except OSError as error:
            self._broker.replicas.take_offline(followed.partition, access_error(error, log.directory, "cut"))
        else:
            self._broker.replicas.notify([followed.name])

    async def _forget_safety(self, offsets: Mapping[FollowedPartition, int]) -> Sequence[FollowedPartition]:
        """Returns those that may be cut there now."""
        while True:
            current = [followed for followed in offsets if followed.is_current]
            writes = self._broker.log_manager.forget_safety({followed.name: offsets[followed] for followed in current})
            if not writes:
                return current
            await self._in_background(writes)

    async def _in_background(self, writes: Iterable[Write]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failures: list[Exception] = []

        def work() -> None:
            try:
                for write in writes:
                    write()
            except Exception as error:  # noqa: BLE001 - the door of the other thread: the waiting task must get it
                failures.append(error)

        def then() -> None:
            if not done.done():  # else it was cancelled
                done.set_result(None)

        self._broker.runtime.run_in_background(work, then)
        await done
        for error in failures:
            if isinstance(error, OSError):
                raise access_error(error, error.filename or self._broker.log_manager.directory, "write to") from error
            raise error

    # --- out of the leader's range

    async def _find_cuts(self, kept: Mapping[FollowedPartition, int]) -> dict[FollowedPartition, Cut]:
        """Finds the end for logs that agree with the leader's below those offsets; delays those for which the leader's
        answer is not enough.
        """
        starts, ends = await self._list_offsets(list(kept))
        cuts: dict[FollowedPartition, Cut] = {}
        for followed, kept_end in kept.items():
            start, end = starts.get(followed.name), ends.get(followed.name)
            if start is None or end is None or start.error_code or end.error_code:
                codes = [answer.error_code for answer in (start, end) if answer is not None and answer.error_code]
                text = self._link.reason(ErrorCode.of(codes[0]), DESCRIBE_TOPICS) if codes else "nothing"
                self._delay(followed, f"the leader answers {text} when it is asked where its log begins and ends")
                continue
            if not 0 <= start.offset <= end.offset <= _HIGHEST_END:
                self._delay(followed, f"the leader says that its log begins at {start.offset} and ends at {end.offset}")
                continue
            log = followed.log
            offset = offset_in_range(
                log_start=log.log_start_offset, log_end=kept_end, leader_start=start.offset, leader_end=end.offset
            )
            if offset == kept_end == log.log_end_offset:
                text = f"the leader has offsets {start.offset} to {end.offset}, and says that {offset} is out of range"
                if offset > log.log_start_offset:
                    text += f"; it may not know epoch {log.leader_epochs.latest_epoch} of the last record here"
                self._delay(followed, text)
            else:
                cuts[followed] = Cut(offset, begins_again=not log.log_start_offset <= offset <= kept_end)
        return cuts

    async def _list_offsets(self, partitions: Sequence[FollowedPartition]) -> tuple[_Ends, _Ends]:
        """Asks for the start and end offsets of the leader's logs. Raises ConnectionFailedError."""
        endpoint = self._broker.find_endpoint(self.leader)
        if endpoint is None:
            raise ConnectionFailedError(f"the address of broker {self.leader} is no longer known")
        link = self._new_link()
        try:
            connection = await link.connect(endpoint)
            asked = [
                connection.send(LIST_OFFSETS, LIST_OFFSETS_VERSION, self._ends_request(partitions, timestamp))
                for timestamp in (_EARLIEST, _LATEST)
            ]
            return dict(by_partition((await asked[0]).topics)), dict(by_partition((await asked[1]).topics))
        finally:
            link.close()

    def _ends_request(self, partitions: Sequence[FollowedPartition], timestamp: int) -> ListOffsetsRequest:
        topics = by_topic(
            (one.name, ListOffsetsPartition(one.name.partition, one.leader_epoch, timestamp)) for one in partitions
        )
        return ListOffsetsRequest(
            replica_id=self._broker.node_id, topics=[ListOffsetsTopic(name, found) for name, found in topics.items()]
        )

    # --- messages for operators

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            _log.warning(
                "nothing comes from broker %d, which leads %d %s followed here: %s",
                self.leader,
                len(self),
                "partition" if len(self) == 1 else "partitions",
                text,
            )

    def _complain_of(self, followed: FollowedPartition, text: str, *, is_usual: bool = False) -> None:
        """Logs the text once; a usual error only if it comes twice in a row."""
        if is_usual and text != followed.first_sign:
            followed.first_sign = text
        elif text != followed.complaint:
            followed.complaint = text
            _log.log(
                logging.INFO if is_usual else logging.ERROR,
                "%s does not follow broker %d in epoch %d for now: %s",
                followed.name,
                self.leader,
                followed.leader_epoch,
                text,
            )


def _limits(config: BrokerConfig) -> FetchLimits:
    return FetchLimits(
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )


def _common_end(log: PartitionLog, action: Truncate | Reset) -> int:
    """Returns the end of the part that the leader may have, too."""
    if isinstance(action, Reset):
        return log.log_end_offset
    return truncation_offset(log.leader_epochs, log_end=log.log_end_offset, diverging=action.diverging)


class Cut(NamedTuple):
    """The new end of a log; if it `begins_again`, the log is empty and starts there."""

    offset: int
    begins_again: bool = False


class ReplicaFetcherManager:
    """Owned by the loop's task.

    I1 each partition is followed by one fetcher, that of its leader
    """

    def __init__(self, broker: FollowingBroker) -> None:
        """Follows the leaders of the present replicas, and subscribes to changes."""
        self._broker = broker
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._closing = LoopTasks()
        self._is_closed = False
        broker.replicas.on_stopped.append(self.stop)
        broker.replicas.on_role.append(self.follow)
        for partition in broker.replicas.partitions.values():
            self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """Starts or continues to follow, in the leader epoch and from the leader of the partition's state; stops if it
        is not a follower. A no-op if nothing of that changed.
        """
        name = partition.log.partition
        if self._is_closed or partition.role is not Role.FOLLOWING or not partition.is_served:
            self.stop(name)
            return
        leader = partition.state.leader
        if self._leaders.get(name, leader) != leader:
            self.stop(name)
        if leader not in self._fetchers:
            self._fetchers[leader] = ReplicaFetcher(leader, self._broker)
        self._leaders[name] = leader
        self._fetchers[leader].follow(partition)

    def stop(self, name: TopicPartition) -> None:
        """Stops following it, if it was followed: its log is not changed from now on."""
        leader = self._leaders.pop(name, None)
        if leader is not None:
            fetcher = self._fetchers[leader]
            fetcher.stop(name)
            if not len(fetcher):
                del self._fetchers[leader]
                self._closing.begin(fetcher.close())

    @property
    def max_lag(self) -> int:
        """See `FetchPlan.max_lag`; of all leaders."""
        return max((fetcher.max_lag for fetcher in self._fetchers.values()), default=0)

    def on_brokers_changed(self) -> None:
        """Called when another broker's endpoint changed or became known."""
        for fetcher in self._fetchers.values():
            fetcher.on_brokers_changed()

    def check_invariants(self) -> None:
        assert sum(map(len, self._fetchers.values())) == len(self._leaders), "I1"
        for fetcher in self._fetchers.values():
            assert len(fetcher), f"broker {fetcher.leader} is asked for nothing"
            fetcher.check_invariants()

    async def close(self) -> None:
        """Stops all fetchers for good; returns when all connections are closed and all tasks have ended."""
        self._is_closed = True
        for name in list(self._leaders):
            self.stop(name)
        await self._closing.wait()
