"""Functions of the user's own, named as `module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.common.errors import UsageError


def load_function(text: str, option: str = "") -> Callable[..., Any]:
    """Imports the function, also from the working directory. Raises UsageError, naming the option, without it."""
    what = f"{option} {text}".lstrip()
    module, _, name = text.partition(":")
    if not name:
        raise UsageError(f"{what}: expected module:function")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{what}: {error}") from error
    if not callable(found):
        raise UsageError(f"{what} is no function")
    return found  # type: ignore[no-any-return]
