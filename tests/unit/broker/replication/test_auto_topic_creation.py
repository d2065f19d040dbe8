"""Topics that are needed and not there: a scripted controller makes them, or does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication import auto_topic_creation
from core.broker.replication.auto_topic_creation import AutoTopicCreation
from core.cluster.image.broker_metadata import NewTopic
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.topic_changes import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.scripted_controller import ScriptedController, channel_to


class Controller(ScriptedController):
    """Answers each topic with the next error, and with REQUEST_TIMED_OUT after them, as a topic is not led at once."""

    def __init__(self, *errors: ErrorCode) -> None:
        super().__init__(self._make)
        self._errors = list(errors)

    def _make(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            error = self._errors.pop(0) if self._errors else ErrorCode.REQUEST_TIMED_OUT
            results.append(CreatableTopicResult(topic.name, error_code=error))
        return CreateTopicsResponse(topics=results)

    @property
    def names(self) -> list[list[str]]:
        return [[topic.name for topic in request.topics] for request in self.asked]


def creation_by(controller: ScriptedController, **settings: str) -> AutoTopicCreation:
    config = BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
    return AutoTopicCreation(channel_to(controller.find), lambda: config)


async def until_idle(creation: AutoTopicCreation) -> None:
    while creation._errand._task is not None:
        await asyncio.sleep(0)


async def test_the_defaults_are_those_of_the_broker_that_asks() -> None:
    async with Controller() as controller:
        creation = creation_by(controller, num_partitions="4", default_replication_factor="3")
        creation.begin(NewTopic("asked"))
        creation.begin(NewTopic("of-its-own", 2, 1, configs={"cleanup.policy": "compact"}))
        creation.begin(NewTopic("placed", assignments=[(0, [1, 2])]))
        await until_idle(creation)
        (request,) = controller.asked
        assert request.timeout_ms == 0
        assert request.topics == [
            CreatableTopic("asked", 4, 3),
            CreatableTopic("of-its-own", 2, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")]),
            CreatableTopic("placed", -1, -1, [CreatableReplicaAssignment(0, [1, 2])]),
        ]


async def test_what_many_want_is_asked_for_once_at_a_time() -> None:
    async with Controller() as controller:
        creation = creation_by(controller)
        for name in ("a", "a", "b"):
            creation.begin(NewTopic(name))
        await controller.was_asked(1)
        for name in ("a", "c", "c"):
            creation.begin(NewTopic(name))
        await until_idle(creation)
        creation.begin(NewTopic("a"))  # it is not in the metadata yet
        await until_idle(creation)
        assert controller.names == [["a", "b"], ["c"], ["a"]]


async def test_the_log_names_once_who_wants_a_topic(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with Controller() as controller:
        creation = creation_by(controller)
        for sender in ("client 'a' at 10.0.0.1", "client 'b' at 10.0.0.2"):
            creation.begin(NewTopic("t"), sender)
        await until_idle(creation)
        await creation.close()
    assert [record.message for record in caplog.records if "asking" in record.message] == [
        "asking the controller to create topic t for client 'a' at 10.0.0.1"
    ]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS])
async def test_a_topic_that_is_made_or_there_is_no_error(error: ErrorCode) -> None:
    async with Controller(error) as controller:
        creation = creation_by(controller)
        creation.begin(NewTopic("a"))
        await until_idle(creation)
        creation.begin(NewTopic("a"))
        await creation.close()


async def test_why_a_topic_can_not_be_made_is_said_once_and_it_is_tried_again_then() -> None:
    async with Controller(ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER) as controller:
        creation = creation_by(controller)
        creation.begin(NewTopic("a"))
        await until_idle(creation)
        with pytest.raises(KafkaError) as refused:
            creation.begin(NewTopic("a"))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        creation.begin(NewTopic("a"))
        await until_idle(creation)
        creation.begin(NewTopic("a"))
        assert controller.names == [["a"], ["a"], ["a"]]  # one of them by who was not the controller
        await creation.close()


async def test_a_right_that_this_broker_lacks_is_not_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with Controller(*[ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2) as controller:
        creation = creation_by(controller)
        for _ in range(3):
            creation.begin(NewTopic("a"))
            await until_idle(creation)
        assert controller.names == [["a"]] * 3
        await creation.close()
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warning.endswith("--allow-host 127.0.0.1 --operation Create --cluster")


async def test_names_that_nobody_can_be_asked_for_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_topic_creation, "_MOST_KEPT", 3)
    errors = [ErrorCode.INVALID_REPLICATION_FACTOR] * 10
    async with Controller(*errors) as controller:
        creation = creation_by(controller)
        for number in range(10):
            creation.begin(NewTopic(f"t{number}"))
        await until_idle(creation)
        assert controller.names == [["t0", "t1", "t2"]]
        creation.begin(NewTopic("t3"))
        await until_idle(creation)
        assert len(creation._refusals) == 3
        with pytest.raises(KafkaError):
            creation.begin(NewTopic("t3"))  # the newest are kept


async def test_a_closed_channel_ends_it() -> None:
    def silence(_: Any) -> None:
        return None

    async with ScriptedController(silence) as controller:
        creation = creation_by(controller)
        creation.begin(NewTopic("a"))
        await controller.was_asked(1)
        creation._channel.close()
        await until_idle(creation)
        creation.begin(NewTopic("b"))
        await until_idle(creation)
        await creation.close()
