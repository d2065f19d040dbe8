"""Writes messages as JSON, with Kafka's own field names, as Kafka's tools do (the generated ...JsonConverter)."""

from __future__ import annotations

import base64
import re
from typing import Any

from core.common.topic_partition import uuid_text
from core.protocol.message import Field, schema_of


def message_to_json(message: Any, version: int) -> dict[str, Any]:  # any declared message or struct
    """Returns the fields that the version has, in wire order; tagged fields only if they differ from their default. Of
    record batches only the size is shown.
    """
    schema = schema_of(type(message))
    fields = {}
    for field in schema.fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        default = field.default() if isinstance(field.default, type) else field.default
        if version in field.tagged and value == default:
            continue
        if field.kind == "records":
            fields[f"{_camel_case(field.name)}SizeInBytes"] = len(value or b"")
        else:
            fields[_camel_case(field.name)] = _value_to_json(value, field, version)
    return fields


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def _value_to_json(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "struct":
        return message_to_json(value, version)
    if field.kind == "array":
        if isinstance(field.element, type):
            return [message_to_json(element, version) for element in value]
        return [uuid_text(element) if field.element == "uuid" else element for element in value]
    if field.kind == "uuid":
        return uuid_text(value)
    if field.kind == "bytes":
        return base64.b64encode(value).decode("ascii")
    return value
