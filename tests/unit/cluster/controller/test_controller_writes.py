"""What is worked on in one turn."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from core.cluster.controller.controller_writes import slices

MOST = 500


@given(st.lists(st.integers(0, 1200), max_size=60))
def test_no_turn_has_more_than_it_may_unless_one_item_alone_has(weights: list[int]) -> None:
    found = list(slices(weights, lambda weight: weight))
    assert [weight for some in found for weight in some] == weights
    for some in found:
        assert some
        assert len(some) == 1 or sum(max(weight, 1) for weight in some) <= MOST
    for some, after in pairwise(found):
        assert sum(max(weight, 1) for weight in [*some, after[0]]) > MOST


def test_without_weights_each_counts_once() -> None:
    assert [len(some) for some in slices(range(1100))] == [500, 500, 100]
    assert list(slices([])) == []
