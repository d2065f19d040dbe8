"""Layers above a mapping: they are what a dict with the same changes would be, and the mapping below stays as it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cluster.image.metadata_delta import PersistentMap, with_changes

LARGE = {number: str(number) for number in range(2000)}
KEYS = st.integers(1990, 2010)
CHANGES = st.dictionaries(KEYS, st.none() | st.text(max_size=2), max_size=5)


@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=20), st.sampled_from([{}, {1995: "x"}, LARGE]))
def test_it_is_what_a_dict_would_be(steps: list[tuple[dict[int, str | None], bool]], start: dict[int, str]) -> None:
    model, below = dict(start), dict(start)
    layered: Mapping[int, str] = below
    for changed, is_looked_through in steps:
        before, was = layered, dict(model)
        layered = with_changes(layered, changed)
        for key, value in changed.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        for key in range(1989, 2012):
            assert layered.get(key) == model.get(key)
            assert layered.get(key, "none") == model.get(key, "none")
            assert (key in layered) == (key in model)
            if key in model:
                assert layered[key] == model[key]
            else:
                with pytest.raises(KeyError):
                    layered[key]
        assert before.get(2000) == was.get(2000)
        if is_looked_through:
            assert sorted(layered) == sorted(layered.keys()) == sorted(model)
            assert list(layered.items()) == list(zip(layered, layered.values(), strict=True))
            assert (len(layered), layered, before) == (len(model), model, was)
    assert below == start


def test_a_large_mapping_is_not_copied_for_a_change() -> None:
    layered: Mapping[int, str] = LARGE
    copies = 0
    for number in range(1000):
        layered = with_changes(layered, {3000 + number: "new"})
        copies += not isinstance(layered, PersistentMap)
    assert len(layered) == 3000
    assert copies <= 1000 / 2000**0.5 + 1
