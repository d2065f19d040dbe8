"""`plog inspect`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.data_location import Place, ReadPlace
from cli.plog_command import command, new_app
from cli.terminal import is_terminal
from core.common.command_option import argument, flag, option
from core.common.errors import AccessError, UsageError
from core.records.side_format import (
    KEY_FORMAT,
    KEY_SCHEMA,
    NO_SCHEMA_JSON,
    SCHEMA_CONTEXT,
    SCHEMA_REGISTRY,
    VALUE_FORMAT,
    VALUE_SCHEMA,
    SchemaJson,
    SideFormats,
)

if TYPE_CHECKING:
    from core.pipeline.session import Session
    from core.view.target.inspect_target import Opened

app = new_app()

_WEB_OPTIONS = {"--web": 0, "--listen": 1}
"""Options that the process of a browser's window does not get, and the number of words after each."""


@command(app, "plog inspect sample-data/partition/txn_multisegment-0")
def inspect(
    places: list[str] | None = argument(
        "A data directory, a partition's folder or a file of it; and where to begin.",
        default=None,
        metavar="[PATH] [TOPIC[:P][@OFFSET|@TIME]]",
        show_default=False,
    ),
    web: bool = flag("Show it in a browser instead of this terminal."),
    listen: str = option(
        "Where --web listens; port 0 takes a free one.", default="127.0.0.1:8000", metavar="HOST:PORT"
    ),
    animation: bool = option(
        "Show animations, or none, which helps screen readers.", "--animation/--no-animation", default=True
    ),
    schema_registry: str | None = SCHEMA_REGISTRY,
    schema_context: str | None = SCHEMA_CONTEXT,
    key_format: str | None = KEY_FORMAT,
    value_format: str | None = VALUE_FORMAT,
    value_schema: str | None = VALUE_SCHEMA,
    key_schema: str | None = KEY_SCHEMA,
    schema_json: SchemaJson | None = option(
        "JSON of a schema: plain, or tagged (Avro's unions name their branch). Default: plain.", show_default=False
    ),
    place: ReadPlace = Place(),
) -> None:
    """Walk through a log with the arrow keys: topics, records, bytes, indexes, groups, findings.

    It reads the files of a data directory, Kafka's or plog's, or asks a server; it changes nothing. The key ? says what
    a screen shows, and y which command says the same.
    """
    from core.pipeline.log_places import LogPlaces

    session = place.session()
    has_window = "TEXTUAL_DRIVER" in os.environ  # the server of --web sets it
    if not web and not has_window and not (is_terminal() and sys.stdin.isatty()):
        raise UsageError(
            "plog inspect draws on a terminal, and stdin or stdout is none",
            hint="plog consume, dump-segment, verify and stats are for pipes; --web is for a browser",
        )
    if not _is_there("textual"):
        raise AccessError("plog inspect needs the package textual", hint="pip install 'plog-kafka[ui]'")
    if web and not _is_there("textual_serve"):
        raise UsageError("--web needs the package textual-serve", hint="pip install 'plog-kafka[ui]'")
    from core.view.target.inspect_target import open_places

    schemas = SideFormats(
        schema_registry,
        key_format,
        value_format,
        key_schema,
        value_schema,
        context=schema_context,
        schema_json=schema_json,
    )
    schemas.ensure_consistent()
    if schema_json is not None and not schemas.have_schemas():
        raise UsageError(NO_SCHEMA_JSON)
    session = _for_threads(session, has_registry=schema_registry is not None)
    opened = open_places(places or [], session, LogPlaces(session, lambda *_: None).is_path)
    if value_schema is not None or key_schema is not None:
        opened.inspected.schemas(schemas.for_people())  # what can't be used is said before the screen is drawn
    if web:
        from cli.inspect.web import serve_inspect

        opened.inspected.close()  # each window opens it for itself
        serve_inspect(_command_of_window(sys.argv[1:]), listen)
        return
    _run(opened, schemas, has_animation=animation)


def _for_threads(session: Session, *, has_registry: bool) -> Session:
    """Returns a session that any thread may use: only the command's own thread knows the typed options."""
    named = session.find_named_server()
    settings = session.find_settings() if named is not None or has_registry else None
    return replace(session, find_named_server=lambda: named, find_settings=lambda: settings)


def _is_there(package: str) -> bool:
    """Returns whether a package is installed, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:
        return False


def _run(opened: Opened, schemas: SideFormats, *, has_animation: bool) -> None:
    from cli.inspect.screen import InspectApp

    app = InspectApp(opened, schemas=schemas, has_animation=has_animation)
    app.run()
    if app.bug is not None:
        raise app.bug
    if app.return_code:
        raise typer.Exit(app.return_code)


def _command_of_window(words: list[str]) -> list[str]:
    """Returns the command of a browser's window, made of the typed one."""
    kept: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, has_value, _ = word.partition("=")
        if name not in _WEB_OPTIONS:
            kept.append(word)
        elif not has_value:
            for _ in range(_WEB_OPTIONS[name]):
                next(waiting, None)
    safe = () if sys.path[0] == str(Path.cwd()) else ("-P",)  # else modules of the folder we are in would be imported
    return [sys.executable, *safe, "-m", "plog", *kept]
