"""Envelopes by columns, out and in, held against core.records.json_envelope record by record, over all bytes."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.topic_partition import TopicPartition
from core.pipeline.format_pattern import json_strings
from core.pipeline.input_lines import BadLineError, Lines
from core.pipeline.line_parsers import OPEN, Rows, envelope_parser
from core.pipeline.record_printer import PartitionRows
from core.pipeline.text_sink import TextSink, make_formatter
from core.records.byte_strings import ByteStrings
from core.records.columns import decode_columns
from core.records.json_envelope import decode_envelope, encode_bytes
from core.records.record import Record, encode_headers, read_headers
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.for_each import for_each

BYTES = st.none() | st.binary(max_size=30) | st.text(max_size=30).map(str.encode)
HEADERS = st.lists(st.tuples(st.binary(max_size=5) | st.just(b"name"), BYTES), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 1 << 45)), min_size=1, max_size=8)


def written(records: list[Record], topic: str = "t") -> bytes:
    batch = RecordBatch(memoryview(bytearray(batch_of(records))))
    out = io.BytesIO()
    TextSink(out, make_formatter("envelope", {})).write(
        [PartitionRows(TopicPartition(topic, 2), decode_columns([batch]))]
    )
    return out.getvalue()


def read(lines: bytes) -> Rows:
    return envelope_parser()(Lines(memoryview(lines), 0))


def keys_of(rows: Rows) -> list[bytes | None]:
    return [None] * len(rows) if rows.keys is None else rows.keys.to_pylist()


@given(RECORDS)
def test_the_way_out_and_in_changes_nothing(drawn: list) -> None:
    records = [Record(n, ms, key, value, tuple(headers)) for n, (key, value, headers, ms) in enumerate(drawn)]
    rows = read(written(records))
    assert keys_of(rows) == [record.key for record in records]
    assert rows.values.to_pylist() == [record.value for record in records]
    sections = [encode_headers(())] * len(records) if rows.headers is None else rows.headers.to_pylist()
    assert [read_headers(section, 0)[0] for section in sections] == [record.headers for record in records]
    assert rows.timestamps is not None
    assert rows.timestamps.tolist() == [record.timestamp for record in records]
    assert rows.partitions is not None
    assert set(rows.partitions.tolist()) == {2}


@given(st.lists(BYTES, max_size=10))
def test_json_strings_are_those_of_each_alone(texts: list[bytes | None]) -> None:
    found = json_strings(ByteStrings.of_list(texts)).to_pylist()
    assert found == [encode_bytes(text).encode() for text in texts]


def test_every_character() -> None:
    """Each that has a way of its own to be written, and one of 61 of the others."""
    codes = sorted({*range(0x3000), *range(0x3000, 0x110000, 61), 0xD7FF, 0xE000, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF})
    characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    texts = [character.encode() for character in characters]
    found = json_strings(ByteStrings.of_list(texts)).to_pylist()
    assert [json.loads(text) for text in found] == characters
    assert found[:300] == [encode_bytes(text).encode() for text in texts[:300]]


LINES = [
    '{"key": "k", "value": "v"}',
    '{"value": "v", "headers": [["a", null], ["a", "b"]], "timestamp": 5}',
    '{"value": {"base64": "AP8="}, "partition": 1}',
    '{"value": "\\ud83d\\ude00 \\u0000", "headers": null}',
    '{"topic": 5, "offset": "x", "leader_epoch": {}, "timestamp_type": [], "value": "whatever these are"}',
    '{"value": "v", "value": "the last counts"}',
    "{}",
]


@for_each("lines", [LINES, *([line] for line in LINES)], ids=lambda lines: str(len(lines)))
def test_lines_by_the_chunk_are_those_of_each_alone(lines: list[str]) -> None:
    rows = read("\n".join([*lines, ""]).encode())
    slow = [decode_envelope(line.encode()) for line in lines]
    assert keys_of(rows) == [r.key for r in slow]
    assert rows.values.to_pylist() == [r.value for r in slow]
    timestamps = np.full(len(lines), OPEN) if rows.timestamps is None else rows.timestamps
    assert timestamps.tolist() == [OPEN if r.timestamp is None else r.timestamp for r in slow]
    sections = [encode_headers(())] * len(lines) if rows.headers is None else rows.headers.to_pylist()
    assert sections == [encode_headers(r.headers) for r in slow]


@for_each("bad", ['{"val": 1}', "nonsense", '{"value": 5}', '{"timestamp": true}', "", '{"key": "\\ud800"}'])
def test_a_bad_line_among_good_ones_is_named(bad: str) -> None:
    with pytest.raises(BadLineError) as caught:
        read(f'{{"value": "v"}}\n{bad}\n{{"value": "w"}}\n'.encode())
    assert caught.value.row == 1
