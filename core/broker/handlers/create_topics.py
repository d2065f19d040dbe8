"""CreateTopics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from core.broker.config_sources import describe_topic_configs
from core.broker.request_context import RequestContext
from core.broker.stepped_answer import answer_in_turns
from core.cluster.controller import NewTopic
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.steps import Steps
from core.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: CreateTopicsRequest, context: RequestContext) -> Any:
    """A response, or one that is made in turns."""
    return answer_in_turns(broker, _answer(broker, request))


def _answer(broker: Broker, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
    times = Counter(topic.name for topic in request.topics)
    results: list[CreatableTopicResult] = []
    wanted_topics = {topic.name: topic for topic in reversed(request.topics)}
    for name, count in times.items():
        if results:
            yield
        wanted = wanted_topics[name]
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append(_create(broker, wanted, validate_only=request.validate_only))
        except KafkaError as error:
            results.append(CreatableTopicResult(name, error_code=error.code, error_message=error.message))
    return CreateTopicsResponse(topics=results)


def _create(broker: Broker, wanted: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    numbers = Counter(a.partition_index for a in wanted.assignments)
    if any(count > 1 for count in numbers.values()):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Found multiple manual partition assignments.")
    configs = {c.name: c.value for c in wanted.configs}
    null = next((name for name, value in configs.items() if value is None), None)
    if null is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {null}")
    topic = broker.create_topic(
        NewTopic(
            wanted.name,
            wanted.num_partitions,
            wanted.replication_factor,
            {a.partition_index: a.broker_ids for a in wanted.assignments},
            configs,
        ),
        validate_only=validate_only,
    )
    described = describe_topic_configs(broker.config, {n: v for n, v in configs.items() if v is not None})
    return CreatableTopicResult(
        topic.name,
        topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[CreatableTopicConfigs(d.name, d.value, read_only=False, config_source=d.source) for d in described],
    )
