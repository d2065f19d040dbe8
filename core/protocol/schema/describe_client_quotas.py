"""DescribeClientQuotas (API 48): the quotas of users, clients and addresses that match a filter (KIP-546)."""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, float64, int8, int16, int32, message, string, struct


@struct
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@message(api_key=48, valid="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct
class DescribedEntity:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@struct
class DescribedValue:
    key: str = string()
    value: float = float64()


@struct
class DescribedQuotas:
    entity: list[DescribedEntity] = array(DescribedEntity)
    values: list[DescribedValue] = array(DescribedValue)


@message(api_key=48, valid="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuotas] | None = array(DescribedQuotas, nullable="0+")


DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse)
