"""`plog help`: what the words mean, a page each, and the commands in full."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Annotated

import typer

from cli.completion import complete_help
from cli.terminal import likes_colour
from core.common.did_you_mean import did_you_mean
from core.common.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_PAGES = files(__package__.removesuffix(".commands")) / "help"


def page_names() -> list[str]:
    return sorted(page.name.removesuffix(".md") for page in _PAGES.iterdir() if page.name.endswith(".md"))


def page(name: str) -> str:
    """A page as Markdown, its title first. UsageError where there is none."""
    if name not in page_names():
        raise UsageError(f"no page {name!r}", hint=did_you_mean(name, page_names()) or "plog help lists them")
    return (_PAGES / f"{name}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    return page(name).split("\n", 1)[0].removeprefix("# ")


@app.command()
def help_(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="A word or a command.", autocompletion=complete_help)
    ] = None,
) -> None:
    """Explain a word, such as offset or transaction, or a command in full.

    \b
    Example:
      plog help offset
    """
    from cli.main import COMMANDS

    if topic is None:
        commands = [name for name in page_names() if name in COMMANDS]
        words = [name for name in page_names() if name not in COMMANDS]
        for heading, names in (("What the words mean", words), ("Commands, in full", commands)):
            print(heading)
            for name in names:
                print(f"  {name:<18} {COMMANDS[name] if name in COMMANDS else title(name)}")
        return
    text = page(topic)
    if likes_colour():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(text))
    else:
        print(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text), end="")
