"""Chooses the place of the log, if more than one is named: the one named nearest to the command counts.

The command line is nearer than an environment variable, that nearer than the profile of config.toml, and that nearer
than the file's other sections; in each of them the command's own section is nearer than `[default]`. A server that is
named at one level switches off a directory that is named at a level farther away, and the other way round. A ZooKeeper
in which brokers are found is one more such place.
"""

from __future__ import annotations

import shlex
from typing import Any

from cli.typer_internals import get_current_context
from core.common.errors import UsageError

_WHAT = {"bootstrap_server": "a server", "data_dir": "a directory", "zookeeper": "a ZooKeeper"}
_PLACES = tuple(_WHAT)


def choose_place(context: Any, parameter: Any, value: Any) -> Any:
    """A callback of each of these options; its last call knows all of them. Raises UsageError for two that are equally
    near.
    """
    if parameter.name not in _PLACES or value is None or not _is_choice(context):
        return value
    here = level_of(context, parameter.name)
    for other in _PLACES:
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
        for name in _PLACES
        if context.params.get(name) is not None and level_of(context, name) == 0
    )


def level_of(context: Any, name: str) -> int:
    """Returns how far from the command an option's value was given; 0 is the command line. For options without a value
    it means nothing.
    """
    source = context.get_parameter_source(name)
    if source is not None and source.name == "COMMANDLINE":
        return 0
    if source is not None and source.name == "ENVIRONMENT":
        return 1
    section = _section(context, name)
    return 2 + 2 * (not section.startswith("profile.")) + section.endswith("default")


def _section(context: Any, name: str) -> str:
    """Returns the section of config.toml, or "" if the value is not from there."""
    return next((str(getattr(one, "config_section", "")) for one in context.command.params if one.name == name), "")


def _where(context: Any, name: str) -> str:
    level = level_of(context, name)
    return "the command line" if level == 0 else f"[{_section(context, name)}] of config.toml"
