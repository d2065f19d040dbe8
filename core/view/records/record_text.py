"""Keys and values as a person reads them: text, JSON, decoded with a Schema Registry, or hex.

Records of Kafka's own topics are JSON, without hidden values.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from core.common.config_def import HIDDEN
from core.common.errors import AccessError, CorruptRecordError, PlogError, UsageError
from core.common.lenient_json import compact, indented, read_json
from core.common.printable import printable
from core.files.file_names import CLUSTER_METADATA_TOPIC
from core.inspector.dump.internal_records import DELETED, Decoder, find_decoder, has_secrets, hidden_metadata
from core.records.record import Record
from core.view.records.log_rows import LogRow

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaRegistry
    from core.view.records.log_rows import LogRow


class InternalValues:
    """Reads the records of one topic as `plog dump-segment` decodes them; immutable."""

    def __init__(self, topic: str) -> None:
        self._is_metadata = topic == CLUSTER_METADATA_TOPIC
        self._decoder: Decoder | None = hidden_metadata(_is_secret) if self._is_metadata else find_decoder(topic)

    @property
    def is_internal(self) -> bool:
        """Whether the topic is a known internal one."""
        return self._decoder is not None

    def decoded(self, row: LogRow) -> tuple[bytes | None, bytes | None]:
        """Returns the key and the value as JSON; unchanged if they can't be decoded."""
        if self._decoder is None:
            return row.key, row.value
        record = Record(row.offset, row.timestamp or 0, row.key, row.value, row.headers)
        try:
            key, value = self._decoder(record)
        except CorruptRecordError:
            return self.plain(row)
        return (row.key if key is None else _json(key)), None if value is DELETED else _json(value)

    def key_words(self, row: LogRow) -> bytes | None:
        """Returns the fields of the key, in a few words, such as the group, the topic and the partition."""
        key, _ = self.decoded(row)
        try:
            named = json.loads(key or b"")["data"].values()
        except (ValueError, KeyError, TypeError, AttributeError):
            return key
        return " ".join(map(str, named)).encode()

    def plain(self, row: LogRow) -> tuple[bytes | None, bytes | None]:
        """Returns the key and the value unchanged, except a value that may hold a secret."""
        if self._is_metadata and has_secrets(row.value, _is_secret):
            return row.key, HIDDEN.encode()
        return row.key, row.value


def _is_secret(_resource_type: int, _name: str) -> bool:
    """Only a broker knows which settings are secrets, so all count as secrets."""
    return True


def _json(fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


NULL = "(null)"
"""Stands for a null key or value; `null` alone would be text."""

_CELL_BYTES = 400
"""The most bytes of a value that a cell is made of; no terminal is wider."""

_WHOLE_BYTES = 256 * 1024
"""The most bytes of a value on the screen of one record."""

_HEX_BYTES = 16


class Form(StrEnum):
    TEXT = "text"
    JSON = "json"
    SCHEMA = "schema"
    HEX = "hex"


def cell_text(data: bytes | None, form: Form, registry: SchemaRegistry | None = None, *, is_key: bool = False) -> str:
    """Formats a key or value in one line, cut if it is long; it can't control a terminal. Raises AccessError if the
    registry can't be asked, UsageError if its answer is invalid.
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
    """Decodes framed bytes; on failure returns the reason in parentheses."""
    if form is not Form.SCHEMA or registry is None:
        return data
    try:
        return registry.decode(data, is_key=is_key) or b""
    except (AccessError, UsageError):  # errors of the registry itself
        raise
    except PlogError as error:
        return f"({error.message})".encode()


def _compact(data: bytes) -> bytes:
    """Returns JSON without its spaces; other text, and text that is too long for a cell, as it is."""
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
    """Formats a key or value in lines: JSON with its structure, hex with positions; at most 256 KiB of it."""
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
    """Formats keys and values of one topic's rows; owned by the reader's task, which has the registry.

    Records of Kafka's own topics are decoded, in every form but hex; possible secrets are hidden in every form.
    """

    def __init__(self, topic: str, form: Form, registry: SchemaRegistry | None = None) -> None:

        self.form = form
        self._registry = registry
        internal = InternalValues(topic) if topic.startswith("__") else None
        self._internal = internal if internal is not None and internal.is_internal else None
        is_plain = form is Form.JSON and self._internal is None
        self._key_form = Form.TEXT if is_plain else form  # a key is rarely JSON, and 007 is no number

    def cells(self, row: LogRow) -> tuple[str, str]:
        """Formats both in one line each. Raises what `cell_text` raises."""
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
        """Returns the bytes to show."""
        if self._internal is None:
            return row.key, row.value
        return self._internal.plain(row) if self.form is Form.HEX else self._internal.decoded(row)
