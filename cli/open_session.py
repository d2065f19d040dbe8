"""Creates a session from the options of a command line; its messages go to the terminal."""

from __future__ import annotations

from pathlib import Path

from cli.data_location import typed_place
from cli.options import default_data_dir, say
from cli.security_options import find_client_settings, find_named_server
from cli.stop_signals import undivided
from core.pipeline.frontend import Frontend, Progress
from core.pipeline.session import Session


def session_of(
    bootstrap_server: str | None, data_dir: Path | None, lock_timeout_s: float = 10.0, *, zookeeper: str | None = None
) -> Session:
    """Uses the platform's data directory if none is named."""
    return Session(
        directory=data_dir or default_data_dir(),
        is_default=data_dir is None,
        find_named_server=lambda: find_named_server(bootstrap_server),
        find_settings=find_client_settings,
        zookeeper=zookeeper,
        options=typed_place(),
        frontend=Frontend(say=say, show_progress=_show_progress, undivided=undivided),
        lock_timeout_s=lock_timeout_s,
    )


def _show_progress(verb: str, things: str) -> Progress:
    from cli.progress import Progress as Line

    return Line(verb, things)
