"""A leader, its followers and a controller against a slow model: the model works out from the whole history who counts
and what is replicated. What the cluster must never break is checked beside it, against what followers really have.

Messages are lost, late, and out of order; followers start again and lose records; the controller decides on its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.cluster.image.metadata_image import PartitionState
from core.cluster.partition.leadership import IsrAnswer, IsrProposal
from core.cluster.partition.partition import ALL_IN_SYNC, Partition, Role
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.files.log_config import LogConfig
from core.log.partition_log import AppendResult, PartitionLog
from core.records.record_batch import RecordBatch
from tests.support.logs import PARTITION, make_batch
from tests.support.replication import LEADER, KnownPeers

REPLICAS = (1, 2, 3, 4)
FOLLOWERS = st.sampled_from(REPLICAS[1:])
LAG_MS = 100


class Epochs:
    latest_epoch = -1

    def assign(self, epoch: int, _start_offset: int) -> None:
        self.latest_epoch = epoch


class Ends:
    """A log of nothing but its offsets."""

    partition = PARTITION
    recovery_point = 0

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.leader_epochs = Epochs()
        self.log_end_offset = self.high_watermark = 0

    def append_as_leader(self, _batch: RecordBatch, _epoch: int, *, from_client: bool) -> AppendResult:
        assert from_client
        self.log_end_offset += 1
        return AppendResult(self.log_end_offset - 1, self.log_end_offset - 1, -1, 0)

    def update_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))

    def ensure_in_range(self, offset: int) -> None:
        assert 0 <= offset <= self.log_end_offset

    def check_invariants(self) -> None:
        assert 0 <= self.high_watermark <= self.log_end_offset


class Fetched(NamedTuple):
    replica: int
    offset: int
    leader_end: int
    life: int
    now_ms: int


class News(NamedTuple):
    """A decision of the controller's on its way, with the lives of the brokers that it knows of."""

    state: PartitionState
    lives: dict[int, int]


@dataclass
class Controller:
    """What is written down. It takes a proposal that is of both epochs and of brokers that live."""

    isr: frozenset[int]
    leader_epoch: int = 0
    partition_epoch: int = 0
    lives: dict[int, int] = field(default_factory=lambda: {replica: 10 * replica for replica in REPLICAS})

    def news(self) -> News:
        isr = tuple(sorted(self.isr))
        state = PartitionState(LEADER, self.leader_epoch, isr, REPLICAS, self.partition_epoch)
        return News(state, dict(self.lives))

    def elect(self, isr: frozenset[int]) -> News:
        self.isr = isr
        self.leader_epoch += 1
        self.partition_epoch += 1
        return self.news()

    def decide(self, proposal: IsrProposal) -> IsrAnswer:
        if proposal.leader_epoch != self.leader_epoch:
            return IsrAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        is_so_already = frozenset(proposal.isr) == self.isr
        if proposal.partition_epoch != self.partition_epoch and not is_so_already:
            return IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        if any(life not in (-1, self.lives[member]) for member, life in proposal.broker_epochs.items()):
            return IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        if not is_so_already:
            self.isr = frozenset(proposal.isr)
            self.partition_epoch += 1
        return IsrAnswer(ErrorCode.NONE, tuple(sorted(self.isr)), self.leader_epoch, self.partition_epoch)


class Model:
    """All that the leader was told since it began, and what follows, worked out again each time."""

    def __init__(self, first: PartitionState, min_isr: int) -> None:
        self.min_isr = min_isr
        self.events: list[tuple[Any, ...]] = []  # ("state", it, end, now), ("proposal", it), ("answer", proposal, it)
        self.fetches: list[Fetched] = []  # of this leader epoch
        self.high_watermark = 0
        self.first = first
        self.began_ms = 0
        self.looked = (0, 0)
        self.lives: dict[int, int] = {}

    def known(self) -> tuple[frozenset[int], frozenset[int], tuple[int, int]]:
        """The in-sync replicas, those that may be, and the epochs."""
        isr, epochs = frozenset(self.first.isr), (self.first.leader_epoch, self.first.partition_epoch)
        pending: IsrProposal | None = None
        for kind, *what in self.events:
            if kind == "proposal":
                (pending,) = what
            elif kind == "state":
                (state,) = what
                later = (state.leader_epoch, state.partition_epoch)
                if later[0] >= epochs[0] and later[1] >= epochs[1] and later != epochs:
                    isr, epochs, pending = frozenset(state.isr), later, None
            elif what[0] is pending:
                answer = what[1]
                if answer.error is ErrorCode.INELIGIBLE_REPLICA:
                    pending = None
                elif answer.error is ErrorCode.NONE:
                    isr, epochs, pending = frozenset(answer.isr), (epochs[0], answer.partition_epoch), None
        return isr, isr | frozenset(pending.isr if pending else ()), epochs

    def in_this_life(self, replica: int) -> list[Fetched]:
        fetches = [one for one in self.fetches if one.replica == replica]
        life = fetches[-1].life if fetches else -1
        return [one for one in fetches if one.life == life]

    def end_of(self, replica: int) -> int:
        fetches = self.in_this_life(replica)
        return fetches[-1].offset if fetches else -1

    def is_caught_up(self, replica: int, end: int, now_ms: int) -> bool:
        fetches = self.in_this_life(replica)
        isr_then = next((s.isr for k, *(s, *_) in reversed(self.events) if k == "epoch"), self.first.isr)
        has_restarted = len({one.life for one in self.fetches if one.replica == replica}) > 1
        times = [self.began_ms] if replica in isr_then and not has_restarted else []
        times += [one.now_ms for one in fetches if one.offset >= one.leader_end]
        times += [
            before.now_ms
            for number, before in enumerate(fetches)
            for later in fetches[number + 1 : number + 2]
            if later.offset >= max(one.leader_end for one in fetches[: number + 1])
        ]
        return self.end_of(replica) == end or any(now_ms - time <= LAG_MS for time in times)

    def move(self, end: int) -> None:
        isr, maximal, _ = self.known()
        if len(isr) < min(self.min_isr, len(REPLICAS)):
            return
        counting = [replica for replica in REPLICAS[1:] if replica in maximal or self.may_join_soon(replica)]
        self.high_watermark = max(self.high_watermark, min([end, *map(self.end_of, counting)]))

    def may_join_soon(self, replica: int) -> bool:
        fetches = self.in_this_life(replica)
        life = fetches[-1].life if fetches else -1
        return self.is_caught_up(replica, *self.looked) and life in (-1, self.lives.get(replica))


class Cluster(RuleBasedStateMachine):
    @initialize(min_isr=st.integers(1, 3), others=st.frozensets(FOLLOWERS))
    def begin(self, min_isr: int, others: frozenset[int]) -> None:
        self.controller = Controller(frozenset({LEADER, *others}))
        self.now_ms = 0
        self.ends = dict.fromkeys(REPLICAS[1:], 0)
        self.proposals: list[IsrProposal] = []
        self.answers: list[tuple[IsrProposal, IsrAnswer]] = []
        self.news: list[News] = []
        self.late: list[tuple[int, int, int, int]] = []  # fetches: replica, offset, life, leader epoch
        first = self.controller.news()
        self.log = Ends(LogConfig(min_insync_replicas=min_isr))
        self.peers = KnownPeers(max_lag_ms=LAG_MS)
        self.peers.epochs = dict(first.lives)
        self.model = Model(first.state, min_isr)
        self.model.lives = dict(first.lives)
        log = cast(PartitionLog, self.log)
        self.partition = Partition(log, bytes(16), first.state, node_id=LEADER, peers=self.peers)
        self.looked()

    def looked(self) -> None:
        """The leader has looked at its clock."""
        self.model.looked = self.log.log_end_offset, self.now_ms
        self.model.move(self.log.log_end_offset)

    def proposed(self, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            self.model.events.append(("proposal", proposal))
            self.proposals.append(proposal)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.partition.append(make_batch(b"v"), required_acks=1)
        self.model.move(self.log.log_end_offset)

    @rule(replica=FOLLOWERS, takes=st.integers(0, 8))
    def fetch(self, replica: int, takes: int) -> None:
        """From the leader in the epoch that it leads in."""
        self.deliver_fetch(replica, self.ends[replica], self.controller.lives[replica])
        self.ends[replica] = min(self.ends[replica] + takes, self.log.log_end_offset)

    @rule(replica=FOLLOWERS)
    def fetch_slowly(self, replica: int) -> None:
        life = self.controller.lives[replica]
        self.late.append((replica, self.ends[replica], life, self.partition.leader_epoch))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def deliver_late_fetch(self, data: st.DataObject) -> None:
        replica, offset, life, leader_epoch = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
        if leader_epoch == self.partition.leader_epoch:  # else it is fenced
            self.deliver_fetch(replica, offset, life)

    def deliver_fetch(self, replica: int, offset: int, life: int) -> None:
        fetches = self.model.in_this_life(replica)
        latest = max([self.peers.epochs[replica] or -1, *(one.life for one in fetches)])
        is_late = pytest.raises(KafkaError, match="has started again") if life < latest else nullcontext()
        with is_late:
            proposal = self.partition.note_fetch(
                replica, offset, log_start_offset=0, broker_epoch=life, now_ms=self.now_ms
            )
        if life < latest:
            return
        self.model.fetches.append(Fetched(replica, offset, self.log.log_end_offset, life, self.now_ms))
        self.proposed(proposal)
        self.looked()

    @rule(by_ms=st.integers(1, LAG_MS + 1))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def look(self) -> None:
        self.proposed(self.partition.look_at_followers(self.now_ms))
        self.looked()

    @precondition(lambda self: self.proposals)
    @rule(data=st.data(), is_lost=st.sampled_from(["no", "the request", "the answer"]))
    def decide(self, data: st.DataObject, is_lost: str) -> None:
        proposal = self.proposals.pop(data.draw(st.integers(0, len(self.proposals) - 1)))
        answer = (
            IsrAnswer(ErrorCode.REQUEST_TIMED_OUT) if is_lost == "the request" else self.controller.decide(proposal)
        )
        self.answers.append((proposal, IsrAnswer(ErrorCode.REQUEST_TIMED_OUT) if is_lost == "the answer" else answer))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def deliver_answer(self, data: st.DataObject) -> None:
        proposal, answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if self.partition.on_isr_answer(proposal, answer, self.now_ms):
            self.proposals.append(proposal)
        self.model.events.append(("answer", proposal, answer))
        self.looked()

    @rule(replica=FOLLOWERS, keeps=st.floats(0, 1))
    def restart(self, replica: int, keeps: float) -> None:
        """It may lose records. The controller takes it out of those in sync, as it sees another life of it."""
        self.ends[replica] = int(self.ends[replica] * keeps)
        self.controller.lives[replica] += 1
        if replica in self.controller.isr:
            self.news.append(self.controller.elect(self.controller.isr - {replica}))
        else:
            self.news.append(self.controller.news())

    @rule()
    def elect_again(self) -> None:
        self.news.append(self.controller.elect(self.controller.isr))

    @rule()
    def tell(self) -> None:
        """As metadata do that tell of a change of the replicas in sync."""
        self.news.append(self.controller.news())

    @precondition(lambda self: self.news)
    @rule(data=st.data())
    def deliver_news(self, data: st.DataObject) -> None:
        news = self.news.pop(data.draw(st.integers(0, len(self.news) - 1)))
        epoch_before = self.partition.leader_epoch
        for replica, life in news.lives.items():
            self.model.lives[replica] = self.peers.epochs[replica] = max(life, self.model.lives[replica])
        took = self.partition.take_up(news.state, self.now_ms)
        assert took or news.state.partition_epoch < self.controller.partition_epoch
        if took and self.partition.leader_epoch > epoch_before:
            self.model.fetches = []
            self.model.began_ms = self.now_ms
            self.model.events.append(("epoch", news.state))
        self.model.events.append(("state", news.state))
        if took:
            self.looked()

    # --- what must hold

    @invariant()
    def leader_and_model_say_the_same(self) -> None:
        if not hasattr(self, "partition"):
            return
        self.partition.check_invariants()
        assert self.partition.role is Role.LEADING
        leadership = self.partition._leadership
        assert leadership is not None
        committed, maximal, epochs = self.model.known()
        assert (leadership.in_sync.committed, leadership.in_sync.maximal) == (committed, maximal)
        assert (self.partition.leader_epoch, self.partition.partition_epoch) == epochs
        assert self.log.high_watermark == self.model.high_watermark
        must_wait = self.partition.must_wait_for(self.log.log_end_offset, ALL_IN_SYNC)
        assert bool(must_wait) == (self.log.high_watermark < self.log.log_end_offset)

    @invariant()
    def who_may_be_elected_has_all_that_is_committed(self) -> None:
        """LeaderCandidateCompleteness."""
        if hasattr(self, "partition"):
            for replica in self.controller.isr - {LEADER}:
                assert self.ends[replica] >= self.log.high_watermark

    @invariant()
    def the_leader_counts_all_that_the_controller_counts(self) -> None:
        """ReplicationQuorumSuperset."""
        if hasattr(self, "partition") and self.partition.leader_epoch == self.controller.leader_epoch:
            leadership = self.partition._leadership
            assert leadership is not None
            assert leadership.in_sync.maximal >= self.controller.isr


TestPartitionLeader = Cluster.TestCase
TestPartitionLeader.settings = settings(stateful_step_count=60)
