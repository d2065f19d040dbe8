"""The settings of resources.

DescribeConfigs (API 32): the configuration of topics and brokers, with each value's source.
AlterConfigs (API 33): replaces all of a resource's settings; IncrementalAlterConfigs came after it.
IncrementalAlterConfigs (API 44): single changes to a resource's settings (KIP-339).
ListConfigResources (API 74): which resources have settings of their own (KIP-1142).
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array("string", nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, valid="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribedConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8("1+", -1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribedConfig] = array(DescribedConfig)


class DescribeConfigsResponse(Message, api_key=32, valid="1-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


DESCRIBE_CONFIGS = Api(DescribeConfigsRequest, DescribeConfigsResponse)


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, api_key=33, valid="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, api_key=33, valid="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


ALTER_CONFIGS = Api(AlterConfigsRequest, AlterConfigsResponse)


class ChangedConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class ChangedResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[ChangedConfig] = array(ChangedConfig)


class IncrementalAlterConfigsRequest(Message, api_key=44, valid="0-1", flexible="1+"):
    resources: list[ChangedResource] = array(ChangedResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, api_key=44, valid="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


INCREMENTAL_ALTER_CONFIGS = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)


class ListConfigResourcesRequest(Message, api_key=74, valid="0-1", flexible="0+"):
    resource_types: list[int] = array("int8", "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", 16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, valid="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


LIST_CONFIG_RESOURCES = Api(ListConfigResourcesRequest, ListConfigResourcesResponse)
