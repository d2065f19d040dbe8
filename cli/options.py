"""Options that commands share, and their help."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

from cli.terminal import find_width, wrapped
from core.common.command_option import Option
from core.common.errors import PlogError, UsageError
from core.common.printable import printable

PLACES = "PATH|TOPIC[:P][@OFFSET]"
PLACES_HELP = "A partition's folder, a data directory, a topic, or a partition of it."


DryRunOption = Annotated[bool, Option("Show what would be done, and change nothing.", "--dry-run")]


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
