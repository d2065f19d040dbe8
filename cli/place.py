"""Where a command finds the log, if more than one place is named: the one named nearest to the command counts.

The command line is nearer than an environment variable, that nearer than the profile of config.toml, and that nearer
than the file's other sections; in each of them the command's own section is nearer than `[default]`. A server that is
named at one level switches off a directory that is named at a level farther away, and the other way round.
"""

from __future__ import annotations

import shlex
from typing import Any

from cli.typer_internals import get_current_context
from core.common.errors import UsageError

_BOTH = ("bootstrap_server", "data_dir")


def choose_place(context: Any, parameter: Any, value: Any) -> Any:
    """A callback of both options; the second that is called knows what both say. Raises UsageError for two that are
    equally near.
    """
    if parameter.name not in _BOTH or value is None:
        return value
    (other,) = (name for name in _BOTH if name != parameter.name)
    if context.params.get(other) is None:
        return value
    here, there = level_of(context, parameter.name), level_of(context, other)
    if here == there:
        raise UsageError(
            f"{_where(context, parameter.name)} names two places, --bootstrap-server and --data-dir",
            hint="say one of them: a server, or a directory",
        )
    if here > there:
        return None
    context.params[other] = None
    return value


def typed_place() -> str:
    """The option that named the place on the command line, after a space: for a hint with a command that acts there."""
    context = get_current_context(silent=True)
    if context is None:
        return ""
    return "".join(
        f" --{name.replace('_', '-')} {shlex.quote(str(context.params[name]))}"
        for name in _BOTH
        if context.params.get(name) is not None and level_of(context, name) == 0
    )


def level_of(context: Any, name: str) -> int:
    """Gives how far from the command an option's value was given; 0 is the command line. For options without a value it
    means nothing.
    """
    source = context.get_parameter_source(name)
    if source is not None and source.name == "COMMANDLINE":
        return 0
    if source is not None and source.name == "ENVIRONMENT":
        return 1
    section = _section(context, name)
    return 2 + 2 * (not section.startswith("profile.")) + section.endswith("default")


def _section(context: Any, name: str) -> str:
    """Gives the section of config.toml; empty if the value is not from there."""
    return next((str(getattr(one, "config_section", "")) for one in context.command.params if one.name == name), "")


def _where(context: Any, name: str) -> str:
    level = level_of(context, name)
    return "the command line" if level == 0 else f"[{_section(context, name)}] of config.toml"
