"""The attributes of the broker's objects are made in `__init__`: nobody meets one that is half made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

BROKER = Path(__file__).parents[2] / "core/broker"
MAKERS = {"__init__", "__post_init__"}


def assigned(nodes: list[ast.stmt]) -> Iterator[str]:
    """The names of the attributes of `self` that are assigned to."""
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def late_attributes(source: str) -> set[str]:
    late = set()
    for class_ in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        methods = [node for node in class_.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        fields = [ast.unparse(node.target) for node in class_.body if isinstance(node, ast.AnnAssign)]
        made = {*fields, *(name for method in methods if method.name in MAKERS for name in assigned(method.body))}
        made |= {method.name for method in methods}  # a property's setter
        late |= {f"{class_.name}.{name}" for method in methods for name in assigned(method.body) if name not in made}
    return late


def test_an_attribute_that_is_made_late_is_found() -> None:
    source = "class A:\n    x: int\n    def __init__(self):\n        self.y = 1\n    def f(self):\n"
    assert late_attributes(source + "        self.x, self.y, self.z = 1, 2, 3") == {"A.z"}


def test_attributes_are_made_at_the_beginning() -> None:
    found = {str(path.relative_to(BROKER)): late_attributes(path.read_text()) for path in BROKER.rglob("*.py")}
    assert {path: late for path, late in found.items() if late} == {}
