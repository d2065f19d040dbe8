from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.varint import read_uvarint, read_varint, read_varlong, uvarint, varint, varlong

# From the protocol buffers encoding guide, whose zig-zag varints these are.
KNOWN = {0: "00", -1: "01", 1: "02", -2: "03", 63: "7e", 64: "8001", 300: "d804", 2**31 - 1: "feffffff0f"}


def test_varint_is_zig_zag_seven_bits_a_byte() -> None:
    for write in (varint, varlong):
        assert {value: write(value).hex() for value in KNOWN} == KNOWN
    assert varint(-(2**31)).hex() == "ffffffff0f"
    assert varlong(-(2**63)).hex() == "ffffffffffffffffff01"
    assert uvarint(2**32 - 1).hex() == "ffffffff0f"


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3))
def test_varint_round_trip_with_bytes_behind_it(value: int, behind: bytes) -> None:
    encoded = varint(value)
    assert read_varint(encoded + behind, 0) == (value, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value: int) -> None:
    encoded = varlong(value)
    assert read_varlong(b"x" + encoded, 1) == (value, 1 + len(encoded))


@given(st.integers(0, 2**32 - 1))
def test_uvarint_cut_short_is_an_index_error(value: int) -> None:
    for length in range(len(uvarint(value))):
        with pytest.raises(IndexError):
            read_uvarint(uvarint(value)[:length], 0)


def test_numbers_of_too_many_bits_are_refused() -> None:
    for data in ("ffffffffff01", "ffffffff7f", "808080808001"):
        with pytest.raises(ValueError, match="32 bits"):
            read_uvarint(bytes.fromhex(data), 0)
    for data in ("ffffffffffffffffffff01", "ffffffffffffffffff7f"):
        with pytest.raises(ValueError, match="64 bits"):
            read_varlong(bytes.fromhex(data), 0)


@pytest.mark.parametrize(("read", "longest"), [(read_uvarint, 5), (read_varint, 5), (read_varlong, 10)])
def test_a_number_that_takes_more_bytes_than_it_may_is_none(read: Any, longest: int) -> None:
    """Though what it says would fit: nobody writes it so, and somebody else would read other fields after it."""
    assert read(b"\x80" * (longest - 1) + b"\0", 0) == (0, longest)
    with pytest.raises(ValueError, match=f"longer than {longest} bytes"):
        read(b"\x80" * longest + b"\0", 0)
