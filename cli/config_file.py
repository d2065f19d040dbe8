"""The file with somebody's own defaults for options.

`config.toml` in the platform's folder for settings, `plog/` (or `PLOG_CONFIG`):

    [default]                           # of every command that has the option
    bootstrap-server = "broker:9092"
    max-expansion = "256M"              # plog --max-expansion

    [consume]                           # of one command
    format = '%o %k %s\n'

    [topic.create]
    partitions = 6
    set = ["retention.ms=-1"]

    [profile.prod.default]              # the same, with plog --profile prod
    bootstrap-server = "prod-1:9092,prod-2:9092"

The command line, and environment variables, win. The file is checked as a whole, so that nothing
in it is passed over: UsageError names a section or an option that no command has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cli.plog_command import leaf_commands
from core.common.did_you_mean import did_you_mean
from core.common.errors import UsageError

PLOG_CONFIG = "PLOG_CONFIG"
_BEFORE_THE_COMMAND = frozenset({"max-expansion"})
"""Options of `plog` itself that `[default]` may have."""


def config_path() -> Path | None:
    """Gives None if `PLOG_CONFIG` is empty. Raises UsageError if it names what is not there."""
    if PLOG_CONFIG in os.environ:
        name = os.environ[PLOG_CONFIG]
        if name and not Path(name).exists():
            raise UsageError(f"{PLOG_CONFIG}: there is no {name}", hint=f"{PLOG_CONFIG}= (empty) goes without")
        return Path(name) if name else None
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "plog" / "config.toml"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "plog" / "config.toml"


@cache
def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error


def apply_config(command: Any, name: str, profile: str | None) -> None:
    """Puts the file's values in the places of the defaults, of the command and those below it."""
    tables = _tables(config_path(), profile)
    for path, one in leaf_commands(command, name):
        options = _options(one)
        for title, table in tables:
            _set(options, table.get("default", {}), f"{title}default")
            found: Any = table
            for word in path.split():
                found = found.get(word, {})
            _set(options, found, f"{title}{path.replace(' ', '.')}")


def ensure_config(profile: str | None, commands: Iterable[str], load: Callable[[str], Any]) -> None:
    """Raises UsageError for what no command has, in any section of the file. `load` gives a command by its name."""
    _tables(config_path(), profile)  # or there may be no such profile
    for title, table in _all_tables(config_path()):
        for name, values in table.items():
            section = f"[{title}{name}]"
            if not isinstance(values, dict):
                where = f"{config_path()}: {f'[{title[:-1]}] ' if title else ''}{name}"
                raise UsageError(f"{where}: it is in no section, expected [{title}default] or a command's above it")
            if name == "default":
                unknown, known = set(values) - _BEFORE_THE_COMMAND, set(_BEFORE_THE_COMMAND)
                for command in commands:
                    if unknown:  # or that command need not be imported
                        known |= _options_of_all(load(command))
                        unknown -= known
                if unknown:
                    what, hint = min(unknown), did_you_mean(min(unknown), known)
                    raise UsageError(f"{config_path()}: {section} {what}: no command has --{what}", hint=hint)
            elif name in commands:
                _ensure_section(load(name), [name], values, title)
            elif title or name != "profile":
                hint = did_you_mean(name, [*commands, "default"])
                raise UsageError(f"{config_path()}: {section}: there is no such command", hint=hint)


def _ensure_section(command: Any, path: list[str], values: Any, title: str) -> None:
    section, words = f"[{title}{'.'.join(path)}]", " ".join(path)
    below = getattr(command, "commands", None)
    for name in _keys(values, section):
        if below is None and name not in _options(command):
            hint = did_you_mean(name, _options(command))
            raise UsageError(f"{config_path()}: {section} {name}: plog {words} has no --{name}", hint=hint)
        if below is not None and name not in below:
            hint = did_you_mean(name, below)
            raise UsageError(f"{config_path()}: {section} {name}: there is no plog {words} {name}", hint=hint)
        if below is not None:
            _ensure_section(below[name], [*path, name], values[name], title)


def _keys(values: Any, section: str) -> set[str]:
    if not isinstance(values, dict):
        raise UsageError(f"{config_path()}: {section}: expected a section, found {values!r}")
    return set(values)


def find_default(name: str, profile: str | None) -> str | None:
    """What `[default]` says of an option that stands before the command, as text; None if it says nothing."""
    values = [table.get("default", {}).get(name) for _, table in _tables(config_path(), profile)]
    return next((str(value) for value in reversed(values) if value is not None), None)


def _tables(file: Path | None, profile: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Gives the file's tables, and the profile's, which win, each with what stands before the names of its sections;
    none if there is no file. Raises UsageError for an unknown profile.
    """
    if file is None or not file.exists():
        if profile is not None:
            raise UsageError(f"--profile {profile}: there is no {file or 'file, PLOG_CONFIG is empty'}")
        return []
    tables = [("", _load(file))]
    if profile is not None:
        profiles = tables[0][1].get("profile", {})
        if profile not in profiles:
            hint = did_you_mean(profile, profiles) or f"{file} has {', '.join(profiles) or 'none'}"
            raise UsageError(f"--profile {profile}: there is none", hint=hint)
        if not isinstance(profiles[profile], dict):
            raise UsageError(f"{file}: profile.{profile} is no section, expected [profile.{profile}.default]")
        tables.append((f"profile.{profile}.", profiles[profile]))
    return tables


def _all_tables(file: Path | None) -> list[tuple[str, dict[str, Any]]]:
    """Gives the file's tables as `_tables` does, with those of every profile."""
    tables = _tables(file, None)
    profiles = tables[0][1].get("profile", {}) if tables else {}
    if not isinstance(profiles, dict):
        raise UsageError(f"{file}: profile: expected sections, as [profile.NAME.default]")
    return tables + [table for name in profiles for table in _tables(file, name)[1:]]


def _options(command: Any) -> dict[str, Any]:
    """Gives the command's options by name, without dashes."""
    options = {}
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("--"):
                options[name.removeprefix("--")] = parameter
    return options


def _options_of_all(command: Any) -> set[str]:
    """Gives the options of the command and of those below it."""
    return {name for _, one in leaf_commands(command, "") for name in _options(one)}


def _set(options: Mapping[str, Any], values: Mapping[str, Any], section: str) -> None:
    for name, value in values.items():
        parameter = options.get(name)
        if parameter is not None:
            if name == "command-config" and isinstance(value, str):
                value = _beside_the_file(value)
            parameter.default = _as_default(value, parameter)
            parameter.config_section = section


def _beside_the_file(name: str) -> str:
    """Makes a relative path relative to config.toml's folder, wherever the command runs."""
    file = config_path()
    assert file is not None
    return str(file.absolute().parent / Path(name).expanduser())


def _as_default(value: Any, parameter: Any) -> Any:
    if parameter.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else str(value)
