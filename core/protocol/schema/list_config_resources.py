"""ListConfigResources (API 74): which resources have settings of their own (KIP-1142)."""

from __future__ import annotations

from core.protocol.message import Api, array, int8, int16, int32, message, string, struct


@message(api_key=74, valid="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = array("int8", "1+")


@struct
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", 16, ignorable=True)


@message(api_key=74, valid="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", ListConfigResourcesRequest, ListConfigResourcesResponse)
