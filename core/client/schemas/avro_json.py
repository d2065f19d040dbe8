"""Avro's data as JSON, both ways.

Output is Avro's own JSON encoding: a union's value names its branch (`{"int": 5}`, but null is null), bytes are text
whose characters are the bytes. One thing differs: a decimal is a number with all digits of its scale, 12.30, where Avro
has the bytes of 1230. NaN, Infinity and -Infinity are texts, as Java writes them (AVRO-2032). Other logical types are
the numbers and texts that they are made of.

Input is the same encoding, or plain JSON: a union's value may go without its branch if only one fits (of those that fit
equally well, named types must be named), fields that have a default or may be null may be missing, a decimal may be a
number or a text of one. Nothing is dropped or made to fit: a field that the schema does not have, too many digits, a
number that is too large for its type are errors, which name the place.

fastavro reads and writes the bytes, with a schema of the same layout (`AvroJson._wire`): without logical types, and
where a union's branch can't be told by the Python value, as a record of one field, which fastavro names.
"""

from __future__ import annotations

import io
import json
import math
import re
import uuid
from collections.abc import Callable
from decimal import MAX_PREC, Context, Decimal
from typing import Any, NamedTuple

from core.common.lenient_json import describe_error, read_json

_Show = Callable[[Any], Any]
_Read = Callable[[Any], Any]
"""Converts a JSON value to the one that fastavro writes. Raises _MisfitError."""

_EXACT = Context(prec=MAX_PREC)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LARGEST_FLOAT = 3.4028234663852886e38
_BITS = {"int": 31, "long": 63}
_write = json.JSONEncoder(allow_nan=False).encode
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON_TYPES = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float,
    "string": str, "bytes": bytes, "array": list, "map": dict,
}  # fmt: skip
_PRIMITIVES = frozenset(_PYTHON_TYPES) - {"array", "map"} | {"null"}
_TWINS = (("int", "long"), ("float", "double"))
_RANKS = {
    bool: ("boolean",),
    int: ("int", "long", "decimal", "double", "float"),
    Decimal: ("decimal", "double", "float"),
    float: ("double", "float"),
    str: ("string", "enum", "decimal", "fixed", "bytes", "double", "float"),
    list: ("array",),
    dict: ("record", "map"),
}
"""The types in a union that a plain JSON value may have, the best fit first."""


class CutOffError(ValueError):
    """Bytes end before their datum does."""


class _MisfitError(ValueError):
    """A JSON value does not fit; `place` is its path, as in `.legs[0].to`."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(f"{place.lstrip('.')}: {problem}" if place else problem)
        self.problem = problem
        self.place = place

    def inside(self, place: str) -> _MisfitError:
        return _MisfitError(self.problem, place + self.place)


class _Type(NamedTuple):
    """One type of a schema: its label and rank in a union, and how its values are shown and read. `show` is None if a
    value is shown as it is.
    """

    label: str
    kind: str
    show: _Show | None
    read: _Read


class AvroJson:
    """Immutable once made."""

    def __init__(self, schema: Any, named: dict[str, Any], *, has_bare_bytes: bool = False) -> None:
        """`named` are the named types that the schema refers to; its own are added. `has_bare_bytes`: a datum of the
        type bytes is the bytes alone, without Avro's length before them. Raises ValueError for an invalid schema.
        """
        import fastavro

        try:
            parsed = fastavro.parse_schema(schema, named_schemas=named)
        except (fastavro.schema.SchemaParseException, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        except fastavro.schema.UnknownType as error:
            raise ValueError(f"there is no type {error}") from error
        self._named = named
        self._types: dict[str, _Type] = {}
        self._wrapped = 0
        self._mark = f"{uuid.uuid4().hex} "
        self._has_decimals = False
        wire, self._type = self._compile(parsed)
        self._wire = fastavro.parse_schema(wire)
        self._fastavro = fastavro
        self._is_bare = has_bare_bytes and self._wire == "bytes"
        self._marked = re.compile(f'"{self._mark}([^"]+)"')

    def decode(self, data: bytes) -> bytes:
        """Returns the JSON of a datum. Raises CutOffError, and ValueError for bytes that don't fit the schema."""
        datum = data if self._is_bare else self._read(data)
        shown = datum if self._type.show is None else self._type.show(datum)
        try:
            text = _write(shown)
        except ValueError:  # a float that JSON has no number for
            text = _write(_with_names(shown))
        return (self._marked.sub(r"\1", text) if self._has_decimals else text).encode()

    def _read(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        try:
            datum = self._fastavro.schemaless_reader(stream, self._wire, None, return_named_type=True)
        except EOFError as error:
            raise CutOffError("the datum ends too early") from error
        except (IndexError, OverflowError, StopIteration) as error:
            if stream.tell() == len(data) and not str(error).startswith("list"):  # a list is that of a union's branches
                raise CutOffError("the datum ends too early") from error
            raise ValueError(f"at byte {stream.tell()}: {error}") from error
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the datum")
        return datum

    def encode(self, text: bytes) -> bytes:
        """Returns the datum of a JSON text. Raises ValueError."""
        try:
            value = read_json(text, is_exact=True)
        except ValueError as error:
            raise ValueError(f"not JSON: {describe_error(error)}") from error
        datum = self._type.read(value)
        if self._is_bare:
            return bytes(datum)
        out = io.BytesIO()
        self._fastavro.schemaless_writer(out, self._wire, datum)
        return out.getvalue()

    # --- types

    def _compile(self, schema: Any) -> tuple[Any, _Type]:
        """Returns the schema for fastavro, and the type that shows and reads its values."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema, self._primitive(schema)
            if schema in self._types:
                return schema, self._types[schema]
            return self._compile(self._named[schema])
        type_ = schema["type"]
        if type_ in ("record", "error", "enum", "fixed"):
            return self._named_type(schema, "record" if type_ == "error" else type_)
        if type_ == "array":
            wire, items = self._compile(schema["items"])
            return {"type": "array", "items": wire}, _Type("array", "array", _each(items.show), _array(items))
        if type_ == "map":
            wire, values = self._compile(schema["values"])
            return {"type": "map", "values": wire}, _Type("map", "map", _each_value(values.show), _map(values))
        if schema.get("logicalType") == "decimal" and type_ == "bytes":
            return "bytes", self._decimal("bytes", schema, None)
        return self._compile(type_)

    def _primitive(self, name: str) -> _Type:
        show = _text_of_bytes if name == "bytes" else None
        return _Type(name, name, show, _READS[name])

    def _named_type(self, schema: Any, kind: str) -> tuple[Any, _Type]:
        name = schema["name"]
        if name in self._types:
            return name, self._types[name]
        if kind == "enum":
            symbols = list(schema["symbols"])
            self._types[name] = _Type(name, "enum", None, lambda value: _one_of(value, symbols))
            return {"type": "enum", "name": name, "symbols": symbols}, self._types[name]
        if kind == "fixed":
            size = int(schema["size"])
            if schema.get("logicalType") == "decimal":
                self._types[name] = self._decimal(name, schema, size)
            else:
                self._types[name] = _Type(name, "fixed", _text_of_bytes, lambda value: _bytes(value, size))
            return {"type": "fixed", "name": name, "size": size}, self._types[name]
        return self._record(schema, name)

    def _record(self, schema: Any, name: str) -> tuple[Any, _Type]:
        fields: dict[str, _Field] = {}
        shown: list[tuple[str, _Show]] = []

        def show(datum: Any) -> Any:
            for field, show_field in shown:
                datum[field] = show_field(datum[field])
            return datum

        def read(value: Any) -> Any:
            return _read_record(value, name, fields)

        # a field may be of this very type: `show` is known when all fields are
        self._types[name] = _Type(name, "record", show, read)
        wires = []
        for field in schema["fields"]:
            wire, type_ = self._compile(field["type"])
            wires.append({"name": field["name"], "type": wire})
            fields[field["name"]] = _Field(type_, field["type"], field.get("default", _NONE))
            if type_.show is not None:
                shown.append((field["name"], type_.show))
        if not shown:
            self._types[name] = _Type(name, "record", None, read)
        return {"type": "record", "name": name, "fields": wires}, self._types[name]

    def _decimal(self, label: str, schema: Any, size: int | None) -> _Type:
        self._has_decimals = True
        scale, precision = int(schema.get("scale", 0)), int(schema.get("precision", MAX_PREC))

        def show(datum: bytes) -> str:
            unscaled = Decimal(int.from_bytes(datum, "big", signed=True))
            return f"{self._mark}{unscaled.scaleb(-scale, _EXACT):f}"

        return _Type(label, "decimal", show, lambda value: _unscaled(value, scale, precision, size))

    def _union(self, schema: list[Any]) -> tuple[Any, _Type]:
        wires, branches = [], []
        for branch in schema:
            wire, type_ = self._compile(branch)
            twin = next((one for one, other in _TWINS if type_.label == other), None)
            if twin is not None and any(_is_primitive(other, twin) for other in schema):
                self._wrapped += 1
                wrapped = f"plog.wrapped{self._wrapped}"
                wire = {"type": "record", "name": wrapped, "fields": [{"name": "v", "type": wire}]}
                branches.append(_Branch(type_, wrapped, is_wrapped=True))
            else:
                branches.append(_Branch(type_, type_.label, is_wrapped=False))
            wires.append(wire)
        return wires, _union_type(branches)


class _Branch(NamedTuple):
    type: _Type
    wire_name: str
    is_wrapped: bool

    def read(self, value: Any) -> tuple[str, Any]:
        datum = self.type.read(value)
        return self.wire_name, {"v": datum} if self.is_wrapped else datum


class _Field(NamedTuple):
    type: _Type
    schema: Any
    default: Any


_NONE = object()


def _is_primitive(schema: Any, name: str) -> bool:
    while isinstance(schema, dict):
        schema = schema["type"]
    return bool(schema == name)


def _union_type(branches: list[_Branch]) -> _Type:
    by_wire_name = {branch.wire_name: branch for branch in branches}
    by_python_type = {
        _PYTHON_TYPES[branch.type.label]: branch.type
        for branch in branches
        if branch.type.label in _PYTHON_TYPES and not branch.is_wrapped
    }
    labels = {branch.type.label: branch for branch in branches}
    for branch in branches:
        labels.setdefault(branch.type.label.rpartition(".")[2], branch)

    def show(datum: Any) -> Any:
        if datum is None:
            return None
        if type(datum) is tuple:
            name, datum = datum
            branch = by_wire_name[name]
            datum, type_ = datum["v"] if branch.is_wrapped else datum, branch.type
        else:
            type_ = by_python_type[type(datum)]
        return {type_.label: datum if type_.show is None else type_.show(datum)}

    def read(value: Any) -> Any:
        if value is None and "null" in labels:
            return None
        misfit = None
        if isinstance(value, dict) and len(value) == 1:
            ((label, inner),) = value.items()
            if label in labels and label != "null":
                try:
                    return labels[label].read(inner)
                except _MisfitError as error:
                    misfit = error.inside(f".{label}")
        return _read_plain(value, branches, misfit)

    return _Type("union", "union", show, read)


def _read_plain(value: Any, branches: list[_Branch], misfit: _MisfitError | None) -> Any:
    """Reads a value that does not name its branch: by the first kind that fits."""
    for kind in _RANKS.get(type(value), ()):
        fitting = []
        for branch in branches:
            if branch.type.kind == kind:
                try:
                    fitting.append((branch.type.label, branch.read(value)))
                except _MisfitError as error:
                    misfit = misfit or error
        if len(fitting) > 1:
            names = " and ".join(label for label, _ in fitting)
            raise _MisfitError(f'it fits {names}: say which, as in {{"{fitting[0][0]}": ...}}')
        if fitting:
            return fitting[0][1]
    expected = ", ".join(branch.type.label for branch in branches)
    raise misfit or _misfit(value, f"one of {expected}")


def _with_names(value: Any) -> Any:
    """Returns a JSON value with the names of the floats that are no numbers, as Protobuf's JSON mapping has them."""
    if isinstance(value, dict):
        return {name: _with_names(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_names(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _each(show: _Show | None) -> _Show | None:
    return None if show is None else lambda datum: [show(item) for item in datum]


def _each_value(show: _Show | None) -> _Show | None:
    return None if show is None else lambda datum: {name: show(item) for name, item in datum.items()}


# --- input


def _misfit(value: Any, expected: str) -> _MisfitError:
    try:
        shown = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    except (ValueError, RecursionError):
        shown = "a long value"
    return _MisfitError(f"{shown if len(shown) <= 60 else f'{shown[:57]}...'}, expected {expected}")


def _exactly(value: Any, wanted: type, expected: str) -> Any:
    if type(value) is not wanted:
        raise _misfit(value, expected)
    return value


def _whole(value: Any, name: str) -> int:
    number: int = _exactly(value, int, name)
    if not -(1 << _BITS[name]) <= number < 1 << _BITS[name]:
        raise _MisfitError(f"{number} is too large for {name}")
    return number


def _floating(value: Any, name: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in (int, float, Decimal):
        raise _misfit(value, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    is_given = isinstance(value, float) and not math.isfinite(value)
    if not is_given and (math.isinf(number) or (name == "float" and abs(number) > _LARGEST_FLOAT)):
        raise _MisfitError(f"{str(value)[:60]} is too large for {name}")
    return number


def _text(value: Any) -> str:
    text: str = _exactly(value, str, "string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _misfit(value, "a text of Unicode: a surrogate stands alone in it") from None
    return text


def _one_of(value: Any, symbols: list[str]) -> str:
    if value not in symbols or not isinstance(value, str):
        raise _misfit(value, f"one of {', '.join(symbols)}")
    return value


def _bytes(value: Any, size: int | None = None) -> bytes:
    text: str = _exactly(value, str, "a text whose characters are bytes")
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        raise _misfit(value, "a text whose characters are bytes, up to U+00FF") from None
    if size is not None and len(data) != size:
        raise _MisfitError(f"{len(data)} bytes, expected {size}")
    return data


def _text_of_bytes(data: bytes) -> str:
    return data.decode("latin-1")


def _unscaled(value: Any, scale: int, precision: int, size: int | None) -> bytes:
    if type(value) not in (int, Decimal) and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise _misfit(value, "a decimal, as a number or the text of one")
    number = Decimal(value)
    if number and number.adjusted() + scale >= precision:
        raise _MisfitError(f"{str(value)[:60]} has more than the {precision} digits of the decimal")
    scaled = number.scaleb(scale, _EXACT)
    if scaled != scaled.to_integral_value():
        raise _MisfitError(f"{str(value)[:60]} has more than the {scale} digits that the decimal has after its point")
    whole = int(scaled)
    length = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
    if size is not None and length > size:
        raise _MisfitError(f"{str(value)[:60]} does not fit into {size} bytes")
    return whole.to_bytes(length if size is None else size, "big", signed=True)


def _array(items: _Type) -> _Read:
    def read(value: Any) -> Any:
        found = []
        for number, item in enumerate(_exactly(value, list, "an array")):
            try:
                found.append(items.read(item))
            except _MisfitError as error:
                raise error.inside(f"[{number}]") from None
        return found

    return read


def _map(values: _Type) -> _Read:
    def read(value: Any) -> Any:
        found = {}
        for name, item in _exactly(value, dict, "a map").items():
            try:
                found[_text(name)] = values.read(item)
            except _MisfitError as error:
                raise error.inside(f".{name}") from None
        return found

    return read


def _read_record(value: Any, name: str, fields: dict[str, _Field]) -> dict[str, Any]:
    unknown = _exactly(value, dict, f"a record {name}").keys() - fields.keys()
    if unknown:
        raise _MisfitError(f"{name} has no field {min(unknown)!r}: it has {', '.join(fields)}")
    found = {}
    for field_name, field in fields.items():
        try:
            if field_name in value:
                found[field_name] = field.type.read(value[field_name])
            else:
                found[field_name] = _default(field)
        except _MisfitError as error:
            raise error.inside(f".{field_name}") from None
    return found


def _default(field: _Field) -> Any:
    """Returns the value of a missing field. A union's default is of its first branch; bytes of decimals are text."""
    if field.default is _NONE:
        if isinstance(field.schema, list) and "null" in field.schema:
            return None
        raise _MisfitError("it is missing, and has no default")
    try:
        return field.type.read(field.default)
    except _MisfitError:
        if isinstance(field.default, str):
            return _bytes(field.default)
        raise


_READS: dict[str, _Read] = {
    "null": lambda value: _exactly(value, type(None), "null"),
    "boolean": lambda value: _exactly(value, bool, "true or false"),
    "int": lambda value: _whole(value, "int"),
    "long": lambda value: _whole(value, "long"),
    "float": lambda value: _floating(value, "float"),
    "double": lambda value: _floating(value, "double"),
    "string": _text,
    "bytes": _bytes,
}
