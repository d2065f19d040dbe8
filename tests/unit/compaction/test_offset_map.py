from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.compaction.key_digest import Digests, KeyDigest
from core.compaction.offset_map import BYTES_PER_SLOT, OffsetMap


def digests_of(keys: list[bytes], key_digest: KeyDigest) -> Digests:
    lengths = np.array([len(key) for key in keys], np.int64)
    return key_digest.digest(b"".join(keys) + bytes(8), np.cumsum(lengths) - lengths, lengths)


def put(offset_map: OffsetMap, key_digest: KeyDigest, keys: list[bytes], offset: int) -> int:
    offsets = np.arange(offset, offset + len(keys))
    return offset_map.put(digests_of(keys, key_digest), offsets, np.array([k.endswith(b"0") for k in keys], np.bool_))


@given(
    groups=st.lists(st.lists(st.integers(0, 300).map(lambda n: b"k%d" % n), max_size=200), max_size=8),
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
    asked = [b"k%d" % n for n in range(310)]
    assert offset_map.find(digests_of(asked, key_digest)).tolist() == [model.get(key, -1) for key in asked]
    assert offset_map.latest_offset == max(model.values(), default=-1)


def test_it_grows_with_its_keys() -> None:
    key_digest, offset_map = KeyDigest(), OffsetMap(1 << 24)
    keys = [b"key-%d" % n for n in range(100_000)]
    assert put(offset_map, key_digest, keys, 7) == len(keys)
    assert (offset_map.find(digests_of(keys, key_digest)) == np.arange(7, 100_007)).all()
