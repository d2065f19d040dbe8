"""Which numbers options take: at one place for all of them, so that no option meets one that nothing below can hold."""

from __future__ import annotations

import copy
import math
from typing import Any

import typer

_INT16, _INT32, _INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
_GIGABYTE = 1 << 30
_MOST = 1_000_000_000
"""The largest number of seconds, milliseconds, or records a second: of what has a fraction."""
_LEAST = 1e-6
"""The smallest that is not 0: at fewer records a second, the pause between two is longer than the system can wait."""

_LARGEST = {
    "--replication-factor": _INT16,
    "--partitions": _INT32,
    "--partition": _INT32,
    "--transaction-timeout-ms": _INT32,
    "--batch-size": _GIGABYTE,
    "--chunk": _GIGABYTE,
    "--record-size": _GIGABYTE,
    "--dedupe-buffer-size": 64 * _GIGABYTE,
}
"""The largest whole numbers, if smaller than an offset may be: as Kafka's protocol has them, or bytes in memory."""


def limit_numbers(command: Any) -> None:  # typer hides its Command class
    """Makes the command refuse, as used wrongly, what lies beyond."""
    for option in command.params:
        if option.type.name.split()[0] in ("int", "integer"):
            _limit(option, _LARGEST.get(option.opts[0], _INT64), is_whole=True)
        elif option.type.name.startswith("float"):
            _limit(option, _MOST, is_whole=False)


def _limit(option: Any, largest: int, *, is_whole: bool) -> None:
    type_ = copy.copy(option.type)  # which others have as well
    convert = type_.convert

    def limited(value: Any, parameter: Any, context: Any) -> Any:
        number = convert(value, parameter, context)
        if number is not None and 0 < abs(number) < _LEAST:
            raise typer.BadParameter(f"{value} is too small, expected at least {_LEAST:f}", context, parameter)
        if number is None or (math.isfinite(number) and -largest - 1 <= number <= largest):
            return number
        least = getattr(option.type, "min", None)
        least = (-largest - 1 if is_whole else -largest) if least is None else least
        raise typer.BadParameter(f"{value} is out of range, expected {least} to {largest}", context, parameter)

    type_.convert = limited
    option.type = type_
