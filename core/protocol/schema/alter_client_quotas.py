"""AlterClientQuotas (API 49): sets and removes the quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from core.protocol.message import Api, array, boolean, float64, int16, int32, message, string, struct


@struct
class AlteredEntity:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")
    """None for all that have no quotas of their own."""


@struct
class QuotaOp:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class AlteredQuotas:
    entity: list[AlteredEntity] = array(AlteredEntity)
    ops: list[QuotaOp] = array(QuotaOp)


@message(api_key=49, valid="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[AlteredQuotas] = array(AlteredQuotas)
    validate_only: bool = boolean()


@struct
class AlteredQuotasResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlteredEntity] = array(AlteredEntity)


@message(api_key=49, valid="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlteredQuotasResult] = array(AlteredQuotasResult)


ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", AlterClientQuotasRequest, AlterClientQuotasResponse)
