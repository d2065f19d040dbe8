from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.records.json_envelope import decode_envelope, encode_bytes, encode_headers_json
from tests.support.for_each import for_each


@given(st.none() | st.binary(max_size=60) | st.text(max_size=40).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_bytes_survive_whatever_they_are(data: bytes | None) -> None:
    line = f'{{"key": {encode_bytes(data)}, "value": {encode_bytes(data)}}}'.encode()
    record = decode_envelope(line)
    assert (record.key, record.value) == (data, data)


def test_null_empty_and_binary_are_three_things() -> None:
    assert [encode_bytes(d) for d in (None, b"", b"\xff", b'"')] == ["null", '""', '{"base64": "/w=="}', '"\\""']


@given(st.lists(st.tuples(st.binary(max_size=8), st.none() | st.binary(max_size=8)), max_size=4).map(tuple))
def test_headers_survive(headers: tuple[tuple[bytes, bytes | None], ...]) -> None:
    assert decode_envelope(f'{{"headers": {encode_headers_json(headers)}}}'.encode()).headers == headers


def test_what_a_written_record_has_is_passed_over() -> None:
    line = b'{"topic": "t", "partition": 3, "offset": 9, "timestamp": 5, "leader_epoch": 0}'
    assert decode_envelope(line) == (None, None, (), 5, 3, "t")


@for_each(
    "line, problem",
    [
        ("[1]", "expected a JSON object, found a list"),
        (r'{"value": "\ud800"}', "value: '\\ud800' is a lone surrogate"),
        ('{"timestamp": 1.5}', "timestamp: expected a whole number, found a fraction"),
        ('{"vlaue": "x"}', "unknown field 'vlaue', expected headers, key, partition, timestamp, value"),
        ('{"key": 5}', 'key: expected a string, null or {"base64": "..."}, found a number'),
        ('{"key": {"base64": "!"}}', "key: bad base64"),
        ('{"key": {"base64": "AA==", "x": 1}}', "key: expected a string"),
        ('{"headers": {"a": "b"}}', "headers: expected a list"),
        ('{"headers": [["a"]]}', "headers: expected [name, value] pairs"),
        ('{"headers": [[null, "b"]]}', "a header's name may not be null"),
        ('{"timestamp": "now"}', "timestamp: expected a whole number, found a string"),
        ('{"partition": true}', "partition: expected a whole number, found true or false"),
        ('{"key": ', "Expecting value"),
    ],
)
def test_a_bad_envelope_says_what_is_wrong(line: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        decode_envelope(line.encode())
    assert problem in str(caught.value)
