"""Columns against the pure-Python codec: each is the other's oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import CorruptRecordError
from core.records import columns
from core.records.batch_headers import BatchHeaders
from core.records.batches import Batch, group_batches
from core.records.byte_strings import ByteStrings
from core.records.column_encoder import encode_columns
from core.records.columns import _WORTH_ABREAST, RecordColumns, decode_columns, decode_keys, locate_records
from core.records.compression import CompressionType
from core.records.record import Headers, Record, decode_records, encode_headers, encode_records
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of, build_batch
from tests.support.for_each import for_each
from tests.support.logs import iter_batches

Found = TypeVar("Found")
maybe_bytes = st.none() | st.binary(max_size=150)
headers = st.lists(st.tuples(st.binary(max_size=5), maybe_bytes), max_size=3).map(tuple)
record = st.builds(Record, st.just(0), st.integers(-(2**45), 2**45), maybe_bytes, maybe_bytes, headers)
batches = st.lists(
    st.tuples(st.lists(record, min_size=1, max_size=12), st.sampled_from(CompressionType)), min_size=1, max_size=5
)


def as_records(columns: RecordColumns) -> list[Record]:
    keys, values = columns.keys().to_pylist(), columns.values().to_pylist()
    return [
        Record(int(columns.offsets[n]), int(columns.timestamps[n]), keys[n], values[n], columns.headers(n))
        for n in range(len(columns))
    ]


def headers_of(columns: RecordColumns) -> list[Headers]:
    """All at once."""
    found = columns.header_columns()
    pairs = iter(zip(found.names().to_pylist(), found.values().to_pylist(), strict=True))
    return [tuple(next(pairs) for _ in range(count)) for count in found.counts.tolist()]


def build(contents: Sequence[tuple[list[Record], CompressionType]]) -> list[Batch]:
    found: list[Batch] = []
    offset = 1000
    for items, codec in contents:
        found.append(RecordBatch(memoryview(batch_of(items, base_offset=offset, compression=codec))))
        offset += len(items)
    return found


@given(batches)
def test_columns_decode_what_the_plain_decoder_decodes(contents: list[tuple[list[Record], CompressionType]]) -> None:
    group = build(contents)
    wanted = [r for batch in group for r in batch.records()]
    columns = decode_columns(group)
    assert as_records(columns) == wanted
    assert headers_of(columns) == [r.headers for r in wanted]


@given(st.lists(record, min_size=1, max_size=60), st.sampled_from([60, 300, 2000, 10**6]))
def test_columns_encode_what_the_plain_encoder_encodes(items: list[Record], batch_bytes: int) -> None:
    sections = list(
        encode_columns(
            np.array([r.timestamp for r in items], np.int64),
            ByteStrings.of_list([r.key for r in items]),
            ByteStrings.of_list([r.value for r in items]),
            ByteStrings.of_list([encode_headers(r.headers) for r in items]),
            batch_bytes=batch_bytes,
        )
    )
    done = 0
    for section in sections:
        part = [r._replace(offset=n) for n, r in enumerate(items[done : done + section.count])]
        assert bytes(section.section) == encode_records(part, 0, part[0].timestamp)
        assert section.base_timestamp == part[0].timestamp
        assert section.max_timestamp == max(r.timestamp for r in part)
        assert section.count == 1 or len(section.section) <= batch_bytes
        done += section.count
    assert done == len(items)


def test_keys_and_headers_may_be_absent_for_all() -> None:
    (section,) = encode_columns(np.array([5, 6]), None, ByteStrings.of_list([b"a", None]), batch_bytes=1000)
    assert decode_records(bytes(section.section), 2, 0, 5) == [Record(0, 5, None, b"a"), Record(1, 6, None, None)]


def test_a_key_length_of_more_bytes_than_a_varint_has_is_no_null_where_keys_alone_are_read() -> None:
    body = bytes(3) + b"\x81\x80\x80\x80\x80\x00" + b"\x02v" + bytes(1)  # -1 in six bytes, of which Kafka allows five
    batch = build_batch(bytes([2 * len(body)]) + body, count=1, base_timestamp=0, max_timestamp=0)
    with pytest.raises(CorruptRecordError, match="key runs over the end"):
        decode_keys([RecordBatch(memoryview(batch))])


def test_long_varints_in_lengths_and_timestamps() -> None:
    items = [
        Record(0, 2**60, b"k" * 100, b"v" * size, ()) for size in (0, 63, 64, 8191, 8192, 1048575, 1048576, 3_000_000)
    ]
    items.append(Record(0, -(2**60), None, None, ()))
    group = build([(items, CompressionType.NONE), (items, CompressionType.ZSTD)])
    assert as_records(decode_columns(group)) == [r for batch in group for r in batch.records()]


def test_log_append_time_stands_for_every_timestamp() -> None:
    section = encode_records([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")], 0, 5)
    data = build_batch(section, count=2, base_timestamp=5, max_timestamp=77, is_log_append_time=True)
    plain = batch_of([Record(0, 3, None, b"c")], base_offset=2)
    columns = decode_columns([RecordBatch(memoryview(data)), RecordBatch(memoryview(plain))])
    assert columns.timestamps.tolist() == [77, 77, 3]


def test_selecting_rows() -> None:
    items = [Record(n, n, b"k%d" % n, None, ((b"h", b"%d" % n),)) for n in range(10)]
    columns = decode_columns(build([(items, CompressionType.NONE)]))
    assert columns.select(columns.offsets >= 1007).offsets.tolist() == [1007, 1008, 1009]
    assert as_records(columns.select(slice(2, 4))) == as_records(columns)[2:4]


def test_a_count_that_is_not_the_records_is_corrupt_and_says_where() -> None:
    section = encode_records([Record(0, 5, None, b"a")], 0, 5)
    bad = build_batch(section, count=2, base_timestamp=5, max_timestamp=5, base_offset=50)
    good = batch_of([Record(0, 3, None, b"c")])
    group: list[Batch] = [RecordBatch(memoryview(good)), RecordBatch(memoryview(bad), 0, 4096)]
    with pytest.raises(CorruptRecordError, match="batch holds 1 records, its header says 2") as caught:
        decode_columns(group)
    assert (caught.value.position, caught.value.offset) == (4096, 50)


PLAIN = [Record(n, n, b"key%d" % n, b"value" * n, ()) for n in range(8)]
WITH_HEADERS = [Record(n, n, b"k", b"v", ((b"name", b"value" * n), (b"", None))[: n % 3]) for n in range(9)]


def test_the_record_that_is_wrong_is_counted_from_its_own_batch() -> None:
    """The last record of the second batch says that it has a header, and ends."""
    sound = [Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")]
    batches = [bytearray(batch_of(sound)), bytearray(batch_of(sound, base_offset=2))]
    batches[1][-1] = 2  # a varint of 1
    with pytest.raises(CorruptRecordError, match="record 1 of the batch: "):
        decode_columns([RecordBatch(memoryview(data)) for data in batches]).header_columns()


@pytest.mark.parametrize("items", [PLAIN, WITH_HEADERS], ids=["plain", "with headers"])
def test_hostile_bytes_decode_as_the_plain_decoder_or_are_corrupt(items: list[Record]) -> None:
    """Whatever bytes a batch holds: nothing is read outside of it, nothing else is found than the plain decoder finds,
    and what that refuses is refused. Headers are decoded one by one, and all at once.
    """
    rnd = random.Random(7)
    base = encode_records(items, 0, 0)
    corrupt = 0
    for _ in range(1000):
        section = bytearray(base)
        for _ in range(rnd.randrange(1, 4)):
            section[rnd.randrange(len(section))] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
        count = len(items)
        batch = RecordBatch(memoryview(build_batch(bytes(section), count=count, base_timestamp=0, max_timestamp=0)))
        plain = found_or_none(batch, lambda one: one.records())
        columns = found_or_none(batch, lambda one: as_records(decode_columns([one])))
        headers = found_or_none(batch, lambda one: headers_of(decode_columns([one])))
        assert columns == plain
        assert headers == (plain and [record.headers for record in plain])
        corrupt += plain is None
    assert 50 < corrupt < 990


def found_or_none(batch: Batch, find: Callable[[Batch], Found]) -> Found | None:
    try:
        return find(batch)
    except CorruptRecordError:
        return None


def many_batches(rnd: random.Random) -> list[tuple[list[Record], CompressionType]]:
    """As many as are hopped over abreast; of one count, or uneven ones; some with lengths of 3 bytes."""
    sizes, most = rnd.choice((((0, 5, 50), 40), ((60, 64, 200), 5), ((0, 64), 1), ((60, 8180, 8192), 2)))
    codec = rnd.choice((CompressionType.NONE, CompressionType.NONE, CompressionType.ZSTD))
    return [
        (
            [
                Record(0, rnd.randrange(-500, 500), rnd.randbytes(rnd.randrange(9)), rnd.randbytes(rnd.choice(sizes)))
                for _ in range(rnd.choice((1, most, rnd.randint(1, most))))
            ],
            codec,
        )
        for _ in range(rnd.randint(_WORTH_ABREAST, 100))
    ]


def together(group: Sequence[Batch]) -> tuple[BatchHeaders, bytes]:
    """The same batches, in one buffer."""
    data = b"".join(bytes(b.buffer[b.start : b.start + b.size_bytes]) for b in group)
    starts = np.cumsum([0, *(b.size_bytes for b in group)])[:-1]
    return BatchHeaders(data + bytes(32), starts, 0), data


@for_each("seed", range(30), first=12)
def test_many_batches_abreast_in_turn_and_one_by_one(seed: int) -> None:
    rnd = random.Random(seed)
    group = build(many_batches(rnd))
    wanted = [r for batch in group for r in batch.records()]
    headers, data = together(group)
    whole = list(iter_batches(memoryview(data)))
    for batches in (group, headers, whole, list(headers)):
        assert as_records(decode_columns(batches)) == wanted
        keys = decode_keys(batches)
        assert keys.offsets.tolist() == [r.offset for r in wanted]
        assert keys.is_tombstone.tolist() == [r.value is None for r in wanted]
        found = [keys.places.buffer[p : p + n] for p, n in zip(keys.key_positions, keys.key_lengths, strict=True)]
        assert found == [r.key for r in wanted]


def places_or_error(batches: Sequence[Batch]) -> tuple[list[int], list[int]] | str:
    try:
        places = locate_records(batches)
    except CorruptRecordError as error:
        return str(error)
    return places.starts.tolist(), places.ends.tolist()


def test_hostile_lengths_among_many_batches_are_found_abreast_as_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same places, or the same error about the same batch."""
    rnd = random.Random(11)
    errors = 0
    for _ in range(80):
        group = build([(items, CompressionType.NONE) for items, _ in many_batches(rnd)])
        headers, _ = together(group)
        data = bytearray(headers.buffer)
        for _ in range(rnd.randrange(1, 4)):
            at = rnd.randrange(len(data) - 32)
            if rnd.random() < 0.7:  # a record's first bytes
                batch = rnd.choice(group)
                at = int(headers.starts[group.index(batch)]) + 61
            data[at] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
        damaged = BatchHeaders(bytes(data), headers.starts, 0)
        abreast = places_or_error(damaged)
        with monkeypatch.context() as patched:
            patched.setattr(columns, "_hop_abreast", lambda *_: None)
            assert places_or_error(damaged) == abreast
        errors += isinstance(abreast, str)
    assert 15 < errors < 75


def test_batches_with_steps_enough_are_hopped_over_abreast() -> None:
    """Or the tests before would see but one of the two."""
    group = build([([Record(0, 0, b"k", b"v" * (n % 7)) for n in range(20)], CompressionType.NONE)] * 40)
    headers, _ = together(group)
    starts, sizes = (headers.starts + 61).tolist(), (headers.sizes - 61).tolist()
    found = columns._hop_abreast(headers.buffer, headers, starts, sizes)
    assert found is not None
    counts, ends = columns._hop_in_turn(headers.buffer, headers, starts, sizes)
    assert found[0].tolist() == counts.tolist()
    assert found[1].tolist() == ends.tolist()


def test_groups_are_cut_by_size() -> None:
    many = build([([Record(0, 0, None, b"x" * 100)], CompressionType.NONE)] * 50)
    groups = list(group_batches(many, 1000))
    assert [b for group in groups for b in group] == many
    assert all(sum(b.size_bytes for b in group[:-1]) < 1000 for group in groups)
    assert list(group_batches([])) == []
    assert len(decode_columns([])) == 0
    assert list(encode_columns(np.array([], np.int64), None, ByteStrings.of_list([]), batch_bytes=10)) == []
