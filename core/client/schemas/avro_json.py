"""Avro's data as JSON, both ways, in two forms.

Tagged is Avro's own JSON encoding, and exact: a union's value names its branch (`{"int": 5}`, but null is null), bytes
are text whose characters are the bytes, and logical types are the numbers and texts that they are made of. One thing
differs: a decimal is a number with all digits of its scale, 12.30, where Avro has the bytes of 1230. (Bytes that are
longer than their number needs stay text.)

Plain is for people and filters: a union's value stands alone, dates and times are ISO 8601's with the digits of their
unit, a UUID has 36 characters, a duration is P1M2DT86400.007S (months, days, milliseconds, as they are stored), a float
has the fewest digits that make the same float. Times without such a text (beyond the year 9999, or 24:00 and later) are
numbers. In both forms NaN, Infinity and -Infinity are texts, as Java writes them (AVRO-2032).

Input of no named form may have tags or none. A value without a tag fits a branch exactly if the branch would show it
so, digit by digit. It is of the one branch that it fits exactly, else of the one that it fits at all; a value that
fits two is refused. So what was shown is never read as another value. Fields that have a default or may be null may be
missing. Nothing is dropped or made to fit: a field that the schema does not have, too many digits, a number that is too
large for its type are errors, which name the place.

fastavro reads and writes the bytes, with a schema of the same layout (`AvroJson._wire`): without logical types, and
where a union's branch can't be told by the Python value, as a record of one field, which fastavro names. A datum of
thousands of levels overflows its stack, which ends the process, and items of an array that take no bytes fill the
memory: data of schemas that allow either are looked through before (`_Limits`).
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import struct
import uuid
from collections.abc import Callable
from datetime import date
from decimal import MAX_PREC, Context, Decimal
from functools import partial
from typing import Any, NamedTuple

from core.client.schemas.field_types import Types, avro_types
from core.common.lenient_json import describe_error, read_json
from core.common.varint import read_varint, read_varlong, varint
from core.records.side_format import SchemaJson

_Show = Callable[[Any], Any]
_Read = Callable[[Any, "_Reading"], Any]
"""Converts a JSON value to the one that fastavro writes, and says in `_Reading` how well it fits. Raises _MisfitError.
"""

_EXACT = Context(prec=MAX_PREC)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LARGEST_FLOAT = 3.4028234663852886e38
_BITS = {"int": 31, "long": 63}
_write = json.JSONEncoder(allow_nan=False).encode
_write_plain = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON_TYPES = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float,
    "string": str, "bytes": bytes, "array": list, "map": dict,
}  # fmt: skip
_PRIMITIVES = frozenset(_PYTHON_TYPES) - {"array", "map"} | {"null"}
_TWINS = (("int", "long"), ("float", "double"))
_KINDS = {
    bool: ("boolean",),
    int: ("int", "long", "time", "decimal", "double", "float"),
    Decimal: ("decimal", "double", "float"),
    float: ("double", "float"),
    str: ("string", "enum", "decimal", "fixed", "bytes", "double", "float", "time"),
    list: ("array",),
    dict: ("record", "map"),
}
"""The kinds of types in a union that a JSON value without a tag may have."""
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86400
_DIGITS = {"millis": 3, "micros": 6, "nanos": 9}
_CLOCK = r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,9}))?"
_TIME = re.compile(_CLOCK)
_TIMESTAMP = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})T{_CLOCK}(Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?")
_DURATION = re.compile(r"P([0-9]{1,10})M([0-9]{1,10})DT([0-9]{1,7})\.([0-9]{3})S")
_DURATION_PARTS = struct.Struct("<III")
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FLOAT = struct.Struct("<f")
_MOST_LEVELS = 2500
"""The most levels of a datum, of whose stack fastavro takes 1 KB for each; JSON is written of fewer."""
_MOST_EMPTY = 100_000
"""The most items of a datum's arrays that take no bytes."""
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


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
    """One type of a schema: its label in a union, the kind of its JSON, and how its values are shown, tagged and plain,
    and read. `show` and `plain` are None if a value is shown as it is.
    """

    label: str
    kind: str
    show: _Show | None
    plain: _Show | None
    read: _Read


class _Reading:
    def __init__(self, form: SchemaJson | None, *, is_default: bool = False) -> None:
        """`form` is None for input that may have tags or none. `is_default`: a default of the schema, whose unions are
        of the first branch that fits.
        """
        self.form = form
        self.is_default = is_default
        self.is_tried = False
        """Whether a branch of a union is tried, and `is_loose` is asked for."""
        self.is_loose = False
        """Whether something that was read would be shown otherwise."""
        self.doubt: _MisfitError | None = None
        """The first place at which two readings fit equally well."""
        self.known: dict[tuple[int, int], tuple[Any, _MisfitError | None, bool, _MisfitError | None]] = {}
        """What a union makes of a part: unions in one another meet the same part again and again."""

    def inside(self, place: str, read: _Read, value: Any) -> Any:
        earlier = self.doubt
        try:
            found = read(value, self)
        except _MisfitError as error:
            raise error.inside(place) from None
        if self.doubt is not earlier:
            self.doubt = _first_doubt(earlier, self, place)
        return found


def _first_doubt(earlier: _MisfitError | None, reading: _Reading, place: str) -> _MisfitError:
    assert reading.doubt is not None
    return earlier or reading.doubt.inside(place)


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
        self._schema = parsed
        self._named = named
        self._types: dict[str, _Type] = {}
        self._wrapped = 0
        self._mark = f"{uuid.uuid4().hex} "
        self._has_decimals = False
        wire, self._type = self._compile(parsed)
        self._wire = fastavro.parse_schema(wire)
        self._limits = _Limits(wire)
        self._fastavro = fastavro
        self._is_bare = has_bare_bytes and self._wire == "bytes"
        self._marked = re.compile(f'"{self._mark}([^"]+)"')

    def decode(self, data: bytes, form: SchemaJson = SchemaJson.tagged) -> bytes:
        """Returns the JSON of a datum. Raises CutOffError, and ValueError for bytes that don't fit the schema."""
        return self._shown(data if self._is_bare else self._read(data), form)

    def _shown(self, datum: Any, form: SchemaJson) -> bytes:
        is_plain = form is SchemaJson.plain
        show, write = (self._type.plain, _write_plain) if is_plain else (self._type.show, _write)
        shown = datum if show is None else show(datum)
        try:
            text = write(shown)
        except ValueError:  # a float that JSON has no number for
            text = write(_with_names(shown))
        return (self._marked.sub(r"\1", text) if self._has_decimals else text).encode()

    def decode_typed(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns both forms of its JSON, tagged and plain."""
        datum = data if self._is_bare else self._read(data)
        return self._shown(datum, SchemaJson.tagged), self._shown(datum, SchemaJson.plain)

    def types(self) -> Types:
        """Returns the types of its fields in plain JSON."""
        return avro_types(self._schema, self._named)

    def _read(self, data: bytes) -> Any:
        stream = io.BytesIO(data)
        self._limits.check(data)
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

    def encode(self, text: bytes, form: SchemaJson | None = None) -> bytes:
        """Returns the datum of a JSON text of this form; None takes both. Raises ValueError."""
        try:
            value = read_json(text, is_exact=True)
        except ValueError as error:
            raise ValueError(f"not JSON: {describe_error(error)}") from error
        reading = _Reading(form)
        datum = self._type.read(value, reading)
        if reading.doubt is not None:
            raise reading.doubt
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
            return {"type": "array", "items": wire}, _Type(
                "array", "array", _each(items.show), _each(items.plain), _array(items)
            )
        if type_ == "map":
            wire, values = self._compile(schema["values"])
            return {"type": "map", "values": wire}, _Type(
                "map", "map", _each_value(values.show), _each_value(values.plain), _map(values)
            )
        logical = schema.get("logicalType")
        if type_ == "bytes" and logical in ("decimal", "big-decimal"):
            return "bytes", self._decimal("bytes", schema, None) if logical == "decimal" else self._big_decimal()
        time = _time_type(type_, logical)
        return self._compile(type_) if time is None else (type_, time)

    def _primitive(self, name: str) -> _Type:
        show = _text_of_bytes if name == "bytes" else None
        return _Type(name, name, show, shortest_float if name == "float" else show, _READS[name])

    def _named_type(self, schema: Any, kind: str) -> tuple[Any, _Type]:
        name = schema["name"]
        if name in self._types:
            return name, self._types[name]
        if kind == "enum":
            symbols = list(schema["symbols"])
            self._types[name] = _Type(name, "enum", None, None, lambda value, _: _one_of(value, symbols))
            return {"type": "enum", "name": name, "symbols": symbols}, self._types[name]
        if kind == "fixed":
            size = int(schema["size"])
            logical = schema.get("logicalType")
            if logical == "decimal":
                self._types[name] = self._decimal(name, schema, size)
            elif (logical, size) in _PLAIN_FIXED:
                plain, read = _PLAIN_FIXED[logical, size]
                self._types[name] = _Type(name, "fixed", _text_of_bytes, plain, _fixed_text(read, plain, size))
            else:
                read_bytes: _Read = lambda value, _: _bytes(value, size)  # noqa: E731
                self._types[name] = _Type(name, "fixed", _text_of_bytes, _text_of_bytes, read_bytes)
            return {"type": "fixed", "name": name, "size": size}, self._types[name]
        return self._record(schema, name)

    def _record(self, schema: Any, name: str) -> tuple[Any, _Type]:
        fields: dict[str, _Field] = {}
        shown: dict[bool, list[tuple[str, _Show]]] = {False: [], True: []}  # by whether it is plain

        def read(value: Any, reading: _Reading) -> Any:
            return _read_record(value, reading, name, fields)

        # a field may be of this very type: what is shown is known when all fields are
        tagged, plain = _show_fields(shown[False]), _show_fields(shown[True])
        self._types[name] = _Type(name, "record", tagged, plain, read)
        wires = []
        for field in schema["fields"]:
            wire, type_ = self._compile(field["type"])
            wires.append({"name": field["name"], "type": wire})
            fields[field["name"]] = _Field(type_, field["type"], field.get("default", _NONE))
            for is_plain, show_field in ((False, type_.show), (True, type_.plain)):
                if show_field is not None:
                    shown[is_plain].append((field["name"], show_field))
        self._types[name] = _Type(
            name, "record", tagged if shown[False] else None, plain if shown[True] else None, read
        )
        return {"type": "record", "name": name, "fields": wires}, self._types[name]

    def _decimal(self, label: str, schema: Any, size: int | None) -> _Type:
        self._has_decimals = True
        scale, precision = int(schema.get("scale", 0)), int(schema.get("precision", MAX_PREC))

        def plain(datum: bytes) -> str:
            unscaled = Decimal(int.from_bytes(datum, "big", signed=True))
            return f"{self._mark}{unscaled.scaleb(-scale, _EXACT):f}"

        def show(datum: bytes) -> str:
            return _text_of_bytes(datum) if _is_padded(datum) else plain(datum)

        def read(value: Any, reading: _Reading) -> bytes:
            return _unscaled(value, reading, scale, precision, size)

        return _Type(label, "decimal", show if size is None else plain, plain, read)

    def _big_decimal(self) -> _Type:
        """Java's: the bytes of the unscaled number, and its scale, in Avro."""
        self._has_decimals = True

        def plain(datum: bytes) -> str:
            found = _read_big_decimal(datum)
            return _text_of_bytes(datum) if found is None else self._mark + _decimal_text(*found)

        return _Type("bytes", "decimal", _text_of_bytes, plain, _big_decimal)

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

    def read(self, value: Any, reading: _Reading) -> tuple[str, Any]:
        datum = self.type.read(value, reading)
        return self.wire_name, {"v": datum} if self.is_wrapped else datum

    def read_tagged(self, value: dict[str, Any], reading: _Reading) -> tuple[str, Any]:
        ((tag, part),) = value.items()
        found: tuple[str, Any] = reading.inside(f".{tag}", self.read, part)
        return found


def _show_fields(parts: list[tuple[str, _Show]]) -> _Show:
    def show(datum: Any) -> Any:
        shown = dict(datum)  # which is shown in the other form, too
        for name, show_field in parts:
            shown[name] = show_field(datum[name])
        return shown

    return show


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
            branch = by_wire_name[datum[0]]
            datum, type_ = datum[1]["v"] if branch.is_wrapped else datum[1], branch.type
        else:
            type_ = by_python_type[type(datum)]
        return {type_.label: datum if type_.show is None else type_.show(datum)}

    def plain(datum: Any) -> Any:
        if type(datum) is tuple:
            branch = by_wire_name[datum[0]]
            datum, type_ = datum[1]["v"] if branch.is_wrapped else datum[1], branch.type
        elif datum is None:
            return None
        else:
            type_ = by_python_type[type(datum)]
        return datum if type_.plain is None else type_.plain(datum)

    return _Type("union", "union", show, plain, _union_reader(branches, labels))


def _union_reader(branches: list[_Branch], labels: dict[str, _Branch]) -> _Read:
    expected = ", ".join(branch.type.label for branch in branches)
    untagged = {type_: [one for one in branches if one.type.kind in kinds] for type_, kinds in _KINDS.items()}
    names_all = not untagged[dict]  # an object is a tag, and nothing else

    def read(value: Any, reading: _Reading) -> Any:
        if value is None and "null" in labels:
            return None
        if reading.is_default:
            return _read_default(value, reading, branches)
        if names_all and type(value) is dict and len(value) == 1 and reading.form is not SchemaJson.plain:
            (tag,) = value  # the usual case, without a look at what else it may be
            if tag != "null" and tag in labels:
                return labels[tag].read_tagged(value, reading)
        fitting = untagged.get(type(value), []) if reading.form is not SchemaJson.tagged else []
        tag = next(iter(value)) if type(value) is dict and len(value) == 1 else "null"
        if tag != "null" and tag in labels and reading.form is not SchemaJson.plain:
            if not fitting:
                return labels[tag].read_tagged(value, reading)
        elif len(fitting) < 2:
            if not fitting:
                how = ', named as in {"int": 5}' if reading.form is SchemaJson.tagged else ""
                raise _misfit(value, f"one of {expected}{how}")
            return fitting[0].read(value, reading)
        else:
            tag = "null"
        key = (id(branches), id(value))
        if key not in reading.known:
            reading.known[key] = _try_branches(value, reading, labels[tag] if tag != "null" else None, fitting)
        datum, misfit, is_loose, doubt = reading.known[key]
        if misfit is not None:
            raise misfit
        reading.is_loose |= is_loose
        reading.doubt = doubt or reading.doubt
        return datum

    return read


def _read_default(value: Any, reading: _Reading, branches: list[_Branch]) -> Any:
    misfit = _misfit(value, "a default of a union")
    for branch in branches:
        try:
            return branch.read(value, reading)
        except _MisfitError as error:
            misfit = error
    raise misfit


def _try_branches(
    value: Any, reading: _Reading, tagged: _Branch | None, untagged: list[_Branch]
) -> tuple[Any, _MisfitError | None, bool, _MisfitError | None]:
    """Returns the datum, the misfit if no branch fits, whether the datum would be shown otherwise, and the misfit to
    report if a second branch fits equally well. `tagged` is the branch that the value's tag names; `untagged` are the
    branches to try on the value as it is.
    """
    outer = reading.is_tried, reading.is_loose, reading.doubt
    reading.is_tried = True
    misfit: _MisfitError | None = None

    def attempt(branch: _Branch, read: _Read) -> _Fit | None:
        nonlocal misfit
        reading.is_loose, reading.doubt = False, None
        try:
            return _Fit(branch.type.label, read(value, reading), reading.is_loose, reading.doubt)
        except _MisfitError as error:
            misfit = misfit or error
            return None

    named = tagged and attempt(tagged, tagged.read_tagged)
    fits = [found for branch in untagged if (found := attempt(branch, branch.read))]
    reading.is_tried, reading.is_loose, reading.doubt = outer
    if named is not None:
        others = ", ".join(one.label for one in fits)
        both = f"it fits {named.label}, which it names, and without a name {others}"
        doubt = _MisfitError(f"{both}: say which with --schema-json tagged or plain") if fits else named.doubt
        return named.datum, None, named.is_loose, doubt
    best = [one for one in fits if not one.is_loose] or fits
    if not best:
        return None, misfit, False, None
    doubt = best[0].doubt
    if len(best) > 1:
        names = " and ".join(one.label for one in best)
        doubt = _MisfitError(f"it fits {names}: say which with --schema-json tagged")
    return best[0].datum, None, best[0].is_loose, doubt


class _Fit(NamedTuple):
    label: str
    datum: Any
    is_loose: bool
    doubt: _MisfitError | None


def _with_names(value: Any) -> Any:
    """Returns a JSON value with the names of the floats that are no numbers, as Protobuf's JSON mapping has them."""
    if isinstance(value, dict):
        return {name: _with_names(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_names(item) for item in value]
    return json_float(value) if isinstance(value, float) else value


def _each(show: _Show | None) -> _Show | None:
    return None if show is None else lambda datum: [show(item) for item in datum]


def _each_value(show: _Show | None) -> _Show | None:
    return None if show is None else lambda datum: {name: show(item) for name, item in datum.items()}


# --- limits


class _Limits:
    """What a datum may hold, of a schema for fastavro; immutable once made."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire
        self._named: dict[str, Any] = {}
        self._levels: dict[str, float] = {}
        self._empty: set[str] = {"null"}
        self._has_empty_items = False
        self._is_checked = self._measure(wire) > _MOST_LEVELS or self._has_empty_items

    def _measure(self, one: Any) -> float:
        """Returns the levels of a type's data, and infinity for a type that is inside itself."""
        if isinstance(one, list):
            return 1 + max(map(self._measure, one), default=0)
        if isinstance(one, str):
            return self._levels.get(one, 1)
        if one["type"] in ("array", "map"):
            inner = one["items" if one["type"] == "array" else "values"]
            levels = self._measure(inner)
            self._has_empty_items |= one["type"] == "array" and self._is_empty(inner)
            return 1 + levels
        name, fields = one["name"], one.get("fields", ())
        self._named[name], self._levels[name] = one, math.inf
        self._levels[name] = 1 + max((self._measure(field["type"]) for field in fields), default=0)
        is_empty_record = one["type"] == "record" and all(self._is_empty(field["type"]) for field in fields)
        if is_empty_record or one.get("size", 1) <= 0:
            self._empty.add(name)
        return self._levels[name]

    def _is_empty(self, one: Any) -> bool:
        """Returns whether the data of a type that is measured take no bytes."""
        return not isinstance(one, list) and (one if isinstance(one, str) else one.get("name")) in self._empty

    def check(self, data: bytes) -> None:
        """Raises RecursionError for too many levels, ValueError for too many empty items; other faults are fastavro's
        to find.
        """
        if self._is_checked:
            with contextlib.suppress(IndexError):
                self._walk(data)

    def _walk(self, data: bytes) -> None:
        position = levels = empty = 0
        todo: list[Any] = [self._wire]
        """Types to read, the next one last; (array or map, items left, where the last began); None ends a level."""
        while todo:
            one = todo.pop()
            if one is None:
                levels -= 1
            elif isinstance(one, str) and one in self._named:
                todo.append(self._named[one])
            elif isinstance(one, str) or (isinstance(one, dict) and one["type"] in ("enum", "fixed")):
                position = self._skip(one, data, position)
            elif isinstance(one, tuple):
                container, left, before = one
                empty += position == before
                if empty > _MOST_EMPTY:
                    raise ValueError(f"more than {_MOST_EMPTY:,} items of its arrays take no bytes")
                if not left:
                    left, position = self._next_block(data, position)
                if left:
                    todo.append((container, left - 1, position))
                    todo += [container["items"]] if "items" in container else [container["values"], "string"]
                else:
                    levels -= 1
            else:
                levels += 1
                if levels > _MOST_LEVELS:
                    raise RecursionError
                if isinstance(one, list):
                    branch, position = read_varlong(data, position)
                    todo += [None, one[branch]]
                elif one["type"] == "record":
                    todo += [None, *(field["type"] for field in reversed(one["fields"]))]
                else:
                    todo.append((one, 0, -1))

    @staticmethod
    def _next_block(data: bytes, position: int) -> tuple[int, int]:
        """Returns the items of a block of an array or map, none at its end, and the position of the first."""
        count, position = read_varlong(data, position)
        return (count, position) if count >= 0 else (-count, read_varlong(data, position)[1])

    @staticmethod
    def _skip(one: Any, data: bytes, position: int) -> int:
        """Returns the position after a value without parts. Raises IndexError for bytes that have none."""
        name = one if isinstance(one, str) else one["type"]
        if name == "fixed" or name in _SIZES:
            return position + (_SIZES[name] if name in _SIZES else max(int(one["size"]), 0))
        number, position = read_varlong(data, position)
        if name not in ("bytes", "string"):
            return position
        if number < 0:
            raise IndexError(f"a length of {number}")
        return position + number


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


def _whole(name: str) -> Callable[..., int]:
    limit = 1 << _BITS[name]

    def read(value: Any, _: Any = None) -> int:
        if type(value) is int and -limit <= value < limit:
            return value
        raise _MisfitError(f"{_exactly(value, int, name)} is too large for {name}")

    return read


def _floating(value: Any, reading: _Reading, name: str) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    if type(value) not in (int, float, Decimal):
        raise _misfit(value, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    is_given = isinstance(value, float) and not math.isfinite(value)
    if not is_given and (math.isinf(number) or (name == "float" and abs(number) > _LARGEST_FLOAT)):
        raise _MisfitError(f"{str(value)[:60]} is too large for {name}")
    if reading.is_tried:
        shown = repr(shortest_float(number) if name == "float" else number)
        reading.is_loose |= is_given or not _is_same(value, shown)
    return number


def _is_same(value: Any, text: str) -> bool:
    is_whole = text.lstrip("-").isdecimal()
    return type(value) is (int if is_whole else Decimal) and Decimal(value).as_tuple() == Decimal(text).as_tuple()


def _text(value: Any, _: Any = None) -> str:
    text: str = _exactly(value, str, "string")
    if text.isascii():
        return text
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


def _is_padded(data: bytes) -> bool:
    """Returns whether a decimal's bytes are more than its number needs, or none."""
    return (not data or data[0] in (0, 255)) and _whole_bytes(int.from_bytes(data, "big", signed=True)) != data


def _whole_bytes(number: int, size: int | None = None) -> bytes:
    """Returns the fewest bytes of a number, or `size`. Raises OverflowError."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length if size is None else size, "big", signed=True)


def _decimal_text(unscaled: int, scale: int) -> str:
    return f"{Decimal(unscaled).scaleb(-scale, _EXACT):f}"


def _unscaled(value: Any, reading: _Reading, scale: int, precision: int, size: int | None) -> bytes:
    if type(value) is str and not _NUMBER.fullmatch(value) and size is None and reading.form is not SchemaJson.plain:
        data = _bytes(value)
        if _is_padded(data) or reading.is_default:
            return data
    if type(value) not in (int, Decimal) and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        if reading.is_default:
            return _bytes(value, size)
        raise _misfit(value, "a decimal, as a number or the text of one")
    number = Decimal(value)
    if number and number.adjusted() + scale >= precision and reading.form is not SchemaJson.tagged:
        raise _MisfitError(f"{str(value)[:60]} has more than the {precision} digits of the decimal")
    scaled = number.scaleb(scale, _EXACT)
    if scaled != scaled.to_integral_value():
        raise _MisfitError(f"{str(value)[:60]} has more than the {scale} digits that the decimal has after its point")
    whole = int(scaled)
    if reading.is_tried:
        reading.is_loose |= not _is_same(value, _decimal_text(whole, scale))
    try:
        return _whole_bytes(whole, size)
    except OverflowError:
        raise _MisfitError(f"{str(value)[:60]} does not fit into {size} bytes") from None


def _read_big_decimal(data: bytes) -> tuple[int, int] | None:
    """Returns the unscaled number and the scale, or None for other bytes."""
    try:
        length, start = read_varint(data, 0)
        scale, end = read_varint(data, start + length)
    except (IndexError, ValueError):
        return None
    unscaled = int.from_bytes(data[start : start + length], "big", signed=True)
    is_whole = length > 0 and end == len(data) and 0 <= scale <= _MOST_SCALE
    return (unscaled, scale) if is_whole and _big_decimal_bytes(unscaled, scale) == data else None


def _big_decimal_bytes(unscaled: int, scale: int) -> bytes:
    data = _whole_bytes(unscaled)
    return b"".join((varint(len(data)), data, varint(scale)))


def _big_decimal(value: Any, reading: _Reading) -> bytes:
    if type(value) is str:
        data = _bytes(value)
        if reading.form is SchemaJson.plain and _read_big_decimal(data) is not None:
            raise _misfit(value, "a decimal, as a number")
        return data
    if type(value) not in (int, Decimal) or reading.form is SchemaJson.tagged:
        raise _misfit(value, "a decimal, as a number or its bytes")
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)  # JSON has no other numbers
    if len(digits) + abs(exponent) > _MOST_SCALE:
        raise _MisfitError(f"{str(value)[:60]} has too many digits")
    unscaled, scale = int(Decimal(value).scaleb(max(0, -exponent), _EXACT)), max(0, -exponent)
    reading.is_loose |= not _is_same(value, _decimal_text(unscaled, scale))
    return _big_decimal_bytes(unscaled, scale)


_MOST_SCALE = 10_000
"""The most digits of a big decimal that is shown as a number."""


# --- floats, dates and times, UUIDs, durations


def json_float(number: float) -> float | str:
    """Returns the same number, or the name of one that JSON does not have."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def shortest_float(number: float) -> float:
    """Returns the double with the fewest digits, from six on, that is the same float."""
    if math.isfinite(number):
        data = _FLOAT.pack(number)
        for digits in range(6, 10):
            shorter = float(f"{number:.{digits}g}")
            if abs(shorter) <= _LARGEST_FLOAT and _FLOAT.pack(shorter) == data:
                return shorter
    return number


def _time_type(type_: Any, logical: Any) -> _Type | None:
    kind, _, unit = logical.rpartition("-") if isinstance(logical, str) else ("", "", "")
    digits, is_local = _DIGITS.get(unit, 0), kind == "local-timestamp"
    plain: Callable[[int], str | None]
    read: Callable[[str], int | None]
    if (type_, logical) == ("int", "date"):
        plain, read = _day_text, _day
    elif kind == "time" and digits and type_ == ("int" if unit == "millis" else "long"):
        plain, read = partial(_clock_text, digits=digits), partial(_clock, digits=digits)
    elif kind in ("timestamp", "local-timestamp") and digits and type_ == "long":
        plain = partial(_timestamp_text, digits=digits, is_local=is_local)
        read = partial(_timestamp, digits=digits, is_local=is_local)
    else:
        return None

    read_number = _whole(type_)

    def show(number: int) -> Any:
        return plain(number) or number

    def read_either(value: Any, reading: _Reading) -> int:
        number = value
        if isinstance(value, str) and reading.form is not SchemaJson.tagged:
            number = read(value)
            if number is None:
                raise _misfit(value, f"a {logical}, such as {plain(0)}")
        number = read_number(number)
        if reading.is_tried:
            reading.is_loose |= show(number) != value
        return number

    return _Type(type_, "time", None, show, read_either)


def _day_text(days: int) -> str | None:
    ordinal = days + _EPOCH
    return date.fromordinal(ordinal).isoformat() if 0 < ordinal <= date.max.toordinal() else None


def _day(text: str) -> int | None:
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH if len(text) == len("1970-01-01") else None
    except ValueError:
        return None


def _clock_text(time: int, digits: int) -> str | None:
    seconds, fraction = divmod(time, _units(digits))
    if not 0 <= seconds < _DAY_SECONDS:
        return None
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:0{digits}}"


def _units(digits: int) -> int:
    return int(10**digits)


def _clock(text: str, digits: int) -> int | None:
    """Returns None also for digits that the unit does not have."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    fraction = (match[4] or "").ljust(9, "0")
    if fraction[digits:].strip("0"):
        return None
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    return seconds * _units(digits) + int(fraction[:digits])


def _timestamp_text(timestamp: int, digits: int, *, is_local: bool) -> str | None:
    days, time = divmod(timestamp, _DAY_SECONDS * _units(digits))
    day = _day_text(days)
    return day and f"{day}T{_clock_text(time, digits)}{'' if is_local else 'Z'}"


def _timestamp(text: str, digits: int, *, is_local: bool) -> int | None:
    """Returns None also for a local time with a zone, and another without."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (match[6] is None) is not is_local:
        return None
    zone = match[6] or "Z"
    day, time = _day(match[1]), _clock(text[11 : len(text) - len(match[6] or "")], digits)
    if day is None or time is None:
        return None
    offset = 0 if zone == "Z" else int(zone[0] + "1") * (int(zone[1:3]) * 3600 + int(zone[4:]) * 60)
    return (day * _DAY_SECONDS - offset) * _units(digits) + time


def _uuid(text: str) -> bytes | None:
    return uuid.UUID(text).bytes if _UUID.fullmatch(text) else None


def _duration_text(data: bytes) -> str:
    months, days, millis = _DURATION_PARTS.unpack(data)
    return f"P{months}M{days}DT{millis // 1000}.{millis % 1000:03}S"


def _duration(text: str) -> bytes | None:
    match = _DURATION.fullmatch(text)
    parts = (int(match[1]), int(match[2]), int(match[3] + match[4])) if match is not None else (1 << 32,)
    return None if max(parts) >= 1 << 32 else _DURATION_PARTS.pack(*parts)


_PLAIN_FIXED: dict[tuple[Any, int], tuple[Callable[[bytes], str], Callable[[str], bytes | None]]] = {
    ("uuid", 16): (lambda data: str(uuid.UUID(bytes=data)), _uuid),
    ("duration", 12): (_duration_text, _duration),
}
"""By logical type and size: how the bytes are shown plain, and read."""


def _fixed_text(read: Callable[[str], bytes | None], plain: Callable[[bytes], str], size: int) -> _Read:
    def read_either(value: Any, reading: _Reading) -> bytes:
        text = value if isinstance(value, str) else ""
        found = None if reading.form is SchemaJson.tagged or reading.is_default else read(text)
        if found is None and reading.form is SchemaJson.plain and not reading.is_default:
            raise _misfit(value, f"a text such as {plain(bytes(size))}")
        if found is None:
            return _bytes(value, size)
        if len(text) == size and reading.form is None:  # P0M0DT0.000S has 12 characters
            reading.doubt = _MisfitError(
                f"{text} may be {size} bytes, too: say which with --schema-json tagged or plain"
            )
        reading.is_loose |= plain(found) != value
        return found

    return read_either


def _array(items: _Type) -> _Read:
    def read(value: Any, reading: _Reading) -> Any:
        parts = _exactly(value, list, "an array")
        found, number, doubt = [], 0, reading.doubt
        try:
            for number, item in enumerate(parts):
                found.append(items.read(item, reading))
                if reading.doubt is not doubt:
                    reading.doubt = doubt = _first_doubt(doubt, reading, f"[{number}]")
        except _MisfitError as error:
            raise error.inside(f"[{number}]") from None
        return found

    return read


def _map(values: _Type) -> _Read:
    def read(value: Any, reading: _Reading) -> Any:
        found = _exactly(value, dict, "a map")
        return {_text(name): reading.inside(f".{name}", values.read, item) for name, item in found.items()}

    return read


def _read_record(value: Any, reading: _Reading, name: str, fields: dict[str, _Field]) -> dict[str, Any]:
    unknown = _exactly(value, dict, f"a record {name}").keys() - fields.keys()
    if unknown:
        raise _MisfitError(f"{name} has no field {min(unknown)!r}: it has {', '.join(fields)}")
    found, place, doubt = {}, "", reading.doubt
    try:
        for place, field in fields.items():
            if place not in value:
                found[place] = _default(field)
                reading.is_loose = True
                continue
            found[place] = field.type.read(value[place], reading)
            if reading.doubt is not doubt:
                reading.doubt = doubt = _first_doubt(doubt, reading, f".{place}")
    except _MisfitError as error:
        raise error.inside(f".{place}") from None
    return found


def _default(field: _Field) -> Any:
    """Returns the value of a missing field. Bytes of decimals are text."""
    if field.default is _NONE:
        if isinstance(field.schema, list) and "null" in field.schema:
            return None
        raise _MisfitError("it is missing, and has no default")
    return field.type.read(field.default, _Reading(None, is_default=True))


_READS: dict[str, _Read] = {
    "null": lambda value, _: _exactly(value, type(None), "null"),
    "boolean": lambda value, _: _exactly(value, bool, "true or false"),
    "int": _whole("int"),
    "long": _whole("long"),
    "float": partial(_floating, name="float"),
    "double": partial(_floating, name="double"),
    "string": _text,
    "bytes": lambda value, _: _bytes(value),
}
