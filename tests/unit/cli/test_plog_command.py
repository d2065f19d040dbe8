"""How the parameters of a function become the options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer

from cli import main
from cli.plog_command import command, new_app
from cli.typer_internals import ClickException
from core.common.command_option import REQUIRED, argument, flag, option, options


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    folder: Path = option("Which folder.", "-f", default=Path("here"), metavar="DIR")
    found: int = 7
    from_: str = option("Where to begin.", "--from", "--offset", default="start")
    hidden: bool = flag("Hidden files, too.")


Unhidden = Annotated[Where, ("hidden",)]


def names_of(app: typer.Typer) -> list[tuple[str, list[str]]]:
    return [(one.name or "", one.opts) for one in typer.main.get_command(app).params]


def test_a_dataclass_stands_for_its_options() -> None:
    app, called = new_app(), list[object]()

    @command(app)
    def walk(what: str = argument("What."), *, where: Where, deep: int = option("How deep.", default=1)) -> None:
        called.append((what, where, deep))

    assert names_of(app)[:5] == [
        ("what", ["what"]), ("folder", ["--folder", "-f"]), ("from_", ["--from", "--offset"]),
        ("hidden", ["--hidden"]), ("deep", ["--deep"]),
    ]  # fmt: skip
    app(["all", "-f", "there", "--hidden"], standalone_mode=False)
    assert called == [("all", Where(folder=Path("there"), hidden=True), 1)]


def test_fields_may_be_left_out() -> None:
    app, called = new_app(), list[object]()

    @command(app)
    def walk(where: Unhidden = Where(hidden=True)) -> None:
        called.append(where)

    assert "hidden" not in dict(names_of(app))
    app(["--offset", "end"], standalone_mode=False)
    assert called == [Where(from_="end")]


def test_an_option_may_be_needed_or_repeated() -> None:
    app, called = new_app(), list[object]()

    @command(app)
    def walk(
        who: str = option("Who walks.", default=REQUIRED), legs: list[str] | None = options("A leg.", "--leg")
    ) -> None:
        called.append((who, legs))

    assert [one.help for one in typer.main.get_command(app).params][:2] == ["Who walks.", "A leg; may be repeated."]
    app(["--who", "Ann", "--leg", "1", "--leg", "2"], standalone_mode=False)
    app(["--who", "Ann"], standalone_mode=False)
    assert called == [("Ann", ["1", "2"]), ("Ann", None)]
    with pytest.raises(ClickException, match="Missing parameter: who"):
        app([], standalone_mode=False)


def test_the_help_is_the_docstring_and_the_examples() -> None:
    app = new_app()

    @command(app, "plog walk", "plog walk far", name="walk")
    def go() -> None:
        """Walk."""

    assert typer.main.get_command(app).help == "Walk.\n\n\b\nExample:\n  plog walk\n  plog walk far"


def test_an_installation_that_lacks_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main._report_our_bug(ModuleNotFoundError("No module named 're2'", name="re2")) == 3
    said = capsys.readouterr().err
    assert "is missing or broken: No module named 're2'" in said
    assert "pip install" in said
    assert main._report_our_bug(ModuleNotFoundError("No module named 'core.x'", name="core.x")) == 4
