"""Asks the user to confirm an action that can't be taken back, or keeps others out."""

from __future__ import annotations

import sys
from typing import Annotated

from cli.options import say
from core.common.command_option import Option

YesOption = Annotated[bool, Option("Do not ask for a confirmation.", "--yes")]


def ensure_meant(risk: str, deed: str) -> None:
    """Asks at a terminal for a confirmation. Raises UsageError, which names the risk, without a terminal, and if the
    answer is not yes.
    """
    from core.common.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(f"{risk}, and there is no terminal to ask for a confirmation", hint="--yes confirms it")
    say(f"{deed} all the same? (yes/no)")
    if sys.stdin.readline().strip().lower() != "yes":
        raise UsageError("nothing was changed: the answer was not yes")
