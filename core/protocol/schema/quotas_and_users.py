"""Quotas of clients, and the users of SCRAM.

DescribeClientQuotas (API 48): the quotas of users, clients and addresses that match a filter (KIP-546).
AlterClientQuotas (API 49): sets and removes the quotas of users, clients and addresses (KIP-546).
DescribeUserScramCredentials (API 50): which users have which SCRAM credentials (KIP-554).
AlterUserScramCredentials (API 51): sets and deletes the SCRAM credentials of users (KIP-554).
"""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, binary, boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, valid="0-1", flexible="1+"):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class QuotaEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")
    """None for all that have no quotas of their own."""


class DescribedValue(Struct):
    key: str = string()
    value: float = float64()


class DescribedQuotas(Struct):
    entity: list[QuotaEntity] = array(QuotaEntity)
    values: list[DescribedValue] = array(DescribedValue)


class DescribeClientQuotasResponse(Message, api_key=48, valid="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuotas] | None = array(DescribedQuotas, nullable="0+")


DESCRIBE_CLIENT_QUOTAS = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse)


class QuotaOp(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlteredQuotas(Struct):
    entity: list[QuotaEntity] = array(QuotaEntity)
    ops: list[QuotaOp] = array(QuotaOp)


class AlterClientQuotasRequest(Message, api_key=49, valid="0-1", flexible="1+"):
    entries: list[AlteredQuotas] = array(AlteredQuotas)
    validate_only: bool = boolean()


class AlteredQuotasResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[QuotaEntity] = array(QuotaEntity)


class AlterClientQuotasResponse(Message, api_key=49, valid="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[AlteredQuotasResult] = array(AlteredQuotasResult)


ALTER_CLIENT_QUOTAS = Api(AlterClientQuotasRequest, AlterClientQuotasResponse)


class UserName(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api_key=50, valid="0", flexible="0+"):
    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, api_key=50, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


class AlterUserScramCredentialsRequest(Message, api_key=51, valid="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, valid="0", flexible="0+"):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)


ALTER_USER_SCRAM_CREDENTIALS = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
