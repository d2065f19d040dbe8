"""A place for logs that are made, damaged and read again thousands of times."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """In memory, where there is such a folder."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="plog-property-", dir=shared if shared.is_dir() else None) as directory:
        yield Path(directory)
