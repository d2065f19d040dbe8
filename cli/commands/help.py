"""`plog help`: a page for each word and each command, and a few lines for each finding of `plog verify`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Annotated

import typer

from cli.completion import complete_help
from cli.terminal import likes_colour
from core.common.did_you_mean import did_you_mean
from core.common.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

OTHER_NAMES = {
    "checksum": "crc",
    "crc-32c": "crc",
    "hw": "high-watermark",
    "in-sync-replicas": "isr",
    "last-stable-offset": "lso",
    "profile": "config-file",
    "rebalance": "consumer-group",
}
"""Words that people look for -> the page that explains them."""

_PAGES = files(__package__.removesuffix(".commands")) / "help"
_FINDING = re.compile(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_SHOWN_NAMES = 6


def page_names() -> list[str]:
    return sorted(page.name.removesuffix(".md") for page in _PAGES.iterdir() if page.name.endswith(".md"))


def page(name: str) -> str:
    """A page as Markdown, its title first."""
    return (_PAGES / f"{name}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    return page(name).split("\n", 1)[0].removeprefix("# ")


def findings() -> dict[str, str]:
    """For each finding of `plog verify`, by its code, a short page of its own."""
    return {
        code: f"# {code}\n\n- severity: {severity}\n- what is wrong: {wrong}\n- how to repair it: {repair}\n\n"
        "See also: `plog help findings`.\n"
        for code, severity, wrong, repair in _FINDING.findall(page("findings"))
    }


def find_text(words: list[str]) -> str:
    """What is to be shown for these words. Raises UsageError if no page is about them."""
    from cli.main import COMMANDS

    name = "-".join(words).lower()
    for candidate in (name, OTHER_NAMES.get(name), name.removesuffix("s"), f"{name}s"):
        if candidate in page_names():
            return page(candidate)
    if name in findings():
        return findings()[name]
    if words[0] in COMMANDS:  # plog help group describe
        return page(words[0])
    raise UsageError(f"there is no page about {' '.join(words)!r}", hint=_hint(name, words))


def _hint(name: str, words: list[str]) -> str:
    """A name that is nearly the same; else the pages in which all of the words are used."""
    if near := did_you_mean(name, [*page_names(), *OTHER_NAMES, *findings()]):
        return near
    using = [name for name in page_names() if all(_uses(page(name), word) for word in words)]
    if not using:
        return "plog help lists all pages"
    more = ", ..." if len(using) > _SHOWN_NAMES else ""
    return f"these pages use the word: {', '.join(using[:_SHOWN_NAMES])}{more}"


def _uses(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE) is not None


@app.command()
def help_(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="A word, a command, or the code of a finding.",
            autocompletion=complete_help,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain a word, such as offset or consumer group, or a command in full.

    \b
    Example:
      plog help consumer group
    """
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
