"""Chooses the place of the log, if more than one is named: the one named nearest to the command counts.

The command line is nearer than an environment variable, that nearer than the profile of config.toml, and that nearer
than the file's other sections; in each of them the command's own section is nearer than `[default]`. A server that is
named at one level switches off a directory that is named at a level farther away, and the other way round. A ZooKeeper
in which brokers are found is one more such place.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.security_options import find_client_settings, find_named_server, find_routes, level_of, section_of
from cli.terminal import say
from cli.typer_internals import get_current_context
from core.common.command_option import option
from core.common.errors import UsageError

if TYPE_CHECKING:
    from core.pipeline.frontend import Progress
    from core.pipeline.session import Session

_WHAT = {"bootstrap_server": "a server", "data_dir": "a directory", "zookeeper": "a ZooKeeper"}
PLACES = tuple(_WHAT)
DATA_DIR = "PLOG_DATA_DIR"

DIRECTORY = option("The data directory.", metavar="DIR", envvar=DATA_DIR, show_default=False)
LOCK_TIMEOUT = option("How long to wait for a data directory that is in use.", default=10.0, metavar="SECONDS")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Place:
    """The options that say where the log is."""

    bootstrap_server: str | None = option(
        "A Kafka-compatible server. Without it the data directory is used.", metavar="HOST:PORT[,..]"
    )
    zookeeper: str | None = option(
        "Find the brokers in this ZooKeeper, as clients did before 0.9 (help consumers-2011).",
        metavar="HOST:PORT[,..][/PATH]",
    )
    data_dir: Path | None = DIRECTORY
    lock_timeout: float = LOCK_TIMEOUT

    def session(self) -> Session:
        """Returns a session, whose messages go to the terminal. Without a place it is of the platform's directory."""
        from cli.stop_signals import undivided
        from core.pipeline.frontend import Frontend
        from core.pipeline.session import Session

        return Session(
            directory=self.data_dir or default_data_dir(),
            is_default=self.data_dir is None,
            find_named_server=lambda: find_named_server(self.bootstrap_server),
            find_settings=find_client_settings,
            find_routes=find_routes,
            zookeeper=self.zookeeper,
            options=typed_place(),
            frontend=Frontend(say=say, show_progress=_show_progress, undivided=undivided),
            lock_timeout_s=self.lock_timeout,
        )


WritePlace = Annotated[Place, ("zookeeper",)]
"""The options of a command that writes: without these."""
ReadPlace = Annotated[Place, ("zookeeper", "lock_timeout")]
"""Those of a command that only reads."""


def default_data_dir() -> Path:
    """`plog/` in the platform's folder for users' data."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "plog"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "plog"


def _show_progress(verb: str, things: str) -> Progress:
    from cli.progress import Progress as Line

    return Line(verb, things)


def choose_place(context: Any, parameter: Any, value: Any) -> Any:
    """A callback of each of these options; its last call knows all of them. Raises UsageError for two that are equally
    near.
    """
    if parameter.name not in PLACES or value is None or not _is_choice(context):
        return value
    if parameter.name != "data_dir" and (value.startswith("-") or not value.strip()):
        what = f"no value, and {value} comes next" if value.strip() else "an empty value"
        raise UsageError(f"{_option(parameter.name)} got {what}", hint="is a variable unset? HOST:PORT names a server")
    here = level_of(context, parameter.name)
    for other in PLACES:
        if other == parameter.name or context.params.get(other) is None:
            continue
        there = level_of(context, other)
        if here == there:
            first, second = sorted((parameter.name, other))
            raise UsageError(
                f"{_where(context, parameter.name)} names two places, {_option(first)} and {_option(second)}",
                hint=f"say one of them: {_WHAT[first]}, or {_WHAT[second]}",
            )
        if here > there:
            return None
        context.params[other] = None
    return value


def _is_choice(context: Any) -> bool:
    """Returns False for plog serve, which has a directory and may be in a cluster with ZooKeeper."""
    return any(one.name == "bootstrap_server" for one in context.command.params)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def typed_place() -> str:
    """The option that named the place on the command line, after a space: for a command in a hint."""
    context = get_current_context(silent=True)
    if context is None:
        return ""
    return "".join(
        f" {_option(name)} {shlex.quote(str(context.params[name]))}"
        for name in PLACES
        if context.params.get(name) is not None and level_of(context, name) == 0
    )


def _where(context: Any, name: str) -> str:
    level = level_of(context, name)
    return "the command line" if level == 0 else f"[{section_of(context, name)}] of config.toml"
