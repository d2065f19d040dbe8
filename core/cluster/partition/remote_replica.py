"""How far a follower is, as its leader knows by the follower's fetches (kafka.cluster.Replica)."""

from __future__ import annotations

from core.cluster.partition.in_sync_replicas import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1
_NEVER_MS = -(1 << 62)


class RemoteReplica:
    """Owned by the task of the partition that has it. A fetch from an offset says that the follower has all below it.

    I1 it was not caught up later than it fetched, but for the moment at which the leader's epoch began
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.begin_epoch(0, is_in_sync=False)

    def begin_epoch(self, now_ms: int, *, is_in_sync: bool) -> None:
        """Forgets what it said, as another leader epoch begins: it may have been cut, or have lost records in a crash,
        and says again where it is. One in sync has the whole time to do so.
        """
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.last_caught_up_ms = now_ms if is_in_sync else _NEVER_MS
        self._last_fetch_ms = _NEVER_MS
        self._leader_end_at_last_fetch = UNKNOWN_OFFSET
        self._epoch_began_ms = now_ms

    def note_fetch(
        self, offset: int, *, leader_end_offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Notes that the broker, in that life of its, fetched from `offset` on, when the leader's log ended there.

        It is caught up now if there was nothing more. If it has by now what there was when it fetched before, it was
        caught up then: a follower that is always some records away from the end of a busy log is in sync, too.
        """
        if broker_epoch != self.broker_epoch and self.broker_epoch != UNKNOWN_BROKER_EPOCH:
            self.begin_epoch(now_ms, is_in_sync=False)  # it was started again, and may have lost records
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now_ms
        self._leader_end_at_last_fetch = max(self._leader_end_at_last_fetch, leader_end_offset)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Says whether it has all that the leader has, or had it at most `max_lag_ms` ago (replica.lag.time.max.ms)."""
        return self.end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms

    def check_invariants(self) -> None:
        assert self.last_caught_up_ms <= max(self._last_fetch_ms, self._epoch_began_ms), "I1"
