"""Random Avro schemas and data, their bytes, and how they are thought of: written from Avro's specification alone."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTIONS = {"millis": 3, "micros": 6, "nanos": 9}
_TEXTS = ("", "a", "é\u2028\0", "NaN", "A", "2024-08-13", "12.30", "00:00:00.000", "x")
_LONGS = (0, 1, -1, 5, 1 << 31, -(1 << 63), (1 << 63) - 1, 1723542120000, 253402300800000, 86_399_999_999_999)
_INTS = (0, 1, -1, 5, 2932896, 2932897, -719162, -719163, 2147483647, -2147483648, 86400000, 42120000)
_DOUBLES = (0.0, -0.0, 1.0, 5.0, 0.1, -12.5, 1e300, 5e-324, math.nan, math.inf, -math.inf)
_FLOATS = (0.0, -0.0, 1.0, 0.1, 1e38, 1.1754944e-38, 16777217.0, math.nan, math.inf, -math.inf)
_LOGICAL = {
    "int": ("date", "time-millis", "decimal"),
    "long": (
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos", "date",
    ),
    "string": ("uuid", "string"),
    "bytes": ("decimal", "big-decimal", "duration"),
}  # fmt: skip
"""Some are of another type, and mean nothing then."""


class Datum(NamedTuple):
    data: bytes
    plain: Any
    """The JSON value that people think of; numbers of decimals are Decimals."""


class RandomAvro:
    """One schema, and data of it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._named: dict[str, Any] = {}
        self._open: list[str] = []
        self.schema = self._make(0)

    def data(self, count: int) -> Iterator[Datum]:
        for _ in range(count):
            yield self._datum(self.schema, 0)

    # --- schemas

    def _make(self, depth: int, *, in_union: bool = False) -> Any:
        random = self._random
        kinds = ["null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed"]
        if depth < 4:
            kinds += ["record", "record", "array", "map", *([] if in_union else ["union", "union", "union"])]
        if self._named and random.random() < 0.3:
            return random.choice(
                [name for name in self._named if in_union or depth or name not in self._open] or ["int"]
            )
        kind = random.choice(kinds if depth else ["record", "record", "union", "array", *kinds])
        if kind == "union":
            return self._union(depth)
        if kind == "array":
            return {"type": "array", "items": self._make(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self._make(depth + 1)}
        if kind in ("record", "enum", "fixed"):
            return self._make_named(kind, depth)
        if kind in _LOGICAL and random.random() < 0.5:
            logical = random.choice(_LOGICAL[kind])
            more = (
                {"precision": 20, "scale": random.choice((0, 2, 18))}
                if logical == "decimal" and kind == "bytes"
                else {}
            )
            return {"type": kind, "logicalType": logical, **more}
        return random.choice((kind, {"type": kind}))

    def _union(self, depth: int) -> list[Any]:
        branches: dict[Any, Any] = {}
        for _ in range(self._random.randint(1, 4)):
            known = dict(self._named)
            branch = self._make(depth + 1, in_union=True)
            if self._label(branch) in branches:
                self._named = known  # what it defined is not in the schema
            else:
                branches[self._label(branch)] = branch
        return list(branches.values())

    def _label(self, schema: Any) -> str:
        if isinstance(schema, str):
            return schema
        return schema["name"] if "name" in schema else schema["type"]

    def _is_record(self, schema: Any) -> bool:
        return bool(self._named.get(self._label(schema), {}).get("type") == "record")

    def _make_named(self, kind: str, depth: int) -> Any:
        random = self._random
        name = random.choice(("", "n.", "m.o.")) + f"{kind.title()}{len(self._named)}"
        name = f"n.{name}" if "." not in name else name
        if kind == "enum":
            self._named[name] = {"type": "enum", "name": name, "symbols": ["A", "B", "NaN"][: random.randint(1, 3)]}
            return self._named[name]
        if kind == "fixed":
            logical, size = random.choice(
                ((None, 1), (None, 16), ("uuid", 16), ("uuid", 4), ("duration", 12), ("decimal", 5), ("decimal", 1))
            )
            more = {} if logical is None else {"logicalType": logical}
            more |= {"precision": 2 if size == 1 else 11, "scale": 2} if logical == "decimal" else {}
            self._named[name] = {"type": "fixed", "name": name, "size": size, **more}
            return self._named[name]
        record: dict[str, Any] = {"type": "record", "name": name, "fields": []}
        self._named[name] = record
        self._open.append(name)
        for number in range(random.randint(0, 4)):
            field: dict[str, Any] = {"name": "xyzw"[number], "type": self._finite(self._make(depth + 1))}
            if isinstance(field["type"], list) and field["type"][0] == "null" and random.random() < 0.5:
                field["default"] = None
            if field["type"] == "int" and random.random() < 0.5:
                field["default"] = 5
            record["fields"].append(field)
        self._open.pop()
        return record

    def _finite(self, schema: Any) -> Any:
        """A record that holds itself must be able to end."""
        if isinstance(schema, str) and schema in self._open:
            return self._random.choice((["null", schema], {"type": "array", "items": schema}))
        if isinstance(schema, list) and all(self._label(branch) in self._open for branch in schema):
            return ["null", *schema]
        return schema

    # --- data

    def _datum(self, schema: Any, depth: int) -> Datum:
        random = self._random
        if isinstance(schema, list):
            index = random.randrange(len(schema))
            if depth > 6:
                index = next((i for i, one in enumerate(schema) if not self._is_record(one)), index)
            data, plain = self._datum(schema[index], depth + 1)
            return Datum(zigzag(index) + data, plain)
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        type_ = schema if isinstance(schema, str) else schema["type"]
        if type_ == "array":
            parts = [
                self._datum(schema["items"], depth + 1) for _ in range(random.choice((0, 1, 2)) if depth < 6 else 0)
            ]
            return Datum(_blocks([part.data for part in parts]), [part.plain for part in parts])
        if type_ == "map":
            keys = random.sample(["", "x", "string", "é", "int"], random.choice((0, 1, 2)) if depth < 6 else 0)
            items = {key: self._datum(schema["values"], depth + 1) for key in keys}
            written = [sized(key.encode()) + item.data for key, item in items.items()]
            return Datum(_blocks(written), {key: item.plain for key, item in items.items()})
        if type_ == "record":
            fields = {field["name"]: self._datum(field["type"], depth + 1) for field in schema["fields"]}
            return Datum(b"".join(field.data for field in fields.values()), {n: f.plain for n, f in fields.items()})
        return self._leaf(type_, schema if isinstance(schema, dict) else {})

    def _leaf(self, type_: str, schema: dict[str, Any]) -> Datum:
        random, logical = self._random, schema.get("logicalType")
        if type_ == "null":
            return Datum(b"", None)
        if type_ == "boolean":
            value = random.random() < 0.5
            return Datum(bytes([value]), value)
        if type_ in ("int", "long"):
            number = random.choice(_INTS if type_ == "int" else _INTS + _LONGS)
            return Datum(zigzag(number), _time(type_, logical, number))
        if type_ == "double":
            return Datum(struct.pack("<d", double := random.choice(_DOUBLES)), _number(double))
        if type_ == "float":
            return _float(random.choice(_FLOATS))
        if type_ == "enum":
            index = random.randrange(len(schema["symbols"]))
            return Datum(zigzag(index), schema["symbols"][index])
        if type_ == "string":
            text = random.choice(_TEXTS)
            return Datum(sized(text.encode()), text)
        if type_ == "bytes":
            return self._bytes(schema)
        return self._fixed(schema)

    def _bytes(self, schema: dict[str, Any]) -> Datum:
        random, logical = self._random, schema.get("logicalType")
        unscaled = random.choice((0, 1, -1, 1230, -128, 10**19 + 1, -(10**19)))
        data = unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)
        if logical == "decimal":
            return Datum(sized(data), _decimal(unscaled, schema["scale"]))
        if logical == "big-decimal":
            scale = random.choice((0, 2, 30))
            return Datum(sized(sized(data) + zigzag(scale)), _decimal(unscaled, scale))
        raw = random.choice((b"", b"\0\xff", b"x", b"2024-08-13"))
        return Datum(sized(raw), raw.decode("latin-1"))

    def _fixed(self, schema: dict[str, Any]) -> Datum:
        random, logical, size = self._random, schema.get("logicalType"), schema["size"]
        if logical == "decimal":
            unscaled = random.choice((0, 1, -1, 99, -99) if size == 1 else (0, 1230, -128, 10**11 - 1))
            return Datum(unscaled.to_bytes(size, "big", signed=True), _decimal(unscaled, 2))
        raw = random.choice((random.randbytes(size), bytes(size), b"P0M0DT0.000S"[:size].ljust(size, b"x")))
        if (logical, size) == ("uuid", 16):
            return Datum(raw, str(uuid.UUID(bytes=raw)))
        if (logical, size) == ("duration", 12):
            months, days, millis = struct.unpack("<3I", raw)
            return Datum(raw, f"P{months}M{days}DT{Decimal(millis).scaleb(-3):.3f}S")
        return Datum(raw, raw.decode("latin-1"))


def zigzag(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _blocks(items: list[bytes]) -> bytes:
    return (zigzag(len(items)) + b"".join(items) if items else b"") + b"\0"


def _decimal(unscaled: int, scale: int) -> Any:
    sign, digits = "-" * (unscaled < 0), str(abs(unscaled)).rjust(scale + 1, "0")
    return Decimal(f"{sign}{digits[:-scale]}.{digits[-scale:]}") if scale else unscaled


def _number(number: float) -> Any:
    if math.isfinite(number):
        return Decimal(repr(number))
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _float(number: float) -> Datum:
    import numpy as np

    data = struct.pack("<f", number)
    single = np.frombuffer(data, "<f4")[0]
    return Datum(data, Decimal(repr(float(str(single)))) if math.isfinite(single) else _number(float(single)))


def _time(type_: str, logical: str | None, number: int) -> Any:
    """By Python's own dates; what it has no date for stays a number."""
    kind, _, unit = (logical or "").rpartition("-")
    digits = _FRACTIONS.get(unit, 0)
    try:
        if (type_, logical) == ("int", "date"):
            return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        seconds, fraction = divmod(number, 10**digits)
        if kind == "time" and (type_, unit) in (("int", "millis"), ("long", "micros")) and 0 <= seconds < 86400:
            at = time(seconds // 3600, seconds // 60 % 60, seconds % 60)
            return f"{at.isoformat()}.{fraction:0{digits}}"
        if kind in ("timestamp", "local-timestamp") and type_ == "long":
            when = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
            return f"{when}.{fraction:0{digits}}{'Z' * (kind == 'timestamp')}"
    except (OverflowError, ValueError):
        pass
    return number
