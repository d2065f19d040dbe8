"""Brings plog to the nodes of a cluster: its packages go along as one zip; what it needs besides must be there.

NumPy, pyarrow and the codecs have parts in C, which no zip can carry. Whether they are there is checked first.
"""

from __future__ import annotations

import importlib
import socket
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import AccessError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).parents[__name__.count(".")]
_PACKAGES = dict.fromkeys((__name__.partition(".")[0], "plog"))
"""In the repository this module is of `core`, installed it is of `plog` (scripts/wheel_layout.py)."""
_ARCHIVE = "plog.zip"
_NEEDED = ("numpy", "pyarrow", "crcmod", "lz4.frame", "snappy", f"{__package__}.replay")


def is_local(master: str) -> bool:
    """Returns whether tasks run in children of this process."""
    return master.split("[")[0] == "local"


def with_retries(master: str) -> str:
    """Makes a local master that tries a task again as a cluster does: Spark's own gives up at the first failure."""
    threads = master.removeprefix("local").strip("[]") or "1"
    return f"local[{threads}{'' if ',' in threads else ',4'}]" if is_local(master) else master


def write_zip(path: Path) -> None:
    """Writes the packages, as they are installed here."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for source in sorted((_ROOT / package).rglob("*.py")):
                archive.write(source, source.relative_to(_ROOT))


def send(context: SparkContext) -> None:
    """Sends the packages to the nodes of a cluster, once for each application."""
    from pyspark import SparkFiles

    if any(file.endswith(f"/{_ARCHIVE}") for file in context.listFiles):
        return
    archive = Path(SparkFiles.getRootDirectory()).parent / _ARCHIVE  # nodes fetch it from there, until it ends
    write_zip(archive)
    context.addPyFile(str(archive))


def ship(session: SparkSession) -> None:
    """Raises AccessError if a node lacks what plog needs, or has another Python."""
    context = session.sparkContext
    send(context)
    nodes = max(context.defaultParallelism, 2) * 2
    for host, python, problems in sorted(set(context.parallelize(range(nodes), nodes).mapPartitions(_look).collect())):
        if problems:
            raise AccessError(
                f"node {host} (Python {python}) can't run plog's tasks: {problems}",
                where=host,
                hint="install numpy, pyarrow, crcmod, lz4 and python-snappy there, for the Python of PYSPARK_PYTHON",
            )


def _look(_: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    problems = []
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from running is reported
            problems.append(f"{name}: {error}")
    yield socket.gethostname(), ".".join(map(str, sys.version_info[:3])), "; ".join(problems)
