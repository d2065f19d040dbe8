"""Options that commands share, and the confirmation of an action that can't be taken back, or keeps others out."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from cli.terminal import say
from core.common.command_option import flag
from core.common.errors import UsageError

PLACES = "PATH|TOPIC[:P][@OFFSET]"
PLACES_HELP = "A partition's folder, a data directory, a topic, or a partition of it."


DRY_RUN = flag("Show what would be done, and change nothing.")
YES = flag("Do not ask for a confirmation.")


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Parses KEY=VALUE options; raises UsageError for one without an equals sign."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {setting}: expected KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed


def ensure_meant(risk: str, deed: str) -> None:
    """Asks at a terminal for a confirmation. Raises UsageError, which names the risk, without a terminal, and if the
    answer is not yes.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{risk}, and there is no terminal to ask for a confirmation", hint="--yes confirms it")
    say(f"{deed} all the same? (yes/no)")
    if sys.stdin.readline().strip().lower() != "yes":
        raise UsageError("nothing was changed: the answer was not yes")
