"""Opens what the options of a command line name, and says to the terminal what is said meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.options import default_data_dir, say
from cli.place import typed_place
from cli.security_options import find_client_settings, find_named_server
from cli.stop_signals import undivided
from core.pipeline.frontend import Frontend, Progress
from core.pipeline.session import DamagedAnswerError, FoundServer, Session

if TYPE_CHECKING:
    from core.client.kafka_client import KafkaClient
    from core.log.directory_reader import DirectoryReader


def session_of(bootstrap_server: str | None, data_dir: Path | None, *, lock_timeout_s: float = 10.0) -> Session:
    """Makes a session of what the options say; the default directory is the platform's."""
    return Session(
        directory=data_dir or default_data_dir(),
        find_named_server=lambda: find_named_server(bootstrap_server),
        find_settings=find_client_settings,
        options=typed_place(),
        frontend=Frontend(say=say, show_progress=_show_progress, undivided=undivided),
        lock_timeout_s=lock_timeout_s,
    )


def _show_progress(verb: str, things: str) -> Progress:
    from cli.progress import Progress as Line

    return Line(verb, things)


def find_server(bootstrap_server: str | None, data_dir: Path | None) -> FoundServer | None:
    """Finds what `Session.find_server` finds."""
    return session_of(bootstrap_server, data_dir).find_server()


@contextmanager
def open_client(
    bootstrap_server: str | None,
    data_dir: Path | None,
    *,
    lock_timeout_s: float = 10.0,
    is_read_only: bool = False,
    makes_directory: bool = False,
    rests_on: Callable[[str], bool] | None = None,
) -> Iterator[KafkaClient]:
    """Opens a client as `Session.open_client` does; exit code 1 for an answer that rests on damaged logs."""
    session = session_of(bootstrap_server, data_dir, lock_timeout_s=lock_timeout_s)
    try:
        with session.open_client(
            is_read_only=is_read_only, makes_directory=makes_directory, rests_on=rests_on
        ) as client:
            yield client
    except DamagedAnswerError:
        raise typer.Exit(1) from None


@contextmanager
def open_source(bootstrap_server: str | None, data_dir: Path | None) -> Iterator[KafkaClient | DirectoryReader]:
    """Opens what `Session.open_source` opens."""
    with session_of(bootstrap_server, data_dir).open_source() as source:
        yield source
