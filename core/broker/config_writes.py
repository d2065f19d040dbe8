"""The answer to a change of settings, when they are written: a cluster's are written elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from core.common.errors import KafkaError
from core.common.pending import Pending

T = TypeVar("T")


class AlteredResource(Protocol):
    """What an answer says of one resource."""

    error_code: int
    error_message: str | None


def when_written(answer: T, writes: Sequence[tuple[AlteredResource, Pending[KafkaError | None]]]) -> T | Pending[T]:
    """Gives the answer when all is written, with the errors of what could not be."""
    if not writes:
        return answer
    (resource, writing), *others = writes

    def go_on(error: KafkaError | None) -> T | Pending[T]:
        if error is not None:
            resource.error_code, resource.error_message = error.code, error.message
        return when_written(answer, others)

    return go_on(writing.value) if writing.is_over else writing.then(go_on)
