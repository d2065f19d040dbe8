"""IncrementalAlterConfigs (API 44): single changes to the configuration of topics (KIP-339)."""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, boolean, int8, int32, string
from core.protocol.schema.configs import AlterConfigsResourceResponse


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api_key=44, valid="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, api_key=44, valid="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


INCREMENTAL_ALTER_CONFIGS = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
