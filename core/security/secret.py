"""A value that is never shown by accident."""

from __future__ import annotations


class Secret:
    """Prints as `[hidden]` in text, messages, logs and tracebacks; `reveal` gives what it is. Immutable."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)
