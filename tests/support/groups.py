"""A world for group coordinators: time in hand, timers that fire when it passes, and a log in memory."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import pytest

from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.coordinator.coordinator_environment import ClientInfo, GroupConfig
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.group_record_values import GroupRecord
from core.protocol.schema.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from core.records.record_batch import ProducerIdAndEpoch
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock

SESSION_MS = 10_000
REBALANCE_MS = 60_000
CLIENT = ClientInfo("client", "/127.0.0.1")


def refused(call: Callable[..., object], *arguments: object) -> ErrorCode:
    """The code of the error that it raises."""
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    return caught.value.code


class _Timer:
    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        self.function = None


class GroupWorld:
    """As of `GroupEnvironment`."""

    def __init__(self, **config: int) -> None:
        self.config = GroupConfig(**config)
        self.clock = ManualClock(NOW)
        self.written: list[GroupRecord] = []
        self.producers: list[ProducerIdAndEpoch | None] = []  # of `written`, where they are of a transaction
        self.is_loading = False
        self.refuses = False
        self.topics: dict[str, TopicImage] = {}
        self.metadata_version = 0
        self.numbers: dict[str, int] = {}  # groups' partitions; 0 where none is given
        self._timers: list[tuple[int, int, _Timer]] = []
        self._numbers = itertools.count()

    def session_timeout_ms(self, group_id: str) -> int:
        return 45_000

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return 5000

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def monotonic_ms(self) -> int:
        return self.clock.monotonic_ms()

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> _Timer:
        timer = _Timer(function)
        heapq.heappush(self._timers, (self.monotonic_ms() + delay_ms, next(self._numbers), timer))
        return timer

    def advance(self, ms: int) -> None:
        """Time passes, and what comes due meanwhile is done when it does."""
        end_ms = self.monotonic_ms() + ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.clock.advance(max(due_ms - self.monotonic_ms(), 0))
            function, timer.function = timer.function, None
            if function is not None:
                function()
        self.clock.advance(end_ms - self.monotonic_ms())

    @property
    def timers(self) -> int:
        return sum(timer.function is not None for _, _, timer in self._timers)

    def ensure_loaded(self, group_id: str) -> None:
        if self.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def number_of(self, group_id: str) -> int:
        return self.numbers.get(group_id, 0)

    def write(self, group_id: str, records: list[GroupRecord], producer: ProducerIdAndEpoch | None = None, /) -> None:
        if self.refuses:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.written += records
        self.producers += [producer] * len(records)


class Joined:
    """A JoinGroup request that was sent; `response` once it is answered."""

    def __init__(self, response: JoinGroupResponse | Pending[JoinGroupResponse]) -> None:
        self._answer = response

    @property
    def response(self) -> JoinGroupResponse | None:
        return self._answer.value if isinstance(self._answer, Pending) else self._answer

    @property
    def answered(self) -> JoinGroupResponse:
        assert self.response is not None, "the answer waits"
        return self.response


class Synced:
    def __init__(self, response: SyncGroupResponse | Pending[SyncGroupResponse]) -> None:
        self._answer = response

    @property
    def response(self) -> SyncGroupResponse | None:
        return self._answer.value if isinstance(self._answer, Pending) else self._answer

    @property
    def answered(self) -> SyncGroupResponse:
        assert self.response is not None, "the answer waits"
        return self.response


class Client:
    """Speaks for members of the group `g`."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.coordinator = GroupCoordinator(world)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 3,
        group: str = "g",
    ) -> Joined:
        """Version 3 gives a member its id with its place; from 4 on it must ask twice."""
        said = {"range": b"of the member"} if protocols is None else protocols
        request = JoinGroupRequest(
            group,
            session_ms,
            rebalance_ms,
            member_id,
            instance_id,
            protocol_type,
            [JoinGroupRequestProtocol(name, metadata) for name, metadata in said.items()],
        )
        joined = Joined(self.coordinator.join(request, CLIENT, version))
        self.coordinator._check_invariants()
        return joined

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_name: str | None = None,
    ) -> Synced:
        request = SyncGroupRequest(
            "g",
            joined.generation_id if generation is None else generation,
            joined.member_id,
            instance_id,
            None,
            protocol_name,
            [SyncGroupRequestAssignment(member_id, data) for member_id, data in (assignments or {}).items()],
        )
        synced = Synced(self.coordinator.sync(request))
        self.coordinator._check_invariants()
        return synced

    def heartbeat(self, joined: JoinGroupResponse, *, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest("g", joined.generation_id, joined.member_id, instance_id)
        return self.coordinator.heartbeat(request)

    def leave(self, member_id: str, instance_id: str | None = None) -> int:
        (response,) = self.coordinator.leave("g", [MemberIdentity(member_id, instance_id)])
        self.coordinator._check_invariants()
        return response.error_code


def replayed(world: GroupWorld) -> GroupCoordinator:
    """What a restart makes of what was written."""
    again = GroupCoordinator(world)
    for key, value in world.written:
        assert again.replay(key, value) == "g"
    return again
