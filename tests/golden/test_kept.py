"""What users hold on to, as it was: help, keys of JSON, metrics, loggers, settings, what can be imported, packages.

Each is one text in `__snapshots__/test_kept.ambr`. A change of it is a change for users: make it on purpose, run
`python -m pytest tests/golden/test_kept.py --snapshot-update`, and say it in `changes/`. A commit that only moves or
renames changes none (`scripts/moves.py`).
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from core.broker.config.broker_settings import BROKER_CONFIG
from core.broker.config.group_configs import GROUP_CONFIG
from core.common.config_def import ConfigDef
from core.files.log_config import TOPIC_CONFIG
from core.spark.spark_session import write_zip
from plog.testing import running_cluster
from tests.cli.conftest import ok
from tests.support.all_commands import all_commands
from tests.support.golden import GOLDEN
from tests.support.server import call_plog

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "cli", "plog")


def lines(found: Iterable[str]) -> str:
    return "\n".join(found)


def test_the_help_of_each_command(snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for words in ["", *all_commands()]:
        assert call_plog(*words.split(), "--help").stdout.decode() == snapshot(name=words or "plog")


# --- JSON


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all keys: `a.b` for an object within an object, `a[].b` for one in a list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}{key}"
            yield from keys_of(inner, f"{path}{key}.")
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, f"{path.removesuffix('.')}[]." if path else "")


def json_of(*command: str) -> Any:
    done = call_plog(*command)
    assert done.stdout, (command, done.stderr)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return [json.loads(line) for line in done.stdout.splitlines()]


def keys_of_commands(commands: Iterable[tuple[str, ...]]) -> str:
    found = {f"{command[0]} {Path(command[1]).name}": keys_of(json_of(*command)) for command in commands}
    return lines(f"{title}: {' '.join(dict.fromkeys(keys))}" for title, keys in found.items())


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Of one topic with a group and a transaction."""
    where = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *where)
    ok("produce", "t", "--key-separator", ":", *where, stdin=b"a:1\nb:2\na:3\n")
    ok("produce", "t", "--transactional-id", "x", *where, stdin=b"c\n")
    ok("consume", "t", "--group", "g", "--max-messages", "1", *where)
    return where[1]


JSON = ("--output", "json")


def test_the_keys_of_json_of_a_directory(directory: str, snapshot: SnapshotAssertion) -> None:
    where = ("--data-dir", directory, *JSON)
    assert snapshot == keys_of_commands(
        [
            ("topic", "list", *where),
            ("topic", "describe", "t", *where),
            ("group", "list", *where),
            ("group", "describe", "g", *where),
            ("group", "reset-offsets", "g", "--topic", "t", "--to-earliest", *where),
            ("transaction", "list", *where),
            ("transaction", "describe", "x", *where),
            ("config", "list", *where),
            ("config", "describe", "topic", "t", "--all", *where),
            ("consume", "t", "--format", "json", "--data-dir", directory),
            ("trace", "t:0@1", *where),
            ("perf", "produce", "p", "--num-records", "10", "--record-size", "10", *where),
            ("perf", "consume", "p", "--timeout", "0", *where),
            ("perf", "latency", "p", "--num-records", "5", *where),
            *(("cluster", word, *where) for word in ("status", "brokers", "topics", "controller", "features")),
            ("cluster", "describe", "t", *where),
        ]
    )


def test_the_keys_of_json_of_files(directory: str, snapshot: SnapshotAssertion) -> None:
    partition = f"{directory}/t-0"
    damaged = str(GOLDEN.parent / "damage" / "09-swapped-batches")
    assert snapshot == keys_of_commands(
        [
            ("verify", damaged, *JSON),
            ("doctor", damaged, *JSON),
            ("recover", damaged, *JSON),
            ("gaps", partition, *JSON),
            ("stats", partition, *JSON),
            ("compact", partition, *JSON),
            ("diff", partition, str(GOLDEN / "binary"), *JSON),
            *(("dump-segment", str(file), "--print-data-log", *JSON) for file in sorted(Path(partition).iterdir())),
        ]
    )


@pytest.mark.longer
def test_the_keys_of_json_of_a_cluster(snapshot: SnapshotAssertion) -> None:
    with running_cluster(brokers=2) as cluster:
        where = ("--bootstrap-server", cluster.bootstrap_servers, *JSON)
        ok("topic", "create", "t", "--partitions", "2", "--replication-factor", "1", *where[:2])
        assert snapshot == keys_of_commands(
            [
                *(("cluster", word, *where) for word in ("status", "brokers", "topics", "controller", "features")),
                ("cluster", "check", *where),
                ("cluster", "elect", "--preferred", "--dry-run", *where),
                ("cluster", "drain", "1", "--dry-run", *where),
                ("cluster", "reassign", "--topics", "t", "--to", "1,2", "--dry-run", *where),
            ]
        )


# --- what a broker is watched and set by


def test_the_metrics_of_a_broker(snapshot: SnapshotAssertion) -> None:
    rows = re.findall(r"^\| (`[a-z_].*?) \| (.*?) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert snapshot == lines(f"{names}: {labels}" for names, labels in rows)


def test_the_names_of_loggers(snapshot: SnapshotAssertion) -> None:
    sources = (path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    assert snapshot == lines(sorted({name for text in sources for name in re.findall(r"getLogger\((.*?)\)", text)}))


def test_the_settings_and_their_defaults(snapshot: SnapshotAssertion) -> None:
    def text(settings: ConfigDef) -> str:
        return lines(f"{key.name}: {key.type.name} = {key.default!r}" for key in settings)

    for settings in (BROKER_CONFIG, TOPIC_CONFIG, GROUP_CONFIG):
        assert text(settings) == snapshot(name=settings.scope)


# --- what is imported


@pytest.mark.parametrize(
    "module", ["plog", "plog.testing", "plog.pytest_plugin", pytest.param("plog.spark", marks=pytest.mark.longer)]
)
def test_what_can_be_imported(module: str, snapshot: SnapshotAssertion) -> None:
    found = []
    for name, thing in sorted(vars(importlib.import_module(module)).items()):
        is_ours = getattr(thing, "__module__", module).startswith(("plog", "core", "cli"))
        if name.startswith("_") or inspect.ismodule(thing) or not is_ours:
            continue
        found.append(f"{name}{signature(thing)}")
        if inspect.isclass(thing):
            members = sorted(set(dir(thing)) - set(dir(Exception)))
            found += [f"    {m}{signature(getattr(thing, m))}" for m in members if not m.startswith("_")]
    assert snapshot == lines(found)


def signature(thing: Any) -> str:
    try:
        return str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""


def test_what_a_wheel_installs(snapshot: SnapshotAssertion) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = sorted(
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".md")
    )
    modules = sorted(f"plog.{path.stem}" for path in (ROOT / "plog").glob("*.py"))
    assert snapshot == lines([*modules, *others, json.dumps(project["scripts"]), json.dumps(project["entry-points"])])


def test_what_an_import_loads(snapshot: SnapshotAssertion) -> None:
    """Packages of others: each costs time. A child for each module of ours, as an import lasts."""
    modules = {"command line": "cli.main", "broker": "core.broker.serving.socket_server"}
    for name, module in {**modules, "plog": "plog", "plog.testing": "plog.testing"}.items():
        code = f"import sys; old = set(sys.modules); import {module}; print(*set(sys.modules) - old)"
        found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
        packages = {name.partition(".")[0] for name in found.stdout.split()} - sys.stdlib_module_names
        assert lines(sorted(name for name in packages if not name.startswith("_"))) == snapshot(name=name)


def test_what_the_nodes_of_spark_get(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    write_zip(tmp_path / "plog.zip")
    with zipfile.ZipFile(tmp_path / "plog.zip") as archive:
        names = archive.namelist()
    folders = {"/".join(name.split("/")[:2]) for name in names if name.count("/") > 1}
    assert snapshot == lines([*sorted(folders), *(name for name in names if name.count("/") == 1)])
