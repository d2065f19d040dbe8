"""A broker that stops, and what the controller says to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.cluster_membership import controlled_shutdown
from core.common.error_code import ErrorCode
from core.protocol.schema.controller_request import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tests.support.scripted_controller import ScriptedController, channel_to, run

NODE_ID = 7
DONE = ControlledShutdownResponse()
REMAINING = ControlledShutdownResponse(remaining_partitions=[RemainingPartition("t", 0), RemainingPartition("u", 3)])
SETTINGS = {"controlled.shutdown.retry.backoff.ms": "1"}


def answered(*answers: Any) -> Callable[[Any], Any]:
    """Answers one after the other."""
    left = list(answers)

    def answer(_: Any) -> Any:
        one = left.pop(0)
        if one is None:
            raise ConnectionError
        return one

    return answer


def shut_down(controller: ScriptedController, expected: bool, **settings: str) -> None:
    async def scenario() -> None:
        config = BrokerConfig.parse({**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}})
        epochs = iter(range(70, 80))
        async with controller:
            channel = channel_to(controller.find)
            done = await controlled_shutdown(channel, config, node_id=NODE_ID, broker_epoch=lambda: next(epochs))
            assert done is expected
            channel.close()

    run(scenario())


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "plog.broker"]


def test_one_request_is_enough_if_others_lead_everything_then(caplog: pytest.LogCaptureFixture) -> None:
    controller = ScriptedController(answered(DONE))
    shut_down(controller, True)
    assert controller.asked == [ControlledShutdownRequest(NODE_ID, 70)]
    assert messages(caplog) == []


def test_it_is_asked_again_while_partitions_remain_or_no_answer_comes(caplog: pytest.LogCaptureFixture) -> None:
    controller = ScriptedController(answered(REMAINING, None, DONE))
    with caplog.at_level(logging.INFO, "plog.broker"):
        shut_down(controller, True)
    assert [request.broker_epoch for request in controller.asked] == [70, 71, 72]
    first, second = messages(caplog)
    assert first == (
        "the controller has not taken over all that broker 7 leads: no other broker can lead t-0, u-3; "
        "this broker asks again"
    )
    assert "lost the connection" in second


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (REMAINING, "no other broker can lead t-0, u-3; "),
        (ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), ErrorCode.STALE_BROKER_EPOCH.text),
        (ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER.text),
        (None, "lost the connection"),
        (
            ControlledShutdownResponse(remaining_partitions=[RemainingPartition("t", number) for number in range(12)]),
            "t-8, t-9 and 2 more",
        ),
    ],
)
def test_in_the_end_it_stops_all_the_same(
    answer: ControlledShutdownResponse | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    controller = ScriptedController(answered(*[answer] * 2))
    shut_down(controller, False, controlled_shutdown_max_retries="2")
    assert len(controller.asked) == 2
    last = messages(caplog)[-1]
    assert words in last
    assert last.endswith("; this broker stops all the same, and the controller elects other leaders when it notices")


def test_nobody_is_asked_if_that_is_configured() -> None:
    controller = ScriptedController(answered())
    shut_down(controller, False, controlled_shutdown_enable="false")
    assert controller.asked == []
