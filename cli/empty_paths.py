"""An empty path is refused, at one place for all options and arguments: Python takes it for the current folder, and
`--data-dir "$DIR"` with an unset variable is not to write there.
"""

from __future__ import annotations

import copy
from typing import Any

from core.common.errors import UsageError


def refuse_empty_paths(command: Any) -> None:  # typer hides its Command class
    """Makes the command refuse them, as used wrongly."""
    for parameter in command.params:
        if parameter.type.name == "path":
            _refuse_empty(parameter)


def _refuse_empty(parameter: Any) -> None:
    type_ = copy.copy(parameter.type)  # which others have as well
    convert = type_.convert

    def refusing(value: Any, parameter: Any, context: Any) -> Any:
        if value == "":
            name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.human_readable_name
            raise UsageError(f"{name} is an empty path", hint="is a variable unset? This folder is called .")
        return convert(value, parameter, context)

    type_.convert = refusing
    parameter.type = type_
