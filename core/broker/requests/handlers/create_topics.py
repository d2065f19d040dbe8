"""CreateTopics: creates topics, each independent of the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from core.broker.config.config_sources import describe_topic_configs
from core.broker.controller.controller_topics import ControllerTopics
from core.broker.requests.handlers.controller_request import find_control
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task, Yield, wait_for
from core.files.log_config import TOPIC_CONFIG
from core.protocol.schema.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_log = logging.getLogger("plog.broker")

Wanted = dict[str, NewTopic | KafkaError]
Made = dict[str, TopicImage | KafkaError]


def handle(services: Services, request: CreateTopicsRequest, context: RequestContext) -> Task[CreateTopicsResponse]:
    wanted = _wanted(request)
    made = yield from _create(services, request, [one for one in wanted.values() if isinstance(one, NewTopic)])
    results = []
    for name, new in wanted.items():
        outcome = made[name] if isinstance(new, NewTopic) else new
        if isinstance(new, NewTopic) and isinstance(outcome, TopicImage):
            results.append(_described(services, outcome, new.configs))
            if not request.validate_only:
                services.configs.log_kept_only(TOPIC_CONFIG, new.configs)
                _log.info("created topic %s for %s", name, context.sender)
        elif isinstance(outcome, KafkaError):
            results.append(CreatableTopicResult(name, error_code=outcome.code, error_message=outcome.message))
        yield Yield.GIVE_WAY
    return CreateTopicsResponse(topics=results)


def _wanted(request: CreateTopicsRequest) -> Wanted:
    times = Counter(topic.name for topic in request.topics)
    wanted: Wanted = {}
    for topic in request.topics:
        try:
            wanted[topic.name] = _new_topic(topic, times[topic.name])
        except KafkaError as error:
            wanted[topic.name] = error
    return wanted


def _create(services: Services, request: CreateTopicsRequest, topics: list[NewTopic]) -> Task[Made]:
    control = find_control(services)
    if control is not None:
        controller = ControllerTopics(control, services.controller, services.configs)
        creating = controller.create(topics, validate_only=request.validate_only, timeout_ms=request.timeout_ms)
        return (yield from wait_for(creating))
    try:
        return (yield from services.topics.create_all(topics, validate_only=request.validate_only))
    except KafkaError as error:  # then none was created
        return {topic.name: error for topic in topics}


def _new_topic(wanted: CreatableTopic, times: int) -> NewTopic:
    """Raises KafkaError if the request contradicts itself."""
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    configs = {c.name: c.value for c in wanted.configs}
    assignments = [(a.partition_index, a.broker_ids) for a in wanted.assignments]
    return NewTopic(wanted.name, wanted.num_partitions, wanted.replication_factor, assignments, configs)


def _described(services: Services, topic: TopicImage, overrides: Mapping[str, str | None]) -> CreatableTopicResult:
    configs = describe_topic_configs(services.config, {n: v for n, v in overrides.items() if v is not None})
    return CreatableTopicResult(
        topic.name,
        topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[CreatableTopicConfigs(c.name, c.value, read_only=False, config_source=c.source) for c in configs],
    )


SERVES = ServedApi(CREATE_TOPICS, handle, is_owed=True)
