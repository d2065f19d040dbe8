"""DescribeConfigs: all keys of a resource, or those that the request names, with the sources of their values."""

from __future__ import annotations

from core.broker.config.config_sources import DescribedConfig
from core.broker.requests.config_resources import CONFIG_RESOURCES, find_config_resource
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition
from core.log.damaged_ranges import UNEXPLAINED_OFFSETS
from core.protocol.schema.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    services: Services, request: DescribeConfigsRequest, _context: RequestContext
) -> Task[DescribeConfigsResponse]:
    unknown = [one.resource_type for one in request.resources if one.resource_type not in CONFIG_RESOURCES]
    if unknown:
        return _refused(request, KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown[0]}"))
    results = []
    made: dict[int, tuple[DescribedConfig, DescribeConfigsResourceResult]] = {}  # by identity: topics share defaults
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
        )
        try:
            wanted = resource.configuration_keys
            if wanted and UNEXPLAINED_OFFSETS in wanted:
                yield from _look_for_missing(services, resource.resource_name)
            for described in find_config_resource(services, resource.resource_type, resource.resource_name).describe():
                if wanted and described.name not in wanted:
                    continue
                if id(described) not in made:
                    made[id(described)] = described, _result(described, request)
                result.configs.append(made[id(described)][1])
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield Yield.GIVE_WAY
    return DescribeConfigsResponse(results=results)


def _refused(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    """Refuses every resource, because Kafka refuses the request as a whole."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(error.code, error.message, one.resource_type, one.resource_name)
            for one in request.resources
        ]
    )


def _look_for_missing(services: Services, topic: str) -> Task[None]:
    """Checks the segments that were not used since the start: offsets missing between them are not known yet."""
    found = services.image.topics.get(topic)
    for number in () if found is None else found.partitions:
        log = services.log_manager.logs.get(TopicPartition(topic, number))
        if log is not None:
            yield from services.late_checks.steps(log)


def _result(described: DescribedConfig, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = described.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        described.name,
        described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        is_sensitive=described.is_sensitive,
        synonyms=[DescribeConfigsSynonym(s.name, s.value, s.source) for s in synonyms],
        config_type=described.type,
        documentation=described.doc if request.include_documentation else None,
    )


SERVES = ServedApi(DESCRIBE_CONFIGS, handle)
