from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from core.compaction.key_digest import Digests, KeyDigest
from core.compaction.offset_map import BYTES_PER_SLOT, OffsetMap
from tests.support.for_each import for_each


def digests_of(keys: list[bytes], key_digest: KeyDigest) -> Digests:
    lengths = np.array([len(key) for key in keys], np.int64)
    return key_digest.digest(b"".join(keys) + bytes(8), np.cumsum(lengths) - lengths, lengths)


def put(offset_map: OffsetMap, key_digest: KeyDigest, keys: list[bytes], offset: int) -> int:
    offsets = np.arange(offset, offset + len(keys))
    return offset_map.put(digests_of(keys, key_digest), offsets, np.array([k.endswith(b"0") for k in keys], np.bool_))


@given(
    groups=st.lists(st.lists(st.integers(0, 300).map(lambda n: b"k%d" % n) | st.just(b""), max_size=200), max_size=8),
    slots=st.sampled_from([2, 10, 100, 5000]),
)
def test_it_holds_what_a_dict_would_until_it_is_full(groups: list[list[bytes]], slots: int) -> None:
    key_digest, offset_map = KeyDigest(), OffsetMap(slots * BYTES_PER_SLOT)
    model: dict[bytes, int] = {}
    offset = 0
    for keys in groups:
        taken = put(offset_map, key_digest, keys, offset)
        expected = 0
        for number, key in enumerate(keys):
            if len(model) == offset_map.capacity:
                break
            model[key] = offset + number
            expected += 1
        assert taken == expected
        assert len(offset_map) == len(model)
        offset += taken
        if taken < len(keys):
            assert offset_map.is_full
            break
    latest = offset_map.latest()
    assert latest.offsets.tolist() == sorted(model.values())
    tombstones = sorted(o for k, o in model.items() if k.endswith(b"0"))
    assert latest.offsets[latest.tombstones].tolist() == tombstones
    asked = [b"", *(b"k%d" % n for n in range(310))]
    assert offset_map.find(digests_of(asked, key_digest)).tolist() == [model.get(key, -1) for key in asked]
    assert offset_map.latest_offset == max(model.values(), default=-1)


def test_the_largest_offsets() -> None:
    """A tombstone's as well as another's."""
    key_digest, offset_map = KeyDigest(), OffsetMap(1 << 16)
    offset, keys = (1 << 63) - 3, [b"0", b"1"]
    assert put(offset_map, key_digest, keys, offset) == 2
    assert offset_map.find(digests_of(keys, key_digest)).tolist() == [offset, offset + 1]
    latest = offset_map.latest()
    assert (latest.offsets.tolist(), latest.tombstones.tolist()) == ([offset, offset + 1], [0])


def test_it_grows_with_its_keys() -> None:
    key_digest, offset_map = KeyDigest(), OffsetMap(1 << 24)
    keys = [b"key-%d" % n for n in range(100_000)]
    assert put(offset_map, key_digest, keys, 7) == len(keys)
    assert (offset_map.find(digests_of(keys, key_digest)) == np.arange(7, 100_007)).all()


class CountedMap(OffsetMap):
    """Fails if it looks in more places than there are."""

    def _probe(self, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64], attempt: int) -> npt.NDArray[np.int64]:
        assert attempt < 64 + int(self._slots), "it goes round in circles"
        return super()._probe(high, low, attempt)


@for_each("low", [0, 1 << 63, (1 << 64) - 1, 1 << 62])
def test_keys_whose_strides_lead_nowhere_find_a_place(low: int) -> None:
    """All begin at the first slot, and go by no other, or by few."""
    offset_map = CountedMap(20 * BYTES_PER_SLOT)
    count = offset_map.capacity
    digests = Digests(np.arange(1, 2 * count, 2, dtype=np.uint64), np.full(count, low, np.uint64))
    for number in range(count):
        assert offset_map.put(digests.of(slice(number, number + 1)), np.array([number]), np.array([False])) == 1
    assert offset_map.find(digests).tolist() == list(range(count))
    assert offset_map.find(Digests(digests.high + np.uint64(2 * count), digests.low)).tolist() == [-1] * count
