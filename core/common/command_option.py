"""The options of a command, as the field or parameter that holds the value declares them; and rules between options.

    follow: bool = flag("At the end, wait for new records.", "-f")
    until: str = option("Where to end.", default="end", metavar="OFFSET|TIME")

The name, the type, the default and the help of an option are written in this one line; an option that several commands
have is a constant. `cli/plog_command.py` makes the command line of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, fields
from functools import partial
from typing import Any, NamedTuple

from core.common.errors import UsageError

REQUIRED: Any = MISSING
"""The default of what has to be given."""


class Option(NamedTuple):
    """An option with its help, or an argument. It is called as its field or parameter is, unless one of `names` is a
    long name. `more`: what typer's Option takes as well, such as metavar and min; and `completes`, which values a shell
    offers: those of `complete_...` in `cli/completion.py`.
    """

    text: str
    names: tuple[str, ...]
    more: Mapping[str, Any]
    is_argument: bool = False


def option(text: str, *names: str, default: object = None, **more: Any) -> Any:
    """Declares an `Option` with a default: in the place of the default, of a dataclass's field or a parameter."""
    return field(default=default, metadata={"option": Option(text, names, more)})


def options(text: str, *names: str, **more: Any) -> Any:
    """Declares an option that users may repeat; its help ends with these words. The default is an empty tuple."""
    return option(f"{text.removesuffix('.')}; may be repeated.", *names, default=(), **more)


def flag(text: str, *names: str, **more: Any) -> Any:
    """Declares an option without a value, which is not given by default."""
    return option(text, *names, default=False, **more)


def argument(text: str, *, default: object = REQUIRED, **more: Any) -> Any:
    """Declares a value without a name likewise."""
    return field(default=default, metadata={"option": Option(text, (), more, is_argument=True)})


class Rule(NamedTuple):
    """What must hold for `those` if one of `these` is given: fields, properties, or fields with a value (`a=1 b`)."""

    these: str
    those: str
    why: str
    are_needed: bool


excludes = partial(Rule, are_needed=False)
"""The rule that none of `these` goes with one of `those`."""
needs = partial(Rule, are_needed=True)
"""The rule that each of `these` goes with one of `those` alone."""


def ensure_compatible(options: Any, rules: Iterable[Rule]) -> None:
    """Raises UsageError for the first rule that the dataclass breaks. A field is given if it differs from its default,
    a property if it is true. `{0.x}` in the reason is the value of x.
    """
    defaults = {field.name: field.default for field in fields(options)}

    def is_given(word: str) -> bool:
        name, has_value, value = word.partition("=")
        found = getattr(options, name)
        return str(found) == value if has_value else bool(found != defaults.get(name, False))

    for rule in rules:
        if any(map(is_given, rule.these.split())) and any(map(is_given, rule.those.split())) is not rule.are_needed:
            raise UsageError(rule.why.format(options))
