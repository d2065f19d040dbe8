from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.clock import ManualClock
from tests.support.broker import SteeredNode, open_broker
from tests.support.logs import NOW


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[SteeredNode]:
    """Without topics; records of any age are kept."""
    opened = open_broker(tmp_path / "data", clock, log_retention_ms="-1")
    yield opened
    opened.close()
