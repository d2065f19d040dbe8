"""plog as people install it: the built wheel in an environment of its own, used from an application's folder.

The application has packages `core`, `cli` and `tests`, as many do; the repository has them too. The wheel must not.
"""

from __future__ import annotations

import ast
import re
import zipfile
from pathlib import Path

import pytest

from cli.main import COMMANDS
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.installed import Installed
from tests.support.oracle import why_not

pytestmark = pytest.mark.longer


def test_there_is_one_top_level_package(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert "plog" in tops
    assert all(name.endswith(".dist-info") for name in tops - {"plog"})
    look = "import importlib.util as u; print(*(u.find_spec(n) is None for n in ('core', 'cli', 'plog', 'tests')))"
    assert installed.run("python", "-P", "-c", look).stdout == b"True True False True\n"


def test_no_text_names_a_module_as_the_repository_has_it(installed: Installed) -> None:
    """A name in a string would lead nowhere: the wheel's layout is made by rewriting imports alone."""
    found = []
    with zipfile.ZipFile(installed.wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                for node in ast.walk(ast.parse(archive.read(name))):
                    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
                    if is_text and re.search(r"^(core|cli)(\.\w+)*$|\b(from|import) (core|cli)\b", node.value):
                        found.append(f"{name}:{node.lineno}: {node.value}")
    assert found == []


def test_every_module_is_found(installed: Installed) -> None:
    code = (
        "import importlib, pkgutil, plog\n"
        "for module in pkgutil.walk_packages(plog.__path__, 'plog.'):\n"
        "    if module.name != 'plog.__main__': importlib.import_module(module.name)\n"
        "import core; print(core.Order(7))"
    )
    assert installed.run("python", "-c", code).stdout == b"7\n"


def test_the_applications_suite_and_ours(installed: Installed) -> None:
    for file, passed in (("test_application.py", b"3 passed"), ("test_testing.py", b"17 passed")):
        assert passed in installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{file}").stdout


@for_each("command", COMMANDS)
def test_every_command_is_there(installed: Installed, command: str) -> None:
    said = installed.run("plog", command, "--help").stdout.decode()
    assert "Usage: plog" in said
    assert installed.run("plog", "help", command).stdout


def test_the_commands_work(installed: Installed, tmp_path: Path) -> None:
    """Through what imports by name: the cleaner's process, pages of help, tasks in processes of their own."""
    data = ["--data-dir", str(tmp_path / "data")]
    installed.run("plog", "topic", "create", "t", "--set", "cleanup.policy=compact", "--set", "segment.ms=1", *data)
    for line in (b"a=1", b"a=2", b"b=3"):  # each rolls a segment
        installed.run("python", "-m", "plog", "produce", "t", "--key-separator", "=", *data, stdin=line)
    installed.run("plog", "compact", str(tmp_path / "data"), "--apply")
    assert installed.run("plog", "consume", "t", *data).stdout.split() == [b"2", b"3"]
    installed.run("plog", "verify", str(tmp_path / "data"))
    assert b"offset" in installed.run("plog", "dump-segment", str(GOLDEN / "binary")).stdout
    assert installed.run("plog", "--version").stdout.split()[-1] == installed.wheel.name.split("-")[1].encode()


def test_a_lean_install_does_all_but_arrow_parquet_and_spark(installed: Installed, tmp_path: Path) -> None:
    lean = installed.lean
    lean.run("python", "-c", "import pyarrow", expect=1)
    data = ["--data-dir", str(tmp_path / "data")]
    lean.run("plog", "topic", "create", "t", "--partitions", "2", *data)
    lean.run(
        "plog", "produce", "t", "--key-separator", "=", "--compression", "zstd", *data, stdin=b"a=1\nb=2\nc=\xff\n"
    )
    lean.run("plog", "produce", "j", "--value-format", "json", "--key-field", "k", *data, stdin=b'{"k": "x", "n": 7}\n')
    envelopes = lean.run("plog", "consume", "t", "--merge", "--format", "envelope", *data).stdout
    lean.run("plog", "produce", "again", "--format", "envelope", "--partition", "0", *data, stdin=envelopes)
    lean.run("plog", "produce", "again", "--template", "%k->%s\\n", "--partition", "0", *data, stdin=b"d->4\n")
    shown = lean.run("plog", "consume", "again", "--format", "%k %s{hex} %T{strftime[%Y]}\\n", *data).stdout
    assert re.fullmatch(rb"a 31 (\d{4})\nb 32 \1\nc ff \1\nd 34 \1\n", shown)
    for options in (["--filter", '.n == 7 and key ~ "^[x-z]$"'], ["--grep", "n.: [0-9]"], ["--group", "g"]):
        assert lean.run("plog", "consume", "j", *options, *data).stdout == b'{"k": "x", "n": 7}\n'
    assert b"g" in lean.run("plog", "group", "list", *data).stdout
    assert lean.run("plog", "consume", "j", "--format", "csv", *data).stdout
    assert b"x" in lean.run("plog", "dump-segment", str(tmp_path / "data" / "j-0"), "--print-data-log").stdout
    lean.run("plog", "verify", str(tmp_path / "data"), "--deep")
    lean.run("plog", "recover", str(tmp_path / "data"))
    for command, extra in (
        (["consume", "t", *data, "--format", "parquet", "--out", "o"], b"arrow"),
        (["consume", "t", *data, "--format", "arrow"], b"arrow"),
        (["dump-segment", str(tmp_path / "data" / "j-0"), "--format", "arrow"], b"arrow"),
        (["spark-replay", "t", *data, "--to", "parquet:o"], b"spark"),
    ):
        said = lean.run("plog", *command, expect=2).stderr
        assert b"needs the package pyarrow\nhint: pip install 'plog-kafka[%b]'" % extra in said
    lean.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_application.py")


@pytest.mark.java
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "")
def test_spark(installed: Installed, tmp_path: Path) -> None:
    """Its workers import what tasks name; what goes to a cluster's nodes is one package."""
    data = ["--data-dir", str(tmp_path / "data")]
    installed.run("plog", "produce", "t", *data, stdin=b"a\nb\nc\n")
    installed.run("plog", "spark-replay", "t", *data, "--to", f"parquet:{tmp_path / 'out'}")
    read = "import pyarrow.parquet as p, sys; print(p.read_table(sys.argv[1]).num_rows)"
    assert installed.run("python", "-c", read, str(tmp_path / "out")).stdout == b"3\n"
    code = "import sys; from plog._core.spark.spark_session import write_zip, Path; write_zip(Path(sys.argv[1]))"
    installed.run("python", "-c", code, str(tmp_path / "plog.zip"))
    names = zipfile.ZipFile(tmp_path / "plog.zip").namelist()
    assert {name.partition("/")[0] for name in names} == {"plog"}
    assert "plog/_core/spark/replay.py" in names
