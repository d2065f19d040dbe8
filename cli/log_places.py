"""Makes what finds the logs that somebody names, of the options of `plog stats`, `plog gaps` and `plog trace`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.place import level_of
from cli.session import session_of
from core.pipeline.log_places import Copy, LogPlaces

if TYPE_CHECKING:
    from core.pipeline.log_places import OpenPlaces

PLACES = "PATH|TOPIC[:P][@OFFSET]"
PLACES_HELP = "A partition's folder, a data directory, a topic, or a partition of it."


def places_of(context: Any, bootstrap_server: str | None, data_dir: Path | None) -> OpenPlaces:
    """Takes typer's context, which knows what was typed."""

    def open_places(copy: Copy) -> LogPlaces:
        return LogPlaces(
            session_of(bootstrap_server, data_dir),
            copy,
            is_directory_named=data_dir is not None,
            is_directory_typed=data_dir is not None and level_of(context, "data_dir") == 0,
        )

    return open_places
