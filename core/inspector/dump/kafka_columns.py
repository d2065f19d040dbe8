"""Fills the record lines of `kafka_text`, of many batches of magic 2 at once, from columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from core.inspector.dump.kafka_text import KEY_LABEL, RECORD_LINE, VALUE_LABEL, utf8
from core.records.batches import timestamp_type
from core.records.byte_strings import ByteStrings, Part, digits, join_parts
from core.records.columns import RecordColumns
from core.records.record import MAX_SEQUENCE
from core.records.record_batch import NO_SEQUENCE


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


*_LABELS, _CLOSING, _ = f"\n{RECORD_LINE.rstrip()}".encode().split(b"%s")


def _joined(columns: RecordColumns, *, with_data: bool) -> tuple[memoryview, npt.NDArray[np.int32]]:
    fields = [
        digits(columns.offsets),
        _timestamp_types(columns),
        digits(columns.timestamps),
        digits(columns.key_lengths),
        digits(columns.value_lengths),
        _sequences(columns),
    ]
    keys = ByteStrings(columns.buffer, columns.key_positions, columns.key_lengths)
    values = ByteStrings(columns.buffer, columns.value_positions, columns.value_lengths)
    header_keys, data = _header_keys(columns), [keys, values] if with_data else []
    lines = _join([*fields, header_keys], data, len(columns))
    if _is_utf8(lines[0]):  # then each text in it is, for there is ASCII on both sides of it
        return lines
    header_keys = _utf8(header_keys) if isinstance(header_keys, ByteStrings) else header_keys
    return _join([*fields, header_keys], list(map(_utf8, data)), len(columns))


def _join(fields: list[Part], data: list[ByteStrings], rows: int) -> tuple[memoryview, npt.NDArray[np.int32]]:
    line = chain.from_iterable(zip(_LABELS, fields, strict=True))
    return join_parts([*line, _CLOSING, *chain(*map(_labelled, (KEY_LABEL, VALUE_LABEL), data))], rows)


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
    following = (bases + columns.offsets - base_offsets) & MAX_SEQUENCE
    return digits(np.where(bases < 0, NO_SEQUENCE, following))


def _header_keys(columns: RecordColumns) -> Part:
    if not columns.header_counts.any():
        return b""
    counts = columns.header_counts.tolist()
    return ByteStrings.of_list(
        [b",".join(name for name, _ in columns.headers(row)) if count else b"" for row, count in enumerate(counts)]
    )


def _labelled(label: str, texts: ByteStrings) -> list[Part]:
    if not texts.has_nulls:
        return [label.encode(), texts]
    is_null = texts.lengths < 0
    if is_null.all():
        return []
    sizes = np.where(is_null, 0, len(label))
    return [ByteStrings(label.encode(), np.zeros(len(texts), np.int64), sizes), texts]


def _is_utf8(text: memoryview) -> bool:
    if np.frombuffer(text, np.int8).min(initial=0) >= 0:
        return True  # ASCII, which is seen in a fifth of the time
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _utf8(texts: ByteStrings) -> ByteStrings:
    return ByteStrings.of_list([None if text is None else utf8(text).encode() for text in texts.to_pylist()])
