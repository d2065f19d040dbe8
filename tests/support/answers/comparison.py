"""Where the answers of two brokers part."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.answers.asked_broker import Step

Answers = dict[Step, Any]

ABSENT = "<absent>"
_NAMES = (
    "Name", "Topic", "TopicName", "PartitionIndex", "Partition", "Index", "GroupId", "MemberId", "Key", "ResourceName",
    "TransactionalId", "ApiKey", "TopicId", "Feature", "BaseOffset", "NodeId", "ProducerId",
)  # fmt: skip
"""What elements of a list are matched by: the first that one has."""


class Difference(NamedTuple):
    """One place of one answer. `path` is as in `Topics[orders].ErrorCode`."""

    step: Step
    path: str
    plog: Any
    kafka: Any

    def __str__(self) -> str:
        step = f"{self.step.name} ({self.step.api} {self.step.version}) {self.path}"
        return f"{step}\n      plog  {_shown(self.plog)}\n      kafka {_shown(self.kafka)}"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:300]


def differences(plog: Answers, kafka: Answers) -> list[Difference]:
    """The highest places where they differ, in the order of the steps."""
    found = []
    for step in dict.fromkeys([*plog, *kafka]):
        ours, theirs = plog.get(step, ABSENT), kafka.get(step, ABSENT)
        found += [Difference(step, *place) for place in _places(ours, theirs, "")]
    return found


_Place = tuple[str, Any, Any]


def _places(ours: Any, theirs: Any, path: str) -> Iterator[_Place]:
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*ours, *theirs]):
            below = f"{path}.{name}".lstrip(".")
            yield from _places(ours.get(name, ABSENT), theirs.get(name, ABSENT), below)
    elif _are_structs(ours) and _are_structs(theirs):
        yield from _places_of_elements(ours, theirs, path)
    else:
        yield path, ours, theirs


def _are_structs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


def _places_of_elements(ours: list[Any], theirs: list[Any], path: str) -> Iterator[_Place]:
    by_name: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, elements in enumerate((ours, theirs)):
        for element in elements:
            by_name[_name_of(element)][side].append(element)
    for name, (left, right) in by_name.items():
        for index in range(max(len(left), len(right))):
            pair = [side[index] if index < len(side) else ABSENT for side in (left, right)]
            yield from _places(pair[0], pair[1], f"{path}[{name}]")


def _name_of(element: dict[str, Any]) -> str:
    return next((str(element[name])[:40] for name in _NAMES if element.get(name) not in ("", None)), "")
