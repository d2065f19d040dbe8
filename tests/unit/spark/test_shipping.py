"""What goes along to a cluster's nodes, and what a node says that it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from core.spark.spark_session import is_local, with_retries, write_zip
from tests.support.for_each import for_each

_LOOK = "from core.spark.spark_session import _look; print(next(iter(_look([]))))"


def look(path: Path, code: str = _LOOK) -> str:
    """On a node whose Python has the zip, and none of the packages that are installed here."""
    command, environment = [sys.executable, "-S", "-c", code], {"PYTHONPATH": str(path)}
    return subprocess.run(command, env=environment, cwd=path.parent, capture_output=True, text=True, check=True).stdout


def test_the_zip_has_all_of_plog(tmp_path: Path) -> None:
    write_zip(tmp_path / "plog.zip")
    said = look(tmp_path / "plog.zip")
    assert "numpy: No module named 'numpy'" in said
    assert "pyarrow: No module named" in said
    assert "No module named 'core" not in said


def test_tasks_know_the_settings_of_a_secured_cluster(tmp_path: Path) -> None:
    """Their names are no Python: a file beside the module has them."""
    write_zip(tmp_path / "plog.zip")
    said = look(
        tmp_path / "plog.zip", "from core.security.client_settings import is_heeded as i; print(i('ssl.ca.pem'))"
    )
    assert said == "True\n"


def test_nothing_is_lacking_here() -> None:
    from core.spark.spark_session import _look

    ((_, python, problems),) = _look([])
    assert python == ".".join(map(str, sys.version_info[:3]))
    assert problems == ""


@for_each("master, expected", [
        ("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2]", "local[2,4]"), ("local[2,1]", "local[2,1]"),
        ("spark://h:7077", "spark://h:7077"), ("yarn", "yarn"),
    ])  # fmt: skip
def test_a_local_master_tries_tasks_again(master: str, expected: str) -> None:
    assert with_retries(master) == expected
    assert is_local(master) == master.startswith("local")
