"""One-line mutants made by a program: a seeded sample of all that these rules make of core/ and cli/.

A comparison is turned into its neighbour, `and` into `or`, a condition into its opposite, a number is one larger, a
truth value the other one, plus becomes minus, a returned value None, and a call whose value nobody uses is left out.
Types, docstrings, assertions and messages of exceptions are left alone: nobody asks the tests about these.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "cli")

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Mod: "//", ast.BitAnd: "|", ast.BitOr: "&",
    ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip


class SampledMutant(NamedTuple):
    """Bytes `start` to `end` (half-open, of the line in UTF-8) of a line, counted from 1, become other text."""

    file: str
    line: int
    start: int
    end: int
    becomes: str
    was: str

    def applied_to(self, text: str) -> str:
        lines = text.split("\n")
        line = lines[self.line - 1].encode()
        assert line[self.start : self.end].decode() == self.was, f"{self.file}:{self.line} has changed"
        lines[self.line - 1] = (line[: self.start] + self.becomes.encode() + line[self.end :]).decode()
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.start}: {self.was} -> {self.becomes}"


def sample(count: int, seed: int) -> list[SampledMutant]:
    """Picks lines at random, then one mutant of each; the same for the same code and seed, and in random order, so that
    the first few are a sample, too.
    """
    lines: dict[tuple[str, int], list[SampledMutant]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            for mutant in mutants_of(file, path.read_text()):
                lines.setdefault((file, mutant.line), []).append(mutant)
    chance = random.Random(seed)
    places = sorted(lines)
    chance.shuffle(places)
    chosen = (_that_compiles(chance.sample(lines[place], len(lines[place]))) for place in places)
    return list(islice((mutant for mutant in chosen if mutant is not None), count))


def _that_compiles(mutants: Sequence[SampledMutant]) -> SampledMutant | None:
    for mutant in mutants:
        try:
            compile(mutant.applied_to((ROOT / mutant.file).read_text()), mutant.file, "exec")
        except SyntaxError:
            continue
        return mutant
    return None


def mutants_of(file: str, text: str) -> Iterator[SampledMutant]:
    """All mutants of a file; one or the other may not compile."""
    lines = text.split("\n")
    for line, start, end, becomes in _changes(ast.parse(text), lines):
        was = lines[line - 1].encode()[start:end].decode()
        yield SampledMutant(file, line, start, end, becomes, was)


def _changes(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Line, bytes, and what stands there instead."""
    for node in _tested_nodes(tree):
        if isinstance(node, ast.If | ast.While) and node.test.lineno == node.test.end_lineno:
            yield from _negated(lines, node.test)
        if not hasattr(node, "lineno") or node.lineno != node.end_lineno:
            continue
        here = (node.lineno, node.col_offset, node.end_col_offset)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from _between(lines, node.left, node.comparators[0], _COMPARISONS.get(type(node.ops[0])))
        elif isinstance(node, ast.BoolOp):
            other = "or" if isinstance(node.op, ast.And) else "and"
            yield from _between(lines, node.values[0], node.values[1], other)
        elif isinstance(node, ast.BinOp):
            yield from _between(lines, node.left, node.right, _OPERATORS.get(type(node.op)))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield (node.lineno, node.col_offset, node.operand.col_offset, "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield (*here, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield (*here, str(node.value + 1))
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield (*here, "return None")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield (*here, "pass")


def _between(
    lines: list[str], left: ast.expr, right: ast.expr, becomes: str | None
) -> Iterator[tuple[int, int, int, str]]:
    """The operator that stands between two operands on one line."""
    if becomes is None or left.end_lineno != right.lineno:
        return
    start, end = left.end_col_offset or 0, right.col_offset
    text = lines[right.lineno - 1].encode()[start:end].decode()
    operator = text.strip("() ")
    if operator:
        begin = start + len(text[: text.index(operator)].encode())
        yield (right.lineno, begin, begin + len(operator.encode()), becomes)


def _negated(lines: list[str], test: ast.expr) -> Iterator[tuple[int, int, int, str]]:
    here = lines[test.lineno - 1].encode()[test.col_offset : test.end_col_offset].decode()
    yield (test.lineno, test.col_offset, test.end_col_offset or 0, f"not ({here})")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _tested_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All below, but for what is left alone."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "bases", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.Raise | ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield child
            yield from _tested_nodes(child)
