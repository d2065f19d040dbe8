"""What the JVMs of Kafka and Spark load at each start, in files that they map into memory: it halves the start.

    python -m tests.support.class_archives    makes the files, once; half a minute on two cores

Java calls this class data sharing. A JVM passes over a file that is missing, or was made by another Java or of other
jars, or of jars elsewhere, and loads the classes as ever: no test needs the files. `scripts/test` makes them before it
runs everything, Kafka's beside its jars and Spark's in the virtual environment.

Spark's Python processes import PySpark from an archive in which there is no bytecode: each compiles all that it needs.
So the archive of the virtual environment gets bytecode as well.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plog-tests"

_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A JVM of a minute or two is not worth the second compiler's work, nor a collector with threads of its own."""
_SILENT = "-Xlog:disable"  # it would warn of an archive that does not fit

_NEVER_IMPORTED = re.compile(r"pyspark/(pandas|ml|mllib|pipelines|testing|(.*/)?tests)/")

_SPARK_JOB = """
import sys
from pathlib import Path
from core.spark.spark_session import spark_session
from core.spark.spark_settings import SparkSettings
from plog.spark import register

folder = Path(sys.argv[1])
with spark_session(SparkSettings("local[2]"), folder / "scratch") as spark:
    register(spark)
    spark.range(100).selectExpr("id % 7 AS a", "id").groupBy("a").count().write.parquet(str(folder / "rows"))
    assert spark.read.parquet(str(folder / "rows")).count() == 7
    spark._jvm.java.lang.System.exit(0)  # it writes the archive then; when its caller ends, it is killed
"""


@cache
def kafka_options(version: str = "") -> tuple[str, ...]:
    """Options of a JVM that runs something of Kafka's jars, of another `version` than the usual one if it is given."""
    return (*_QUICK, f"-XX:SharedArchiveFile={_kafka_archive(version)}", _SILENT)


def quick_options() -> tuple[str, ...]:
    """Options of a JVM that is stopped after a few seconds, and whose classes are in no archive."""
    return _QUICK


@cache
def spark_options() -> tuple[str, ...]:
    """Options of a JVM that runs something of PySpark's jars."""
    return (*_QUICK, f"-XX:SharedArchiveFile={_spark_archive()}", _SILENT)


def _kafka_archive(version: str = "") -> Path:
    from tests.support.oracle import KAFKA_VERSION, libs

    return CACHE / _name("kafka", str(libs(version or KAFKA_VERSION)))


def _spark_archive() -> Path:
    with suppress(PackageNotFoundError):
        return Path(sys.prefix) / _name("spark", version("pyspark"))
    return Path(sys.prefix) / "no-spark.jsa"


def _name(name: str, jars: str) -> str:
    """Another one for other jars, and for another Java."""
    java = Path(shutil.which("java") or "").resolve()
    return f"{name}-{zlib.crc32(f'{jars} {java} {java.stat().st_mtime}'.encode()):08x}.jsa"


def _make_kafkas(folder: Path, options: tuple[str, ...]) -> None:
    """A broker that starts and stops has loaded most of what its tools load as well."""
    from tests.support.kafka_server import KafkaServer

    server = KafkaServer(folder / "data", java_options=("-Xmx512M", *options))
    server.format()
    with server:
        pass


def _make_kafkas39(folder: Path, options: tuple[str, ...]) -> None:
    from tests.support.kafka39 import Kafka39Cluster

    with Kafka39Cluster(folder, java_options=options) as cluster:
        cluster.brokers[1].stop()


def _make_sparks(folder: Path, options: tuple[str, ...]) -> None:
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options), "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-c", _SPARK_JOB, folder], env=environment, check=False, capture_output=True)


def _add_bytecode(archive: Path) -> None:
    """To a copy, which takes the archive's place: what is there already stays where it is in the file, as a process
    that has read its directory finds it there. The bytecode names no time of its source: it is the archive's own.
    """
    with tempfile.TemporaryDirectory(prefix="plog-bytecode-", dir=archive.parent) as folder:
        target = f"{folder}/bytecode"
        beside = Path(shutil.copy(archive, folder))
        with zipfile.ZipFile(beside, "a", zipfile.ZIP_DEFLATED) as copy:
            for name in copy.namelist():
                if name.endswith(".py") and not _NEVER_IMPORTED.match(name):
                    py_compile.compile(
                        copy.extract(name, folder), target, dfile=f"{archive}/{name}", doraise=True,
                        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                    )  # fmt: skip
                    copy.write(target, f"{name}c")
        beside.rename(archive)


def main() -> None:
    from tests.support.oracle import KAFKA39_VERSION, why_not

    wanted = []
    if why_not() is None:
        wanted.append((_kafka_archive(), _make_kafkas))
    if why_not(KAFKA39_VERSION) is None:
        wanted.append((_kafka_archive(KAFKA39_VERSION), _make_kafkas39))
    pyspark = find_spec("pyspark")
    if pyspark is not None and shutil.which("java"):
        python = Path(str(pyspark.origin)).with_name("python") / "lib" / "pyspark.zip"
        if python.exists() and "pyspark/daemon.pyc" not in zipfile.ZipFile(python).namelist():
            _add_bytecode(python)
        wanted.append((_spark_archive(), _make_sparks))
    CACHE.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda one: _make(*one), wanted))


def _make(archive: Path, make: Callable[[Path, tuple[str, ...]], None]) -> None:
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(prefix="plog-classes-") as folder:
        beside = archive.with_name(f"{archive.name}.{os.getpid()}")
        make(Path(folder), (*_QUICK, f"-XX:ArchiveClassesAtExit={beside}", _SILENT))
        if beside.exists():
            beside.rename(archive)


if __name__ == "__main__":
    main()
