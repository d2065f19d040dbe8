"""Keys and values as a person reads them: text, JSON, what a Schema Registry makes of them, or hex."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from core.common.errors import AccessError, PlogError, UsageError
from core.common.lenient_json import compact, indented, read_json
from core.common.printable import printable

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaRegistry
    from core.view.records.log_rows import LogRow

NULL = "(null)"
"""Stands for a key or value that is null; `null` alone would be text."""

_CELL_BYTES = 400
"""The most bytes of a value that a cell is made of; no terminal is wider."""

_WHOLE_BYTES = 256 * 1024
"""The most bytes of a value that are shown on the screen of one record."""

_HEX_BYTES = 16


class Form(StrEnum):
    TEXT = "text"
    JSON = "json"
    SCHEMA = "schema"
    HEX = "hex"


def cell_text(data: bytes | None, form: Form, registry: SchemaRegistry | None = None, *, is_key: bool = False) -> str:
    """Writes a key or value in one line, its beginning if it is long; nothing in it can drive a terminal. Raises
    AccessError if the registry can't be asked, UsageError if it can't be understood.
    """
    if data is None:
        return NULL
    data = _decoded(data, form, registry, is_key=is_key)
    if form is Form.HEX:
        return data[:_CELL_BYTES].hex(" ")
    if form is Form.JSON:
        data = _compact(data)
    return printable(data[:_CELL_BYTES].decode("utf-8", "backslashreplace"), keeps="")


def _decoded(data: bytes, form: Form, registry: SchemaRegistry | None, *, is_key: bool) -> bytes:
    """Decodes bytes that name a schema; says in parentheses why it can't."""
    if form is not Form.SCHEMA or registry is None:
        return data
    try:
        return registry.decode(data, is_key=is_key) or b""
    except (AccessError, UsageError):  # the registry itself is what is wrong
        raise
    except PlogError as error:
        return f"({error.message})".encode()


def _compact(data: bytes) -> bytes:
    """Writes JSON without its spaces; anything else, and what is too long to be read for a cell, as it is."""
    if len(data) > _WHOLE_BYTES:
        return data
    try:
        read_json(data)
        return compact(data).encode("utf-8", "surrogatepass")
    except ValueError:
        return data


def whole_lines(
    data: bytes | None, form: Form, registry: SchemaRegistry | None = None, *, is_key: bool = False
) -> list[str]:
    """Writes a key or value in lines: JSON with its structure, hex with positions; at most 256 KiB of it."""
    if data is None:
        return [NULL]
    data = _decoded(data, form, registry, is_key=is_key)
    rest = len(data) - _WHOLE_BYTES
    shown = data[:_WHOLE_BYTES]
    if form is Form.HEX:
        lines = [_hex_line(shown, at) for at in range(0, len(shown), _HEX_BYTES)]
    else:
        text = _pretty(shown) if form is not Form.TEXT and rest <= 0 else None
        lines = (text or shown.decode("utf-8", "backslashreplace")).split("\n")
    lines = [printable(line.replace("\t", "    "), keeps="") for line in lines]
    return [*lines, f"... and {rest:,} bytes more"] if rest > 0 else lines or [""]


def _pretty(data: bytes) -> str | None:
    try:
        read_json(data)
        return indented(data)
    except ValueError:
        return None


def _hex_line(data: bytes, at: int) -> str:
    part = data[at : at + _HEX_BYTES]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<{3 * _HEX_BYTES - 1}}  {text}"


class RowWriter:
    """Writes keys and values of one topic's rows in one form; owned by the reader's task, which has the registry.

    Records of Kafka's own topics are shown decoded, in every form but hex; what may be a secret is not shown in any.
    """

    def __init__(self, topic: str, form: Form, registry: SchemaRegistry | None = None) -> None:
        from core.view.records.internal_values import InternalValues

        self.form = form
        self._registry = registry
        internal = InternalValues(topic) if topic.startswith("__") else None
        self._internal = internal if internal is not None and internal.is_internal else None
        is_plain = form is Form.JSON and self._internal is None
        self._key_form = Form.TEXT if is_plain else form  # a key is rarely JSON, and 007 is no number

    def cells(self, row: LogRow) -> tuple[str, str]:
        """Writes both in one line each. Raises what `cell_text` raises."""
        key, value = self.contents(row)
        if self._internal is not None and self.form is not Form.HEX:
            key = self._internal.key_words(row)
        shown = cell_text(key, self._key_form, self._registry, is_key=True)
        return shown, cell_text(value, self.form, self._registry)

    def key_lines(self, row: LogRow) -> list[str]:
        return whole_lines(self.contents(row)[0], self._key_form, self._registry, is_key=True)

    def value_lines(self, row: LogRow) -> list[str]:
        return whole_lines(self.contents(row)[1], self.form, self._registry)

    def contents(self, row: LogRow) -> tuple[bytes | None, bytes | None]:
        """Gives the bytes that are written."""
        if self._internal is None:
            return row.key, row.value
        return self._internal.plain(row) if self.form is Form.HEX else self._internal.decoded(row)
