"""CreatePartitions: topics grow, never shrink."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from core.broker.controller.controller_topics import ControllerTopics, Growth
from core.broker.requests.handlers.controller_request import find_control
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.task import Task, Yield
from core.protocol.schema.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_log = logging.getLogger("plog.broker")


def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse | Pending[CreatePartitionsResponse]:
    control = find_control(services)
    if control is None:
        return services.stepped_answers.answer(_create(services, request, context), is_owed=True)
    grown = ControllerTopics(control, services.controller, services.configs).create_partitions(
        _wanted(request), validate_only=request.validate_only
    )
    return grown.map(lambda outcomes: _answer(request, outcomes, context))


def _wanted(request: CreatePartitionsRequest) -> list[Growth]:
    """Returns the growth of each topic that the request names once."""
    times = Counter(topic.name for topic in request.topics)
    return [
        Growth(
            topic.name, topic.count, None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
        )
        for topic in request.topics
        if times[topic.name] == 1
    ]


def _answer(
    request: CreatePartitionsRequest, outcomes: Mapping[str, KafkaError | None], context: RequestContext
) -> CreatePartitionsResponse:
    results = []
    for name, wanted in {topic.name: topic for topic in request.topics}.items():
        result = CreatePartitionsTopicResult(name)
        error = outcomes.get(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        if error is not None:
            result.error_code, result.error_message = error.code, error.message
        elif not request.validate_only:
            _log_growth(wanted, context)
        results.append(result)
    return CreatePartitionsResponse(results=results)


def _create(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> Task[CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    too_many: KafkaError | None = None
    try:
        services.controller.ensure_few_are_added({topic.name: topic.count for topic in request.topics})
    except KafkaError as error:
        too_many = error
    results = []
    for name, wanted in {topic.name: topic for topic in request.topics}.items():
        result = CreatePartitionsTopicResult(name)
        try:
            if times[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if too_many is not None:
                raise too_many
            assignments = None if wanted.assignments is None else [a.broker_ids for a in wanted.assignments]
            yield from services.topics.create_partitions(
                name, wanted.count, assignments, validate_only=request.validate_only
            )
            if not request.validate_only:
                _log_growth(wanted, context)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield Yield.GIVE_WAY
    return CreatePartitionsResponse(results=results)


def _log_growth(topic: CreatePartitionsTopic, context: RequestContext) -> None:
    _log.info("added partitions to topic %s, which has %d now, for %s", topic.name, topic.count, context.sender)


SERVES = ServedApi(CREATE_PARTITIONS, handle)
