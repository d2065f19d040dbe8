"""A set of offsets against Python's own."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from core.compaction import compacted_view
from core.compaction.compacted_view import OffsetSet
from tests.support.for_each import for_each


def column(offsets: set[int]) -> np.ndarray:
    return np.array(sorted(offsets), np.int64)


@for_each("seed", range(30))
def test_random_offsets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(compacted_view, "_MOST_IN_COLUMN", random.choice([0, 5, 40, 1 << 15]))
    top = random.choice([50, 1 << 21, 1 << 45])
    tested, expected = OffsetSet(), set[int]()
    for _ in range(random.randrange(1, 5)):
        near = random.randrange(top)
        added = {near + random.randrange(100) for _ in range(random.randrange(60))}
        added |= {random.randrange(top) for _ in range(random.randrange(10))}
        expected |= added
        tested.add(column(added))
        asked = column(expected | {random.randrange(top) for _ in range(50)} | {near + n for n in range(120)} | {0})
        assert [int(offset) for offset in asked[tested.have(asked)]] == [o for o in asked.tolist() if o in expected]


def test_the_largest_offsets() -> None:
    tested, last = OffsetSet(), (1 << 63) - 1
    tested.add(column({5, last - 1}))
    assert tested.have(column({5, 6, last - 1, last})).tolist() == [True, False, True, False]


def test_a_page_changes_to_bits_when_they_are_less() -> None:
    tested = OffsetSet()
    tested.add(np.arange(0, 40_000, 2, dtype=np.int64))
    assert len(tested._columns) == 1
    assert not tested._bits
    tested.add(np.arange(1, 40_000, 2, dtype=np.int64))
    assert not tested._columns
    assert tested.have(np.array([0, 39_999, 40_000], np.int64)).tolist() == [True, True, False]
    assert sum(bits.nbytes for bits in tested._bits.values()) == (1 << 20) // 8
