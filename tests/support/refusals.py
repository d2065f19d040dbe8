"""What is refused with a code of Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError


@contextmanager
def refused(code: ErrorCode, match: str | None = None) -> Iterator[None]:
    """Fails unless the block raises a KafkaError with that code, and a message in which `match`, if any, is found."""
    with pytest.raises(KafkaError, match=match) as raised:
        yield
    assert raised.value.code is code
