from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.clock import ManualClock
from tests.support.broker import SteeredNode, Timers, open_broker
from tests.support.logs import NOW
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic
from tests.support.replication import KnownPeers


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[SteeredNode]:
    """Without topics; records of any age are kept."""
    opened = open_broker(tmp_path / "data", clock, log_retention_ms="-1")
    yield opened
    opened.close()


@pytest.fixture
def peers(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> KnownPeers:
    known = KnownPeers(OTHER, THIRD)
    monkeypatch.setattr(broker.services.replicas, "_peers", known)
    broker.runtime.use(schedule=Timers())
    return known


@pytest.fixture
def led(broker: SteeredNode, peers: KnownPeers) -> ReplicatedTopic:
    return ReplicatedTopic(broker)
