from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.compaction.key_digest import KeyDigest


def digests(keys: list[bytes], key_digest: KeyDigest, *, before: bytes = b"") -> list[tuple[int, int]]:
    lengths = np.array([len(key) for key in keys], np.int64)
    positions = np.cumsum(lengths) - lengths + len(before)
    found = key_digest.digest(before + b"".join(keys) + bytes(4), positions, lengths)
    return list(zip(found.high.tolist(), found.low.tolist(), strict=True))


@given(st.lists(st.binary(max_size=20) | st.binary(min_size=250, max_size=300), max_size=30), st.binary(max_size=9))
def test_keys_have_the_same_digest_if_and_only_if_they_are_the_same(keys: list[bytes], before: bytes) -> None:
    key_digest = KeyDigest()
    found = digests(keys, key_digest)
    assert digests(keys, key_digest, before=before) == found
    assert digests(keys[::-1], key_digest)[::-1] == found
    assert len(set(found)) == len(set(keys))


def test_zeros_at_the_end_count() -> None:
    keys = [b"\0" * n for n in range(300)] + [b"a" + b"\0" * n for n in range(300)]
    assert len(set(digests(keys, KeyDigest()))) == 600


def test_two_functions_have_nothing_in_common() -> None:
    keys = [b"", *(b"key-%d" % n for n in range(100))]
    assert not set(digests(keys, KeyDigest())) & set(digests(keys, KeyDigest()))


def test_digests_are_spread_evenly() -> None:
    found = digests([b"key-%012d" % n for n in range(10_000)], KeyDigest())
    counts = np.bincount([high >> 60 for high, _ in found], minlength=16)
    assert counts.min() > 450
