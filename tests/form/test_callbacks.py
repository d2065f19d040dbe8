"""Each object is given what it uses when it is made: nobody sets its callbacks later, or hands it all services."""

from __future__ import annotations

import ast
from pathlib import Path

CORE = Path(__file__).parents[2] / "core"
BROKER = CORE / "broker"
ROOMS = [BROKER, *(CORE / name for name in ("cluster", "common", "compaction", "coordinator", "log", "zookeeper"))]

SET_BY_ITS_HOLDER = {
    "on_value": "a Pending has one receiver, whoever holds the answer",
    "on_failure": "likewise",
    "on_closed": "an open file is counted by whoever holds it, and may change hands",
    "downgrade": "a group that was read from the log changes hands, from the coordinator that read it to that of all",
}
REQUESTS = BROKER / "requests"


def callables(source: str) -> set[str]:
    """The names of attributes that are declared as functions, also by a name that the module gives such a type."""
    if "Callable[" not in source:
        return set()
    nodes = list(ast.walk(ast.parse(source)))
    aliases = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable[")
        for target in node.targets
    }
    return {
        node.target.attr
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
        if any(one.startswith("Callable[") or one in aliases for one in ast.unparse(node.annotation).split(" | "))
    }


def set_from_outside(source: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) != "self"
    }


def takers_of_all(source: str) -> set[str]:
    """The names of classes whose methods take `Services` as a whole."""
    if "Services" not in source:
        return set()
    return {
        class_.name
        for class_ in ast.walk(ast.parse(source))
        if isinstance(class_, ast.ClassDef)
        for node in ast.walk(class_)
        if isinstance(node, ast.arg) and node.annotation is not None and ast.unparse(node.annotation) == "Services"
    }


def test_what_breaks_the_rules_is_found() -> None:
    declared = (
        "F = Callable[[], int]\nself.f: F | None = None\nself.g: Callable[[], None] = print\nself.h: list[F] = []"
    )
    assert callables(declared) == {"f", "g"}
    assert set_from_outside("a.f = print\nself.g = print\nself.a.h, b = print, 1") == {"f", "h"}
    assert takers_of_all("class A:\n    def __init__(self, services: Services) -> None: ...") == {"A"}


def test_callbacks_are_given_to_a_constructor_or_subscribed() -> None:
    sources = {str(path.relative_to(CORE)): path.read_text() for room in ROOMS for path in room.rglob("*.py")}
    names = {name for source in sources.values() for name in callables(source)} - SET_BY_ITS_HOLDER.keys()
    named = {path: source for path, source in sources.items() if any(f".{name}" in source for name in names)}
    late = {path: set_from_outside(source) & names for path, source in named.items()}
    assert {path: found for path, found in late.items() if found} == {}


def test_handlers_alone_get_all_services() -> None:
    others = [path for path in BROKER.rglob("*.py") if not path.is_relative_to(REQUESTS)]
    found = {str(path.relative_to(BROKER)): takers_of_all(path.read_text()) for path in others}
    assert {path: classes for path, classes in found.items() if classes} == {}
