"""The choice of brokers against all choices there are, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.cluster.assignment import balanced_assignment
from core.cluster.assignment.balanced_assignment import Thing, choose_evenly

BROKERS = st.integers(0, 4)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Thing], dict[int, str | None], dict[int, int], dict[int, int]]:
    """Things, racks, a load and another."""
    brokers = frozenset(range(draw(st.integers(1, 4))))
    racks = {broker: draw(st.sampled_from(["a", "b", None])) for broker in range(5)}
    things = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, min(3, len(brokers))))
        has = frozenset(draw(st.sets(BROKERS, max_size=3)))
        stays = frozenset(draw(st.sets(st.sampled_from(sorted(has)), max_size=count - 1))) if has else frozenset[int]()
        allowed = brokers | stays
        things.append(Thing(allowed, count, has, draw(st.sampled_from([1, 1, 2, 7])), stays))
    load = {broker: draw(st.integers(0, 2)) for broker in range(5)}
    other = {broker: draw(st.integers(0, 2)) for broker in range(5)}
    return things, racks, load, other


@settings(max_examples=settings().max_examples * 3)
@given(problems())
def test_no_choice_is_better(
    problem: tuple[list[Thing], dict[int, str | None], dict[int, int], dict[int, int]],
) -> None:
    things, racks, load, other = problem
    loads = dict(load), dict(other)
    chosen = choose_evenly(things, racks, loads=[loads[0]], others=[loads[1]])
    for thing, brokers in zip(things, chosen, strict=True):
        assert len(brokers) == thing.count
        assert thing.stays <= brokers <= thing.allowed
    ways = [[{*way} for way in combinations(sorted(t.allowed), t.count) if t.stays <= {*way}] for t in things]
    best = min(badness(things, way, racks, load, other) for way in product(*ways))
    assert badness(things, chosen, racks, load, other) == best
    for before, after in zip((load, other), loads, strict=True):
        assert Counter(after) - Counter(before) == Counter(broker for brokers in chosen for broker in brokers)


def badness(
    things: Sequence[Thing],
    chosen: Sequence[set[int]],
    racks: Mapping[int, str | None],
    load: Mapping[int, int],
    other: Mapping[int, int],
) -> tuple[int, ...]:
    in_racks = sum(sum(n * n for n in Counter(racks[b] or b for b in brokers).values()) for brokers in chosen)
    held = Counter(broker for brokers in chosen for broker in brokers)
    costs = sum(thing.cost * len(brokers - thing.has) for thing, brokers in zip(things, chosen, strict=True))
    uneven = [sum((one[broker] + held[broker]) ** 2 for broker in range(5)) for one in (load, other)]
    return in_racks, uneven[0], costs, uneven[1]


def test_a_broker_that_comes_to_ten_thousand_gets_its_share_and_nothing_else_moves() -> None:
    things = [Thing(frozenset(range(4)), 3, frozenset(range(3))) for _ in range(10_000)]
    chosen = choose_evenly(things, {}, loads=[{}])
    assert set(Counter(broker for brokers in chosen for broker in brokers).values()) == {7500}
    assert sum(3 in brokers for brokers in chosen) == sum(len(brokers - {0, 1, 2}) for brokers in chosen)


def test_what_is_even_in_fewer_racks_than_replicas_is_begun_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """No move has to be found, each of which looks at brokers x brokers."""
    monkeypatch.delattr(balanced_assignment._Choice, "apply")
    even = [frozenset(one) for one in ({0, 1, 2}, {1, 2, 3}, {2, 3, 0}, {3, 0, 1})]
    things = [Thing(frozenset(range(4)), 3, has) for has in even * 10]
    assert choose_evenly(things, {0: "a", 1: "b", 2: "a", 3: "b"}, loads=[{}]) == even * 10
