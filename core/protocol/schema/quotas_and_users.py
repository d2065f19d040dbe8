"""Quotas of clients, and the users of SCRAM.

DescribeClientQuotas (API 48): the quotas of users, clients and addresses that match a filter (KIP-546).
AlterClientQuotas (API 49): sets and removes the quotas of users, clients and addresses (KIP-546).
DescribeUserScramCredentials (API 50): which users have which SCRAM credentials (KIP-554).
AlterUserScramCredentials (API 51): sets and deletes the SCRAM credentials of users (KIP-554).
"""

from __future__ import annotations

from core.protocol.message import Api, array, binary, boolean, float64, int8, int16, int32, message, string, struct


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
class QuotaEntity:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")
    """None for all that have no quotas of their own."""


@struct
class DescribedValue:
    key: str = string()
    value: float = float64()


@struct
class DescribedQuotas:
    entity: list[QuotaEntity] = array(QuotaEntity)
    values: list[DescribedValue] = array(DescribedValue)


@message(api_key=48, valid="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuotas] | None = array(DescribedQuotas, nullable="0+")


DESCRIBE_CLIENT_QUOTAS = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse)


@struct
class QuotaOp:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@struct
class AlteredQuotas:
    entity: list[QuotaEntity] = array(QuotaEntity)
    ops: list[QuotaOp] = array(QuotaOp)


@message(api_key=49, valid="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[AlteredQuotas] = array(AlteredQuotas)
    validate_only: bool = boolean()


@struct
class AlteredQuotasResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[QuotaEntity] = array(QuotaEntity)


@message(api_key=49, valid="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlteredQuotasResult] = array(AlteredQuotasResult)


ALTER_CLIENT_QUOTAS = Api(AlterClientQuotasRequest, AlterClientQuotasResponse)


@struct
class UserName:
    name: str = string()


@message(api_key=50, valid="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = array(UserName, nullable="0+")


@struct
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(api_key=50, valid="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)


@struct
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


@message(api_key=51, valid="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(api_key=51, valid="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)


ALTER_USER_SCRAM_CREDENTIALS = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
