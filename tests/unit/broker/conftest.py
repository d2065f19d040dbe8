from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.serving.socket_server import SocketServer
from tests.support.broker import SteeredNode, Timers, open_broker, serving
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock
from tests.support.member import Member, playing
from tests.support.office import Office, office
from tests.support.replicated_topic import OTHER, THIRD, ReplicatedTopic
from tests.support.replication import KnownPeers


@pytest.fixture(autouse=True)
def _brokers_are_closed() -> Iterator[None]:
    """Those that tests have opened."""
    with SteeredNode.close_all():
        yield


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
def timers(broker: SteeredNode) -> Timers:
    timers = Timers()
    broker.runtime.use(schedule=timers)
    return timers


@pytest.fixture
def server(broker: SteeredNode, runner: asyncio.Runner) -> Iterator[SocketServer]:
    """Of the broker, in the loop of the test."""
    context = serving(broker)
    yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def member(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Member]:
    """Broker 5 of a cluster whose controller is the test."""
    context = playing(tmp_path)
    yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def it(runner: asyncio.Runner) -> Iterator[Office]:
    """A controller in office, with nothing left to do."""
    context = office()
    yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def peers(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> KnownPeers:
    known = KnownPeers(OTHER, THIRD)
    monkeypatch.setattr(broker.services.replicas, "_peers", known)
    broker.runtime.use(schedule=Timers())
    return known


@pytest.fixture
def led(broker: SteeredNode, peers: KnownPeers) -> ReplicatedTopic:
    return ReplicatedTopic(broker)
