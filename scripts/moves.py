"""Proves that commits which move or rename code change no logic. `scripts/check` runs it.

    python -m scripts.moves                  each commit since this program came whose title begins with Move or Rename
    python -m scripts.moves COMMIT           that commit, whatever its title
    python -m scripts.moves OLD NEW          two commits, with all between them

The Python files of both sides are cut into units: functions, heads of classes (bases, decorators, fields in their
order) and statements of modules. Imports, docstrings, `__all__` and the files' names are left out, in programs that
stand in strings, too. Names are replaced by the table "New names" of CONTRIBUTING.md, and modules that strings name by
where git finds them again. A move is proved if both sides have the same functions and classes equally often, and the
same statements: two files that are joined may have had the same constant. Files that are not Python may change only
where they are documents, mutants' anchors or settings that name modules.

Exits with 1, and shows each unit that differs, if a commit is no move.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_TITLE = re.compile(r"(Move|Rename) ")
_TABLE = "CONTRIBUTING.md"
_ROW = re.compile(r"^\| `(\S+)` \| `(\S+)` \|$", re.MULTILINE)
_MAY_CHANGE = re.compile(
    r".*\.md|tests/mutants/.*\.toml|tests/form/.*\.json|pyproject\.toml|\.importlinter|changes/.*|docs/.*\.svg"
)
_IMPORT = re.compile(r"^ *from [\w.]+ import .*\n", re.MULTILINE)
"""In a string that is a program, or a part of one."""
_SHOWN = 10


@dataclass(frozen=True)
class Unit:
    """`kind` is "function", "class" or "statement"; `code` is its tree without what a move may change."""

    kind: str
    name: str
    code: str


class _Plain(ast.NodeTransformer):
    """Leaves out imports and docstrings, and gives each name its new one."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = {old: new for old, new in names.items() if "." not in old}
        self._bound: dict[str, str] = {}
        self._modules = {old: new for old, new in names.items() if "." in old}
        longest_first = sorted(self._modules, key=len, reverse=True)
        self._module = (
            re.compile(rf"(?<![\w./])({'|'.join(map(re.escape, longest_first))})\b") if self._modules else None
        )

    def visit_Module(self, node: ast.Module) -> ast.AST:
        """A module that is imported by its own name has, in the file, the name that it has afterwards."""
        for part in ast.walk(node):
            if isinstance(part, ast.ImportFrom):
                for alias in part.names:
                    if alias.asname is None and (new := self._modules.get(f"{part.module}.{alias.name}")):
                        self._bound[alias.name] = new.rpartition(".")[2]
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        bound, own = self._bound, _variables(node)
        self._bound = {name: new for name, new in bound.items() if name not in own}
        try:
            return self.generic_visit(node)
        finally:
            self._bound = bound

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast calls it so

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._bound.get(node.id, self._names.get(node.id, node.id)), node.ctx)

    def visit_Import(self, _node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, _node: ast.ImportFrom) -> None:
        return None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        self.generic_visit(node)
        return node if node.body or node.orelse else None  # `if TYPE_CHECKING:` with imports alone

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str):
            return node
        if _IMPORT.search(node.value):
            with suppress(SyntaxError):
                return ast.Constant(ast.dump(self.visit(ast.parse(node.value))))
        text = _IMPORT.sub("", self._names.get(node.value, node.value))
        if self._module is not None:
            text = self._module.sub(lambda found: self._modules[found[1]], text)
        return ast.Constant(text)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        """Of two modules that were joined, their name is there once."""
        self.generic_visit(node)
        return ast.Set([*{ast.dump(element): element for element in node.elts}.values()])

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A module by its path, such as `core.log.retention`."""
        if new := self._modules.get(ast.unparse(node)):
            return ast.parse(new, mode="eval").body
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, str):
                setattr(node, field, self._names.get(value, value))
            elif isinstance(node, ast.Global | ast.Nonlocal):
                node.names = [self._names.get(name, name) for name in node.names]
        return node


def units_of(text: str, names: Mapping[str, str]) -> Iterator[Unit]:
    """Cuts the text of a module into its units. Raises SyntaxError if it is not Python."""
    module = _Plain(names).visit(ast.parse(text))
    yield from _cut(module.body, "")


def _cut(body: Iterable[ast.stmt], within: str) -> Iterator[Unit]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Unit("function", within + node.name, f"{within} {ast.dump(node)}")
        elif isinstance(node, ast.ClassDef):
            name = f"{within}{node.name}."
            yield from _cut((part for part in node.body if _is_definition(part)), name)
            node.body = [part for part in node.body if not _is_definition(part)]
            yield Unit("class", within + node.name, f"{within} {ast.dump(node)}")
        elif not _is_list_of_names(node):
            yield Unit("statement", ast.unparse(node).partition("\n")[0][:80], ast.dump(node))


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _is_list_of_names(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]


def _meets(text: str, names: Mapping[str, str]) -> list[str]:
    """The functions of a text that have both an old name and its new one: after the renaming they would be one."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            variables = _variables(node) | {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            found += [f"{node.name}: {old} and {new}" for old, new in names.items() if {old, new} <= variables]
    return found


def _variables(node: ast.AST) -> set[str]:
    """Those that a function sets, or is called with."""
    set_here = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return set_here | {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}


def compare(before: Mapping[str, str], after: Mapping[str, str], names: Mapping[str, str]) -> list[str]:
    """Returns what differs between two sets of modules (path -> text), as lines to show; none if one is moved."""
    found = [f"{path}: two names become one: {meet}" for path, text in before.items() for meet in _meets(text, names)]
    sides: list[Counter[Unit]] = []
    afterwards = {old: new for old, new in names.items() if "." not in old}  # a room may have a module's old name
    for texts, known in ((before, names), (after, afterwards)):
        units = Counter(unit for text in texts.values() for unit in units_of(text, known))
        sides.append(Counter({unit: 1 if unit.kind == "statement" else n for unit, n in units.items()}))
    gone, come = sides[0] - sides[1], sides[1] - sides[0]
    new = {(unit.kind, unit.name): unit for unit in come}
    for unit in gone:
        twin = new.pop((unit.kind, unit.name), None)
        if twin is None:
            found.append(f"{unit.kind} {unit.name}: is no more")
        else:
            found += [f"{unit.kind} {unit.name}: changed", *_differences(unit.code, twin.code)]
    return found + [f"{kind} {name}: is new" for kind, name in new]


def _differences(old: str, new: str) -> list[str]:
    apart = [re.sub(r"([(,\[]) ?", r"\1\n", code).splitlines() for code in (old, new)]
    lines = [f"    {line}" for line in difflib.unified_diff(apart[0], apart[1], lineterm="", n=1)][3:]
    return lines[:_SHOWN] + ["    .."] * (len(lines) > _SHOWN)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _texts_at(commit: str, paths: list[str]) -> dict[str, str]:
    asked = "".join(f"{commit}:{path}\n" for path in paths).encode()
    rest = subprocess.run(["git", "cat-file", "--batch"], check=True, capture_output=True, input=asked).stdout
    texts = {}
    for path in paths:
        head, _, rest = rest.partition(b"\n")  # id, type and size
        size = int(head.split()[2])
        texts[path], rest = rest[:size].decode(), rest[size + 1 :]
    return texts


def check(old: str, new: str) -> list[str]:
    """Compares two commits of the repository that is the working directory; returns what is no move, as lines."""
    changed = [line.split("\t") for line in _git("diff", "--no-renames", "--name-status", old, new).splitlines()]
    found = [
        f"{path}: a move changes no such file"
        for state, path in changed
        if not path.endswith(".py") and not _MAY_CHANGE.fullmatch(path) and not _is_elsewhere(old, new, path, state)
    ]
    python = [(state, path) for state, path in changed if path.endswith(".py")]
    before = _texts_at(old, [path for state, path in python if state != "A"])
    after = _texts_at(new, [path for state, path in python if state != "D"])
    table = dict(_ROW.findall(_texts_at(new, [_TABLE])[_TABLE]))
    return found + compare(before, after, table | _moved_modules(old, new))


def _moved_modules(old: str, new: str) -> dict[str, str]:
    """The modules that have another path on the other side, by their paths and as they are imported."""
    lines = _git("diff", "--find-renames=40%", "-l0", "--name-status", "--diff-filter=R", old, new).splitlines()
    moved = dict(line.split("\t")[1:] for line in lines)
    names = {path: to for path, to in moved.items() if path.endswith(".py")}
    return names | {_module(path): _module(to) for path, to in names.items()}


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_elsewhere(old: str, new: str, path: str, state: str) -> bool:
    """Whether a data file that came or went has the same bytes under another name on the other side."""
    if state not in "AD":
        return False
    here, there = (old, new) if state == "D" else (new, old)
    blob = _git("rev-parse", f"{here}:{path}").strip()
    return any(line.split()[2] == blob for line in _git("ls-tree", "-r", there).splitlines())


def moves_since_this_program() -> list[str]:
    """The commits to prove, the oldest first; none where the history is not there."""
    came = _git("log", "--format=%H", "--diff-filter=A", "--", "scripts/moves.py").split()
    if not came:
        return []
    lines = _git("log", "--no-merges", "--reverse", "--format=%H %s", f"{came[-1]}..HEAD").splitlines()
    return [commit for commit, _, title in (line.partition(" ") for line in lines) if _TITLE.match(title)]


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) == 2:
            pairs = [(arguments[0], arguments[1])]
        else:
            pairs = [(f"{commit}^", commit) for commit in arguments or moves_since_this_program()]
        failed = 0
        for old, new in pairs:
            lines = check(old, new)
            title = _git("log", "-1", "--format=%h %s", new).strip()
            print(f"{'no move' if lines else 'a move'}: {title}", *lines, sep="\n  ", flush=True)
            failed += bool(lines)
    except FileNotFoundError:
        print("moves: without git no commit can be looked at", file=sys.stderr)
        return 0
    except subprocess.CalledProcessError as error:
        print(f"moves: {error.stderr.strip()}", file=sys.stderr)
        return 0 if not arguments else 2
    print(f"{len(pairs)} commits looked at, {failed} are no moves", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
