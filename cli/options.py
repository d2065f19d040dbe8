"""Options and small talk that commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from core.common.errors import UsageError

DATA_DIR = "PLOG_DATA_DIR"

BootstrapServerOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,..]",
        help="A Kafka-compatible server; else the data directory is used.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", envvar=DATA_DIR, help="The data directory.", show_default=False),
]
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
    """KEY=VALUE options; UsageError for one without an equals sign."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {setting}: expected KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed


def say(text: str) -> None:
    """Talk goes to stderr: stdout is for data."""
    print(text, file=sys.stderr)
