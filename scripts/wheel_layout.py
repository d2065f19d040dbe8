"""The hook of hatch that gives the wheel its layout: one top-level package, `plog`.

In the repository `core/` and `cli/` stand at the top and are imported as such. Installed, packages of those names would
get in the way of an application that has its own. So the wheel holds them as `plog/_core` and `plog/_cli`, with their
imports rewritten. docs/adr/0020 says why it is done here and not in the repository.
"""

from __future__ import annotations

import ast
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INSTALLED_AS = {"core": "plog._core", "cli": "plog._cli", "plog": "plog"}
"""The package in the repository -> its name in the wheel."""


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg] - hatch says nothing of its configuration's type
    """Makes the wheel's files in a temporary folder; an editable install takes the repository as it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="plog-wheel-"))
        for package, name in INSTALLED_AS.items():
            write_package(Path(self.root) / package, self._folder / name.replace(".", "/"))
        build_data["force_include"][str(self._folder / "plog")] = "plog"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatch's
        if version != "editable":
            shutil.rmtree(self._folder)


def write_package(source: Path, target: Path) -> None:
    """Copies a package of the repository to where the wheel has it."""
    for file in sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".py":
            copy.write_text(with_installed_imports(file.read_text(encoding="utf-8"), file), encoding="utf-8")
        else:
            shutil.copyfile(file, copy)


def with_installed_imports(text: str, file: Path) -> str:
    """The module's text, with every import of `core` and `cli` as it is in the wheel; no line is added or taken away.

    Raises ValueError for `import core` or `import core.x`: the name that it binds would be another in the wheel.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) and any(
            alias.name.partition(".")[0] in ("core", "cli") for alias in node.names
        ):
            raise ValueError(f"{file}:{node.lineno}: write `from ... import ...` for packages of ours")
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None and _is_moved(node.module):
            package = node.module.partition(".")[0]
            before, after = lines[node.lineno - 1].split(f"from {package}", 1)
            lines[node.lineno - 1] = f"{before}from {INSTALLED_AS[package]}{after}"
    return "".join(lines)


def _is_moved(module: str) -> bool:
    package = module.partition(".")[0]
    return INSTALLED_AS.get(package, package) != package
