"""A candidacy, and the times in office that come of it; elections and terms are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.broker import cluster_control
from core.broker.broker_config import BrokerConfig
from core.broker.cluster_control import ClusterControl
from core.broker.receive_buffers import ReceiveBuffers
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.zookeeper.controller_election import WonElection


class FakeElection:
    """Counts resignations."""

    def __init__(self, on_elected: Callable[[WonElection], None], on_lost: Callable[[], None]) -> None:
        self.on_elected = on_elected
        self.on_lost = on_lost
        self.resignations = 0

    async def start(self) -> None:
        """Nobody is elected until the test says so."""

    def stop(self) -> None:
        """Nor after this."""

    async def resign(self) -> None:
        self.resignations += 1


class FakeTerm:
    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self.is_over = False
        self.is_closed = False

    def be_over(self) -> None:
        self.is_over = True
        self._on_over()

    def close(self) -> None:
        self.is_closed = True


class Candidate:
    """Broker 1, as the entry to its cluster."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        services: Any = SimpleNamespace(
            config=BrokerConfig.parse(settings or {}),
            node=SimpleNamespace(node_id=1),
            controller=SimpleNamespace(subscribe=lambda _: None),
        )
        peers: Any = SimpleNamespace(find_endpoint=lambda _: None)
        self.elections: list[FakeElection] = []
        self.terms: list[FakeTerm] = []
        self.control = ClusterControl(services, cast("Any", self), peers, ReceiveBuffers())

    def make_election(self, _node_id: int, **callbacks: Any) -> FakeElection:
        self.elections.append(FakeElection(**callbacks))
        return self.elections[-1]

    def begin_term(self, _won: WonElection, *, on_over: Callable[[], None], **_options: Any) -> FakeTerm:
        self.terms.append(FakeTerm(on_over))
        return self.terms[-1]

    def win(self) -> None:
        self.elections[0].on_elected(WonElection(len(self.terms) + 1, 0))

    def lose(self) -> None:
        self.elections[0].on_lost()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_control, "_AGAIN_SECONDS", 0)


async def test_a_term_that_is_over_is_none_and_its_office_is_given_up() -> None:
    candidate = Candidate()
    await candidate.control.start()
    candidate.win()
    assert candidate.control.require_term() is cast("Any", candidate.terms[0])
    candidate.terms[0].be_over()
    with pytest.raises(KafkaError) as refused:
        candidate.control.require_term()
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await candidate.settle()
    assert candidate.elections[0].resignations == 1
    await candidate.control.close()


async def test_an_office_that_was_lost_and_won_again_is_not_given_up_for_the_one_before() -> None:
    candidate = Candidate()
    await candidate.control.start()
    candidate.win()
    candidate.terms[0].be_over()
    candidate.lose()
    candidate.win()
    await candidate.settle()
    assert candidate.elections[0].resignations == 0
    assert candidate.control.term is cast("Any", candidate.terms[1])
    await candidate.control.close()


async def test_who_stops_leaves_office_and_begins_none_that_is_won_late() -> None:
    candidate = Candidate()
    await candidate.control.start()
    candidate.win()
    await candidate.control.close()
    assert candidate.terms[0].is_closed
    assert candidate.elections[0].resignations == 1
    candidate.win()
    assert len(candidate.terms) == 1
    assert candidate.control.term is None


async def test_who_may_not_be_the_controller_does_not_stand() -> None:
    candidate = Candidate({"plog.controller.enable": "false"})
    await candidate.control.start()
    assert candidate.elections == []
    await candidate.control.close()
