"""Makes docs/cli.md, words.md and from-*.md from `plog help` and the commands' own help; `--check` compares."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ.update(NO_COLOR="1", COLUMNS="120", PLOG_CONFIG=os.devnull)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import typer  # noqa: E402

from cli.help_pages import page, page_names, title  # noqa: E402
from cli.main import COMMANDS, app  # noqa: E402
from cli.plog_command import (  # noqa: E402
    argument_title,
    names_by_meaning,
    option_names,
)

OTHER_TOOLS = ("kcat", "kafka-tools")
"""These pages of help are documents of their own, docs/from-kcat.md and docs/from-kafka-tools.md."""
MADE = "<!-- Made by scripts/make_docs.py from cli/help and the commands' help. Do not edit it by hand. -->\n\n"


def body(name: str) -> str:
    """A page without its title; its own headings stand below that of its section."""
    return re.sub(r"^#", "##", page(name).split("\n", 1)[1].strip("\n") + "\n", flags=re.MULTILINE)


def options(command: Any, path: str) -> str:
    """A table of the command's options, one for each of those below it."""
    if hasattr(command, "commands"):
        return "".join(f"\n`{name}`\n{options(below, f'{path} {name}')}" for name, below in command.commands.items())
    others = names_by_meaning(path, option_names(command))
    rows = [row for parameter in command.params if (row := option_row(parameter, others))]
    return "\n| option | |\n|---|---|\n" + "".join(rows) if rows else ""


def option_row(parameter: Any, others: dict[str, list[str]]) -> str:
    """With the other names that the option has; of an argument, only if it has names."""
    also = [f"`{name}`" for own in dict.fromkeys((*parameter.opts, parameter.name)) for name in others.get(own, ())]
    if parameter.name == "help":
        return ""
    if not any(name.startswith("-") for name in parameter.opts):
        return f"| {' '.join(also)} | The argument {argument_title(parameter)}, by name. |\n" if also else ""
    said = f" Also {', '.join(also)}." if also else ""
    names = " ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    choices = "|".join(getattr(parameter.type, "choices", ()))
    value = parameter.metavar or choices or ("" if parameter.is_flag else parameter.type.name.upper())
    default = "" if parameter.default in (None, False, True, (), []) else f" Default: `{escaped(parameter.default)}`."
    return f"| {names} {f'`{escaped(value)}`' if value else ''} | {escaped(parameter.help or '')}{default}{said} |\n"


def escaped(text: object) -> str:
    return str(getattr(text, "value", text)).replace("|", "\\|")


def cli() -> str:
    text = f"# The `plog` command\n\n{MADE}"
    text += "Here are all commands and their options. In a shell, `plog help COMMAND` shows the explanations, and\n"
    text += "`plog COMMAND --help` the options.\n"
    text += "\n## Everywhere\n\n" + body("everywhere")
    root = typer.main.get_command(app)
    context = root.make_context("plog", [], resilient_parsing=True)
    for name, line in COMMANDS.items():
        text += f"\n## plog {name}\n\n{line}\n\n{body(name)}"
        text += options(root.get_command(context, name), name)
    return text


def words() -> str:
    names = [name for name in page_names() if name not in (*COMMANDS, *OTHER_TOOLS, "everywhere")]
    text = f"# What the words mean\n\n{MADE}"
    text += "Each word is also a page of `plog help`: type `plog help lag`, or `plog help consumer group`.\n"
    for name in names:
        text += f"\n## {name}: {title(name)[0].lower()}{title(name)[1:]}\n\n{body(name)}"
    return text


def from_another_tool(name: str) -> str:
    return f"# {title(name)}\n\n{MADE}`plog help {name}` shows this page in a shell.\n\n{body(name)}"


def main() -> int:
    made = {ROOT / "docs" / "cli.md": cli(), ROOT / "docs" / "words.md": words()}
    made |= {ROOT / "docs" / f"from-{name}.md": from_another_tool(name) for name in OTHER_TOOLS}
    if "--check" in sys.argv:
        stale = [path.name for path, text in made.items() if not path.exists() or path.read_text() != text]
        if stale:
            print(f"{', '.join(stale)}: not as scripts/make_docs.py makes it; run it", file=sys.stderr)
        return 1 if stale else 0
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
