"""The wheel and the sdist: made as a release makes them, and looked into."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from core import VERSION
from tests.support.installed import build_packages

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build_packages(folder)
    return folder


def test_the_wheel_holds_the_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"plog_kafka-{VERSION}-py3-none-any.whl"
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {
        f"{place}/{path.relative_to(ROOT / package)}"
        for package, place in (("core", "plog/_core"), ("cli", "plog/_cli"), ("plog", "plog"))
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == ours
    assert {"plog/_core/__init__.py", "plog/_cli/main.py", "plog/__main__.py", "plog/py.typed"} <= names


def test_the_wheel_installs_the_command_and_its_dependencies(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        (metadata,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        assert "plog = plog.__main__:main" in archive.read(entry_points).decode()
        text = archive.read(metadata).decode()
    for name in ("typer", "rich", "crcmod", "lz4", "python-snappy"):
        assert f"Requires-Dist: {name}" in text
    assert "Provides-Extra: spark" in text
    assert "Requires-Dist: pyspark" in text


def test_the_sdist_can_be_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "core/__init__.py", "cli/main.py", "plog/__main__.py"} <= names
    assert not any(name.startswith(("tests/", "changes/", "sample-data/")) for name in names)


def test_there_is_one_version() -> None:
    assert PROJECT["version"] == VERSION
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_locked_dependencies_are_those_of_the_project() -> None:
    locked = {line.split("==")[0].strip().lower() for line in (ROOT / "requirements.lock").read_text().splitlines()}
    wanted = [*PROJECT["dependencies"], *(d for extra in PROJECT["optional-dependencies"].values() for d in extra)]
    names = {d.split(">")[0].split("[")[0].strip().lower() for d in wanted} - {"plog-kafka"}
    assert names <= locked


def test_a_plaintext_client_starts_without_what_it_does_not_need() -> None:
    modules = "core.client.net.kafka_client, core.inspector.dump.value_format, cli.main"
    unwanted = {"ssl", "cryptography", "yaml", "urllib.request", "core.security.client_security", "numpy"}
    unwanted.add("core.client.schemas.schema_registry")
    code = f"import sys, {modules}; print(*sorted({unwanted} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_a_plain_install_is_small() -> None:
    """docs/dependencies.md says what each package weighs."""
    sizes = {"plog-kafka": 16_000_000}  # with what Python compiles of it; here it is the repository itself
    waiting = [*PROJECT["dependencies"]]
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.name not in sizes and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found = distribution(wanted.name)
            files = (Path(str(file.locate())) for file in found.files or ())
            sizes[wanted.name] = sum(path.stat().st_size for path in files if path.exists())
            waiting += found.requires or ()
    assert {"numpy", "lz4"} <= sizes.keys()
    assert not {"pyarrow", "pyspark", "zstandard", "textual"} & sizes.keys()
    assert sum(sizes.values()) < 134_000_000, sizes


def test_only_arrow_parquet_and_spark_need_pyarrow() -> None:
    """It is an extra, of 176 MB: what the plain install uses imports no module that imports it when imported."""
    files = [path.relative_to(ROOT) for top in ("core", "cli", "plog") for path in (ROOT / top).rglob("*.py")]
    line = re.compile(r"^(?:from|import) (\S+)", re.MULTILINE)
    imported = {".".join(path.with_suffix("").parts): set(line.findall((ROOT / path).read_text())) for path in files}
    needing = {"pyarrow"}
    while more := {name for name, those in imported.items() if not those.isdisjoint(needing)} - needing:
        needing |= more
    assert {name for name in needing if not name.startswith("core.spark.")} == {
        "pyarrow", "core.pipeline.arrow_text", "core.pipeline.consuming.typed_sink", "core.inspector.dump.arrow_batch",
        "core.pipeline.spark_replay_plan", "cli.replay_progress", "plog.spark",
    }  # fmt: skip


def test_a_broker_starts_without_the_libraries_of_columns() -> None:
    """They take as long to load as all the rest of it, and most brokers never need them."""
    code = "import sys, core.broker.serving.socket_server; print(*sorted({'numpy', 'pyarrow'} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
