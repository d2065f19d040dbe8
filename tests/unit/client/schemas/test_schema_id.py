"""Where a schema's id is: bytes and headers as Confluent's, Apicurio's and AWS's documents and sources have them."""

from __future__ import annotations

import struct
import zlib

import pytest

from core.client.schemas.schema_id import (
    Framed,
    Message,
    RegistryKind,
    SchemaId,
    encode_indexes,
    find_framed,
    indexes_and_message,
)
from core.client.schemas.undecoded import SchemaError
from core.common.decompression_limit import expansion_limited_to
from core.records.record import Headers
from tests.support.for_each import for_each

GUID = "89791762-2336-4186-9674-299b90a802e2"
GUID_HEX = GUID.replace("-", "")
EUR = "0645555200"
CONFLUENT, APICURIO, GLUE = RegistryKind
FILE = [Message("A", [0]), Message("B", [1]), Message("B.C", [1, 0])]
"""message A { string a = 1; } message B { message C { int32 c = 1; } int64 b = 1; }"""


def find(
    value: str, headers: dict[str, str] | None = None, kind: RegistryKind = CONFLUENT, side: str = "value"
) -> Framed | None:
    notes: list[str] = []
    pairs: Headers = tuple((name.encode(), bytes.fromhex(data)) for name, data in (headers or {}).items())
    return find_framed(bytes.fromhex(value), pairs, side, kind, note=notes.append)


@for_each(
    "value, headers, kind, schema_id, data",
    [
        ("000000001d" + EUR, {}, CONFLUENT, SchemaId(29), EUR),
        ("01" + GUID_HEX + EUR, {}, CONFLUENT, SchemaId(GUID, "guid"), EUR),
        (EUR, {"__value_schema_id": "01" + GUID_HEX}, CONFLUENT, SchemaId(GUID, "guid"), EUR),
        (EUR, {"__value_schema_id": "000000001d"}, CONFLUENT, SchemaId(29), EUR),
        ("000000001d", {"__value_schema_id": "01" + GUID_HEX}, CONFLUENT, SchemaId(GUID, "guid"), "000000001d"),
        ("00000000000000000f" + EUR, {}, APICURIO, SchemaId(15), EUR),
        ("000000000f24617364", {}, APICURIO, SchemaId(15), "24617364"),  # Apicurio#2547: as 8 bytes 65034875748
        ("000262", {"apicurio.value.globalId": "000000000000000d"}, APICURIO, SchemaId(13, "globalId"), "000262"),
        (EUR, {"apicurio.value.contentId": "0000000000000007"}, CONFLUENT, SchemaId(7, "contentId"), EUR),
        (EUR, {"apicurio.value.contentHash": b"ab".hex()}, APICURIO, SchemaId("ab", "contentHash"), EUR),
        (
            EUR,
            {f"apicurio.value.{n}": v.encode().hex()
             for n, v in (("groupId", "default"), ("artifactId", "my-topic-value"), ("version", "1"))},
            APICURIO, SchemaId("default/my-topic-value/1", "version"), EUR,
        ),
        ("0300" + GUID_HEX + EUR, {}, GLUE, SchemaId(GUID, "glue"), EUR),
        ("0305" + GUID_HEX + zlib.compress(b"ab").hex(), {}, GLUE, SchemaId(GUID, "glue"), b"ab".hex()),
    ],
)  # fmt: skip
def test_an_id(value: str, headers: dict[str, str], kind: RegistryKind, schema_id: SchemaId, data: str) -> None:
    framed = find(value, headers, kind)
    assert framed is not None
    assert (framed.schema_id, framed.data.hex()) == (schema_id, data)


@for_each(
    "value, kind",
    [
        ("", CONFLUENT), ("00000000", CONFLUENT), ("0000000000" + EUR, CONFLUENT), ("01" + GUID_HEX[:-2], CONFLUENT),
        ("0000000000000007", APICURIO), ("000000000000000000", APICURIO), ("01" + GUID_HEX, APICURIO),
        ("0301" + GUID_HEX, GLUE), ("0300" + GUID_HEX[:-2], GLUE), ("000000001d" + EUR, GLUE),
        ("0300" + GUID_HEX + EUR, CONFLUENT),
    ],
)  # fmt: skip
def test_no_id(value: str, kind: RegistryKind) -> None:
    assert find(value, kind=kind) is None


def test_the_last_header_of_a_side_counts() -> None:
    headers: Headers = tuple(
        (name, struct.pack(">bI", 0, number))
        for name, number in ((b"__value_schema_id", 5), (b"__value_schema_id", 6), (b"__key_schema_id", 7))
    )
    for side, number in (("value", 6), ("key", 7)):
        framed = find_framed(b"x", headers, side, note=print)
        assert framed is not None
        assert framed.schema_id == SchemaId(number)


def test_a_header_that_is_no_id() -> None:
    """mcp-confluent's PR 607, and Apicurio#4836: headers typed by hand."""
    notes: list[str] = []
    assert find_framed(b"x", ((b"__value_schema_id", b"{}"),), "value", note=notes.append) is None
    assert notes == [
        "note: a header __value_schema_id of 2 bytes is no id of a schema; expected 00 and an id, or 01 and a GUID"
    ]
    assert find("78", {"__value_schema_id": ""}) is None
    with pytest.raises(SchemaError, match=r"its header apicurio.value.globalId has 10 bytes, expected 8"):
        find(EUR, {"apicurio.value.globalId": b"something4".hex()}, APICURIO)


@for_each("cut", [1, 5, 11])
def test_zlib_that_is_cut_off(cut: int) -> None:
    with pytest.raises(SchemaError, match="zlib data"):
        find("0305" + GUID_HEX + zlib.compress(b"abcde" * 9)[:-cut].hex(), kind=GLUE)


def test_zlib_expands_to_the_limit_only() -> None:
    bomb = "0305" + GUID_HEX + zlib.compress(bytes(20_000)).hex()
    assert find(bomb, kind=GLUE) is not None
    with (
        expansion_limited_to(19_999),
        pytest.raises(SchemaError, match=r"expands to more than 19999 bytes.*--max-expansion"),
    ):
        find(bomb, kind=GLUE)


@for_each(
    "value, headers, kind, expected",
    [
        ("0000000007000a0178", {}, CONFLUENT, "000a0178"),
        ("0805", {"__value_schema_id": "01" + GUID_HEX + "0202"}, CONFLUENT, "02020805"),
        ("0000000007030a01420805", {}, APICURIO, "02020805"),
        ("000000000000000007030a01420805", {}, APICURIO, "02020805"),
        ("000000000702020805", {}, APICURIO, "02020805"),  # v3 with indexes
        ("0000000007040a02424208050805", {}, APICURIO, "040a02424208050805"),  # BB is no message: indexes 5 and 1
        ("0805", {"apicurio.value.globalId": "00" * 7 + "07", "apicurio.protobuf.type": "42"}, APICURIO, "02020805"),
        (
            "030a01420805", {"apicurio.value.globalId": "00" * 7 + "07", "apicurio.protobuf.type": "42"}, APICURIO,
            "02020805",
        ),
        ("0300" + GUID_HEX + "020805", {}, GLUE, "0402000805"),  # B.C is the third
    ],
)  # fmt: skip
def test_the_message_of_a_protobuf_file(value: str, headers: dict[str, str], kind: RegistryKind, expected: str) -> None:
    framed = find(value, headers, kind)
    assert framed is not None
    assert indexes_and_message(framed, FILE).hex() == expected


def test_glue_counts_messages_by_their_full_names() -> None:
    """The example in MessageIndexFinder's documentation: B is 0, B.A 1, B.A.D 2, B.C 3."""
    places = {"B": [0], "B.C": [0, 0], "B.A": [0, 1], "B.A.D": [0, 1, 0]}
    messages = [Message(name, indexes) for name, indexes in places.items()]
    indexes = [[0], [0, 1], [0, 1, 0], [0, 0]]
    for number, path in enumerate(indexes):
        framed = Framed(SchemaId(GUID, "glue"), bytes([number]), kind=GLUE)
        assert indexes_and_message(framed, messages) == encode_indexes(path)
    for data in (b"\4", b"", b"\x80"):
        with pytest.raises(ValueError, match="message"):
            indexes_and_message(Framed(SchemaId(GUID, "glue"), data, kind=GLUE), messages)


def test_each_byte_of_a_ref_cut_off_or_changed_is_no_ref() -> None:
    ref = bytes.fromhex("030a0142")
    for end in range(len(ref)):
        framed = Framed(SchemaId(7), ref[:end], kind=APICURIO)
        assert indexes_and_message(framed, FILE) == ref[:end]
    for at in range(len(ref) - 1):
        for value in set(range(256)) - {ref[at]}:
            data = bytes([*ref[:at], value, *ref[at + 1 :]])
            assert indexes_and_message(Framed(SchemaId(7), data, kind=APICURIO), FILE) == data
