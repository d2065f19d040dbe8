"""The mutants of `tests/mutants/AREA.toml`: small mistakes in the code that tests must notice.

[[mutant]]
what = "..."         what goes wrong, as a sentence
file = "core/log/retention.py"
line = '''...'''     text of that file, a line or a part of it; it occurs there once
becomes = '''...'''  what stands in its place
tests = ["tests/unit/log/test_retention.py"]    arguments for pytest: the few tests that should notice
equal = "..."        only if nobody can notice: why not
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutants"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake; immutable. `equal` is empty unless nobody can notice it."""

    area: str
    what: str
    file: str
    line: str
    becomes: str
    tests: tuple[str, ...]
    equal: str = ""

    def applied_to(self, text: str) -> str:
        """Gives the file's text with the mistake; ValueError unless the line occurs in it once."""
        count = text.count(self.line)
        if count != 1:
            raise ValueError(f"{self.file} has {count} times what {self.what!r} changes, expected once: {self.line!r}")
        return text.replace(self.line, self.becomes)


def areas() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_mutants(area: str) -> list[Mutant]:
    """Gives the mutants of an area, in the order of its file."""
    fields = tomllib.loads((FOLDER / f"{area}.toml").read_text())
    return [Mutant(area, **{**one, "tests": tuple(one["tests"])}) for one in fields["mutant"]]
