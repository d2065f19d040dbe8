"""Decodes keys and values in the user's formats: by a Schema Registry, or as one of Kafka's serializers wrote them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from core.client.schemas.undecoded import SchemaError
from core.common.errors import UsageError
from core.records.serdes import SERDES
from core.records.side_format import SideFormat, SideFormats

if TYPE_CHECKING:
    from core.client.schemas.schema_registry import SchemaRegistry
    from core.security.client_settings import ClientSettings

Decode = Callable[[bytes | None], bytes | None]
"""Raises SchemaError for bytes that don't fit, and what `SchemaRegistry` raises; null stays null."""


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
        return lambda data: data
    if format_ is SideFormat.registry:
        assert registry is not None  # `open_registry` opens it
        return partial(registry.decode, is_key=True) if is_key else registry.decode
    serde = SERDES[format_]

    def decode(data: bytes | None) -> bytes | None:
        try:
            return None if data is None else serde.decode(data)
        except ValueError as error:
            raise SchemaError(f"no {format_}: {error}", why=f"no {format_}") from error

    return decode


def side_encoder(format_: SideFormat) -> Decode:
    """Returns the encoder of text, for a format that needs no registry."""
    serde = SERDES[format_]

    def encode(text: bytes | None) -> bytes | None:
        try:
            return None if text is None else serde.encode(text)
        except ValueError as error:
            raise SchemaError(f"no {format_}: {error}") from error

    return encode
