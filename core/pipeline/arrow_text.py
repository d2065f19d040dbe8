"""Makes text of many records at once, as pyarrow's binary columns: numbers, JSON strings, columns joined by rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from core.pipeline.input_lines import Lines
from core.records.byte_strings import ends_of
from core.records.envelope import encode_bytes

EMPTY = pa.scalar(b"", pa.binary())
_encode_json_lines = msgspec.json.Encoder().encode_lines  # as `encode_bytes`, of text, in a tenth of the time
_QUOTE = pa.scalar(b'"', pa.binary())


def join_rows(*parts: Any) -> Any:
    """Joins the parts of each row, one after the other, as a pyarrow.BinaryArray; nulls are empty. One part at least is
    no scalar.
    """
    joined = [parts[0]]
    for part in parts[1:]:
        if isinstance(part, pa.Scalar) and isinstance(joined[-1], pa.Scalar):
            joined[-1] = pa.scalar(joined[-1].as_py() + part.as_py(), pa.binary())
        else:
            joined.append(part)
    return pc.binary_join_element_wise(*joined, EMPTY, null_handling="replace", null_replacement=b"")


def whole(rows: Any) -> memoryview:
    """Joins all elements of a pyarrow.BinaryArray, one after the other; nulls are empty."""
    if not len(rows):
        return memoryview(b"")
    offsets = ends_of(rows)
    return memoryview(rows.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]


def repeat(value: bytes, count: int) -> Any:
    """Repeats a value as a pyarrow.BinaryArray."""
    return pa.array([value] * count, pa.binary())


def numbers(values: Any) -> Any:
    """Writes an array of whole numbers as a pyarrow.BinaryArray of their digits."""
    return pc.cast(pc.cast(pa.array(values), pa.string()), pa.binary())


def packed(values: Any, dtype: str) -> Any:
    """Packs a NumPy array of whole numbers as a pyarrow.BinaryArray of so many bytes each."""
    data = values.astype(dtype)
    width = pa.binary(data.itemsize)
    return pc.cast(pa.Array.from_buffers(width, len(data), [None, pa.py_buffer(data.tobytes())]), pa.binary())


def each(array: Any, change: Callable[[bytes], bytes]) -> Any:
    """Changes every element of a pyarrow.BinaryArray but nulls."""
    return binaries(None if element is None else change(element) for element in array.to_pylist())


def binaries(values: Iterable[bytes | None]) -> Any:
    """Makes a pyarrow.BinaryArray of values."""
    return pa.array(list(values), pa.binary())


def json_strings(array: Any) -> Any:
    """Gives `envelope.encode_bytes` of every element of a pyarrow.BinaryArray, as one.

    It goes by columns if the bytes are UTF-8 and nothing has to be escaped.
    """
    try:
        text = pc.cast(array, pa.string())
    except pa.ArrowInvalid:
        return _json_strings_one_by_one(array)
    if pc.any(pc.match_substring_regex(text, r'[\x00-\x1f"\\]')).as_py():
        lines = _encode_json_lines(text.to_pylist())  # no newline of theirs is left in them
        return Lines(memoryview(lines), 0).texts.to_arrow()
    quoted = pc.binary_join_element_wise(_QUOTE, pc.cast(text, pa.binary()), _QUOTE, EMPTY)
    return pc.fill_null(quoted, b"null") if quoted.null_count else quoted


def _json_strings_one_by_one(array: Any) -> Any:
    return pa.array([encode_bytes(element).encode() for element in array.to_pylist()], pa.binary())
