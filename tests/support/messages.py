"""Random instances of declared messages: every field of a version filled, nulls and empty arrays among them."""

from __future__ import annotations

import random
from typing import Any

from core.protocol.message import Field, schema_of

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def random_message(cls: type, version: int, rnd: random.Random) -> Any:
    """Fields that the version does not have keep their defaults."""
    fields = {
        field.name: _random_value(field, version, rnd) for field in schema_of(cls).fields if version in field.versions
    }
    return cls(**fields)


def _random_value(field: Field, version: int, rnd: random.Random) -> Any:
    if version in field.nullable and rnd.random() < 0.25:
        return None
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return random_message(field.element, version, rnd)
    if field.kind == "array":
        count = rnd.choice((0, 1, 2, 5))
        if isinstance(field.element, type):
            return [random_message(field.element, version, rnd) for _ in range(count)]
        return [_random_primitive(str(field.element), rnd) for _ in range(count)]
    return _random_primitive(field.kind, rnd)


def _random_primitive(kind: str, rnd: random.Random) -> Any:
    if kind in _BITS:
        bits = _BITS[kind]
        return rnd.choice((0, 1, -1, rnd.randrange(-(1 << bits - 1), 1 << bits - 1)))
    if kind == "uint16":
        return rnd.randrange(1 << 16)
    if kind == "bool":
        return rnd.random() < 0.5
    if kind == "uuid":
        return rnd.randbytes(16)
    if kind == "float64":
        return rnd.random()
    if kind == "string":
        return rnd.choice(("", "a", "naïve", "日本語" * rnd.randrange(1, 60)))
    assert kind in ("bytes", "records")
    return rnd.randbytes(rnd.choice((0, 1, 200)))
