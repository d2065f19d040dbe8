"""Tests that are coroutines: `@in_event_loop` runs each in an event loop of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Below `for_each` and marks, which are for the test as pytest knows it."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        asyncio.run(test(**arguments))

    return run
