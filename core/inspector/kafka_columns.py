"""The record lines of Kafka's dump tool, made a column at a time: core.inspector.kafka_text says what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.inspector.kafka_text import timestamp_type
from core.records.columns import RecordColumns

_BINARY = pa.binary()
_EMPTY = pa.scalar(b"", _BINARY)


def column_lines(columns: RecordColumns, *, with_data: bool) -> Iterator[memoryview]:
    """The lines of each of the columns' batches, joined. The batches are of magic 2, and none is a control batch."""
    text, offsets = _join(*_record_parts(columns, with_data=with_data))
    ends = np.searchsorted(columns.batch_numbers, np.arange(len(columns.batches)), side="right")
    start = 0
    for end in ends.tolist():
        yield text[offsets[start] : offsets[end]]
        start = end


def _record_parts(columns: RecordColumns, *, with_data: bool) -> list[Any]:
    """What each line is made of: columns, and texts that all lines have, which cost next to nothing."""
    parts = [
        _constant("| offset: "),
        _digits(columns.offsets),
        _constant(" "),
        _timestamp_types(columns),
        _constant(": "),
        _digits_or_constant(columns.timestamps),
        _constant(" keySize: "),
        _digits_or_constant(columns.key_lengths),
        _constant(" valueSize: "),
        _digits_or_constant(columns.value_lengths),
        _constant(" sequence: "),
        _digits_or_constant(_sequences(columns)),
        _constant(" headerKeys: ["),
        _header_keys(columns),
        _constant("]"),
    ]
    if with_data:
        if (columns.key_lengths >= 0).any():
            parts += _labelled(" key: ", columns.keys())
        if (columns.value_lengths >= 0).any():
            parts += _labelled(" payload: ", columns.values())
    return _joined_constants([*parts, _constant("\n")])


def _constant(text: str) -> Any:
    return pa.scalar(text.encode(), _BINARY)


_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % n for n in range(10_000)), np.uint32)


def _digits(values: Any) -> Any:
    """Decimal text. Numbers of as many digits each, as those of a group mostly are, four digits at a time."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (-1, 0)
    count = len(str(most))
    if least < 0 or len(str(least)) != count:
        return pc.cast(pc.cast(pa.array(values), pa.string()), _BINARY)
    chunks = -(-count // 4)
    table = np.empty((len(values), chunks), np.uint32)
    rest = values
    for column in range(chunks - 1, 0, -1):
        higher = rest // 10_000
        table[:, column] = _FOUR_DIGITS[rest - higher * 10_000]
        rest = higher
    table[:, 0] = _FOUR_DIGITS[rest]
    text = np.ascontiguousarray(table.view(np.uint8)[:, 4 * chunks - count :])
    ends = np.arange(len(values) + 1, dtype=np.int32) * count
    return pa.BinaryArray.from_buffers(_BINARY, len(values), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _digits_or_constant(values: Any) -> Any:
    first = values[0] if len(values) else 0
    return _constant(str(first)) if (values == first).all() else _digits(values)


def _timestamp_types(columns: RecordColumns) -> Any:
    types = [timestamp_type(batch) for batch in columns.batches]
    if len(set(types)) == 1:
        return _constant(types[0])
    return pa.array([type_.encode() for type_ in types], _BINARY).take(pa.array(columns.batch_numbers))


def _joined_constants(parts: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for part in parts:
        if joined and isinstance(part, pa.Scalar) and isinstance(joined[-1], pa.Scalar):
            joined[-1] = pa.scalar(joined[-1].as_py() + part.as_py(), _BINARY)
        else:
            joined.append(part)
    return joined


def _join(*parts: Any) -> tuple[memoryview, Any]:
    """All rows' bytes end to end, and where each starts and ends (one more entry than rows)."""
    joined = pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")
    count = len(joined)
    if not count:
        return memoryview(b""), np.zeros(1, np.int32)
    offsets = np.frombuffer(joined.buffers()[1], np.int32, count + 1, joined.offset * 4)
    return memoryview(joined.buffers()[2]), offsets


def _sequences(columns: RecordColumns) -> Any:
    bases = columns.of_batches(b.base_sequence for b in columns.batches)
    base_offsets = columns.of_batches(b.base_offset for b in columns.batches)
    following = (bases + columns.offsets - base_offsets) & 0x7FFFFFFF
    return np.where(bases < 0, -1, following)


def _header_keys(columns: RecordColumns) -> Any:
    if not columns.header_counts.any():
        return _EMPTY
    seen: dict[int, bytes] = {0: b""}
    texts = []
    for row, count in enumerate(columns.header_counts.tolist()):
        texts.append(b",".join(name for name, _ in columns.headers(row)) if count else seen[0])
    return utf8(pa.array(texts, _BINARY))


def _labelled(label: str, values: Any) -> list[Any]:
    """The label and the value; nothing where the value is null, as not all are."""
    if values.null_count == 0:
        return [_constant(label), utf8(values)]
    return [pc.binary_join_element_wise(_constant(label), utf8(values), _EMPTY, null_handling="emit_null")]


def utf8(values: Any) -> Any:
    """The same bytes with U+FFFD where they are not UTF-8, as Java prints them."""
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode("utf-8", "replace").encode() for v in values.to_pylist()], _BINARY
        )
    return values
