"""The way to the controller: scripted controllers answer, are silent, go away, and are others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from core.broker.replication.controller_channel import ControllerChannel
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.controller_request import (
    ALLOCATE_PRODUCER_IDS,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tests.support.scripted_controller import ScriptedController, channel_to

HOUR_MS = 3_600_000
NOBODY = 1, Endpoint("127.0.0.1", 1)


def block(request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    """A block that shows which request it is for."""
    return AllocateProducerIdsResponse(producer_id_start=request.broker_epoch, producer_id_len=1000)


def refusal(_: Any) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)


def silence(_: Any) -> None:
    return None


def end_of_connection(_: Any) -> None:
    raise ConnectionError


async def ask(
    channel: ControllerChannel, make_request: Callable[[], AllocateProducerIdsRequest | None] | None = None
) -> int | None:
    """The start of the block that the controller gives."""
    make_request = make_request or (lambda: AllocateProducerIdsRequest(7, 5))
    answer = await channel.ask(ALLOCATE_PRODUCER_IDS, 0, make_request, lambda answer: answer.error_code)
    return None if answer is None else answer.producer_id_start


def begin(channel: ControllerChannel) -> asyncio.Task[int | None]:
    return asyncio.get_running_loop().create_task(ask(channel))


async def test_all_that_is_asked_goes_over_one_connection() -> None:
    async with ScriptedController(block) as controller:
        channel = channel_to(controller.find)
        requests = [AllocateProducerIdsRequest(7, number) for number in range(20)]
        answers = await asyncio.gather(*(ask(channel, lambda one=one: one) for one in requests))  # type: ignore[misc]
        assert answers == list(range(20))
        assert await ask(channel) == 5
        assert controller.connections == 1
        channel.close()


@pytest.mark.parametrize("failing", [refusal, end_of_connection])
async def test_whoever_is_not_the_controller_any_more_is_left(
    failing: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "plog.broker"):
        async with ScriptedController(failing, 1) as earlier, ScriptedController(block, 2) as later:
            channel = channel_to(lambda: earlier.find() if len(earlier.asked) < 3 else later.find())
            assert await ask(channel) == 5
            assert (len(earlier.asked), len(later.asked)) == (3, 1)
            channel.close()
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, "the same reason is logged once"
    assert warnings[0].endswith("; AllocateProducerIds is tried again until the controller answers")
    assert caplog.records[-1].message == "the controller answers AllocateProducerIds again"


async def test_a_controller_that_can_not_be_reached_is_tried_until_another_is_found() -> None:
    async with ScriptedController(block, 2) as later:
        found = [NOBODY, NOBODY, NOBODY]
        channel = channel_to(lambda: found.pop() if found else later.find())
        assert await ask(channel) == 5
        channel.close()


async def test_one_that_is_not_known_yet_is_asked_as_soon_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """That is how each start begins: nothing is said of it."""
    caplog.set_level(logging.INFO, "plog.broker")
    async with ScriptedController(block) as controller:
        known: list[ScriptedController] = []
        looked: list[bool] = []

        def find() -> tuple[int, Endpoint] | None:
            looked.append(True)
            return known[0].find() if known else None

        channel = channel_to(find, backoff_ms=HOUR_MS)
        asking = begin(channel)
        while not looked:
            await asyncio.sleep(0)
        known.append(controller)
        channel.look_again()
        assert await asking == 5
        channel.close()
    assert caplog.messages == []


async def test_who_waits_for_a_controller_that_hangs_asks_the_next_one_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ScriptedController(silence, 1) as hanging, ScriptedController(block, 2) as later:
        present = [hanging]
        channel = channel_to(lambda: present[0].find(), backoff_ms=HOUR_MS)
        asking = begin(channel)
        await hanging.was_asked(1)
        channel.look_again()  # it is still the same
        present[0] = later
        channel.look_again()
        assert await asking == 5
        assert (len(hanging.asked), hanging.connections) == (1, 1)
        channel.close()
    assert caplog.messages == []


async def test_a_controller_that_hangs_is_given_up_in_time() -> None:
    async with ScriptedController(silence) as hanging:
        channel = channel_to(hanging.find, controller_socket_timeout_ms="20")
        with pytest.raises(ConnectionFailedError, match=r"no answer in 0\.02 s"):
            await channel.try_once(ALLOCATE_PRODUCER_IDS, 0, AllocateProducerIdsRequest(7, 5), lambda _: 0)
        channel.close()


async def test_each_try_says_what_is_so_by_then() -> None:
    async with ScriptedController(refusal) as controller:
        epochs = [AllocateProducerIdsRequest(7, epoch) for epoch in (3, 2, 1)]
        channel = channel_to(controller.find)
        assert await ask(channel, lambda: epochs.pop() if epochs else None) is None
        assert [request.broker_epoch for request in controller.asked] == [1, 2, 3]
        channel.close()


@pytest.mark.parametrize(
    ("served", "words"),
    [
        ((API_VERSIONS, ALLOCATE_PRODUCER_IDS), "serves versions 0 to 0 of it"),
        ((API_VERSIONS,), "does not serve it"),
    ],
)
async def test_a_controller_without_that_version_is_named(served: Any, words: str) -> None:
    async with ScriptedController(block, 4, served) as controller:
        channel = channel_to(controller.find)
        with pytest.raises(KafkaError) as refused:
            await channel.try_once(ALLOCATE_PRODUCER_IDS, 1, AllocateProducerIdsRequest(7, 5), lambda _: 0)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert str(refused.value) == (
            "AllocateProducerIds version 1 can't be asked of the controller, broker 4, which " + words
        )
        assert controller.asked == []
        channel.close()


async def test_a_closed_channel_ends_what_waits() -> None:
    async with ScriptedController(silence) as hanging:
        unanswered, unknown = channel_to(hanging.find), channel_to(lambda: None, backoff_ms=HOUR_MS)
        asking = [begin(unanswered), begin(unknown)]
        await hanging.was_asked(1)
        unanswered.close()
        unknown.close()
        for one in asking:
            with pytest.raises(
                ConnectionFailedError, match="this broker asks the controller nothing more, as it stops"
            ):
                await one
        with pytest.raises(ConnectionFailedError, match="this broker asks the controller nothing more, as it stops"):
            await ask(unanswered)


async def test_a_channel_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    async with ScriptedController(block) as controller:
        channel = channel_to(controller.find)
        asking = begin(channel)
        while controller.connections == 0:
            await asyncio.sleep(0)
        channel.close()
        with pytest.raises(ConnectionFailedError):
            await asking
        assert channel._connected is None
        assert controller.asked == []
