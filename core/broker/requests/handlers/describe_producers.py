"""DescribeProducers: the idempotent and transactional producers that a partition knows."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.common.topic_partition import ensure_valid_topic_name
from core.protocol.schema.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(services: Services, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(topic.name, [_describe(services, topic.name, number) for number in topic.partition_indexes])
            for topic in request.topics
        ]
    )


def _describe(services: Services, topic: str, number: int) -> PartitionResponse:
    try:
        ensure_valid_topic_name(topic)
        partition = services.replicas.find_replica(topic, number)
    except KafkaError as error:
        return PartitionResponse(number, error.code, error.message)
    return PartitionResponse(
        number,
        active_producers=[
            ProducerState(
                state.producer_id,
                state.producer_epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
            )
            for state in partition.log.producers.producers.values()
        ],
    )


SERVES = ServedApi(DESCRIBE_PRODUCERS, handle)
