"""Decodes and encodes keys and values with the schemas of a Schema Registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from core.client.schema_registry import SchemaError, SchemaRegistry
from core.pipeline.input_lines import BadLineError
from core.pipeline.input_rows import Rows
from core.records.byte_strings import ByteStrings

if TYPE_CHECKING:
    from core.pipeline.record_stream import Chunk
    from core.security.client_settings import ClientSettings

Encode = Callable[[bytes | None], bytes | None]


class Schemas:
    """Turns bytes of schemas into JSON, and the other way round; owned by one task."""

    def __init__(self, url: str, settings: ClientSettings | None) -> None:
        """Asks `SchemaRegistry`, as the settings of clients say."""
        self.registry = SchemaRegistry(url, settings.registry if settings is not None else None)

    def decoded(self, chunk: Chunk) -> Chunk:
        """Writes JSON for keys and values that name a schema. Raises SchemaError, which names the record."""
        columns = chunk.columns
        keys = self._decode(chunk, "key", columns.keys().to_pylist())
        values = self._decode(chunk, "value", columns.values().to_pylist())
        return chunk._replace(columns=columns.with_keys(keys).with_values(values))

    def _decode(self, chunk: Chunk, what: str, texts: list[bytes | None]) -> Any:  # -> pyarrow.BinaryArray
        decoded = []
        for row, text in enumerate(texts):
            try:
                decoded.append(self.registry.decode(text))
            except SchemaError as error:
                where = f"{chunk.partition} offset {chunk.columns.offsets[row]}"
                raise SchemaError(f"{where}: its {what} is {error.message}", hint=error.hint) from error
        return pa.array(decoded, pa.binary())

    def encoder(self, topic: str, value_schema: str | None, key_schema: str | None) -> Callable[[Rows], Rows]:
        """Makes what turns rows of JSON into bytes of the schemas. Those that are not named are the newest of
        TOPIC-value and TOPIC-key, if the registry has such. Raises BadLineError for a line that is not of them.
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
            return self.registry.encoder(subject, subject) if self.registry.has_subject(subject) else None
        return self.registry.encoder(schema, subject)


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
