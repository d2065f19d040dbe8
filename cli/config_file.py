"""What somebody wants always: defaults of options, from a file.

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

What is said on the command line, or by an environment variable, wins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from core.common.did_you_mean import did_you_mean
from core.common.errors import UsageError

PLOG_CONFIG = "PLOG_CONFIG"


def config_path() -> Path:
    if PLOG_CONFIG in os.environ:
        return Path(os.environ[PLOG_CONFIG])
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


def apply_config(command: Any, path: list[str], profile: str | None) -> None:
    """Puts the file's values in the places of the command's defaults. `path`: its names, as of `topic create`.
    UsageError for an option that it does not have.
    """
    file = config_path()
    tables = _tables(file, profile)
    options = _options(command) if tables else {}
    for table in tables:
        _set(options, table.get("default", {}), file, None)
        found: Any = table
        for name in path:
            found = found.get(name, {}) if isinstance(found, dict) else {}
        _set(options, found, file, ".".join(path))


def find_default(name: str, profile: str | None) -> str | None:
    """What `[default]` says of an option that stands before the command, as text; None if it says nothing."""
    values = [table.get("default", {}).get(name) for table in _tables(config_path(), profile)]
    return next((str(value) for value in reversed(values) if value is not None), None)


def _tables(file: Path, profile: str | None) -> list[dict[str, Any]]:
    """The file's tables, and the profile's, which win; none if there is no file. UsageError for an unknown profile."""
    if not file.exists():
        if profile is not None:
            raise UsageError(f"--profile {profile}: there is no {file}")
        return []
    tables = [_load(file)]
    _ensure_sections(tables[0], file, "")
    if profile is not None:
        profiles = tables[0].get("profile", {})
        if profile not in profiles:
            hint = did_you_mean(profile, profiles) or f"{file} has {', '.join(profiles) or 'none'}"
            raise UsageError(f"--profile {profile}: there is none", hint=hint)
        tables.append(profiles[profile])
        _ensure_sections(tables[1], file, f"profile.{profile}.")
    return tables


def _ensure_sections(table: Any, file: Path, path: str) -> None:
    """UsageError for what stands in no section, and for one of no command: it would do nothing, without a word."""
    from cli.main import COMMANDS

    if not isinstance(table, dict):
        raise UsageError(f"{file}: {path.rstrip('.')} is no section, expected [{path}default]")
    known = ["default", *COMMANDS] if path else ["default", "profile", *COMMANDS]
    for name, value in table.items():
        if not isinstance(value, dict):
            section = f"[{path.rstrip('.')}] {name}" if path else name
            raise UsageError(
                f"{file}: {section}: it is in no section, expected [{path}default] or a command's above it"
            )
        if name not in known:
            raise UsageError(f"{file}: [{path}{name}]: there is no such command", hint=did_you_mean(name, known))


def _options(command: Any) -> dict[str, Any]:
    """By name, without dashes."""
    options = {}
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("--"):
                options[name.removeprefix("--")] = parameter
    return options


def _set(options: Mapping[str, Any], values: Mapping[str, Any], file: Path, section: str | None) -> None:
    for name, value in values.items():
        parameter = options.get(name)
        if parameter is not None:
            parameter.default = _as_default(value, parameter)
        elif section is not None:
            hint = did_you_mean(name, options)
            raise UsageError(f"{file}: [{section}] {name}: plog {section.replace('.', ' ')} has no --{name}", hint=hint)
        else:
            _ensure_of_another(name, options, file)


def _ensure_of_another(name: str, options: Mapping[str, Any], file: Path) -> None:
    """UsageError for a name in [default] that is much like one of the command's options, and no other command's. Only
    then are all commands imported.
    """
    from difflib import get_close_matches

    meant = get_close_matches(name, options, n=1, cutoff=0.8)
    if meant and name not in _all_options():
        raise UsageError(f"{file}: [default] {name}: no command has --{name}", hint=f"did you mean {meant[0]}?")


def _all_options() -> set[str]:
    from importlib import import_module

    from typer.main import get_command

    from cli.main import COMMANDS, app
    from cli.security_options import add_security_options

    found: set[str] = set(_options(get_command(app)))
    left = [get_command(import_module(module).app) for module, _ in COMMANDS.values()]
    while left:
        command = left.pop()
        left += getattr(command, "commands", {}).values()
        add_security_options(command)
        found |= _options(command).keys()
    return found


def _as_default(value: Any, parameter: Any) -> Any:
    if parameter.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else str(value)
