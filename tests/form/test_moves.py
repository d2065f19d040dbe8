"""`scripts/moves.py` lets moves and renames pass, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import moves
from tests.support.for_each import for_each

LOG = '''
"""A log."""
from a import b
LIMIT = 10

@dataclass
class Log:
    """Of records."""
    first: int
    last: int = 0

    def size(self, unit: int = 1) -> int:
        """In units."""
        from a import c
        return (self.last - self.first) // unit

def cut(log: Log) -> None:
    log.last = min(log.last, LIMIT)
'''
USE = "patch('core.log.LIMIT', 'core/log.py')\n"
NAMES = {"size": "size_of", "core.old": "core.rooms.new"}

MOVES = {
    "a file of another name": {"other.py": LOG},
    "a class and a function in two files": {
        "one.py": LOG.partition("def cut")[0],
        "two.py": "from one import LIMIT\n\ndef cut(log: Log) -> None:\n    log.last = min(log.last, LIMIT)\n",
    },
    "an import, a docstring and __all__": {"log.py": "import z\n__all__ = ['Log']\n" + LOG.replace("In units", "In u")},
    "a name of the table": {"log.py": LOG.replace("def size", "def size_of")},
    "a constant twice, which two files that were joined had": {"log.py": "LIMIT = 10\n" + LOG},
}
NO_MOVES = {
    "a number": LOG.replace("LIMIT = 10", "LIMIT = 11"),
    "a default": LOG.replace("unit: int = 1", "unit: int = 2"),
    "a default of a field": LOG.replace("last: int = 0", "last: int = 1"),
    "the order of fields": LOG.replace("    first: int\n    last: int = 0", "    last: int = 0\n    first: int"),
    "a decorator": LOG.replace("@dataclass", ""),
    "an operator": LOG.replace("//", "/"),
    "a base": LOG.replace("class Log", "class Log(Base)"),
    "a function that is no more": LOG.partition("def cut")[0],
    "a function that is there twice": LOG + LOG.partition("@dataclass")[0] + "def cut" + LOG.partition("def cut")[2],
    "a function that is new": LOG + "def more() -> None: ...\n",
    "a method that is a function": LOG.replace(
        "\ndef cut(log: Log) -> None:\n", "\n    def cut(log: Log) -> None:\n    "
    ),
    "a name that is not in the table": LOG.replace("cut", "trim"),
    "a string": LOG.replace("LIMIT = 10", "LIMIT = 'core.old'"),
}


@for_each("case", MOVES)
def test_a_move_is_proved(case: str) -> None:
    assert moves.compare({"log.py": LOG}, MOVES[case], NAMES) == []


@for_each("case", NO_MOVES)
def test_a_change_is_no_move(case: str) -> None:
    assert moves.compare({"log.py": LOG}, {"log.py": NO_MOVES[case]}, NAMES)


def test_modules_in_strings_follow_the_table() -> None:
    before = "patch('core.old.x', 'core.older', 1)"
    assert moves.compare({"a.py": before}, {"a.py": before.replace("core.old.", "core.rooms.new.")}, NAMES) == []
    assert moves.compare({"a.py": before}, {"a.py": before.replace("core.older", "core.rooms.newer")}, NAMES)


def test_programs_in_strings_and_paths_of_modules_follow_the_table() -> None:
    before = 'import core.old\nRUN = """\nfrom core.old import size\nsize(1)\n"""\ncore.old.size(2)\n'
    after = before.replace("core.old", "core.rooms.new").replace("size", "size_of")
    assert moves.compare({"a.py": before}, {"a.py": after}, NAMES) == []
    for change in ("size_of(3)", "core.rooms.new.size_of(3)"):
        changed = after.replace(change.replace("3", "1" if change.startswith("s") else "2"), change)
        assert changed != after
        assert moves.compare({"a.py": before}, {"a.py": changed}, NAMES)


def test_a_module_that_is_imported_has_its_new_name() -> None:
    before = "from core import old\nold.size(1)\n"
    assert moves.compare({"a.py": before}, {"a.py": "from core.rooms import new\nnew.size_of(1)\n"}, NAMES) == []
    variable = "def f(old):\n    return old.size\n"
    after = "from core.rooms import new\nnew.size_of(1)\n" + variable.replace("size", "size_of")
    assert moves.compare({"a.py": before + variable}, {"a.py": after}, NAMES) == []
    assert moves.compare({"a.py": before}, {"a.py": "from core.rooms import other\nother.size_of(1)\n"}, NAMES)


def test_two_names_that_become_one_are_no_rename() -> None:
    before = "def f(size: int, size_of: int) -> int:\n    return size - size_of\n"
    after = before.replace("size: int, ", "").replace("size -", "size_of -")
    assert any("two names become one" in line for line in moves.compare({"a.py": before}, {"a.py": after}, NAMES))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "plog")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "plog@localhost")
    subprocess.run(["git", "init", "-q"], check=True)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "core").mkdir()
    files = {"CONTRIBUTING.md": "", "scripts/moves.py": "", "core/log.py": LOG, "data.bin": "old", "use.py": USE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    commit("Prove that moves change no logic")
    return tmp_path


def commit(title: str) -> None:
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", title], check=True)


def test_commits_are_chosen_by_their_titles(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "core" / "room").mkdir()
    (repository / "core" / "log.py").rename(repository / "core" / "room" / "log.py")
    (repository / "use.py").write_text(USE.replace("core.", "core.room.").replace("core/", "core/room/"))
    (repository / "data.bin").rename(repository / "core" / "data.bin")
    commit("Move the log into a room")
    (repository / "core" / "room" / "log.py").write_text(LOG.replace("size(", "size_of("))
    (repository / "CONTRIBUTING.md").write_text("| `size` | `size_of` |\n")
    commit("Rename size")
    (repository / "core" / "room" / "log.py").write_text(LOG.replace("10", "11").replace("size(", "size_of("))
    commit("Raise the limit")
    assert moves.main([]) == 0
    assert "Raise the limit" not in capsys.readouterr().out
    (repository / "core" / "data.bin").write_text("new")
    commit("Move nothing")
    assert moves.main([]) == 1
    assert "core/data.bin: a move changes no such file" in capsys.readouterr().out
    assert moves.main(["HEAD~1"]) == 1
    assert moves.main(["HEAD~4", "HEAD~2"]) == 0
    assert moves.main(["no-such-commit"]) == 2
