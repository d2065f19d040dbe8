"""`plog help`: a page for each word and each command, and a few lines for each finding of `plog verify`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable

import typer

from cli.help_pages import OTHER_NAMES, findings, page, page_names, title
from cli.plog_command import command, new_app
from cli.terminal import likes_colour
from core.common.command_option import argument
from core.common.errors import UsageError
from core.common.printable import did_you_mean

app = new_app()

_SHOWN_NAMES = 6


def find_text(words: list[str]) -> str:
    """Returns the text to show for these words. Raises UsageError if no page is about them."""
    from cli.main import COMMANDS

    name = "-".join(words).lower()
    tools = "kafka-tools" if name in _names_of_tools() else None
    for candidate in (name, OTHER_NAMES.get(name), name.removesuffix("s"), f"{name}s", tools):
        if candidate in page_names():
            return page(candidate)
    if name in findings():
        return findings()[name]
    if words[0] in COMMANDS and words[1:] in [[], *([name] for name in _subcommands(words[0]))]:
        return page(words[0])
    raise UsageError(f"there is no page about {' '.join(words)!r}", hint=_hint(name, words))


def _names_of_tools() -> set[str]:
    from cli.other_tools import OF_KAFKA

    return {f"kafka-{name}{end}" for name in (*OF_KAFKA, "tool") for end in ("", ".sh")}


def _subcommands(command: str) -> list[str]:
    module = importlib.import_module(f"cli.commands.{command.replace('-', '_')}")
    found = typer.main.get_command(module.app)
    return list(getattr(found, "commands", {}))


def _hint(name: str, words: list[str]) -> str:
    """Returns a name with nearly the same spelling, or else the pages that use all of the words."""
    if near := did_you_mean(name, [*page_names(), *OTHER_NAMES, *findings()]):
        return near
    using = [name for name in page_names() if all(_uses(page(name), word) for word in words)]
    if not using:
        return "plog help lists all pages"
    more = ", ..." if len(using) > _SHOWN_NAMES else ""
    return f"these pages use the word: {', '.join(using[:_SHOWN_NAMES])}{more}"


def _uses(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE) is not None


@command(app, "plog help consumer group")
def help_(
    topic: list[str] | None = argument(
        "A word, a command, or the code of a finding.",
        default=None,
        metavar="[TOPIC]",
        show_default=False,
        completes="help",
    ),
) -> None:
    """Explain a word, such as offset or consumer group, or a command in full."""
    if topic:
        _show(find_text(topic))
    else:
        _list()


def _list() -> None:
    from cli.main import COMMANDS

    names = page_names()
    _print_titles("What the words mean", ((name, title(name)) for name in names if name not in COMMANDS))
    _print_titles("Commands, in full", ((name, COMMANDS[name]) for name in names if name in COMMANDS))


def _print_titles(heading: str, titles: Iterable[tuple[str, str]]) -> None:
    print(heading)
    for name, line in titles:
        print(f"  {name:<16} {line}")


def _show(text: str) -> None:
    if likes_colour():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text), end="")
