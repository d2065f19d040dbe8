"""A large mapping with a few keys changed, without a copy of it.

To copy a dict of 10,000 topics takes a millisecond or more, as each key and value is counted once more, wherever in
memory it lies. So changes lie in a layer above the mapping. When the layer is larger than the square root of the
mapping, they become one dict; so a change costs about as much as the layer, however many keys there are.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_COPIED = 1000
"""Mappings with fewer keys are copied."""


def with_changes(before: Mapping[K, V], changed: Mapping[K, V | None]) -> Mapping[K, V]:
    """Returns the mapping with those values, without keys whose value is None; itself if `changed` is empty."""
    if not changed:
        return before
    below, layer = (before.below, before.layer) if isinstance(before, PersistentMap) else (before, {})
    layer = {**layer, **changed}
    return (
        _merged(below, layer) if len(below) < _COPIED or len(layer) ** 2 > len(below) else PersistentMap(below, layer)
    )


class PersistentMap(Mapping[K, V]):
    """Immutable to its users: once all of it is read, it becomes one dict. A key that was removed and came again may
    stand at its old place.
    """

    __slots__ = ("below", "layer")

    def __init__(self, below: Mapping[K, V], layer: dict[K, V | None]) -> None:
        self.below = below
        self.layer = layer

    def __getitem__(self, key: K) -> V:
        if key in self.layer:
            value = self.layer[key]
            if value is None:
                raise KeyError(key)
            return value
        return self.below[key]

    def get(self, key: K, default: Any = None) -> Any:
        if key in self.layer:
            value = self.layer[key]
            return default if value is None else value
        return self.below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return self.layer[key] is not None if key in self.layer else key in self.below

    def _as_one(self) -> Mapping[K, V]:
        if self.layer:
            self.below = _merged(self.below, self.layer)
            self.layer = {}
        return self.below

    def __iter__(self) -> Iterator[K]:
        return iter(self._as_one())

    def __len__(self) -> int:
        return len(self._as_one())

    def keys(self) -> KeysView[K]:
        return self._as_one().keys()

    def values(self) -> ValuesView[V]:
        return self._as_one().values()

    def items(self) -> ItemsView[K, V]:
        return self._as_one().items()


def _merged(below: Mapping[K, V], layer: Mapping[K, V | None]) -> dict[K, V]:
    merged = dict(below)
    for key, value in layer.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


class MapChanges(Generic[K, V]):
    """Owned by a delta."""

    def __init__(self, before: Mapping[K, V]) -> None:
        self._before = before
        self.changed: dict[K, V | None] = {}
        """The new values, None for a removed key."""

    def get(self, key: K) -> V | None:
        """Returns the value, with the changes, or None."""
        return self.changed[key] if key in self.changed else self._before.get(key)

    def __setitem__(self, key: K, value: V | None) -> None:
        """Sets the key's value; None removes the key."""
        self.changed[key] = value

    def apply(self) -> Mapping[K, V]:
        """Returns the mapping with its changes."""
        return with_changes(self._before, self.changed)
