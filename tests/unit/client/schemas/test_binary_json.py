"""MessagePack and CBOR as JSON: the examples of their specifications, and what could be taken for something else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.schemas.binary_json import BinaryJson
from core.records.side_format import SchemaJson, SideFormat
from tests.support.for_each import for_each

msgpack = pytest.importorskip("msgpack")
cbor2 = pytest.importorskip("cbor2")
MESSAGE_PACK, CBOR = BinaryJson(SideFormat.msgpack), BinaryJson(SideFormat.cbor)


@for_each(
    "data, plain, tagged",
    [
        ("82a7636f6d70616374c3a6736368656d6100", '{"compact": true, "schema": 0}', None),  # msgpack.org
        ("d6ff5ee66280", '"2020-06-14T17:46:40Z"', '{"$time": "2020-06-14T17:46:40Z"}'),
        ("d7ff000000045ee66280", '"2020-06-14T17:46:40.000000001Z"', '{"$time": "2020-06-14T17:46:40.000000001Z"}'),
        (
            "c70cff000000010000000060000000", '"2021-01-14T08:25:36.000000001Z"',
            '{"$time": "2021-01-14T08:25:36.000000001Z"}',
        ),
        ("c70cff000000007fffffffffffffff", '{"$ext": [-1, "AAAAAH//////////"]}', None),
        ("8101a161", '{"1": "a"}', '{"$map": [[1, "a"]]}'),
        ("8192a1620aa161", '{"[\\"b\\", 10]": "a"}', '{"$map": [[["b", 10], "a"]]}'),
        ("cfffffffffffffffff", "18446744073709551615", None),
        ("c403010203", '"AQID"', '{"$bytes": "AQID"}'),
        ("d40105", '{"$ext": [1, "BQ=="]}', None),
        ("cb7ff8000000000000", '"NaN"', '{"$float": "NaN"}'),
        ("cbfff0000000000000", '"-Infinity"', '{"$float": "-Infinity"}'),
        ("cb3ff0000000000000", "1.0", None),
        ("81a6246279746573a141", '{"$bytes": "A"}', '{"$map": [["$bytes", "A"]]}'),
    ],
)  # fmt: skip
def test_message_pack(data: str, plain: str, tagged: str | None) -> None:
    ensure_shown(MESSAGE_PACK, data, plain, tagged or plain)
    assert MESSAGE_PACK.encode((tagged or plain).encode()).hex() == data.replace(
        "c70cff0000000100000000", "d7ff00000004"
    )


@for_each(
    "data, plain, tagged, back",
    [
        ("a26161016162820203", '{"a": 1, "b": [2, 3]}', None, None),  # RFC 8949, appendix A
        ("c11a514b67b0", '"2013-03-21T20:04:00Z"', '{"$tag": [1, 1363896240]}', None),
        ("c1fb41d452d9ec200000", '"2013-03-21T20:04:00.500000Z"', '{"$tag": [1, 1363896240.5]}', None),
        ("c074323031332d30332d32315432303a30343a30305a", '"2013-03-21T20:04:00Z"',
         '{"$tag": [0, "2013-03-21T20:04:00Z"]}', None),
        ("c249010000000000000000", "18446744073709551616", None, None),
        ("c349010000000000000000", "-18446744073709551617", None, None),
        ("3bffffffffffffffff", "-18446744073709551616", None, None),
        ("c48221196ab3", "273.15", '{"$tag": [4, [-2, 27315]]}', None),
        ("f7", "null", '{"$undefined": null}', None),
        ("f97e00", '"NaN"', '{"$float": "NaN"}', None),
        ("5f42010243030405ff", '"AQIDBAU="', '{"$bytes": "AQIDBAU="}', "450102030405"),
        ("a1016161", '{"1": "a"}', '{"$map": [[1, "a"]]}', None),
        ("a1a101020a", '{"{\\"1\\": 2}": 10}', '{"$map": [[{"$map": [[1, 2]]}, 10]]}', None),
        ("d9d9f7a10102", '{"1": 2}', '{"$tag": [55799, {"$map": [[1, 2]]}]}', None),
        ("d8184163", '{"$tag": [24, "Yw=="]}', '{"$tag": [24, {"$bytes": "Yw=="}]}', None),
        ("d82550123e4567e89b12d3a456426614174000", '{"$tag": [37, "Ej5FZ+ibEtOkVkJmFBdAAA=="]}',
         '{"$tag": [37, {"$bytes": "Ej5FZ+ibEtOkVkJmFBdAAA=="}]}', None),
        ("c5822003", "1.5", '{"$tag": [5, [-1, 3]]}', None),
        ("f0", '{"$simple": 16}', None, None),
        ("c11b7fffffffffffffff", "9223372036854775807", '{"$tag": [1, 9223372036854775807]}', None),
    ],
)  # fmt: skip
def test_cbor(data: str, plain: str, tagged: str | None, back: str | None) -> None:
    ensure_shown(CBOR, data, plain, tagged or plain)
    assert CBOR.encode((tagged or plain).encode()) == bytes.fromhex(back or data)


def ensure_shown(format_: BinaryJson, data: str, plain: str, tagged: str) -> None:
    both = format_.decode_typed(bytes.fromhex(data))
    assert [text.decode() for text in both] == [tagged, plain]
    assert format_.decode(bytes.fromhex(data)) == both[0]
    assert format_.decode(bytes.fromhex(data), form=SchemaJson.plain) == both[1]


@for_each(
    "format_, data",
    [
        ("msgpack", "82a16101a16102"), ("msgpack", "a2fffe"), ("msgpack", "c0c0"), ("msgpack", "93c001"),
        ("msgpack", ""), ("msgpack", "c1"), ("msgpack", "dd7fffffff"), ("msgpack", "91" * 5000 + "c0"),
        ("cbor", "0102"), ("cbor", "a0ff"), ("cbor", "9f01"), ("cbor", ""), ("cbor", "a201010102"), ("cbor", "62fffe"),
        ("cbor", "ff"), ("cbor", "1c"), ("cbor", "9b7fffffffffffffff"), ("cbor", "81" * 5000 + "f6"),
    ],
)  # fmt: skip
def test_what_is_none(format_: str, data: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        BinaryJson(SideFormat(format_)).decode(bytes.fromhex(data))


def test_keys_that_become_one_are_refused_in_plain() -> None:
    data = msgpack.packb({1: "a", "1": "b"})
    assert MESSAGE_PACK.decode(data) == b'{"$map": [[1, "a"], ["1", "b"]]}'
    with pytest.raises(ValueError, match="it has the key '1' twice"):
        MESSAGE_PACK.decode(data, form=SchemaJson.plain)


@for_each(
    "text",
    [
        '{"$bytes": "!"}', '{"$bytes": 5}', '{"$float": "x"}', '{"$time": "now"}', '{"$ext": [1]}',
        '{"$ext": [300, ""]}', '{"$map": [1]}', '{"$map": [[1, 2], [1, 3]]}', '{"$other": 1}', "18446744073709551616",
        '{"$map": [[{"a": 1}, 2]]}',
    ],
)  # fmt: skip
def test_tagged_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        MESSAGE_PACK.encode(text.encode(), form=SchemaJson.tagged)


def test_plain_has_no_tags() -> None:
    assert msgpack.unpackb(MESSAGE_PACK.encode(b'{"$bytes": "AQID"}', form=SchemaJson.plain)) == {"$bytes": "AQID"}
    assert msgpack.unpackb(MESSAGE_PACK.encode(b'{"$bytes": "AQID"}')) == b"\1\2\3"
    assert msgpack.unpackb(MESSAGE_PACK.encode(b'{"$other": 1}')) == {"$other": 1}


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.integers(-9, 9).map(str) | st.text() | st.binary(max_size=2)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@given(VALUES)
def test_tagged_is_exact(value: Any) -> None:
    """The libraries alone write and read what plog shows between."""
    for format_, dump, load in ((MESSAGE_PACK, msgpack.packb, msgpack.unpackb), (CBOR, cbor2.dumps, cbor2.loads)):
        more = {"strict_map_key": False} if format_ is MESSAGE_PACK else {}
        text = format_.decode(dump(value))
        json.loads(text, parse_constant=pytest.fail)
        assert load(format_.encode(text), **more) == value
