"""Decodes keys and values in the user's formats: by a Schema Registry, or as one of Kafka's serializers wrote them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from core.client.schemas.undecoded import converted
from core.common.errors import UsageError
from core.records.record import Headers
from core.records.serdes import SERDES
from core.records.side_format import SideFormat, SideFormats

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import Packed, SchemaRegistry
    from core.security.client_settings import ClientSettings


class SideDecoder(NamedTuple):
    """Decodes the keys or values of one format."""

    decode: Callable[[bytes | None, Headers], bytes | None]
    """Takes a key or value, and the headers of its record, which may name its schema. Raises SchemaError for bytes that
    don't fit, and what `SchemaRegistry` raises; null stays null.
    """

    decode_typed: Callable[[bytes | None, Headers], tuple[bytes | None, bytes | None]] | None = None
    """Returns the same, and the text for filters; None if there is never a difference."""

    has_typed: Callable[[], bool] = lambda: True
    """Says whether there was a difference, or could be one."""

    types: Callable[[], dict[tuple[str, ...], str]] = dict
    """Returns the types of the fields, as far as schemas say so (field_types.py)."""


Encode = Callable[[bytes | None], bytes | None]


def open_registry(formats: SideFormats, settings: ClientSettings | None = None) -> SchemaRegistry | None:
    """Opens the registry, or returns None if no side needs one. Raises UsageError without a URL."""
    elsewhere = {}
    if formats.references:
        from core.client.schemas.schema_files import find_elsewhere

        elsewhere = find_elsewhere(formats)
    if not (formats.needs_registry("key") or formats.needs_registry("value")):
        return None
    if formats.url is None:
        raise UsageError("the format registry goes with --schema-registry URL")
    from core.client.schemas.schema_registry import SchemaRegistry

    own = settings.registry if settings is not None else None
    return SchemaRegistry(
        formats.url,
        own,
        formats.context,
        form=formats.schema_json,
        elsewhere=elsewhere,
        is_dry_run=formats.is_dry_run,
    )


def side_decoder(
    formats: SideFormats, side: str, registry: SchemaRegistry | None, packed: Packed | None = None
) -> SideDecoder:
    """Returns the decoder of `key` or `value`; `packed` is its named schema, if that is at hand. Raises UsageError for
    a named schema that can't be used.
    """
    format_, is_key = formats.find(side), side == "key"
    if format_ is SideFormat.none:
        return SideDecoder(lambda data, _: data)
    if format_ is SideFormat.registry and not formats.is_of_one_schema(side):
        assert registry is not None  # `open_registry` opens it
        return SideDecoder(
            lambda data, headers: registry.decode(data, is_key=is_key, headers=headers),
            lambda data, headers: registry.decode_typed(data, is_key=is_key, headers=headers),
            lambda: registry.has_typed,
            registry.value_types,
        )
    what, found = f"no {format_}", _text_format(formats, side, registry, packed)
    decode, typed = found.decode, found.decode_typed
    return SideDecoder(
        lambda data, _: None if data is None else converted(decode, data, what, why=what),
        None
        if typed is None
        else lambda data, _: (None, None) if data is None else converted(typed, data, what, why=what),
        types=found.types,
    )


def side_encoder(formats: SideFormats, side: str, registry: SchemaRegistry | None) -> Encode:
    """Returns the encoder of text, for a format that writes no id of a schema."""
    is_of_schema = formats.is_of_one_schema(side)
    what = f"not of {formats.schema(side)}" if is_of_schema else f"no {formats.find(side)}"
    encode = _text_format(formats, side, registry).encode
    return lambda text: None if text is None else converted(encode, text, what)


class _TextFormat(NamedTuple):
    """Bytes as text, and back. Its functions raise ValueError, or SchemaError."""

    decode: Callable[[bytes], bytes]
    encode: Callable[[bytes], bytes]
    decode_typed: Callable[[bytes], tuple[bytes, bytes]] | None = None
    types: Callable[[], dict[tuple[str, ...], str]] = dict


def _text_format(
    formats: SideFormats, side: str, registry: SchemaRegistry | None, packed: Packed | None = None
) -> _TextFormat:
    format_, form = formats.find(side), formats.schema_json
    if formats.is_of_one_schema(side):
        from core.client.schemas.named_schema import open_named_schema

        named = open_named_schema(formats, side, registry, packed)
        return _TextFormat(named.decode, named.encode, named.decode_typed, named.types)
    if format_ in (SideFormat.msgpack, SideFormat.cbor):
        from core.client.schemas.binary_json import BinaryJson

        binary = BinaryJson(format_)
        decode, encode = partial(binary.decode, form=form), partial(binary.encode, form=form)
        return _TextFormat(decode, encode, binary.decode_typed if form is None else None)
    serde = SERDES[format_]
    return _TextFormat(serde.decode, serde.encode)
