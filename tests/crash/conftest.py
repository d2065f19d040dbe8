"""A place where thousands of states of a disk are written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory, where there is such a file system: thousands of states are written there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="plog-crash-", dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)
