"""Every link of the documents leads to a file and a heading that exist, and every document can be reached."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for name in subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if (path := ROOT / name).is_file()
)
BLOCKS = re.compile(r"^```[\s\S]*?^```$|^    .*$", re.MULTILINE)
SPANS = re.compile(r"`[^`\n]*`")
GOES_TO = {ROOT / "cli" / "help": ROOT / "docs", ROOT / "changes": ROOT}
"""Parts of other documents are in these folders: their links are as seen from where those documents are."""

pytestmark = pytest.mark.skipif(not DOCUMENTS, reason="not a git checkout")


def links_of(document: Path) -> list[tuple[Path, str]]:
    """The file and the heading ("" for none) that each of the document's relative links means."""
    text = re.sub(r"\[([^\]]*)\]", "[]", SPANS.sub("", BLOCKS.sub("", document.read_text())))
    folder = GOES_TO.get(document.parent, document.parent)
    found = []
    for target in re.findall(r"\[\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path, _, heading = target.partition("#")
            found.append(((folder / path).resolve() if path else document, heading))
    return found


@cache
def headings_of(document: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings; a heading that is there again gets a number."""
    anchors: dict[str, int] = {}
    found = set()
    for heading in re.findall(
        r"^#+ +(.*?) *$", re.sub(r"^    .*$", "", document.read_text(), flags=re.MULTILINE), re.M
    ):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = anchors[anchor] = anchors.get(anchor, -1) + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def test_modules_and_members_that_texts_name_exist() -> None:
    """`name.py`, `folder/name.py` and `Class.member` in backticks, in READMEs of packages, STYLE.md and docstrings."""
    sources = {path: path.read_text() for package in ("core", "cli", "plog") for path in (ROOT / package).rglob("*.py")}
    files = {f"/{path.relative_to(ROOT)}" for top in ("core", "cli", "plog", "tests", "scripts", "benchmarks")
             for path in (ROOT / top).rglob("*.py")}  # fmt: skip
    members: dict[str, set[str]] = {}
    texts = {path: path.read_text() for path in DOCUMENTS if "core" in path.parts or path.name == "STYLE.md"}
    for path, source in sources.items():
        nodes, lines = list(ast.walk(ast.parse(source))), source.split("\n")
        texts[path] = "\n".join(filter(None, map(_docstring, nodes)))
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                found = re.findall(r"\w+", "\n".join(lines[node.lineno - 1 : node.end_lineno]))
                members.setdefault(node.name, set()).update(found)
    wrong = []
    for path, text in texts.items():
        names = set(re.findall(r"`([\w/]+\.py)`", text))
        wrong += [(path, name) for name in names if not any(file.endswith(f"/{name}") for file in files)]
        for owner, member in re.findall(r"`([A-Z]\w+)\.([a-z_]+)`", text):  # Kafka's have other letters
            bases = [owner, *members.get(owner, ())]
            if owner in members and not any(member in members.get(base, ()) for base in bases):
                wrong.append((path, f"{owner}.{member}"))
    assert wrong == []


def _docstring(node: ast.AST) -> str | None:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return node.value.value if is_text else None  # type: ignore[attr-defined]


def test_links_lead_to_files_and_headings() -> None:
    wrong = [
        f"{document.relative_to(ROOT)}: {path}#{heading}"
        for document in DOCUMENTS
        for path, heading in links_of(document)
        if not path.is_file() or (heading and heading not in headings_of(path))
    ]
    assert wrong == []


def test_every_document_is_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    waiting = list(reached)
    while waiting:
        new = {path for path, _ in links_of(waiting.pop())} - reached
        reached |= new
        waiting += (path for path in new if path.suffix == ".md")
    assert [path for path in (ROOT / "docs").rglob("*.*") if path not in reached] == []


def test_the_site_has_every_document() -> None:
    pages = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(pages) == len(set(pages))
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    read = [path for path in DOCUMENTS if path.name == "README.md" or path.parts[len(ROOT.parts)] == "docs"]
    elsewhere = {"changes", "tests"}  # for who works in these folders
    wanted = {str(p.relative_to(ROOT)) for p in read if p.relative_to(ROOT).parts[0] not in elsewhere}
    assert wanted <= set(pages)
    linked = {path for page in pages for path, _ in links_of(ROOT / page) if path.suffix == ".md"}
    assert {str(path.relative_to(ROOT)) for path in linked} <= set(pages)


def test_no_list_swallows_the_code_after_it() -> None:
    """Four spaces after an item are a paragraph of the item, not code."""
    swallowed = re.compile(r"^(?:[-*]|\d+\.) .*\n(?: {2,3}\S.*\n)*\n    .*", re.MULTILINE)
    found = {str(path.relative_to(ROOT)): swallowed.findall(path.read_text()) for path in DOCUMENTS}
    assert {path: lists for path, lists in found.items() if lists} == {}
