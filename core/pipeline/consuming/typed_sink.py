"""Writes the fields of JSON values as typed columns of Parquet or Arrow.

A type is the one that `--fields NAME:TYPE` says, else that of the schema, else what holds all values of the first
records: bool, int64 (or uint64), double, or string. What has several kinds is a string; in a string column everything
but texts is JSON. Arrays and objects that have no columns of their own are JSON. A value that a column can't hold
exactly is never changed: `FlatSink` refuses it, or puts it into `_rest`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from core.common.errors import UsageError
from core.pipeline.arrow_text import ArrowSink, ParquetSink
from core.pipeline.consuming.flat_sink import Column, Digits, FlatSink, MisfitError, json_text
from core.pipeline.record_printer import ARROW, ConsumeRun, Sink

_UNITS = {"_s": 0, "": 3, "_ms": 3, "_us": 6, "_ns": 9}
_TIME_OF_DAY = r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,9}))?)?"
_CLOCK = re.compile(_TIME_OF_DAY)
_TIMESTAMP = re.compile(rf"(\d{{4}}-\d\d-\d\d)[T ]{_TIME_OF_DAY}\s?(Z|[+-]\d\d(?::?\d\d)?)?")
_OWN = {"_partition": "int32", "_offset": "int64", "_timestamp": "timestamp"}
_EPOCH = date(1970, 1, 1).toordinal()
_EXACT_DOUBLE = 1 << 53
_SURE_DIGITS = 15
"""A number of so many digits is the same after it was a double."""
_RANGES = {"int32": (-(1 << 31), 1 << 31), "int64": (-(1 << 63), 1 << 63), "uint64": (0, 1 << 64)}


def open_columns(run: ConsumeRun, out: BinaryIO) -> Sink:
    """Opens Arrow or Parquet: of typed fields if the user names fields, else of whole records."""
    make = ArrowSink if run.request.format == ARROW else ParquetSink
    return make(out) if run.request.fields is None else TypedSink(run, partial(make, out))


class TypedSink(FlatSink):
    def __init__(self, run: ConsumeRun, make: Callable[[Any], ArrowSink | ParquetSink]) -> None:
        """`make` takes the schema, and opens what the tables go into."""
        super().__init__(run)
        for column in self._columns:
            arrow_type(column.type or "string")  # one that does not exist is reported before anything is read
        self._make = make
        self._tables: ArrowSink | ParquetSink | None = None
        self._converters: list[Callable[[Any], Any]] = []
        self._schema: Any = None
        self._as_json: Counter[str] = Counter()

    def open(self, columns: list[Column], sample: list[list[Any]]) -> None:
        fields = []
        for number, column in enumerate(columns):
            type_ = column.type or _OWN.get(column.path)
            if type_ is None:
                type_ = "string" if column.is_own else infer_type(cells[number] for cells in sample)
            fields.append((column.name, arrow_type(type_)))
            if type_ == "string":
                counts = None if column.type or column.is_own else partial(self._count_json, column.name)
                self._converters.append(partial(_string, count=counts))
            else:
                self._converters.append(converter(type_))
        self._schema = pa.schema(fields, metadata={"plog.schema": "fields/1"})
        self._tables = self._make(self._schema)

    def _count_json(self, name: str) -> None:
        self._as_json[name] += 1

    def convert(self, column: int, cell: Any) -> Any:
        return self._converters[column](cell)

    def put(self, rows: list[list[Any]]) -> None:
        if rows and self._tables is not None:
            columns = zip(*rows, strict=True)
            arrays = [pa.array(cells, field.type) for cells, field in zip(columns, self._schema, strict=True)]
            self._tables.write_table(pa.table(arrays, schema=self._schema))

    def close(self, *, is_whole: bool) -> None:
        try:
            if not self._is_open:
                self.begin()
            super().close(is_whole=is_whole)
            for name, count in self._as_json.most_common(5):
                self._say(
                    f"note: {name} is a string, as it holds several types: {count:,} values that are none are JSON"
                )
        finally:
            if self._tables is not None:
                self._tables.close(is_whole=is_whole)


def infer_type(cells: Iterable[Any]) -> str:
    """Returns the narrowest type that holds all cells without changing one."""
    kinds = {_kind(cell) for cell in cells if cell is not None}
    for type_, those in (
        ("bool", {"bool"}),
        ("int64", {"small", "small negative", "int", "int negative"}),
        ("uint64", {"small", "int", "uint"}),
        ("double", {"small", "small negative", "double"}),
        ("json", {"json"}),
    ):
        if kinds and kinds <= those:
            return type_
    return "string"


def _kind(cell: Any) -> str:
    if isinstance(cell, bool):
        return "bool"
    if isinstance(cell, dict | list):
        return "json"
    if not isinstance(cell, Digits):
        return "text"
    if not cell.lstrip("-").isdecimal():
        return "double" if _is_double(cell) else "digits"
    if len(cell) > len(str(1 << 64)):
        return "digits"
    number = int(cell)
    if not -(1 << 63) <= number < 1 << 64:
        return "digits"
    size = "small" if abs(number) <= _EXACT_DOUBLE else "int" if number < 1 << 63 else "uint"
    return size + " negative" * (number < 0)


def _is_double(digits: str) -> bool:
    """Returns whether the nearest double, written with as many digits, has the same ones."""
    if len(digits) <= _SURE_DIGITS and "e" not in digits.lower():
        return True
    nearest = float(digits)
    try:
        exact = Decimal(digits)
        return not exact.is_finite() or Decimal(f"{nearest:.{len(exact.as_tuple().digits) - 1}e}") == exact
    except ArithmeticError:  # an exponent that no Decimal has
        return False


# --- types


def arrow_type(name: str) -> Any:
    kind, _, digits = name.partition("(")
    if kind == "decimal":
        precision, scale = map(int, digits.rstrip(")").split(","))
        return _decimal_type(precision, scale)
    for start, zone in (("timestamp", "UTC"), ("local_timestamp", None)):
        if name.startswith(start):
            return pa.timestamp(name.removeprefix(start).lstrip("_") or "ms", zone)
    simple = {"bool": pa.bool_(), "double": pa.float64(), "float": pa.float32(), "date": pa.date32()}
    simple |= {"json": pa.string(), "string": pa.string(), "time_ms": pa.time32("ms"), "time_us": pa.time64("us")}
    simple |= {"int32": pa.int32(), "int64": pa.int64(), "uint32": pa.uint32(), "uint64": pa.uint64()}
    return simple.get(name) or pa.binary()


def _decimal_type(precision: int, scale: int) -> Any:
    if not 0 <= scale <= precision or not 0 < precision <= MOST_DIGITS:
        raise UsageError(f"decimal({precision},{scale}): expected at most {MOST_DIGITS} digits, of which the scale is")
    return pa.decimal128(precision, scale)


MOST_DIGITS = 38
"""Those of Parquet's decimals that every reader has."""


def converter(name: str) -> Callable[[Any], Any]:
    """Returns what makes a cell a value for pyarrow. It raises MisfitError."""
    kind, _, digits = name.partition("(")
    if kind == "decimal":
        precision, scale = map(int, digits.rstrip(")").split(","))
        return partial(_decimal, precision=precision, scale=scale)
    if kind.startswith(("timestamp", "local_timestamp")):
        units = _UNITS[kind[kind.index("timestamp") + len("timestamp") :]]
        return partial(_timestamp, digits=units, is_local=kind.startswith("local"))
    if kind in _RANGES or kind == "uint32":
        return partial(_whole, name=kind)
    found: dict[str, Callable[[Any], Any]] = {
        "bool": _bool, "double": _double, "float": _float, "json": _json, "date": _date, "binary": _binary,
        "latin1": _latin1, "base64": _base64, "time_ms": partial(_time, digits=3), "time_us": partial(_time, digits=6),
    }  # fmt: skip
    return found[kind]


def _misfit(cell: Any, expected: str) -> MisfitError:
    text = str(cell) if isinstance(cell, bytes | int) and not isinstance(cell, bool) else json_text(cell)
    return MisfitError(f"{text if len(text) <= 60 else f'{text[:57]}...'}, and its column is {expected}")


def _string(cell: Any, count: Callable[[], None] | None) -> str:
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            raise _misfit(cell, "string, which is UTF-8") from None
    if isinstance(cell, str) and not isinstance(cell, Digits):
        return cell
    if count is not None:
        count()
    return json_text(cell)


def _json(cell: Any) -> str:
    return cell.decode(errors="backslashreplace") if isinstance(cell, bytes) else json_text(cell)


def _bool(cell: Any) -> bool:
    if not isinstance(cell, bool):
        raise _misfit(cell, "bool")
    return cell


def _number(cell: Any, expected: str) -> Decimal:
    if isinstance(cell, bytes):
        cell = cell.decode(errors="replace")
    if isinstance(cell, str):
        try:
            if (found := Decimal(cell)).is_finite():
                return found
        except ArithmeticError:
            pass
    raise _misfit(cell, expected)


def _whole(cell: Any, name: str) -> int:
    low, high = _RANGES.get(name, (0, 1 << 32))
    if isinstance(cell, int) and not isinstance(cell, bool):
        number = cell
    elif not isinstance(cell, Digits):
        raise _misfit(cell, name)
    elif len(cell) <= _SURE_DIGITS and cell.isdecimal():
        number = int(cell)
    else:
        exact = _number(cell, name)
        if exact.adjusted() > _SURE_DIGITS + 5 or exact != exact.to_integral_value():
            raise _misfit(cell, name)
        number = int(exact)
    if not low <= number < high:
        raise _misfit(cell, name)
    return number


def _double(cell: Any) -> float:
    if isinstance(cell, str) and (cell in _NOT_FINITE or (isinstance(cell, Digits) and _is_double(cell))):
        return float(cell)
    raise _misfit(cell, "double")


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def _float(cell: Any) -> float:
    """Takes the digits of the shortest float, which the schema says it is."""
    if isinstance(cell, Digits) or cell in _NOT_FINITE:
        return float(cell)
    raise _misfit(cell, "float")


def _decimal(cell: Any, precision: int, scale: int) -> Decimal:
    expected = f"decimal({precision},{scale})"
    number = _number(cell, expected)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # it is finite
    if number and (number.adjusted() + scale >= precision or _after_point(digits, exponent) > scale):
        raise _misfit(cell, expected)
    return number


def _after_point(digits: tuple[int, ...], exponent: int) -> int:
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(0, -exponent - zeros)


def _date(cell: Any) -> int:
    if isinstance(cell, Digits):
        return _whole(cell, "int32")
    try:
        if isinstance(cell, str) and len(cell) == len("1970-01-01"):
            return date.fromisoformat(cell).toordinal() - _EPOCH
    except ValueError:
        pass
    raise _misfit(cell, "date, such as 2013-01-31")


def _fraction(text: str | None, digits: int, cell: Any, expected: str) -> int:
    text = text or ""
    if text[digits:].strip("0"):
        raise _misfit(cell, f"{expected}, with {digits} digits after the second")
    return int(text[:digits].ljust(digits, "0") or 0)


def _time(cell: Any, digits: int) -> int:
    match = _CLOCK.fullmatch(cell) if isinstance(cell, str) else None
    if match is None:
        raise _misfit(cell, "time, such as 23:59:00")
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0)
    return seconds * int(10**digits) + _fraction(match[4], digits, cell, "time")


def _timestamp(cell: Any, digits: int, *, is_local: bool) -> int:
    """Takes text of ISO 8601, UTC if it names no zone, and numbers, which count the column's unit from 1970 on."""
    expected = "timestamp"
    if isinstance(cell, int | Digits):
        return _whole(cell, "int64")
    match = _TIMESTAMP.fullmatch(cell) if isinstance(cell, str) else None
    try:
        if match is None or (is_local and match[6] is not None):
            raise ValueError
        day = date.fromisoformat(match[1]).toordinal() - _EPOCH
    except ValueError:
        raise _misfit(cell, "timestamp, such as 2013-01-31T23:59:00Z") from None
    zone = (match[6] or "Z").replace(":", "")
    minutes = 0 if zone == "Z" else int(zone[0] + "1") * (int(zone[1:3]) * 60 + int(zone[3:] or 0))
    seconds = day * 86400 + int(match[2]) * 3600 + (int(match[3]) - minutes) * 60 + int(match[4] or 0)
    found = seconds * int(10**digits) + _fraction(match[5], digits, cell, expected)
    if not -(1 << 63) <= found < 1 << 63:
        raise _misfit(cell, f"{expected}, which ends in the year 2262 for nanoseconds")
    return found


def _binary(cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    return (cell if isinstance(cell, str) and not isinstance(cell, Digits) else json_text(cell)).encode()


def _latin1(cell: Any) -> bytes:
    try:
        return str(cell).encode("latin-1")
    except UnicodeEncodeError:
        raise _misfit(cell, "binary") from None


def _base64(cell: Any) -> bytes:
    try:
        return base64.b64decode(cell, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise _misfit(cell, "binary") from None
