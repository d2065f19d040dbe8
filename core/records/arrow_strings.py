"""Byte strings to and from pyarrow's arrays; pyarrow is an extra (docs/dependencies.md)."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from core.common.errors import UsageError
from core.records.byte_strings import ByteStrings, stitch


def has_arrow() -> bool:
    """Says whether pyarrow is installed, without importing it."""
    return importlib.util.find_spec("pyarrow") is not None


def ensure_arrow(what: str, extra: str = "arrow") -> None:
    """Raises UsageError, which says what needs it and which extra has it, if pyarrow is not installed."""
    if not has_arrow():
        raise UsageError(f"{what} needs the package pyarrow", hint=f"pip install 'plog-kafka[{extra}]'")


def strings_to_arrow(strings: ByteStrings) -> Any:  # pyarrow.BinaryArray; pyarrow has no types
    """Copies all, nulls as Arrow's."""
    import pyarrow as pa

    data, ends = stitch([strings])
    valid = np.packbits(strings.lengths >= 0, bitorder="little").data if strings.has_nulls else None
    offsets = np.append(np.int32(0), ends)
    buffers = [None if part is None else pa.py_buffer(part) for part in (valid, offsets, data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(strings), buffers)


def strings_from_arrow(array: Any) -> ByteStrings:  # pyarrow.BinaryArray
    """Returns the strings of the array, where they lie."""
    ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    lengths = np.diff(ends).astype(np.int64)
    if array.null_count:
        lengths[~np.asarray(array.is_valid())] = -1
    return ByteStrings(memoryview(array.buffers()[2] or b""), ends[:-1].astype(np.int64), lengths)
