"""Options that commands share, and their help."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.data_location import choose_place
from cli.terminal import find_width, wrapped
from core.common.errors import PlogError, UsageError
from core.common.printable import printable
from core.records.side_format import SideFormat

DATA_DIR = "PLOG_DATA_DIR"
PLACES = "PATH|TOPIC[:P][@OFFSET]"
PLACES_HELP = "A partition's folder, a data directory, a topic, or a partition of it."


class Acks(StrEnum):
    none = "0"
    one = "1"
    all = "all"

    @property
    def number(self) -> int:
        """Returns the number of the acks in Produce."""
        return -1 if self is Acks.all else int(self)


class Codec(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class GroupProtocol(StrEnum):
    consumer = "consumer"
    classic = "classic"


class Commit(StrEnum):
    """When a group's consumer commits the records that it prints."""

    after = "after"
    before = "before"


BootstrapServerOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,..]",
        help="A Kafka-compatible server. Without it the data directory is used.",
        callback=choose_place,
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar=DATA_DIR,
        help="The data directory.",
        show_default=False,
        callback=choose_place,
    ),
]
ZooKeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT[,..][/PATH]",
        help="Find the brokers in this ZooKeeper, as clients did before 0.9 (help consumers-2011).",
        callback=choose_place,
    ),
]
SchemaRegistryOption = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        envvar="SCHEMA_REGISTRY_URL",
        help="Keys and values with a schema there are shown, or given, as JSON.",
        show_default=False,
    ),
]
KeyFormatOption = Annotated[
    SideFormat | None,
    typer.Option(
        "--key-format",
        help="What keys are. Default: what the Schema Registry says, if there is one, else none (bytes as they are).",
        show_default=False,
    ),
]
ValueFormatOption = Annotated[
    SideFormat | None, typer.Option("--value-format", help="What values are.", show_default=False)
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
LockTimeoutOption = Annotated[
    float,
    typer.Option("--lock-timeout", metavar="SECONDS", help="How long to wait for a data directory that is in use."),
]


def default_data_dir() -> Path:
    """`plog/` in the platform's folder for users' data."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "plog"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "plog"


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Parses KEY=VALUE options; raises UsageError for one without an equals sign."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {setting}: expected KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed


def say(text: str) -> None:
    """Prints to stderr: stdout is for data. Control characters are escaped, lines broken between words."""
    print(wrapped(printable(text), find_width(sys.stderr)), file=sys.stderr)


def say_failures(failures: Sequence[PlogError]) -> int:
    """Prints each to stderr, and returns the exit code: 0 without failures."""
    for error in failures:
        say(f"error: {error.message}")
        if error.hint:
            say(f"hint: {error.hint}")
    return max((error.exit_code for error in failures), default=0)
