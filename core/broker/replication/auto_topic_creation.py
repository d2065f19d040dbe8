"""Asks the controller to create topics that a broker of a cluster needs and does not find: those that clients ask for,
and the coordinators' internal topics.

No request waits for it: the broker answers that the topic does not exist yet, and clients retry. They find it when the
controller has announced it to the brokers, or get the reason why it can't be created.

Source: kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.controller_channel import ControllerChannel, ControllerErrand
from core.cluster.image.broker_metadata import NewTopic
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema import topic_changes as schema

_log = logging.getLogger("plog.broker")

_VERSION = 7
_AT_ONCE = 0
"""The controller answers when it has written the topic, which it calls REQUEST_TIMED_OUT. If it waited for the topic's
leaders, so would all later requests.
"""
_MOST_KEPT = 1000
"""The limit for topics that wait for the controller, and for refusals that are kept for the next request."""
_IS_MADE = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS})


class AutoTopicCreation:
    """Owned by the broker's loop. Each topic is in one request at a time."""

    def __init__(self, channel: ControllerChannel, config: Callable[[], BrokerConfig]) -> None:
        self._channel = channel
        self._config = config
        self._wanted: dict[str, NewTopic] = {}
        self._asked: dict[str, NewTopic] = {}
        """The topics of the request in flight."""
        self._refusals: dict[str, KafkaError] = {}
        self._unauthorized: set[str] = set()
        """Topics that this broker may not create."""
        self._errand = ControllerErrand(self._create)

    def begin(self, topic: NewTopic, sender: str = "this broker") -> None:
        """Asks for a topic that the metadata lack, unless that is under way, on behalf of `sender`. Raises the
        KafkaError of the controller's last refusal, once; the next call asks the controller again.
        """
        refusal = self._refusals.pop(topic.name, None)
        if refusal is not None:
            raise refusal
        if topic.name not in self._asked and topic.name not in self._wanted and len(self._wanted) < _MOST_KEPT:
            self._wanted[topic.name] = topic
            _log.info("asking the controller to create topic %s for %s", topic.name, sender)
        self._errand.begin()

    async def close(self) -> None:
        """Stops asking."""
        await self._errand.close()

    async def _create(self) -> None:
        try:
            while self._wanted:
                self._asked, self._wanted = self._wanted, {}
                answer = await self._channel.ask(schema.CREATE_TOPICS, _VERSION, self._make_request, _find_error)
                assert answer is not None
                for result in answer.topics:
                    self._take(result)
        finally:
            self._asked = {}

    def _make_request(self) -> schema.CreateTopicsRequest:
        return schema.CreateTopicsRequest(
            [self._creatable(topic) for topic in self._asked.values()], timeout_ms=_AT_ONCE
        )

    def _creatable(self, topic: NewTopic) -> schema.CreatableTopic:
        """Fills in this broker's defaults: the controller may have others."""
        config = self._config()
        partitions, replicas = topic.num_partitions, topic.replication_factor
        if not topic.assignments:
            partitions = config.num_partitions if partitions == -1 else partitions
            replicas = config.default_replication_factor if replicas == -1 else replicas
        return schema.CreatableTopic(
            topic.name,
            partitions,
            replicas,
            [schema.CreatableReplicaAssignment(number, list(nodes)) for number, nodes in topic.assignments],
            [schema.CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
        )

    def _take(self, result: schema.CreatableTopicResult) -> None:
        error = ErrorCode.of(result.error_code)
        if error in _IS_MADE:
            self._unauthorized.discard(result.name)
            _log.info("the controller makes topic %s", result.name)
            return
        message = result.error_message or error.text
        way = self._channel.missing_right(error, "--operation Create --cluster")
        if not way or result.name not in self._unauthorized:
            _log.warning("the controller does not make topic %s: %s%s", result.name, message, way)
        if way:  # the client has the right, and is told to come again
            self._unauthorized.add(result.name)
        elif result.name in self._asked:
            self._refusals[result.name] = KafkaError(error, message)
        if len(self._refusals) > _MOST_KEPT:  # some are of topics that were not requested again
            del self._refusals[next(iter(self._refusals))]


def _find_error(answer: schema.CreateTopicsResponse) -> int:
    """Returns NOT_CONTROLLER, which is set on each topic, or 0."""
    return next((one.error_code for one in answer.topics if one.error_code == ErrorCode.NOT_CONTROLLER), 0)
