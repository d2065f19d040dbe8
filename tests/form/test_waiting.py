"""Tests wait for conditions: a sleep stands in a loop that looks at one, or says what is to take that long."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAY_SLEEP = (
    "tests/crash/chaos/nemesis.py",
    "tests/crash/cluster/cluster_nemesis.py",
    "tests/support/answers/asked_broker.py",
)
"""In the first two the time is the fault: for so long a process is stopped, or a disk full. The last waits for Kafka to
apply what it has acknowledged, and Kafka says nowhere how far it is.
"""


def blind_sleeps(path: Path) -> list[int]:
    """The lines with a sleep of some time that no `while` is around."""
    text = path.read_text()
    if "sleep(" not in text:
        return []
    tree = ast.parse(text)
    polling = {id(node) for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep")
        if id(node) not in polling and ast.unparse(node.args[0]) != "0"
    ]


def test_no_test_sleeps_for_some_time() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "tests").rglob("*.py")
        if str(path.relative_to(ROOT)) not in MAY_SLEEP and (lines := blind_sleeps(path))
    }
    assert found == {}
