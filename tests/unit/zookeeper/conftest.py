"""ZooKeeper for laws that hold at a model of it and, in the longer tier, at a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper
from tests.support.zookeeper_sessions import Ensemble

_NUMBERS = count()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(
    params=["model", pytest.param("zookeeper", marks=[pytest.mark.longer, pytest.mark.java, requires_zookeeper])]
)
def ensembles(request: pytest.FixtureRequest) -> Callable[[], Ensemble]:
    """Makes one of which nothing is there yet."""
    server: ZooKeeperServer | None = None if request.param == "model" else request.getfixturevalue("zookeeper")
    return lambda: Ensemble(server, f"/{next(_NUMBERS)}")
