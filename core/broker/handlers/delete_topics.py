"""DeleteTopics: by name, or by id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import ZERO_UUID
from core.protocol.schema.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    wanted = request.topics if context.api_version >= 6 else [DeleteTopicState(name) for name in request.topic_names]
    times = Counter(_topic_id(broker, state) for state in wanted if _is_named_well(state))
    responses = []
    for state in {(state.name, state.topic_id): state for state in wanted}.values():
        try:
            if times[_topic_id(broker, state)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named twice; nothing of it was deleted")
            responses.append(_delete(broker, state, context.api_version))
        except KafkaError as error:
            responses.append(DeletableTopicResult(state.name, state.topic_id, error.code, error_message=error.message))
    return DeleteTopicsResponse(responses=responses)


def _is_named_well(state: DeleteTopicState) -> bool:
    return (state.name is None) != (state.topic_id == ZERO_UUID)


def _topic_id(broker: Broker, state: DeleteTopicState) -> bytes | str | None:
    """Which topic is meant: its id, or the name of one that there is not."""
    topic = broker.image.topics.get(state.name or "")
    return topic.topic_id if topic is not None else state.name or state.topic_id


def _delete(broker: Broker, state: DeleteTopicState, version: int) -> DeletableTopicResult:
    if not broker.config["delete.topic.enable"]:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "delete.topic.enable is false")
    if not _is_named_well(state):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id")
    name = state.name
    if name is None:
        topic = broker.image.topics_by_id.get(state.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    deleted = broker.delete_topic(name)
    return DeletableTopicResult(deleted.name, deleted.topic_id)
