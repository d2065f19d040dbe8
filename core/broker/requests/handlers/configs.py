"""The settings of resources: read, and altered in two ways."""

from __future__ import annotations

import logging
from collections import Counter
from copy import copy
from typing import Protocol

from core.broker.requests.config_resources import (
    CONFIG_RESOURCES,
    ConfigResource,
    Overrides,
    find_config_resource,
)
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending, wait_for
from core.common.task import Task, Yield
from core.common.topic_partition import TopicPartition
from core.log.damaged_ranges import UNEXPLAINED_OFFSETS
from core.protocol.schema import configs as schema
from core.protocol.schema.configs import ConfigResource as ListedResource
from core.protocol.schema.configs import DescribedConfig
from core.security.acl import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    CLUSTER_NAME,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    AclOperation,
    ResourceType,
    Right,
)

_log = logging.getLogger("plog.config")


@serves(schema.DESCRIBE_CONFIGS, DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS)
def describe_configs(
    services: Services, request: schema.DescribeConfigsRequest, context: RequestContext
) -> Task[schema.DescribeConfigsResponse]:
    """DescribeConfigs: all keys of a resource, or those that the request names, with the sources of their values."""
    unknown = [one.resource_type for one in request.resources if one.resource_type not in CONFIG_RESOURCES]
    if unknown:
        return _refuse_all(request, KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {unknown[0]}"))
    results = []
    made: dict[int, tuple[DescribedConfig, DescribedConfig]] = {}  # by identity: topics share defaults
    for resource in request.resources:
        result = schema.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
        )
        try:
            context.ensure(*_right(resource, AclOperation.DESCRIBE_CONFIGS))
            wanted = resource.configuration_keys
            if wanted and UNEXPLAINED_OFFSETS in wanted and resource.resource_type == ConfigResourceType.TOPIC:
                yield from _look_for_missing(services, resource.resource_name)
            for described in find_config_resource(services, resource.resource_type, resource.resource_name).describe():
                if wanted and described.name not in wanted:
                    continue
                if id(described) not in made:
                    made[id(described)] = described, _described(described, request)
                result.configs.append(made[id(described)][1])
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield Yield.GIVE_WAY
    return schema.DescribeConfigsResponse(results=results)


def _refuse_all(request: schema.DescribeConfigsRequest, error: KafkaError) -> schema.DescribeConfigsResponse:
    """Refuses every resource, because Kafka refuses the request as a whole."""
    return schema.DescribeConfigsResponse(
        results=[
            schema.DescribeConfigsResult(error.code, error.message, one.resource_type, one.resource_name)
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


def _described(described: DescribedConfig, request: schema.DescribeConfigsRequest) -> DescribedConfig:
    """Leaves out what the request does not ask for."""
    asked = copy(described)
    if not request.include_synonyms:
        asked.synonyms = []
    if not request.include_documentation:
        asked.documentation = None
    return asked


_OF_NAMED = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}


class _NamedResource(Protocol):
    resource_type: int
    resource_name: str


def _right(resource: _NamedResource, operation: AclOperation) -> tuple[Right, str]:
    """Returns the right that the operation on the resource needs, and on which name: of topics and groups on each one,
    of brokers, loggers and client metrics on the cluster.
    """
    kind = _OF_NAMED.get(ConfigResourceType(resource.resource_type))
    if kind is None:
        return Right.of(operation, ResourceType.CLUSTER), CLUSTER_NAME
    return Right.of(operation, kind), resource.resource_name


Change = tuple[Overrides, Pending[KafkaError | None] | None]
"""New values of a resource's keys, and the write that makes them so, None if it is done."""


def _alter(
    services: Services,
    request: schema.AlterConfigsRequest | schema.IncrementalAlterConfigsRequest,
    context: RequestContext,
) -> Task[list[schema.AlterConfigsResourceResponse]]:
    """Alters each resource of the request, and waits until all is written; an error of one leaves the others alone."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    begun: list[tuple[schema.AlterConfigsResourceResponse, Change]] = []
    for resource in request.resources:
        response = schema.AlterConfigsResourceResponse(
            ErrorCode.NONE, None, resource.resource_type, resource.resource_name
        )
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if resource.resource_type in CONFIG_RESOURCES:
                context.ensure(*_right(resource, AclOperation.ALTER_CONFIGS))
            begun.append((response, _begin(services, resource, validate_only=request.validate_only)))
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    for response, (changes, writing) in () if request.validate_only else begun:
        failure = yield from wait_for(writing)
        if failure is not None:
            response.error_code, response.error_message = failure.code, failure.message
        elif changes:
            kind = ConfigResourceType(response.resource_type).name.lower()
            changed = sorted(changes.items())
            keys = ", ".join(key if value is not None else f"{key} (removed)" for key, value in changed)
            _log.info("changed settings of %s %r for %s: %s", kind, response.resource_name, context.sender, keys)
    return responses


_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def _begin(
    services: Services,
    resource: schema.AlterConfigsResource | schema.ChangedResource,
    *,
    validate_only: bool,
) -> Change:
    replaces_all = isinstance(resource, schema.AlterConfigsResource)
    if replaces_all and resource.resource_type == ConfigResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    asked = {
        one.name: (one.config_operation if isinstance(one, schema.ChangedConfig) else _SET, one.value)
        for one in resource.configs
    }
    if len(asked) < len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for key, (operation, value) in asked.items():
        if value is None and operation != _DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {key}")
    configs = find_config_resource(services, resource.resource_type, resource.resource_name)
    present = configs.overrides()
    changes: dict[str, str | None] = dict.fromkeys(present if replaces_all else ())
    changes |= {key: _new_value(configs, key, *change) for key, change in asked.items()}
    return changes, configs.alter(changes, validate_only=validate_only)


def _new_value(configs: ConfigResource, key: str, operation: int, value: str | None) -> str | None:
    """Returns the key's new value, or None to remove the key."""
    if operation == _DELETE:
        return None
    if operation not in (_SET, _APPEND, _SUBTRACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    if operation == _SET or value is None:
        return value
    elements = configs.elements(key, "APPEND" if operation == _APPEND else "SUBTRACT")
    given = [part.strip() for part in value.split(",") if part.strip()]
    if operation == _APPEND:
        if not given and elements:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"nothing to append to {key}")
        return ",".join(elements + [part for part in given if part not in elements])
    return ",".join(part for part in elements if part not in given)


@serves(schema.ALTER_CONFIGS, ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)
def alter_configs(
    services: Services, request: schema.AlterConfigsRequest, context: RequestContext
) -> Task[schema.AlterConfigsResponse]:
    """AlterConfigs: replaces all settings of a resource; settings absent from the request go back to their defaults."""
    return schema.AlterConfigsResponse(responses=(yield from _alter(services, request, context)))


@serves(schema.INCREMENTAL_ALTER_CONFIGS, ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)
def incremental_alter_configs(
    services: Services, request: schema.IncrementalAlterConfigsRequest, context: RequestContext
) -> Task[schema.IncrementalAlterConfigsResponse]:
    """IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single keys."""
    return schema.IncrementalAlterConfigsResponse(responses=(yield from _alter(services, request, context)))


_FIRST_VERSION_WITH_TYPES = 1  # KIP-1142


@serves(schema.LIST_CONFIG_RESOURCES, DESCRIBE_CLUSTER_CONFIGS, is_whole=True, needs_quorum=True)
def list_config_resources(
    services: Services, request: schema.ListConfigResourcesRequest, context: RequestContext
) -> schema.ListConfigResourcesResponse:
    """ListConfigResources: the resources that may have settings; version 0 lists client metrics alone."""
    asked = (
        [ConfigResourceType.CLIENT_METRICS]
        if context.api_version < _FIRST_VERSION_WITH_TYPES
        else request.resource_types or list(CONFIG_RESOURCES)
    )
    if any(type_ not in CONFIG_RESOURCES for type_ in asked):
        return schema.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return schema.ListConfigResourcesResponse(
        config_resources=[
            ListedResource(name, type_)
            for type_ in dict.fromkeys(asked)
            for name in CONFIG_RESOURCES[type_].names(services)
        ]
    )
