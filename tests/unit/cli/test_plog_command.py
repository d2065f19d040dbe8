"""How the parameters of a function become the options of a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer

from cli import main
from cli.plog_command import command, new_app
from core.common.command_option import Argument, Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    folder: Annotated[Path, Option("Which folder.", "-f", metavar="DIR")] = Path("here")
    found: int = 7
    from_: Annotated[str, Option("Where to begin.", "--from", "--offset")] = "start"
    hidden: Annotated[bool, Option("Hidden files, too.")] = False


Unhidden = Annotated[Where, ("hidden",)]


def names_of(app: typer.Typer) -> list[tuple[str, list[str]]]:
    return [(one.name or "", one.opts) for one in typer.main.get_command(app).params]


def test_a_dataclass_stands_for_its_options() -> None:
    app, called = new_app(), list[object]()

    @command(app)
    def walk(
        what: Annotated[str, Argument("What.")], where: Where, deep: Annotated[int, Option("How deep.")] = 1
    ) -> None:
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


def test_an_installation_that_lacks_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main._report_our_bug(ModuleNotFoundError("No module named 're2'", name="re2")) == 3
    said = capsys.readouterr().err
    assert "is missing or broken: No module named 're2'" in said
    assert "pip install" in said
    assert main._report_our_bug(ModuleNotFoundError("No module named 'core.x'", name="core.x")) == 4
