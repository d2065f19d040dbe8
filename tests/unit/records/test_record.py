from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import CorruptRecordError
from core.records.record import Record, decode_records, encode_record, encode_records, increment_sequence

maybe_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.binary(max_size=20), maybe_bytes), max_size=4).map(tuple)
records = st.builds(Record, st.integers(0, 2**31 - 1), st.integers(-(2**62), 2**62), maybe_bytes, maybe_bytes, headers)


def test_the_bytes_of_one_record() -> None:
    encoded = encode_record(1, 2, b"k", None, ((b"h", b"v"), (b"n", None)))
    #           length attr ts  offset klen k  vlen=-1 headers 'h' 'v'        'n' null
    assert encoded.hex() == "1c" + "00" + "04" + "02" + "02" + "6b" + "01" + "04" + "0268" + "0276" + "026e" + "01"


@given(st.lists(records, max_size=30), st.integers(0, 2**40), st.integers(-(2**50), 2**50))
def test_round_trip(items: list[Record], base_offset: int, base_timestamp: int) -> None:
    shifted = [
        r._replace(offset=base_offset + r.offset % 2**31, timestamp=base_timestamp + r.timestamp % 2**40) for r in items
    ]
    section = encode_records(shifted, base_offset, base_timestamp)
    assert decode_records(section, len(shifted), base_offset, base_timestamp) == shifted


SECTION = encode_records(
    [Record(n, 5 * n, b"key" * n, b"v" * (70 * n), ((b"h", b"x"),) * (n % 3)) for n in range(6)], 0, 0
)


def test_every_cut_another_count_and_bytes_after_the_last_record_are_corrupt() -> None:
    for length in range(len(SECTION)):
        with pytest.raises(CorruptRecordError):
            decode_records(SECTION[:length], 6, 0, 0)
    for count in (5, 7, 2**31 - 1):
        with pytest.raises(CorruptRecordError):
            decode_records(SECTION, count, 0, 0)
    with pytest.raises(CorruptRecordError, match="1 bytes follow the last of 6 records"):
        decode_records(SECTION + b"\0", 6, 0, 0)


def test_any_flipped_byte_is_decoded_or_corrupt() -> None:
    damaged = bytearray(SECTION)
    for position in range(len(damaged)):
        for flip in (0x01, 0x80, 0xFF):
            damaged[position] ^= flip
            with contextlib.suppress(CorruptRecordError):
                assert len(decode_records(bytes(damaged), 6, 0, 0)) == 6
            damaged[position] ^= flip


def test_sequences_wrap() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(5, 3) == 8
