"""Fixtures that all tests share. Nothing here sleeps, takes a fixed port, or talks beyond loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.clock import ManualClock
from tests.support.server import Server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A `plog serve` process of its own, on a free port; its directory is tmp_path/"data"."""
    with Server(tmp_path / "data") as running:
        yield running
