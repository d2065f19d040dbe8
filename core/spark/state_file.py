"""Reads the JSON files of a replay's `_plog` folder, which may be damaged, or written by another program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from core.common.errors import AccessError
from core.common.filesystem import access_error

T = TypeVar("T")


def read_state(path: Path, parse: Callable[[Any], T], hint: str | None = None) -> T | None:
    """Returns what `parse` makes of the file's JSON, or None if there is no file. Raises AccessError, with `hint`, if
    the file can't be read or `parse` refuses it.
    """
    try:
        return parse(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise access_error(error, path, "read") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise AccessError(f"{path} is damaged: {type(error).__name__}: {error}", where=str(path), hint=hint) from error
