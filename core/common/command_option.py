"""The options of a command, as the field or parameter that holds the value declares them; and rules between options.

    follow: Annotated[bool, Option("At the end, wait for new records.", "-f")] = False

The name, the type, the default and the help of an option are written in this one line. `cli/plog_command.py` makes the
command line of it.
"""

from __future__ import annotations

from typing import Any


class Option:
    """An option with its help. It is called as its field or parameter is, unless one of `names` is a long name."""

    def __init__(self, text: str, *names: str, completes: str = "", **more: Any) -> None:
        """`completes`: which values a shell offers, those of `complete_...` in `cli/completion.py`; `more`: what
        typer's Option takes as well, such as metavar and min.
        """
        self.text = text
        self.names = names
        self.completes = completes
        self.more = more


class Argument(Option):
    """A value without a name."""
