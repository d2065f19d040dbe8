"""The commands that the command line has, so that a test of all of them forgets none."""

from __future__ import annotations

from typing import Any

import typer

from cli.main import COMMANDS, app
from cli.plog_command import leaf_commands


def all_commands() -> dict[str, Any]:
    """Each command by its words, such as `topic create`, with all of its options."""
    root = typer.main.get_command(app)
    context = root.make_context("plog", [], resilient_parsing=True)
    found: dict[str, Any] = {}
    for name in COMMANDS:
        found |= leaf_commands(root.get_command(context, name), name)  # type: ignore[attr-defined]
    return found
