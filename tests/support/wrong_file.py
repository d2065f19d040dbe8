"""Loads other text in the place of one file of the project, in this process and in those that it starts.

A process that is started with SITE on its PYTHONPATH imports `sitecustomize` from there, which comes here again.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent / "wrong_site"
_FILE, _TEXT = "PLOG_WRONG_FILE", "PLOG_WRONG_TEXT"


def install(file: str, text: str, beside: str) -> None:
    """`file` is below the project's folder; its wrong `text` is kept beside a path, for the processes to come."""
    kept = Path(f"{beside}.py")
    kept.write_text(text)
    os.environ[_FILE], os.environ[_TEXT] = file, str(kept)
    install_from_environment()


def install_from_environment() -> None:
    if _FILE in os.environ:
        sys.meta_path.insert(0, _Finder(os.environ[_FILE], Path(os.environ[_TEXT])))


class _Loader(SourceFileLoader):
    text = ""

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, file: str, kept: Path) -> None:
        self._module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._path = str(ROOT / file)
        self._kept = kept

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        loader = _Loader(fullname, self._path)
        loader.text = self._kept.read_text()
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)
