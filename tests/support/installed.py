"""An environment with the built wheel, and an application with packages `core`, `cli` and `tests` of its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Self

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

_HIDES_PYARROW = "import os, sys; 'WITHOUT_PYARROW' in os.environ and sys.modules.update(pyarrow=None)\n"


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
        self._folder = folder
        self._added: dict[str, str] = {}
        self.application = folder / "application"
        self.bin = folder / "venv" / "bin"

    @property
    def wheel(self) -> Path:
        (wheel,) = (self._folder / "dist").glob("*.whl")
        return wheel

    @property
    def lean(self) -> Self:
        """The same without pyarrow, as `pip install plog-kafka` is."""
        lean = type(self)(self._folder)
        lean._added = {"WITHOUT_PYARROW": "1"}
        return lean

    def make(self) -> None:
        """Does nothing if another process has made it, and waits for one that does."""
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not self.application.exists():
                build_packages(self._folder / "dist")
                self._install()
                self._write_application()

    def _install(self) -> None:
        """Where this environment has pip, the other does without its own, which takes most of its time."""
        venv = self._folder / "venv"
        own_pip = ["--without-pip"] if find_spec("pip") else []
        subprocess.run([sys.executable, "-m", "venv", *own_pip, venv], check=True, capture_output=True)
        # What plog needs is here already. The repository itself is not found through this file: Python does not follow
        # the .pth files of a folder that a .pth file names.
        site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
        (site_packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{_HIDES_PYARROW}")
        options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed"]
        self.run("python", "-m", "pip", "install", *options, str(self.wheel), cwd=self._folder)

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
        return {**own, **self._added, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run(
        self, command: str, *arguments: str, cwd: Path | None = None, expect: int = 0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [self.bin / command, *arguments], cwd=cwd or self.application, input=stdin, capture_output=True,
            check=False, env=self.environment,
        )  # fmt: skip
        assert done.returncode == expect, (done.stdout + done.stderr).decode()
        return done
