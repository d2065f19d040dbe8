from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import SteeredNode, add_topic, open_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteeredNode]:
    """With the topic t, of two partitions; records of any age are kept."""
    opened = open_broker(tmp_path, log_retention_ms="-1")
    add_topic(opened, partitions=2)
    yield opened
    opened.close()
