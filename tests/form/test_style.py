"""What STYLE.md says of imports and folders is so."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for package in ("core", "cli", "plog") for path in (ROOT / package).rglob("*.py"))
WRITES_THROUGH_THE_FILE_SYSTEM = (
    "core/broker/",
    "core/cluster/",
    "core/compaction/",
    "core/files/",
    "core/forensics/",
    "core/index/",
    "core/log/",
    "core/processes/",
    "core/spark/",
)
WRITES_ITSELF = {
    "core/broker/serving/owner_listener.py",  # the name of a socket, which holds nothing
    "core/files/directory_lock.py",  # a lock on an open file, and its text for whoever waits
    "core/files/tls_context.py",  # keys for OpenSSL, in memory
    "core/spark/java_home.py",  # these three write what Spark wants while it runs, no output
    "core/spark/spark_session.py",
    "core/spark/spark_settings.py",
}
OS_WRITES = re.compile(r"os\.(p?write|replace|rename|unlink|remove|f?truncate|fsync|mkdir|makedirs|rmdir|link|symlink)")
PATH_WRITES = (".write_text", ".write_bytes", ".touch", ".symlink_to", ".hardlink_to")
GIVEN_OUT_PIECE_BY_PIECE = {
    "GapLedger", "LogMap", "LogScanner", "LogRows", "SalvagingFile", "SegmentScanner", "BatchScanner",
}  # fmt: skip
"""Their invariants are of all that comes out of them, and only a test sees that."""
MOST_BY_PLACE = 6
TAKES_ANY_NUMBER = re.compile(r"partial|join_rows|.*\.pack|_log\.\w+")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    return tuple(_imports(nodes_of(path)))


def _imports(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
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
    tested = {path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert tested == folders | {"cli", "plog"}


def test_a_unit_test_is_in_the_folder_of_what_it_tests() -> None:
    """It imports something of that folder, itself or through its support; and has the name of a module of no other."""
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        places.setdefault(path.stem, set()).add(package_of(path.relative_to(ROOT).with_suffix("").as_posix()))
    wrong = []
    for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
        folder = path.relative_to(ROOT / "tests" / "unit").parts[0]
        modules = imports_of(path)
        support = [ROOT / f"{name.replace('.', '/')}.py" for name in modules if name.startswith("tests.support.")]
        used = {
            package_of(name.replace(".", "/"))
            for name in [*modules, *(n for file in support for n in imports_of(file))]
        }
        named_for = places.get(path.stem.removeprefix("test_"), {folder})
        if folder not in used or folder not in named_for:
            wrong.append(f"{path.relative_to(ROOT)}: uses {sorted(used)}, its name is of {sorted(named_for)}")
    assert wrong == []


def package_of(module: str) -> str:
    """The layer's name: "log" of "core/log/retention", "cli" of "cli/commands/topic"."""
    first, _, rest = module.partition("/")
    return rest.partition("/")[0] if first == "core" else first


def test_no_two_modules_have_one_name() -> None:
    """But for those that an API or a command names: its schema and its handler, the command and what it calls."""
    named: dict[str, list[str]] = {}
    for path in SOURCES:
        if path.parent.name not in ("schema", "handlers", "commands") and path.stem != "__init__":
            named.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    assert [paths for paths in named.values() if len(paths) > 1] == []


def test_no_folder_has_more_than_30_modules() -> None:
    """But for those of APIs, and core/spark."""
    folders = {path.parent for path in SOURCES} - {ROOT / "core" / "spark"}
    sizes = {folder: len(list(folder.glob("*.py"))) - 1 for folder in folders}
    large = {str(folder.relative_to(ROOT)) for folder, size in sizes.items() if size > 30}
    assert large == {"core/protocol/schema"}


def test_no_module_of_the_broker_imports_what_imports_it() -> None:
    """import-linter looks at packages, and the broker's rooms call each other."""
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SOURCES}
    modules = {name: path for path, name in names.items() if name.startswith("core.broker.")}
    TopologicalSorter({name: modules.keys() & {*imports_of(path)} for name, path in modules.items()}).prepare()


def test_what_a_broker_or_a_replay_writes_goes_through_the_file_system() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in SOURCES
        if str(path.relative_to(ROOT)).startswith(WRITES_THROUGH_THE_FILE_SYSTEM)
        if str(path.relative_to(ROOT)) not in WRITES_ITSELF
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and writes(node)
    ]
    assert found == []


def writes(call: ast.Call) -> bool:
    """Whether it changes files past `common/filesystem.py`."""
    name = ast.unparse(call.func)
    if name.startswith("os."):
        return bool(
            OS_WRITES.fullmatch(name) or (name == "os.open" and re.search("O_(WRONLY|RDWR)", ast.unparse(call)))
        )
    if name == "open" or name.endswith(".open"):
        return any(isinstance(a, ast.Constant) and re.search("[wax+]", str(a.value)) for a in call.args)
    return name.startswith(("shutil.copy", "shutil.move", "shutil.rm")) or name.endswith(PATH_WRITES)


@cache
def classes() -> list[tuple[str, ast.ClassDef]]:
    """Each class of the project, with its file."""
    return [
        (str(path.relative_to(ROOT)), node)
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
    ]


def test_values_have_slots_unless_they_remember_what_they_compute() -> None:
    found = [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in classes()
        for decorator in map(ast.unparse, node.decorator_list)
        if decorator.startswith("dataclass(frozen=True") and "slots=True" not in decorator
        if "@cached_property" not in ast.unparse(node)
    ]
    assert found == []


def test_numbered_invariants_are_asserted() -> None:
    found = [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in classes()
        if re.search(r"\bI1\b", ast.get_docstring(node) or "") and node.name not in GIVEN_OUT_PIECE_BY_PIECE
        if not any(isinstance(one, ast.FunctionDef) and one.name.endswith("check_invariants") for one in node.body)
    ]
    assert found == []


def test_many_arguments_are_passed_by_name() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and len(node.args) > MOST_BY_PLACE
        if not TAKES_ANY_NUMBER.fullmatch(ast.unparse(node.func))
    ]
    assert found == []
