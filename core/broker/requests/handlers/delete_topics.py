"""DeleteTopics: deletes topics by name, or by id."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from core.broker.controller.controller_topics import ControllerTopics
from core.broker.requests.handlers.controller_request import find_control
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task, Yield, wait_for
from core.common.topic_partition import ZERO_UUID
from core.protocol.schema.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_log = logging.getLogger("plog.broker")

_FIRST_VERSION_WITH_DELETION_DISABLED = 3  # KIP-322
_FIRST_VERSION_WITH_IDS = 6  # KIP-516


def handle(services: Services, request: DeleteTopicsRequest, context: RequestContext) -> Task[DeleteTopicsResponse]:
    version = context.api_version
    has_ids = version >= _FIRST_VERSION_WITH_IDS
    wanted = request.topics if has_ids else [DeleteTopicState(name) for name in request.topic_names]
    responses, going = _sort_out(services, wanted, version)
    names = [result.name for result in going if result.name is not None]
    outcomes = yield from _delete(services, names, request.timeout_ms)
    for result in going:
        error = outcomes[result.name or ""]
        if error is not None:
            _refuse(result, error)
        else:
            _log.info("deleted topic %s for %s", result.name, context.sender)
        yield Yield.GIVE_WAY
    return DeleteTopicsResponse(responses=responses)


def _sort_out(
    services: Services, wanted: Sequence[DeleteTopicState], version: int
) -> tuple[list[DeletableTopicResult], list[DeletableTopicResult]]:
    """Returns the results of all topics of the request, and those of topics that can be deleted."""
    times = Counter(_topic_id(services, state) for state in wanted if _is_named_well(state))
    responses: list[DeletableTopicResult] = []
    going: list[DeletableTopicResult] = []
    for state in {(state.name, state.topic_id): state for state in wanted}.values():
        result = DeletableTopicResult(state.name, state.topic_id)
        responses.append(result)
        try:
            if times[_topic_id(services, state)] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the topic is named twice; nothing of it was deleted")
            topic = _find(services, state, version)
        except KafkaError as error:
            _refuse(result, error)
        else:
            result.name, result.topic_id = topic.name, topic.topic_id
            going.append(result)
    return responses, going


def _delete(services: Services, names: list[str], timeout_ms: int) -> Task[Mapping[str, KafkaError | None]]:
    """Returns the error of each topic, or None."""
    control = find_control(services)
    if control is not None:
        topics = ControllerTopics(control, services.controller, services.configs)
        return (yield from wait_for(topics.delete(names, timeout_ms=timeout_ms)))
    problem: KafkaError | None = None
    try:
        yield from services.topics.delete_all(names)
    except KafkaError as error:  # then none was deleted
        problem = error
    return dict.fromkeys(names, problem)


def _refuse(result: DeletableTopicResult, error: KafkaError) -> None:
    result.error_code, result.error_message = error.code, error.message


def _is_named_well(state: DeleteTopicState) -> bool:
    return (state.name is None) != (state.topic_id == ZERO_UUID)


def _topic_id(services: Services, state: DeleteTopicState) -> bytes | str | None:
    """Returns the id of the topic, or the name or id of the request if the topic does not exist."""
    topic = services.image.topics.get(state.name or "")
    return topic.topic_id if topic is not None else state.name or state.topic_id


def _find(services: Services, state: DeleteTopicState, version: int) -> TopicImage:
    """Finds the topic. Raises KafkaError if it may not be deleted, or does not exist."""
    if not services.config.delete_topic_enable:
        has_code = version >= _FIRST_VERSION_WITH_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false")
    if not _is_named_well(state):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id")
    services.node.ensure_writable()
    topic = (
        services.image.topics_by_id.get(state.topic_id) if state.name is None else services.image.topics.get(state.name)
    )
    if topic is None:
        services.controller.ensure_informed(state.name)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if state.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if services.late_loads.is_loading(topic.name):
        why = "is still being read after the start, and can't be deleted before that is done; try again"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"a partition of {topic.name} {why}")
    return topic


SERVES = ServedApi(DELETE_TOPICS, handle, is_owed=True)
