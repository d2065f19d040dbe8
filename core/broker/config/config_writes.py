"""The answer to a change of settings, when they are written: a cluster's are written elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from core.common.config_def import ConfigResourceType
from core.common.errors import KafkaError
from core.common.pending import Pending

_log = logging.getLogger("plog.config")

T = TypeVar("T")


class AlteredResource(Protocol):
    """What an answer says of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class ConfigWrite(NamedTuple):
    """A change of one resource: the keys' new values, None for one that is removed. `writing` is None if it is done."""

    resource: AlteredResource
    changes: Mapping[str, str | None]
    writing: Pending[KafkaError | None] | None


def when_written(answer: T, writes: Sequence[ConfigWrite], sender: str) -> T | Pending[T]:
    """Gives the answer when all is written, with the errors of what could not be, and logs who changed what."""
    for number, write in enumerate(writes, start=1):
        writing = write.writing
        if writing is not None and not writing.is_over:
            return writing.then(partial(_go_on, answer, write, writes[number:], sender))
        _note(write, None if writing is None else writing.value, sender)
    return answer


def _go_on(
    answer: T, write: ConfigWrite, others: Sequence[ConfigWrite], sender: str, error: KafkaError | None
) -> T | Pending[T]:
    _note(write, error, sender)
    return when_written(answer, others, sender)


def _note(write: ConfigWrite, error: KafkaError | None, sender: str) -> None:
    resource = write.resource
    if error is not None:
        resource.error_code, resource.error_message = error.code, error.message
    elif write.changes:
        kind = ConfigResourceType(resource.resource_type).name.lower()
        changed = sorted(write.changes.items())
        keys = ", ".join(key if value is not None else f"{key} (removed)" for key, value in changed)
        _log.info("changed settings of %s %r for %s: %s", kind, resource.resource_name, sender, keys)
