"""Decodes keys and values in the user's formats: by a Schema Registry, or as one of Kafka's serializers wrote them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.client.schemas.undecoded import SchemaError
from core.common.errors import UsageError
from core.records.record import Headers
from core.records.serdes import SERDES
from core.records.side_format import SideFormat, SideFormats

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaRegistry
    from core.security.client_settings import ClientSettings

Decode = Callable[[bytes | None, Headers], bytes | None]
"""Takes a key or value, and the headers of its record, which may name its schema. Raises SchemaError for bytes that
don't fit, and what `SchemaRegistry` raises; null stays null.
"""

Encode = Callable[[bytes | None], bytes | None]


def open_registry(formats: SideFormats, settings: ClientSettings | None = None) -> SchemaRegistry | None:
    """Opens the registry, or returns None if no side needs one. Raises UsageError without a URL."""
    if SideFormat.registry not in (formats.find("key"), formats.find("value")):
        return None
    if formats.url is None:
        raise UsageError("the format registry goes with --schema-registry URL")
    from core.client.schemas.schema_registry import SchemaRegistry

    return SchemaRegistry(formats.url, settings.registry if settings is not None else None)


def side_decoder(format_: SideFormat, registry: SchemaRegistry | None, *, is_key: bool) -> Decode:
    """Returns the decoder of one side."""
    if format_ is SideFormat.none:
        return lambda data, _: data
    if format_ is SideFormat.registry:
        assert registry is not None  # `open_registry` opens it
        return lambda data, headers: registry.decode(data, is_key=is_key, headers=headers)
    serde = SERDES[format_]

    def decode(data: bytes | None, _: Headers) -> bytes | None:
        try:
            return None if data is None else serde.decode(data)
        except ValueError as error:
            raise SchemaError(f"no {format_}: {error}", why=f"no {format_}") from error

    return decode


def side_encoder(format_: SideFormat) -> Encode:
    """Returns the encoder of text, for a format that needs no registry."""
    serde = SERDES[format_]

    def encode(text: bytes | None) -> bytes | None:
        try:
            return None if text is None else serde.encode(text)
        except ValueError as error:
            raise SchemaError(f"no {format_}: {error}") from error

    return encode
