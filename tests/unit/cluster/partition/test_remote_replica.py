"""When a follower counts as caught up."""

from __future__ import annotations

from core.cluster.partition.leadership import RemoteReplica

LAG_MS = 100


def replica(now_ms: int = 1000, *, is_in_sync: bool = False) -> RemoteReplica:
    remote = RemoteReplica(2)
    remote.begin_epoch(now_ms, is_in_sync=is_in_sync)
    return remote


def fetch(remote: RemoteReplica, offset: int, leader_end: int, now_ms: int, broker_epoch: int = 7) -> None:
    remote.note_fetch(
        offset, leader_end_offset=leader_end, log_start_offset=0, broker_epoch=broker_epoch, now_ms=now_ms
    )
    remote.check_invariants()


def test_one_that_is_at_the_end_is_caught_up_however_long_ago_it_fetched() -> None:
    remote = replica()
    fetch(remote, 50, 50, 1000)
    assert remote.is_caught_up(50, 1_000_000, LAG_MS)
    assert remote.is_caught_up(51, 1100, LAG_MS)
    assert not remote.is_caught_up(51, 1101, LAG_MS)


def test_one_that_has_what_there_was_at_its_last_fetch_was_caught_up_then() -> None:
    remote = replica()
    fetch(remote, 0, 10, 1000)
    fetch(remote, 10, 20, 1090)
    assert remote.is_caught_up(20, 1100, LAG_MS)
    fetch(remote, 19, 30, 1180)
    assert not remote.is_caught_up(30, 1180, LAG_MS), "it was caught up at 1000 the last time"
    fetch(remote, 30, 40, 1200)
    assert remote.is_caught_up(40, 1280, LAG_MS)


def test_one_that_never_fetched_is_caught_up_for_a_while_if_it_is_in_sync() -> None:
    assert replica(1000, is_in_sync=True).is_caught_up(5, 1100, LAG_MS)
    assert not replica(1000, is_in_sync=True).is_caught_up(5, 1101, LAG_MS)
    assert not replica(1000).is_caught_up(5, 1000, LAG_MS)


def test_another_leader_epoch_forgets_where_it_was() -> None:
    remote = replica()
    fetch(remote, 50, 50, 1000)
    remote.begin_epoch(2000, is_in_sync=True)
    assert (remote.end_offset, remote.broker_epoch) == (-1, -1)
    fetch(remote, 40, 60, 2010)
    assert not remote.is_caught_up(60, 2101, LAG_MS), "the fetch before was another epoch's"


def test_another_life_of_its_broker_forgets_where_it_was() -> None:  # rule 12
    remote = replica()
    fetch(remote, 50, 50, 1000, broker_epoch=7)
    fetch(remote, 50, 60, 1050, broker_epoch=8)
    assert not remote.is_caught_up(60, 1060, LAG_MS)
    assert remote.end_offset == 50


def test_a_clock_that_stands_still_changes_nothing() -> None:
    remote = replica()
    fetch(remote, 10, 10, 1000)
    fetch(remote, 5, 20, 1000)
    assert remote.last_caught_up_ms == 1000
