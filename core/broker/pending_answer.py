"""An answer that comes later, as a connection waits for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from core.broker.delayed_operation import DelayedOperation
from core.common.deferred import Deferred
from core.protocol.primitives import Piece


class PendingAnswer(ABC):
    """Whoever waits sets `on_ready`, which gets the answer's pieces once, unless it is cancelled before; owned by the
    broker's task.
    """

    on_ready: Callable[[list[Piece]], None] | None = None
    on_failed: Callable[[Exception], None] | None = None
    """Called in place of `on_ready` where an error comes of it that nobody foresaw, or that is no answer."""

    @property
    def is_at_work(self) -> bool:
        """Whether there is work left for the request, which holds it, and not just something to be waited for."""
        return False

    @abstractmethod
    def complete_now(self) -> None:
        """Answers with what there is."""

    @abstractmethod
    def cancel(self) -> None:
        """The client is gone."""


class DelayedAnswer(PendingAnswer):
    """That of a handler, whose response is encoded when it is there."""

    def __init__(self, operation: DelayedOperation | Deferred[Any], encode: Callable[[Any], list[Piece]]) -> None:
        self._operation = operation
        self._encode = encode
        operation.on_complete = self._ready
        if isinstance(operation, Deferred):
            operation.on_failure = self._failed

    @property
    def is_at_work(self) -> bool:
        return isinstance(self._operation, Deferred) and self._operation.is_at_work

    def _ready(self, response: Any) -> None:  # a response message of the request's API
        if self.on_ready is not None:
            self.on_ready(self._encode(response))

    def _failed(self, error: Exception) -> None:
        if self.on_failed is None:
            raise error
        self.on_failed(error)

    def complete_now(self) -> None:
        self._operation.complete()

    def cancel(self) -> None:
        self._operation.cancel()
