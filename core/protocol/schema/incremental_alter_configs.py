"""IncrementalAlterConfigs (API 44): single changes to the configuration of topics (KIP-339)."""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, int8, int32, message, string, struct
from core.protocol.schema.configs import AlterConfigsResourceResponse


@struct
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=44, valid="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message(api_key=44, valid="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


INCREMENTAL_ALTER_CONFIGS = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
