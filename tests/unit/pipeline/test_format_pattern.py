"""Patterns: every token and every way to write it, held against plain Python record by record."""

from __future__ import annotations

import base64
import io
import string
import struct
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from core.client.read.record_source import Watermarks
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline.format_pattern import pattern_formatter
from core.pipeline.record_printer import PartitionRows
from core.pipeline.text_sink import TextSink
from core.records.columns import decode_columns
from core.records.compression import CompressionType
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of
from tests.support.for_each import for_each

NOW = 1_700_000_000_123
T3 = TopicPartition("töpic", 3)
RECORDS = [
    Record(0, NOW, b"key", b"value", ((b"a", b"1"), (b"a", None), (b"b", b"\xff"))),
    Record(1, NOW + 61_000, None, b"\x00\xfe", ()),
    Record(2, NOW - 5, b"", None, ()),
    Record(3, NOW, b"12345678", b'say "hi"\n\x01', ((b"", b""),)),
]
BATCH = RecordBatch(
    memoryview(
        bytearray(
            batch_of(
                RECORDS, base_offset=40, compression=CompressionType.LZ4, producer_id=7, producer_epoch=2,
                base_sequence=0, is_transactional=True, partition_leader_epoch=5,
            )
        )
    )
)  # fmt: skip
ROWS = [r._replace(offset=40 + n) for n, r in enumerate(RECORDS)]


def printed(pattern: str) -> list[bytes]:
    """A record's text each; the end of one is told by what no record holds."""
    text = bytes(pattern_formatter(pattern + r"\x1e")(T3, decode_columns([BATCH]), np.arange(4))[0])
    assert text.endswith(b"\x1e")
    return text[:-1].split(b"\x1e")


def utc(record: Record, format_: str) -> bytes:
    return datetime.fromtimestamp(record.timestamp // 1000, UTC).strftime(format_).encode()


def length(text: bytes | None) -> int:
    return -1 if text is None else len(text)


CASES: dict[str, Callable[[Record], bytes]] = {
    "%s": lambda r: r.value or b"",
    "%v": lambda r: r.value or b"",
    "%k": lambda r: r.key or b"",
    "%S %V %K": lambda r: b"%d %d %d" % (length(r.value), length(r.value), length(r.key)),
    "%R": lambda r: struct.pack(">i", length(r.value)),
    "%t/%p/%o": lambda r: "töpic/3/".encode() + b"%d" % r.offset,
    "%e %x %y %a": lambda r: b"5 7 2 19",
    "%i": lambda r: b"%d" % (r.offset - 40),
    "%H": lambda r: b"%d" % len(r.headers),
    "%T %d": lambda r: b"%d %d" % (r.timestamp, r.timestamp),
    "%a{compression} %a{timestamp-type} %a{transactional} %a{control}": lambda r: b"lz4 CreateTime true false",
    "%%%{%}": lambda r: b"%{}",
    r"\t\n\r\0\\\x41": lambda r: b"\t\n\r\0\\A",
    "%s{hex}": lambda r: (r.value or b"").hex().encode(),
    "%k{base64}": lambda r: base64.b64encode(r.key or b""),
    "%K{big32}%K{little16}%K{big8}": lambda r: struct.pack(">i", length(r.key)) + struct.pack("<h", length(r.key))
    + struct.pack("b", length(r.key)),
    "%o{big64}": lambda r: struct.pack(">q", r.offset),
    "%K{hex} %K{hex8} %K{hex64}": lambda r: b"%x %02x %016x" % (
        length(r.key) & 0xFFFFFFFFFFFFFFFF, length(r.key) & 0xFF, length(r.key) & 0xFFFFFFFFFFFFFFFF
    ),
    "%T{strftime[%F %T]}": lambda r: utc(r, "%Y-%m-%d %H:%M:%S"),
    "%d{strftime[%j]}!": lambda r: utc(r, "%j") + b"!",
    "%h": lambda r: b",".join(name + b"=" + (value or b"") for name, value in r.headers),
    r"%h{%k: %v{hex} (%V)\n}": lambda r: b"".join(
        b"%b: %b (%d)\n" % (name, (value or b"").hex().encode(), length(value)) for name, value in r.headers
    ),
    "%h{%{%K%}}": lambda r: b"".join(b"{%d}" % len(name) for name, _ in r.headers),
}  # fmt: skip


@for_each("modifier", ["", "E", "O"])
def test_dates_are_those_of_arrow(modifier: str) -> None:
    """Arrow has them from the C++ library `date`, with four digits for early years."""
    seconds = [0, -1, -62_135_596_800, -62_000_000_000, 253_402_300_799, 951_782_400, 1_357_017_300, -30_000_000_000]
    rows = [Record(n, second * 1000 + 7, None, b"v") for n, second in enumerate(seconds)]
    columns = decode_columns([RecordBatch(memoryview(batch_of(rows)))])
    for letter in string.ascii_letters + "%":
        if letter in "zZqQ":
            continue
        format_ = f"a%{modifier}{letter}é"
        texts = pc.strftime(pa.array(seconds, pa.timestamp("s")), format=format_).to_pylist()
        found = bytes(pattern_formatter(f"%T{{strftime[{format_}]}};")(T3, columns, np.arange(len(rows)))[0])
        assert found.decode().split(";")[:-1] == texts, format_


def test_a_time_without_a_date_is_its_number() -> None:
    columns = decode_columns(
        [RecordBatch(memoryview(batch_of([Record(0, 1 << 62, None, b""), Record(1, 0, None, b"")])))]
    )
    assert bytes(pattern_formatter("%T{strftime[%F %z%Ez%Z]};")(T3, columns, np.arange(2))[0]) == (
        b"4611686018427387904;1970-01-01 +0000+0000UTC;"
    )


@for_each("pattern", CASES)
def test_tokens(pattern: str) -> None:
    assert printed(pattern) == [CASES[pattern](record) for record in ROWS]


def test_json_tells_null_from_empty() -> None:
    assert printed("%k{json}") == [b'"key"', b"null", b'""', b'"12345678"']
    assert printed("%s{json}") == [b'"value"', b'{"base64": "AP4="}', b"null", b'"say \\"hi\\"\\n\\u0001"']


def test_unpack() -> None:
    batch = RecordBatch(memoryview(bytearray(batch_of([Record(0, NOW, None, struct.pack(">qi", -5, 6))]))))
    columns, one = decode_columns([batch]), np.arange(1)
    assert bytes(pattern_formatter("%s{unpack[>qi]}\n")(T3, columns, one)[0]) == b"-5 6\n"
    shown = bytes(pattern_formatter("%s{unpack[>q]}")(T3, columns, one)[0])
    assert shown.startswith(b'{"not_decoded": ') and b"no >q: 12 bytes, expected 8" in shown


def test_records_are_numbered_as_they_are_printed() -> None:
    out = io.BytesIO()
    sink = TextSink(out, pattern_formatter(r"%i %o\n"))
    page = [PartitionRows(T3, decode_columns([BATCH]))]
    sink.write(page)
    sink.write(page, np.array([3, 1, 0, 2]))
    assert out.getvalue().split() == b"0 40 1 41 2 42 3 43 4 43 5 41 6 40 7 42".split()


def test_where_the_partition_begins_and_ends() -> None:
    formatter = pattern_formatter("%[ %| %]{hex}\n", {T3: Watermarks(1, 20, 30)})
    assert bytes(formatter(T3, decode_columns([BATCH]), np.arange(4))[0]) == b"1 20 1e\n" * 4


@for_each(
    "pattern, problem",
    [
        ("%q", "no token %q"),
        ("100%", "ends with a %"),
        ("%s{", "has no closing brace"),
        (r"\q%s", r"no escape \\q"),
        (r"%s\x4", r"no escape \\x"),
        ("%s{upper}", "%s can't be written {upper}"),
        ("%s{big32}", "%s can't be written {big32}"),
        ("%s{unpack}", "%s can't be written {unpack}"),
        ("%s{unpack[?!]}", "unpack"),
        ("%o{base64}", "%o can't be written {base64}"),
        ("%o{strftime[%F]}", "%o can't be written"),
        ("%T{strftime}", "%T can't be written"),
        ("%a{color}", "%a can't be written {color}"),
        ("%t{hex}", "%t can't be written {hex}"),
        ("%h{%s}", "no token %s in %h"),
    ],
)
def test_what_there_is_not(pattern: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        pattern_formatter(pattern)
    assert problem.replace("\\\\", "\\") in caught.value.message
