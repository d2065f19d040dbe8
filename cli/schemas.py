"""Keys and values of a Schema Registry, on their way out and in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cli.input_lines import BadLineError
from cli.records_in import Rows
from cli.security_options import find_client_settings
from core.client.schema_registry import SchemaError, SchemaRegistry
from core.records.byte_strings import ByteStrings

if TYPE_CHECKING:
    from cli.record_stream import Chunk

Encode = Callable[[bytes | None], bytes | None]


class Schemas:
    """Owned by one task."""

    def __init__(self, url: str) -> None:
        """As `SchemaRegistry`, with what --command-config says of it."""
        settings = find_client_settings()
        self._registry = SchemaRegistry(url, settings.registry if settings is not None else None)

    def decoded(self, chunk: Chunk) -> Chunk:
        """The records with JSON for keys and values that name a schema. SchemaError, which names the record."""
        columns = chunk.columns
        keys = self._decode(chunk, "key", columns.keys().to_pylist())
        values = self._decode(chunk, "value", columns.values().to_pylist())
        return chunk._replace(columns=columns.with_keys(keys).with_values(values))

    def _decode(self, chunk: Chunk, what: str, texts: list[bytes | None]) -> Any:  # -> pyarrow.BinaryArray
        decoded = []
        for row, text in enumerate(texts):
            try:
                decoded.append(self._registry.decode(text))
            except SchemaError as error:
                where = f"{chunk.partition} offset {chunk.columns.offsets[row]}"
                raise SchemaError(f"{where}: its {what} is {error.message}", hint=error.hint) from error
        return pa.array(decoded, pa.binary())

    def encoder(self, topic: str, value_schema: str | None, key_schema: str | None) -> Callable[[Rows], Rows]:
        """What makes rows of JSON bytes of the schemas; of those that are not named, the newest of TOPIC-value and
        TOPIC-key, where the registry has such. BadLineError for a line that is not of them.
        """
        encode_value = self._find_encoder(value_schema, f"{topic}-value")
        encode_key = self._find_encoder(key_schema, f"{topic}-key")

        def encode(rows: Rows) -> Rows:
            return rows.with_columns(
                values=_encode(rows, rows.values, encode_value), keys=_encode(rows, rows.keys, encode_key)
            )

        return encode

    def _find_encoder(self, schema: str | None, subject: str) -> Encode | None:
        if schema is None:
            return self._registry.encoder(subject, subject) if self._registry.has_subject(subject) else None
        return self._registry.encoder(schema, subject)


def _encode(rows: Rows, texts: ByteStrings | None, encode: Encode | None) -> ByteStrings | None:
    if texts is None or encode is None:
        return texts
    encoded = []
    for number, text in zip(rows.numbers.tolist(), texts.to_pylist(), strict=True):
        try:
            encoded.append(encode(text))
        except SchemaError as error:
            raise BadLineError(number, error.message) from error
    return ByteStrings.of_list(encoded)
