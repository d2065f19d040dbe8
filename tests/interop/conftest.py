"""One broker for a module's clients, as a user starts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server import Server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its topics keep old records, and have one partition."""
    with Server(tmp_path_factory.mktemp("interop") / "data", "--set", "log.retention.ms=-1") as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test of the module uses."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)
