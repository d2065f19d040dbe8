"""The fields of a node's JSON, each with its type. What is wrong is named with the node's path and the field.

A `read_` function takes a JSON value, and raises ValueError with what it expected instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import DecodeError
from msgspec import json as msgspec_json

from core.common.errors import MalformedMessageError
from core.common.topic_partition import parse_uuid

INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def malformed(path: str, problem: str) -> MalformedMessageError:
    return MalformedMessageError(f"ZooKeeper node {path}: {problem}")


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_NEEDED = object()


class Fields:
    """The fields of a node's JSON object, each with its type; `prefix` names the object that they are in."""

    def __init__(self, values: Mapping[str, Any], path: str, prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix

    @staticmethod
    def of(data: bytes, path: str) -> Fields:
        try:
            values = msgspec_json.decode(data)
        except (DecodeError, RecursionError) as error:
            raise malformed(path, f"{shown(data)} is no JSON: {error}") from error
        if not isinstance(values, dict):
            raise malformed(path, f"{shown(data)} is no JSON object")
        return Fields(values, path)

    def ensure_version(self, *known: int | str) -> int | str:
        version: int | str = self._values.get("version", "none")
        if isinstance(version, bool) or version not in known:
            expected = " or ".join(map(str, known))
            raise malformed(self.path, f"version {shown(version)}, expected {expected}")
        return version

    def get(self, name: str, read: Callable[[Any], Any], *, default: Any = _NEEDED) -> Any:
        """Raises MalformedMessageError if the field is missing and has no default, or if `read` does not take it."""
        value = self._values.get(name)
        if value is None:
            if default is _NEEDED:
                raise malformed(self.path, f"{self._prefix}{name} is missing")
            return default
        try:
            return read(value)
        except ValueError as error:
            raise malformed(self.path, f"{self._prefix}{name} is {shown(value)}, expected {error}") from None

    def mapping(self, name: str, read: Callable[[Any], Any], *, default: Any = _NEEDED) -> dict[str, Any]:
        values = self.get(name, read_object, default=default)
        below = Fields(values, self.path, f"{self._prefix}{name}.")
        return {key: below.get(key, read) for key in values}


def read_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in INT32:
        raise ValueError("a number of 32 bits")
    return value


def read_recovery_state(value: Any) -> int:
    if isinstance(value, bool) or value not in (0, 1):
        raise ValueError("0 (recovered) or 1 (recovering)")
    return int(value)


def read_decimal(value: Any) -> int:
    """A number of 64 bits, which Kafka writes as a text."""
    if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,19}", value) or int(value) not in _INT64:
        raise ValueError("a number of 64 bits in quotes")
    return int(value)


def read_epochs(value: Any) -> dict[int, int]:
    """Numbers by numbers: a controller that takes office reads one such object for each partition."""
    epochs = read_object(value)
    if not all(one.isdecimal() for one in epochs) or not {*map(type, epochs.values())} <= {int}:
        raise ValueError("an object of numbers by the numbers of brokers")
    return {int(one): epoch for one, epoch in epochs.items()}


def read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def read_uuid(value: Any) -> bytes:
    try:
        return parse_uuid(read_text(value))
    except ValueError:
        raise ValueError("an id of 22 characters") from None


def read_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object")
    return value


def read_texts(value: Any) -> Sequence[str]:
    if not isinstance(value, list):
        raise ValueError("a list of texts")
    return [read_text(one) for one in value]


def read_numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of numbers")
    return tuple(read_number(one) for one in value)
