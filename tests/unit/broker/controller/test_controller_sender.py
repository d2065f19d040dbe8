"""The controller's requests to a broker: in order, each until it is answered, whatever happens on the way; and no
broker holds up another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.controller import controller_sender
from core.broker.controller.controller_sender import ControllerSender
from core.broker.replication.peer_connection import PeerLink
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.cluster.controller.controller_requests import ControllerRequest
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tests.support.free_ports import free_ports
from tests.support.scripted_controller import ScriptedController

HOUR_MS = 3_600_000
PATIENT = BrokerConfig.parse(
    {"controller.socket.timeout.ms": str(HOUR_MS), "socket.connection.setup.timeout.ms": str(HOUR_MS)}
)
APIS = (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)
ANSWERS = {
    LeaderAndIsrRequest: LeaderAndIsrResponse(),
    UpdateMetadataRequest: UpdateMetadataResponse(),
    StopReplicaRequest: StopReplicaResponse(),
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is sent again at once."""
    monkeypatch.setattr(controller_sender, "_FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(controller_sender, "_MOST_BACKOFF_S", 0.01)


class Broker(ScriptedController):
    """Answers control requests, but for those that `answer` answers otherwise."""

    def __init__(self, answer: Callable[[Any], Any] = lambda request: ANSWERS[type(request)]) -> None:
        super().__init__(answer, served=APIS)

    @property
    def epochs(self) -> list[int]:
        """The broker epochs of the requests that came: here they number them."""
        return [request.broker_epoch for request in self.asked]


def numbered(number: int) -> ControllerRequest:
    """One of three kinds, in turn."""
    request, api, version = (
        (LeaderAndIsrRequest(controller_id=1, broker_epoch=number), LEADER_AND_ISR, 7),
        (UpdateMetadataRequest(controller_id=1, broker_epoch=number), UPDATE_METADATA, 8),
        (StopReplicaRequest(controller_id=1, broker_epoch=number), STOP_REPLICA, 4),
    )[number % 3]
    return ControllerRequest(2, number, api, version, request)


class Sent:
    """A queue, and the numbers of the requests whose answers it has given. No request is given up after some time,
    unless the test says so: that would end waits that something else has to end.
    """

    def __init__(self, endpoint: Endpoint | None, *, request_timeout_ms: int = HOUR_MS) -> None:
        self.answered: list[int] = []
        link = PeerLink(ReceiveBuffers(), PATIENT, client_id="controller-1", request_timeout_ms=request_timeout_ms)
        note = self.answered.append
        self.queue = ControllerSender(endpoint, link, lambda request, _: note(request.broker_epoch), lambda: None)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.queue.put(numbered(number))

    async def until_answered(self, count: int) -> None:
        while len(self.answered) < count:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def sent_to(endpoint: Endpoint | None, **options: int) -> AsyncIterator[Sent]:
    sent = Sent(endpoint, **options)
    try:
        yield sent
    finally:
        sent.queue.close()


async def test_requests_arrive_in_order_one_after_the_other() -> None:
    """The next one is sent when the one before is answered: its broker must have obeyed that."""
    under_way = 0

    def answer(request: Any) -> Any:
        nonlocal under_way
        under_way += 1
        assert under_way == 1 + len(sent.answered)
        return ANSWERS[type(request)]

    sent: Sent
    async with Broker(answer) as broker, sent_to(broker.find()[1]) as sent:
        sent.put(*range(30))
        await sent.until_answered(30)
        assert broker.epochs == sent.answered == list(range(30))
        assert broker.connections == 1
        assert len(sent.queue) == 0


async def test_what_is_not_answered_is_sent_again() -> None:
    """The connection is closed, then nothing comes, then what comes is no answer; the order stays."""
    deeds = ["close", "silence", "silence", "close", "answer", "close"]

    def answer(request: Any) -> Any:
        deed = deeds.pop(0) if deeds else "answer"
        if deed == "close":
            raise ConnectionError
        return None if deed == "silence" else ANSWERS[type(request)]

    async with Broker(answer) as broker, sent_to(broker.find()[1], request_timeout_ms=50) as sent:
        sent.put(*range(5))
        await sent.until_answered(5)
        assert sent.answered == list(range(5))
        assert list(dict.fromkeys(broker.epochs)) == list(range(5))
        assert broker.epochs == sorted(broker.epochs)


async def test_what_a_broker_refuses_for_lack_of_a_right_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    """Else it would not learn what it leads when it is given the right."""
    refusals = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3

    def answer(request: Any) -> Any:
        return type(ANSWERS[type(request)])(refusals.pop()) if refusals else ANSWERS[type(request)]

    async with Broker(answer) as broker, sent_to(broker.find()[1]) as sent:
        sent.put(*range(2))
        await sent.until_answered(2)
        assert broker.epochs == [0, 0, 0, 0, 1]
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == (
        "broker 2 does not get LeaderAndIsr: not authorized for the cluster; this broker is User:ANONYMOUS there, who "
        "lacks a right: plog acl add (or kafka-acls --add) --allow-principal User:ANONYMOUS --allow-host 127.0.0.1 "
        "--operation ClusterAction --cluster; it is sent again"
    )


async def test_a_broker_that_does_not_listen_yet_gets_all_when_it_does(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once that it is away, and once that it is back."""
    (port,) = free_ports(1)
    async with sent_to(Endpoint("127.0.0.1", port)) as sent:
        with caplog.at_level(logging.INFO):
            sent.put(*range(7))
            while not caplog.records:
                await asyncio.sleep(0.001)
            server = Broker()
            server._server = await asyncio.start_server(server._serve, "127.0.0.1", port)
            await sent.until_answered(7)
            await server.__aexit__()
        said = [record.getMessage() for record in caplog.records]
        assert len([text for text in said if "does not get" in text]) == 1
        assert len([text for text in said if "answers the controller again" in text]) == 1
        assert server.epochs == list(range(7))


async def test_nobody_is_held_up_by_a_broker_that_is_silent() -> None:
    async with (
        Broker(lambda _: None) as silent,
        Broker() as healthy,
        sent_to(silent.find()[1]) as stuck,
        sent_to(None) as nowhere,
        sent_to(healthy.find()[1]) as sent,
    ):
        for one in (stuck, nowhere, sent):
            one.put(*range(50))
        await sent.until_answered(50)
        assert stuck.answered == nowhere.answered == []
        assert len(stuck.queue) == 50


async def test_nothing_is_sent_after_the_end() -> None:
    """What waits is dropped: it was meant for a life that is over, or comes of a controller that is none any more."""
    async with Broker(lambda _: None) as broker, sent_to(broker.find()[1]) as sent:
        sent.put(0, 1, 2)
        await broker.was_asked(1)
        sent.queue.close()
        sent.put(3)
        broker.answer = lambda request: ANSWERS[type(request)]
        async with Broker() as later, sent_to(later.find()[1]) as next_life:
            next_life.put(4)
            await next_life.until_answered(1)
        assert broker.epochs == [0]
        assert sent.answered == []


async def test_what_was_not_answered_is_not_sent_again_after_the_end() -> None:
    """Another queue, to a broker that is as silent, goes on: this one would have done so as well."""
    options = {"request_timeout_ms": 50}
    async with (
        Broker(lambda _: None) as broker,
        Broker(lambda _: None) as other,
        sent_to(broker.find()[1], **options) as sent,
        sent_to(other.find()[1], **options) as goes_on,
    ):
        sent.put(0)
        await broker.was_asked(1)
        sent.queue.close()
        asked = len(broker.asked)
        goes_on.put(0)
        await other.was_asked(4)
        assert len(broker.asked) == asked


@pytest.mark.parametrize("bad", [0, 1])
async def test_a_mistake_is_no_secret(bad: int, caplog: pytest.LogCaptureFixture) -> None:
    """A request that can't be encoded, or an answer that nobody can take: the controller hears that the broker lacks
    what others have.
    """
    mistakes: list[int] = []

    def fail(_request: ControllerRequest, _answer: Any) -> None:
        raise RuntimeError("a mistake")

    async with Broker() as broker:
        link = PeerLink(ReceiveBuffers(), PATIENT, client_id="c")
        queue = ControllerSender(broker.find()[1], link, fail, lambda: mistakes.append(bad))
        request = UpdateMetadataRequest(controller_id=1, controller_epoch=2**40, broker_epoch=9)
        queue.put(ControllerRequest(2, 9, UPDATE_METADATA, 8, request) if bad else numbered(0))
        while not mistakes:
            await asyncio.sleep(0.001)
        queue.close()
        assert any("have come to an end" in record.getMessage() for record in caplog.records)
