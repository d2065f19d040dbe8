"""Real Apache Kafka, as an oracle: its jars, fetched once by Maven, its tools and its message definitions.

Tests that need it carry `requires_kafka`, and are skipped, with the reason, where there is no Java or no Maven. Those
that need Kafka 3.9, the last that runs with ZooKeeper, carry `requires_kafka39`; those that need the consumer of Kafka
1.1, which divides partitions through ZooKeeper, `requires_kafka11`.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import threading
import zipfile
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.class_archives import CACHE, kafka_options

if TYPE_CHECKING:
    from tests.support.kafka_tools import KafkaTools

KAFKA_VERSION = "4.4.0"
KAFKA43_VERSION = "4.3.1"
"""The last that has Connect's file connectors on Maven Central."""
KAFKA39_VERSION = "3.9.2"
KAFKA11_VERSION = "1.1.1"
_HERE = Path(__file__).resolve().parent / "kafka"
CALLS = _HERE / "Calls.java"
"""A program of calls of Kafka's clients, to which the address of a broker is given."""
_POMS = {
    KAFKA_VERSION: _HERE / "pom.xml",
    KAFKA43_VERSION: _HERE / "pom-4.3.xml",
    KAFKA39_VERSION: _HERE / "pom-3.9.xml",
    KAFKA11_VERSION: _HERE / "pom-1.1.xml",
}


@cache
def why_not(version: str = KAFKA_VERSION) -> str | None:
    """Why there is no oracle of that version here; None where there is one."""
    if shutil.which("java") is None:
        return "no Java on the PATH"
    if libs(version).exists():
        return None
    return None if shutil.which("mvn") else f"no Maven on the PATH, to fetch Apache Kafka's jars of {version}"


def libs(version: str = KAFKA_VERSION) -> Path:
    """One folder for each list of jars."""
    return _folder(_POMS[version], f"kafka-{version}")


def _folder(pom: Path, name: str) -> Path:
    return CACHE / f"{name}-{zlib.crc32(pom.read_bytes()):08x}"


def _requires(version: str) -> pytest.MarkDecorator:
    reason = why_not(version)
    return pytest.mark.skipif(reason is not None, reason=f"needs Apache Kafka's jars of {version}: {reason}")


requires_kafka = _requires(KAFKA_VERSION)
requires_kafka43 = _requires(KAFKA43_VERSION)
requires_kafka39 = _requires(KAFKA39_VERSION)
requires_kafka11 = _requires(KAFKA11_VERSION)


@cache
def fetched_libs(version: str = KAFKA_VERSION) -> Path:
    """The folder of the jars; fetches them at the first use on a machine."""
    return fetch_jars(_POMS[version], f"kafka-{version}", f"-Dkafka.version={version}")


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


def java_command(main_class: str, *arguments: str, version: str = KAFKA_VERSION) -> list[str]:
    return [
        "java", "-Xmx256M", *kafka_options(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        f"-Dlog4j2.configurationFile=file:{_HERE / 'log4j2.properties'}",
        "-cp", f"{fetched_libs(version)}/*", main_class, *arguments,
    ]  # fmt: skip


def run_tool(main_class: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A Kafka tool or client, to its end. The tools that do one thing share a JVM of this process."""
    is_free = main_class.endswith(_DOING_ONE_THING) and _turn.acquire(blocking=False)
    if not is_free:
        return subprocess.run(java_command(main_class, *arguments), input=stdin, capture_output=True, check=False)
    try:
        return _shared_tools().run(main_class, *arguments, stdin=stdin)
    finally:
        _turn.release()


_DOING_ONE_THING = ("Command", "DumpLogSegments", "StorageTool")
_turn = threading.Lock()


@cache
def _shared_tools() -> KafkaTools:
    from tests.support.kafka_tools import KafkaTools

    tools = KafkaTools()
    atexit.register(tools.__exit__)
    return tools


@cache
def message_definition(jar: str, folder: str, name: str, version: str = KAFKA_VERSION) -> dict[str, Any]:
    """One of Kafka's own message definitions (JSON with comments, inside its jars)."""
    with zipfile.ZipFile(fetched_libs(version) / f"{jar}-{version}.jar") as archive:
        text = archive.read(f"{folder}/{name}.json").decode()
    definition: dict[str, Any] = json.loads(without_comments(text))
    return definition


def without_comments(definition: str) -> str:
    """The JSON of a message definition, in which Kafka has comments."""
    return re.sub(r"(?m)^\s*//.*$", "", definition)
