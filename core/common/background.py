"""Work that must not block its caller: the disk's slow operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class RunInBackground(Protocol):
    """Does the work in another thread, one after the other, then calls `then` in the caller's task, unless the work
    failed.
    """

    def __call__(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None: ...


def run_now(work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
    """Does the work before it returns, if there is no loop."""
    work()
    if then is not None:
        then()
