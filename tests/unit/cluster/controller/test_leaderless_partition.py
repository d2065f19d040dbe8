"""What is said of a partition that nobody leads."""

from __future__ import annotations

from core.cluster.controller.leaderless_partition import LeaderlessPartition
from core.cluster.controller.unclean_recovery import LogEnd
from core.common.topic_partition import TopicPartition
from tests.support.for_each import for_each

Ends = dict[int, LogEnd]

A, B, EMPTY, OF_KAFKA = LogEnd(4, 10), LogEnd(5, 7), LogEnd(-1, 0), LogEnd(None, 9)


def waiting(candidates: tuple[int, ...], ends: Ends, *, needs_all: bool = True) -> LeaderlessPartition:
    return LeaderlessPartition(TopicPartition("t", 0), (1, 2, 3), candidates, ends, needs_all)


CASES = {
    "waits for broker 3: 1 ends at offset 10 in epoch 4, 2 ends at offset 7 in epoch 5; if broker 2 leads now, "
    "records that only broker 3 may have from offset 7 on are given up": waiting((1, 2, 3), {1: A, 2: B}),
    "waits for brokers 2 and 3: 1 ends at offset 0 in epoch -1; if broker 1 leads now, records that only "
    "brokers 2 and 3 may have from offset 0 on are given up": waiting((1, 2, 3), {1: EMPTY}),
    "has all that it waited for: 1 ends at offset 10 in epoch 4, 2 ends at offset 7 in epoch 5, 3 ends at offset 9; "
    "nothing is given up if broker 2 leads": waiting((1, 2), {1: A, 2: B, 3: OF_KAFKA}),
    "waits for broker 1: no replica has said where its log ends; none of its replicas is alive, so no broker could "
    "lead it now": waiting((1,), {}),
    "waits for broker 1: 2 ends at offset 10 in epoch 4; if broker 2 leads now, records that only broker 1 may "
    "have from offset 10 on are given up": waiting((1,), {2: A}),
    "waits for brokers 1 or 2: 3 ends at offset 9; if broker 3 leads now, records that only brokers 1 and 2 "
    "may have from offset 9 on are given up": waiting((1, 2), {3: OF_KAFKA}, needs_all=False),
}


@for_each("text", CASES)
def test_what_it_waits_for_and_what_that_would_cost(text: str) -> None:
    assert str(CASES[text]) == f"t-0 {text}"


@for_each("candidates, next_leader", [((1, 2, 3), 2), ((1, 3), 1), ((3,), 2)])
def test_without_a_broker_that_is_gone_for_good(candidates: tuple[int, ...], next_leader: int) -> None:
    """If nobody else was a candidate, all other replicas are."""
    after = waiting(candidates, {1: A, 2: B}).without(3)
    assert (after.absent, after.next_leader) == ([], next_leader)


def test_for_programs() -> None:
    assert waiting((1, 2, 3), {1: A, 2: OF_KAFKA}).as_row == {
        "partition": "t-0",
        "waits_for": [3],
        "ends": {"1": {"offset": 10, "epoch": 4}, "2": {"offset": 9, "epoch": None}},
        "next_leader": 1,
        "gives_up_from": 10,
    }
    assert waiting((1, 2), {1: A, 2: B}).as_row["gives_up_from"] is None
