"""Records as text, a column at a time: values, envelopes, or a pattern of kcat's and rpk's tokens.

    %s value   %S its length   %R its length as 4 bytes, big-endian
    %k key     %K its length   %h headers, name=value, comma between
    %t topic   %p partition    %o offset      %T timestamp, ms
    %% percent sign; \\n \\t \\r \\\\ \\xHH as usual

A null key or value is empty, its length -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.records.columns import RecordColumns
from core.records.envelope import encode_bytes, encode_headers_json

Formatter = Callable[[TopicPartition, RecordColumns], memoryview]
"""The text of all rows, each with its end."""

_EMPTY = pa.scalar(b"", pa.binary())
_TOKEN = re.compile(rb"%(.)|\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\", b"0": b"\0"}


def make_formatter(format_: str) -> Formatter:
    """UsageError for a pattern with a token that there is not."""
    if format_ == "value":
        return _format_values
    if format_ == "envelope":
        return _format_envelopes
    if "%" not in format_:
        raise UsageError(
            f"--format {format_}: expected value, envelope, or a pattern", hint=r"for example '%o %k %s\n'"
        )
    return _pattern_formatter(format_)


def _format_values(partition: TopicPartition, columns: RecordColumns) -> memoryview:  # noqa: ARG001
    return _join(columns.values(), pa.scalar(b"\n", pa.binary()))


def _join(*parts: Any) -> memoryview:
    """One byte string of all rows, one behind the other; nulls are empty."""
    joined = pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")
    if not len(joined):
        return memoryview(b"")
    offsets = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1, joined.offset * 4)
    return memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _numbers(values: Any) -> Any:  # an array of whole numbers -> pyarrow.BinaryArray of their digits
    return pc.cast(pc.cast(pa.array(values), pa.string()), pa.binary())


# --- patterns


def _pattern_formatter(format_: str) -> Formatter:
    parts: list[Any] = []  # a token's character, or bytes to print as they are
    text = format_.encode()
    position = 0
    for match in _TOKEN.finditer(text):
        parts.append(text[position : match.start()])
        position = match.end()
        if match[2] is not None:
            parts.append(bytes([int(match[2][1:], 16)]) if match[2][:1] == b"x" else _escape(match[2]))
        elif match[1] == b"%":
            parts.append(b"%")
        else:
            token = match[1].decode("latin-1")
            if token not in _TOKENS:
                raise UsageError(f"--format: no token %{token}", hint=f"tokens: {' '.join('%' + t for t in _TOKENS)}")
            parts.append(token)
    parts.append(text[position:])

    def format_rows(partition: TopicPartition, columns: RecordColumns) -> memoryview:
        return _join(
            *(
                pa.scalar(part, pa.binary()) if isinstance(part, bytes) else _TOKENS[part](partition, columns)
                for part in parts
                if part
            ),
            _repeat(b"", len(columns)),
        )

    return format_rows


def _escape(character: bytes) -> bytes:
    if character not in _ESCAPES:
        raise UsageError(f"--format: no escape \\{character.decode(errors='replace')}")
    return _ESCAPES[character]


def _repeat(value: bytes, count: int) -> Any:  # pyarrow.BinaryArray
    return pa.array([value] * count, pa.binary())


def _binary_lengths(lengths: Any) -> Any:  # pyarrow.BinaryArray of 4 bytes each
    data = lengths.astype(">i4").tobytes()
    return pc.cast(pa.Array.from_buffers(pa.binary(4), len(lengths), [None, pa.py_buffer(data)]), pa.binary())


def _header_texts(columns: RecordColumns) -> Any:  # pyarrow.BinaryArray
    texts = []
    for row in range(len(columns)):
        pairs = (name + b"=" + (b"" if value is None else value) for name, value in columns.headers(row))
        texts.append(b",".join(pairs))
    return pa.array(texts, pa.binary())


_TOKENS: dict[str, Callable[[TopicPartition, RecordColumns], Any]] = {
    "s": lambda partition, columns: columns.values(),  # noqa: ARG005
    "S": lambda partition, columns: _numbers(columns.value_lengths),  # noqa: ARG005
    "R": lambda partition, columns: _binary_lengths(columns.value_lengths),  # noqa: ARG005
    "k": lambda partition, columns: columns.keys(),  # noqa: ARG005
    "K": lambda partition, columns: _numbers(columns.key_lengths),  # noqa: ARG005
    "h": lambda partition, columns: _header_texts(columns),  # noqa: ARG005
    "t": lambda partition, columns: pa.scalar(partition.topic.encode(), pa.binary()),  # noqa: ARG005
    "p": lambda partition, columns: pa.scalar(str(partition.partition).encode(), pa.binary()),  # noqa: ARG005
    "o": lambda partition, columns: _numbers(columns.offsets),  # noqa: ARG005
    "T": lambda partition, columns: _numbers(columns.timestamps),  # noqa: ARG005
}


# --- envelopes


def _format_envelopes(partition: TopicPartition, columns: RecordColumns) -> memoryview:
    types = [_timestamp_type(batch).encode() for batch in columns.batches]
    type_column = pa.array(types, pa.binary()).take(pa.array(columns.batch_numbers))
    epochs = columns.of_batches(batch.partition_leader_epoch for batch in columns.batches)
    head = f'{{"topic": {encode_bytes(partition.topic.encode())}, "partition": {partition.partition}, "offset": '
    return _join(
        pa.scalar(head.encode(), pa.binary()),
        _numbers(columns.offsets),
        pa.scalar(b', "timestamp": ', pa.binary()),
        _numbers(columns.timestamps),
        pa.scalar(b', "timestamp_type": "', pa.binary()),
        type_column,
        pa.scalar(b'", "key": ', pa.binary()),
        json_strings(columns.keys()),
        pa.scalar(b', "value": ', pa.binary()),
        json_strings(columns.values()),
        pa.scalar(b', "headers": ', pa.binary()),
        _header_json(columns),
        pa.scalar(b', "leader_epoch": ', pa.binary()),
        _numbers(epochs),
        pa.scalar(b"}\n", pa.binary()),
    )


def _timestamp_type(batch: Any) -> str:  # a batch of any magic
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def _header_json(columns: RecordColumns) -> Any:  # pyarrow.BinaryArray, or one scalar for all
    if not columns.header_counts.any():
        return pa.scalar(b"[]", pa.binary())
    texts = [encode_headers_json(columns.headers(row)).encode() for row in range(len(columns))]
    return pa.array(texts, pa.binary())


_QUOTE = pa.scalar(b'"', pa.binary())


def json_strings(array: Any) -> Any:
    """`envelope.encode_bytes` of every element of a pyarrow.BinaryArray, as one.

    By columns where the bytes are UTF-8 and hold no control characters but the common three; one by one else.
    """
    try:
        text = pc.cast(array, pa.string())
    except pa.ArrowInvalid:
        return _json_strings_one_by_one(array)
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        if pc.any(pc.match_substring(text, plain)).as_py():
            text = pc.replace_substring(text, plain, escaped)
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        return _json_strings_one_by_one(array)
    quoted = pc.binary_join_element_wise(_QUOTE, pc.cast(text, pa.binary()), _QUOTE, _EMPTY)
    return pc.fill_null(quoted, b"null") if quoted.null_count else quoted


def _json_strings_one_by_one(array: Any) -> Any:
    return pa.array([encode_bytes(element).encode() for element in array.to_pylist()], pa.binary())
