"""What the documents say of the commands is so, and they speak of the project alone."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from cli.main import COMMANDS
from core.inspector.check.findings import Code

ROOT = Path(__file__).resolve().parents[2]


def test_the_two_commands_stand_at_the_top_of_the_readme() -> None:
    head = (ROOT / "README.md").read_text().split("\n## ")[0]
    commands = re.findall(r"^    (\S+)", head, re.MULTILINE)
    assert commands == ["scripts/demo", "scripts/test"]
    for command in commands:
        assert (ROOT / command).stat().st_mode & 0o111


def test_every_command_has_its_section_with_an_example() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    sections = dict(re.findall(r"^## plog ([\w-]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    without = [
        command
        for command in COMMANDS
        if not re.search(rf"^    .*plog {command}", sections.get(command, ""), re.MULTILINE)
    ]
    assert without == []


def test_every_finding_is_documented() -> None:
    text = (ROOT / "docs" / "findings.md").read_text()
    assert {code.value for code in Code} == set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))


@cache
def tracked_files() -> list[Path]:
    """Those of git, but for the ones that Kafka made."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode()
    if not names:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in names.split("\0") if name and not name.startswith("tests/golden/kafka/")]
    return [path for path in paths if path.is_file()]


@cache
def text_of(path: Path) -> str:
    """Nothing for a file that is no text."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def test_no_file_names_a_machine() -> None:
    """Nor a folder outside the project."""
    forbidden = re.compile(r"/work/|/root/|/tmp/pytest|\.\./shared")
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked_files()
        if path != Path(__file__)
        for name in forbidden.findall(text_of(path))
    ]
    assert found == []


def test_no_text_has_a_word_that_the_style_replaces() -> None:
    """Of the pairs in STYLE.md, those of which the second word is never the right one."""
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked_files()
        if path.name != "STYLE.md" and path != Path(__file__)
        for word in re.findall(r"(?<![a-z])anew\b|where there (?:is|are) none", text_of(path))
    ]
    assert found == []


def test_the_bytes_of_the_format_pages_are_those_of_their_files() -> None:
    wrong, checked = [], set()
    pages = set((ROOT / "docs" / "format").glob("*.md"))
    for page in pages:
        data = b""
        for line in page.read_text().splitlines():
            if named := re.fullmatch(r"`(sample-data/\S+)`:", line):
                data = (ROOT / named[1]).read_bytes()
            elif row := re.match(r"    (\d+) +((?:[0-9a-f]{2} )+) +\S", line):
                checked.add(page)
                if not data[int(row[1]) :].startswith(bytes.fromhex(row[2])):
                    wrong.append(f"{page.name}: {line.strip()}")
    assert wrong == []
    assert pages - checked == set()
