"""Converts keys and values to text and back, each side in its format."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from core.client.schemas.key_value_decoder import Encode, SideDecoder, open_registry, side_decoder, side_encoder
from core.client.schemas.schema_id import names_schema
from core.client.schemas.undecoded import MARKS_HINT, SchemaError, describe, is_fatal, not_decoded_text, undecoded_bytes
from core.common.errors import PlogError, UsageError
from core.pipeline.input_lines import BadLineError
from core.pipeline.line_parsers import Rows
from core.records.byte_strings import ByteStrings
from core.records.columns import RecordColumns
from core.records.record import Headers, encode_headers, read_headers
from core.records.side_format import SchemaJson, SideFormat, SideFormats

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaEncoder
    from core.pipeline.record_stream import Chunk
    from core.security.client_settings import ClientSettings


class Schemas:
    """Converts bytes of records to text and back; owned by one task."""

    def __init__(
        self, formats: SideFormats, settings: ClientSettings | None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """Opens a `SchemaRegistry` for the sides that need it, with the clients' settings."""
        self.registry = open_registry(formats, settings)
        self._formats = formats
        self._say = say
        self._noted: set[str] = set()
        self.decoders: dict[str, SideDecoder] = {}
        """Those of `key` and `value`."""

        if not formats.is_written:
            self.decoders = {side: side_decoder(formats, side, self.registry) for side in ("key", "value")}

    # --- out

    def decoded(self, chunk: Chunk, *, is_typed: bool = False) -> Chunk:
        """Decodes both sides. A record that can't be decoded is marked (`RecordColumns.undecoded`), and ends the chunk
        if it is not to blame. `is_typed`: with the texts for filters, if they differ.
        """
        failures: dict[str, dict[int, PlogError]] = {"key": {}, "value": {}}
        shown: dict[str, list[bytes | None]] = {}
        seen: dict[str, list[bytes | None]] = {}
        for side in ("key", "value"):
            if self._formats.find(side) is not SideFormat.none:
                shown[side], typed_texts = self._decode(chunk, side, failures[side], is_typed=is_typed)
                seen[side] = shown[side] if typed_texts is None else typed_texts
        count = min((len(texts) for texts in shown.values()), default=len(chunk.columns))
        before = chunk.columns if count == len(chunk.columns) else chunk.columns.select(slice(0, count))
        columns = _with_sides(before, {side: texts[:count] for side, texts in shown.items()})
        typed = (
            _with_sides(before, {side: texts[:count] for side, texts in seen.items()})
            if any(seen[side] is not shown[side] for side in shown)
            else None
        )
        for side, errors in failures.items():
            columns = columns.with_undecoded(side, {row: error for row, error in errors.items() if row < count})
        for note in () if self.registry is None else self.registry.notes:
            if note not in self._noted:
                self._noted.add(note)
                self._say(note)
        return chunk._replace(columns=columns, typed=typed)

    def _decode(
        self, chunk: Chunk, side: str, failures: dict[int, PlogError], *, is_typed: bool
    ) -> tuple[list[bytes | None], list[bytes | None] | None]:
        """Returns the texts of one side to show, and those for filters if they differ."""
        columns, decoder = chunk.columns, self.decoders[side]
        texts = (columns.keys() if side == "key" else columns.values()).to_pylist()
        markers = {row: texts[row] for row in np.flatnonzero(columns.is_control).tolist()}  # which are Kafka's own
        for row in markers:
            texts[row] = None
        is_typed = is_typed and decoder.decode_typed is not None
        has_pairs = is_typed and decoder.has_typed()
        decode: Callable[[bytes | None, Headers], Any] = decoder.decode
        if has_pairs and decoder.decode_typed is not None:
            decode = decoder.decode_typed
        has_headers = self.registry is not None and bool(columns.header_counts.any())
        found: list[Any] = []
        for row, text in enumerate(texts):
            if columns.undecoded is not None and columns.undecoded[row] and side in columns.undecoded[row].sides:
                found.append((text, text) if has_pairs else text)
                continue
            try:
                found.append(decode(text, columns.headers(row) if has_headers else ()))
            except PlogError as error:
                shown = not_decoded_text(text or b"", error)
                found.append((shown, shown) if has_pairs else shown)
                where = f"{chunk.partition} offset {columns.offsets[row]}"
                failures[row] = _named(error, side, where)
                if is_fatal(error):
                    break
        if is_typed and not has_pairs and decoder.has_typed():  # the first of Protobuf
            return self._decode(chunk, side, failures, is_typed=True)
        found_seen = [pair[1] for pair in found] if has_pairs else None
        found = [pair[0] for pair in found] if has_pairs else found
        for row, text in markers.items():
            if row < len(found):
                found[row] = text
        return found, found_seen

    def value_types(self) -> dict[tuple[str, ...], str]:
        """Returns the types of fields that the schemas of the values so far have, if they are shown plain."""
        is_plain = self._formats.schema_json is SchemaJson.plain
        return self.decoders["value"].types() if is_plain and "value" in self.decoders else {}

    # --- in

    def encoder(self, topic: str | None, value_schema: str | None, key_schema: str | None) -> Callable[[Rows], Rows]:
        """Returns a step that encodes rows of text for the topic, or for None each row for its own. Without named
        schemas, it uses the newest of TOPIC-value and TOPIC-key, if the registry has them. Raises BadLineError for a
        line that does not fit.
        """

        @cache
        def find(topic: str | None) -> dict[str, Encode | None]:
            named = {"value": value_schema, "key": key_schema}
            found = {side: self.find_encoder(side, schema, topic or "") for side, schema in named.items()}
            if self._formats.is_in_header and not any(map(self._by_id, found.values())):
                raise UsageError(
                    f"--schema-id header: the registry has neither {topic}-value nor {topic}-key",
                    hint="--value-schema SCHEMA",
                )
            return found

        if topic is not None:  # a missing schema is reported before anything is read
            find(topic)

        def encode(rows: Rows) -> Rows:
            topics = [topic] * len(rows) if rows.topics is None else rows.topics.tolist()
            for side in ("value", "key"):
                rows = self._encoded(rows, side, [find(one)[side] for one in topics])
            return rows

        return encode

    def _encoded(self, rows: Rows, side: str, encoders: list[Encode | None]) -> Rows:
        """Encodes one side, each row by its encoder; no row has one if the texts are the bytes. The id of a registry's
        schema goes into a header if that is asked for, and if the record has one: it would count before an id in front
        of the bytes.
        """
        texts = rows.values if side == "value" else rows.keys
        if texts is None or not encoders or encoders[0] is None:
            return rows
        is_in_header = self._formats.is_in_header
        sections = [] if self.registry is None or rows.headers is None else rows.headers.to_pylist()
        none = encode_headers(())
        encoded: list[bytes | None] = []
        headers: dict[int, bytes] = {}
        for row, (text, encode) in enumerate(zip(texts.to_pylist(), encoders, strict=True)):
            assert encode is not None
            try:
                undecoded = None if text is None else undecoded_bytes(text)
                if undecoded is not None:
                    encoded.append(undecoded)
                    continue
                found = read_headers(sections[row] or none, 0)[0] if sections else ()
                by_id = self._by_id(encode)
                others = [pair for pair in found if not names_schema(pair[0], side)]
                if text is None or by_id is None or (len(others) == len(found) and not is_in_header):
                    encoded.append(encode(text))
                    continue
                encoded.append(by_id.bare(text) if by_id.headers else encode(text))
                headers[row] = encode_headers([*others, *by_id.headers])
            except SchemaError as error:
                raise BadLineError(int(rows.numbers[row]), error.message) from error
        rows = rows.with_columns(**{f"{side}s": ByteStrings.of_list(encoded)})
        if not headers:
            return rows
        kept = sections or [none] * len(rows)
        return rows.with_columns(
            headers=ByteStrings.of_list([headers.get(row, one or none) for row, one in enumerate(kept)])
        )

    def _by_id(self, encode: Encode | None) -> SchemaEncoder | None:
        if self.registry is None:
            return None
        from core.client.schemas.schema_registry import SchemaEncoder

        return encode if isinstance(encode, SchemaEncoder) else None

    def find_encoder(self, side: str, schema: str | None, topic: str) -> Encode | None:
        """Returns what encodes the texts of one side, or None if the texts are the bytes."""
        format_, registry = self._formats.find(side), self.registry
        if format_ is SideFormat.none:
            return None
        if format_ is not SideFormat.registry or registry is None:
            return side_encoder(self._formats, side, registry)
        if self._formats.is_in_header and not registry.has_headers:
            raise UsageError("--schema-id header: AWS Glue's ids are in front of the bytes")
        return registry.encoder(schema, topic, side) or (lambda text: text)


def _named(error: PlogError, side: str, where: str) -> PlogError:
    """Returns the same error with the record's name, and how to read on; the registry's own error stays."""
    if not isinstance(error, SchemaError):
        return error
    hint = error.hint or (None if is_fatal(error) else MARKS_HINT)
    return SchemaError(f"{where}: {describe(side, error)}", hint=hint, why=error.why, schema_id=error.schema_id)


def _with_sides(columns: RecordColumns, sides: dict[str, list[bytes | None]]) -> RecordColumns:
    for side, texts in sides.items():
        strings = ByteStrings.of_list(texts)
        columns = columns.with_keys(strings) if side == "key" else columns.with_values(strings)
    return columns
