"""Makes the record lines of Kafka's dump tool, a column at a time; `kafka_text` describes them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from core.records.batches import timestamp_type
from core.records.byte_strings import ByteStrings
from core.records.columns import RecordColumns
from core.records.text_columns import Part, digits, join_parts


def column_lines(columns: RecordColumns, *, with_data: bool) -> Iterator[memoryview]:
    """Yields the lines of each of the columns' batches, joined, a newline before each rather than after it. The batches
    are of magic 2, and none is a control batch.
    """
    text, line_ends = _joined(columns, with_data=with_data)
    ends = np.append(0, line_ends)[
        np.searchsorted(columns.batch_numbers, np.arange(len(columns.batches)), side="right")
    ]
    start = 0
    for end in ends.tolist():
        yield text[start:end]
        start = end


def _joined(columns: RecordColumns, *, with_data: bool) -> tuple[memoryview, npt.NDArray[np.int32]]:
    keys = ByteStrings(columns.buffer, columns.key_positions, columns.key_lengths)
    values = ByteStrings(columns.buffer, columns.value_positions, columns.value_lengths)
    header_keys = _header_keys(columns)
    lines = join_parts(_parts(columns, header_keys, keys, values, with_data=with_data), len(columns))
    if _is_utf8(lines[0]):  # then each text in it is, for there is ASCII on both sides of it
        return lines
    header_keys = _utf8(header_keys) if isinstance(header_keys, ByteStrings) else header_keys
    parts = _parts(columns, header_keys, _utf8(keys), _utf8(values), with_data=with_data)
    return join_parts(parts, len(columns))


def _parts(
    columns: RecordColumns, header_keys: Part, keys: ByteStrings, values: ByteStrings, *, with_data: bool
) -> list[Part]:
    """Returns the parts of each line."""
    parts: list[Part] = [
        b"\n| offset: ",
        digits(columns.offsets),
        b" ",
        _timestamp_types(columns),
        b": ",
        digits(columns.timestamps),
        b" keySize: ",
        digits(columns.key_lengths),
        b" valueSize: ",
        digits(columns.value_lengths),
        b" sequence: ",
        _sequences(columns),
        b" headerKeys: [",
        header_keys,
        b"]",
    ]
    return [*parts, *_labelled(b" key: ", keys), *_labelled(b" payload: ", values)] if with_data else parts


def _timestamp_types(columns: RecordColumns) -> Part:
    types = [timestamp_type(batch).encode() for batch in columns.batches]
    if len(set(types)) == 1:
        return types[0]
    return ByteStrings.of_list(types).take(columns.batch_numbers)


def _sequences(columns: RecordColumns) -> Part:
    if all(batch.base_sequence < 0 for batch in columns.batches):
        return b"-1"
    bases = columns.of_batches(b.base_sequence for b in columns.batches)
    base_offsets = columns.of_batches(b.base_offset for b in columns.batches)
    following = (bases + columns.offsets - base_offsets) & 0x7FFFFFFF
    return digits(np.where(bases < 0, -1, following))


def _header_keys(columns: RecordColumns) -> Part:
    if not columns.header_counts.any():
        return b""
    counts = columns.header_counts.tolist()
    return ByteStrings.of_list(
        [b",".join(name for name, _ in columns.headers(row)) if count else b"" for row, count in enumerate(counts)]
    )


def _labelled(label: bytes, texts: ByteStrings) -> list[Part]:
    """Returns the label and the text; nothing if it is null."""
    if not texts.has_nulls:
        return [label, texts]
    is_null = texts.lengths < 0
    if is_null.all():
        return []
    return [ByteStrings(label, np.zeros(len(texts), np.int64), np.where(is_null, 0, len(label))), texts]


def _is_utf8(text: memoryview) -> bool:
    if np.frombuffer(text, np.int8).min(initial=0) >= 0:
        return True  # ASCII, which is seen in a fifth of the time
    import pyarrow as pa

    bounds = np.array([0, len(text)], np.int32)
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(bounds), pa.py_buffer(text)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _utf8(texts: ByteStrings) -> ByteStrings:
    """Returns the texts, with U+FFFD if they are not UTF-8, as Java prints them."""
    return ByteStrings.of_list([None if text is None else _as_utf8(text) for text in texts.to_pylist()])


def _as_utf8(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()
