"""An environment with the built wheel, and an application with packages `core`, `cli` and `tests` of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

APPLICATIONS_TESTS = """
import subprocess, sys

from cli import main
import core
from core import Order


def test_without_a_broker():
    assert main.run() == Order(5)
    ours = {name for name in sys.modules if name.partition(".")[0] == "plog"}
    assert ours == {"plog", "plog._core", "plog.pytest_plugin"}, "a test that asks for no broker loads none"


def test_with_a_broker(plog_broker):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": plog_broker.bootstrap_servers})
    producer.produce("orders", b"x")
    assert producer.flush() == 0
    assert core.Order(1) == 1


def test_with_a_server(plog_server):
    command = [sys.executable, "-m", "plog", "topic", "list", "--bootstrap-server", plog_server.bootstrap_servers]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
"""


def build_packages(folder: Path) -> None:
    """Builds the sdist, and the wheel by way of it, as a package index's users would. One process at a time does: the
    sdist is put together in the repository.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    with (ROOT / "pyproject.toml").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        subprocess.run(command, check=True, capture_output=True)


class Installed:
    """An environment with the wheel, and the application's folder; `run` is a command that is typed there."""

    def __init__(self, folder: Path) -> None:
        build_packages(folder / "dist")
        (self.wheel,) = (folder / "dist").glob("*.whl")
        self.application = folder / "application"
        self.bin = folder / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, capture_output=True)
        # What plog needs is here already. The repository itself is not found through this file: Python does not follow
        # the .pth files of a folder that a .pth file names.
        self.site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
        (self.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        self.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(self.wheel), cwd=folder)
        self._write_application()

    def _write_application(self) -> None:
        files = {
            "core/__init__.py": "class Order(int): pass",
            "cli/__init__.py": "",
            "cli/main.py": "from core import Order\n\ndef run(): return Order(5)",
            "tests/__init__.py": "",
            "tests/test_application.py": APPLICATIONS_TESTS,
        }
        for name, text in files.items():
            (self.application / name).parent.mkdir(parents=True, exist_ok=True)
            (self.application / name).write_text(text)
        shutil.copy(ROOT / "tests/unit/plog/test_testing.py", self.application / "tests")

    @property
    def environment(self) -> dict[str, str]:
        """Without what says which Python, as a Spark session that a test has started in this process does."""
        kinds = ("PYTHON", "PYSPARK_", "VIRTUAL_ENV")
        own = {key: value for key, value in os.environ.items() if not key.startswith(kinds)}
        return {**own, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run(
        self, command: str, *arguments: str, cwd: Path | None = None, expect: int = 0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [self.bin / command, *arguments], cwd=cwd or self.application, input=stdin, capture_output=True,
            check=False, env=self.environment,
        )  # fmt: skip
        assert done.returncode == expect, (done.stdout + done.stderr).decode()
        return done
