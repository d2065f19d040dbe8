"""Changes of some keys of a mapping that itself stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from core.cluster.image.persistent_map import with_changes

K = TypeVar("K")
V = TypeVar("V")


class MapChanges(Generic[K, V]):
    """Owned by a delta."""

    def __init__(self, before: Mapping[K, V]) -> None:
        self._before = before
        self.changed: dict[K, V | None] = {}
        """The new values, None for a key that is gone."""

    def get(self, key: K) -> V | None:
        """Gives the value as the changes have it."""
        return self.changed[key] if key in self.changed else self._before.get(key)

    def __setitem__(self, key: K, value: V | None) -> None:
        """Sets the key's value; None takes the key out."""
        self.changed[key] = value

    def apply(self) -> Mapping[K, V]:
        """Gives the mapping with its changes."""
        return with_changes(self._before, self.changed)
