"""Real Apache Kafka, as an oracle: its jars, fetched once by Maven, its tools and its message definitions.

Tests that need it carry `requires_kafka`, and are skipped, with the reason, where there is no Java or no Maven.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.class_archives import CACHE, kafka_options

KAFKA_VERSION = "4.3.1"
_HERE = Path(__file__).resolve().parent / "kafka"


@cache
def why_not() -> str | None:
    """Why there is no oracle here; None where there is one."""
    if shutil.which("java") is None:
        return "no Java on the PATH"
    if libs().exists():
        return None
    return None if shutil.which("mvn") else "no Maven on the PATH, to fetch Apache Kafka's jars"


def libs() -> Path:
    """One folder for each list of jars."""
    return _folder(_HERE / "pom.xml", f"kafka-{KAFKA_VERSION}")


def _folder(pom: Path, name: str) -> Path:
    return CACHE / f"{name}-{zlib.crc32(pom.read_bytes()):08x}"


requires_kafka = pytest.mark.skipif(why_not() is not None, reason=f"needs Apache Kafka's jars: {why_not()}")


@cache
def fetched_libs() -> Path:
    """The folder of the jars; fetches them at the first use on a machine."""
    return fetch_jars(_HERE / "pom.xml", f"kafka-{KAFKA_VERSION}", f"-Dkafka.version={KAFKA_VERSION}")


def fetch_jars(pom: Path, name: str, *arguments: str) -> Path:
    """The folder of the jars that a pom names."""
    target = _folder(pom, name)
    if not target.exists():
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        subprocess.run(
            ["mvn", "-q", "-B", "-f", pom, *arguments, "dependency:copy-dependencies", f"-DoutputDirectory={beside}"],
            check=True,
        )
        try:
            beside.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(beside)
    return target


def java_command(main_class: str, *arguments: str) -> list[str]:
    return [
        "java", "-Xmx256M", *kafka_options(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        f"-Dlog4j2.configurationFile=file:{_HERE / 'log4j2.properties'}",
        "-cp", f"{fetched_libs()}/*", main_class, *arguments,
    ]  # fmt: skip


def run_tool(main_class: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A Kafka tool or client, to its end."""
    return subprocess.run(
        java_command(main_class, *arguments), input=stdin, capture_output=True, check=False, timeout=120
    )


@cache
def message_definition(jar: str, folder: str, name: str) -> dict[str, Any]:
    """One of Kafka's own message definitions (JSON with comments, inside its jars)."""
    with zipfile.ZipFile(fetched_libs() / f"{jar}-{KAFKA_VERSION}.jar") as archive:
        text = archive.read(f"{folder}/{name}.json").decode()
    definition: dict[str, Any] = json.loads(without_comments(text))
    return definition


def without_comments(definition: str) -> str:
    """The JSON of a message definition, in which Kafka has comments."""
    return re.sub(r"(?m)^\s*//.*$", "", definition)
