"""The names of the click inside typer that commands need: the one place that imports `typer._click`.

typer has no public name for these: the error of an unknown option, which names the option; the error that means "show
the help"; the running command's context; and the parser, which `cli/plog_command.py` extends by names of other tools.
"""

from __future__ import annotations

from typer._click.exceptions import ClickException, NoArgsIsHelpError, NoSuchOption
from typer._click.globals import get_current_context
from typer._click.parser import _OptionParser as OptionParser
from typer._click.parser import _ParsingState as ParsingState

__all__ = ["ClickException", "NoArgsIsHelpError", "NoSuchOption", "OptionParser", "ParsingState", "get_current_context"]
