"""What STYLE.md says of imports and folders is so."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for package in ("core", "cli", "plog") for path in (ROOT / package).rglob("*.py"))
IN_AND_OUT = {"asyncio", "io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "time"}
IMPORTED_ONLY_BY = {
    "zstandard": ("core/records/",),
    "lz4": ("core/records/",),
    "snappy": ("core/records/",),
    "isal": ("core/records/",),
    "ssl": ("core/client/", "core/security/"),
    "socket": ("core/broker/", "core/client/", "core/spark/"),  # Spark's asks for the host's name alone
}


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    return tuple(_imports(ast.parse(path.read_text())))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def layers_in(text: str) -> list[set[str]]:
    """The names in each line of a table of layers; after two spaces comes an explanation, which does not count."""
    table = re.search(r"(?:^    \S.*\n)+", text, re.MULTILINE)
    assert table
    return [set(re.split(r" \| ", re.split(r" {2,}", line.strip())[0])) for line in table[0].splitlines()]


def test_the_layers_are_the_same_wherever_they_are_named() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].split("\n")[1:]
    checked = [{name.strip(" ()").removeprefix("core.") for name in line.split("|")} for line in lines]
    assert layers_in((ROOT / "STYLE.md").read_text().partition("## Layers\n")[2]) == checked
    assert layers_in((ROOT / "core" / "README.md").read_text()) == checked[1:]
    folders = {path.name for path in (ROOT / "core").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set().union(*checked[2:]) == folders
    assert folders | {"cli"} <= {path.name for path in (ROOT / "tests" / "unit").iterdir()}


@pytest.mark.parametrize("folder", ["records", "protocol", "security", "coordinator"])
def test_these_do_no_io_and_read_no_clock(folder: str) -> None:
    found = [
        f"{path.name}: {name}"
        for path in (ROOT / "core" / folder).rglob("*.py")
        for name in imports_of(path)
        if name.partition(".")[0] in IN_AND_OUT
    ]
    assert found == []


def test_a_package_of_others_is_imported_in_its_place_alone() -> None:
    found = [
        f"{name}: {path.relative_to(ROOT)}"
        for path in SOURCES
        for name in {imported.partition(".")[0] for imported in imports_of(path)} & set(IMPORTED_ONLY_BY)
        if not str(path.relative_to(ROOT)).startswith(IMPORTED_ONLY_BY[name])
    ]
    assert found == []


def test_imports_are_absolute() -> None:
    assert [str(path) for path in SOURCES if any(name.startswith(".") for name in imports_of(path))] == []
