"""A candidacy, and the times in office that come of it; elections and terms are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.controller import controller_elector
from core.broker.controller.controller_elector import ControllerElector
from core.broker.observe.metrics import broker_metrics
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import finish
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.zookeeper.controller_election import WonElection
from core.zookeeper.zookeeper_session import SessionFigures, SessionState
from tests.support.broker import Timers, ask
from tests.support.member import US, playing


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
        controller: Any = SimpleNamespace(subscribe=lambda _: None)
        configs: Any = SimpleNamespace(broker=BrokerConfig.parse(settings or {}))
        peers: Any = SimpleNamespace(find_endpoint=lambda _: None)
        self.elections: list[FakeElection] = []
        self.terms: list[FakeTerm] = []
        self.session_figures = SessionFigures(SessionState.CONNECTED, 0, {})
        self.control = ControllerElector(
            cast("Any", self),
            peers,
            1,
            controller,
            configs,
            Timers(),
        )

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
    monkeypatch.setattr(controller_elector, "_AGAIN_SECONDS", 0)


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


async def test_who_is_cut_off_from_zookeeper_decides_nothing_but_for_a_moment() -> None:
    """It is in office as long as its session may live, and could write nothing down."""
    candidate = Candidate()
    await candidate.control.start()
    assert not candidate.control.can_decide
    candidate.win()
    for silence_ms, can_decide in ((0, True), (2000, True), (2001, False)):
        candidate.session_figures = SessionFigures(SessionState.SUSPENDED, silence_ms, {})
        assert candidate.control.can_decide is can_decide
        assert candidate.control.term is not None


async def test_it_says_for_how_long_zookeeper_is_away(tmp_path: Path) -> None:
    """To whoever asks for its settings, and in its metrics."""
    figures = SessionFigures(SessionState.SUSPENDED, 7500, {SessionState.CONNECTED: 3, SessionState.SUSPENDED: 2})
    request = DescribeConfigsRequest([DescribeConfigsResource(4, str(US), ["plog.zookeeper.silence.ms"])])
    async with playing(tmp_path) as member:

        def told() -> list[str | None]:
            return [one.value for one in ask(member.node, DESCRIBE_CONFIGS, request).results[0].configs]

        assert told() == ["0"]
        member.entry.session_figures = figures
        assert told() == ["7500"]
        samples = {
            (one.name, *one.labels.values()): one.value
            for metric in finish(broker_metrics(member.node))
            for one in metric.samples
            if "zookeeper" in one.name or "session" in one.name
        }
    prefix = "kafka_server_sessionexpirelistener"
    assert samples["plog_zookeeper_silence_ms",] == 7500
    assert samples[f"{prefix}_sessionstate", "SUSPENDED"] == 1
    assert samples[f"{prefix}_sessionstate", "CONNECTED"] == 0
    assert samples[f"{prefix}_zookeepersyncconnects_total",] == 3
    assert samples[f"{prefix}_zookeeperdisconnects_total",] == 2
    assert samples[f"{prefix}_zookeeperexpires_total",] == 0
