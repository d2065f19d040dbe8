"""Quotas of clients, the users of SCRAM, and ACLs: plog enforces none of them."""

from __future__ import annotations

from collections import Counter

from core.broker.config.client_quotas import ClientQuotas, Filter, ensure_filters, find_quotas, quotas_in_image
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi, whole
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending
from core.protocol.schema.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from core.protocol.schema.quotas_and_users import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    AlteredQuotasResult,
    CredentialInfo,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    DescribedValue,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    QuotaEntity,
)
from core.security.acl import ALTER_CLUSTER, ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_THE_CLUSTER


def describe_client_quotas(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """DescribeClientQuotas: the client quotas of a cluster, or of the metadata log of a lone broker."""
    filters = [(one.entity_type, Filter(one.match_type, one.match)) for one in request.components]
    try:
        ensure_filters(filters)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    membership = services.membership
    known = quotas_in_image(services.image.security) if membership is None else membership.quotas.all()
    found = find_quotas(known, dict(filters), is_strict=request.strict)
    entries = [
        DescribedQuotas(
            [QuotaEntity(kind, name) for kind, name in named.items()],
            [DescribedValue(key, value) for key, value in quotas.items()],
        )
        for named, quotas in found
    ]
    return DescribeClientQuotasResponse(error_message="" if membership is None else None, entries=entries)


_Outcome = KafkaError | Pending[KafkaError | None] | None


def alter_client_quotas(
    services: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse | Pending[AlterClientQuotasResponse]:
    """AlterClientQuotas: changes the client quotas of a cluster; any of its brokers can do that."""
    assert services.membership is not None, "a lone broker does not know it"
    quotas = services.membership.quotas
    times = Counter(_name(entry) for entry in request.entries)
    answer: AlterClientQuotasResponse | Pending[AlterClientQuotasResponse] = AlterClientQuotasResponse()
    for entry in request.entries:
        outcome = _alter(quotas, entry, times[_name(entry)], validate_only=request.validate_only)
        answer = _after(answer, entry, outcome)
    return answer


def _name(entry: AlteredQuotas) -> frozenset[tuple[str, str | None]]:
    return frozenset((one.entity_type, one.entity_name) for one in entry.entity)


def _alter(quotas: ClientQuotas, entry: AlteredQuotas, times: int, *, validate_only: bool) -> _Outcome:
    named = {one.entity_type: one.entity_name for one in entry.entity}
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    try:
        if times > 1 or len(named) < len(entry.entity) or len(changes) < len(entry.ops):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A client quota entity, a type or a key is named twice")
        return quotas.alter(named, changes, validate_only=validate_only)
    except KafkaError as error:
        return error


def _after(
    answer: AlterClientQuotasResponse | Pending[AlterClientQuotasResponse], entry: AlteredQuotas, outcome: _Outcome
) -> AlterClientQuotasResponse | Pending[AlterClientQuotasResponse]:
    """Adds an entry's outcome to the answer, when both are known."""

    def add(before: AlterClientQuotasResponse, error: KafkaError | None) -> AlterClientQuotasResponse:
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        before.entries.append(AlteredQuotasResult(code, message, entry.entity))
        return before

    if isinstance(outcome, Pending):
        if isinstance(answer, Pending):
            return answer.then(lambda before: outcome.map(lambda error: add(before, error)))
        return outcome.map(lambda error: add(answer, error))
    if isinstance(answer, Pending):
        return answer.map(lambda before: add(before, outcome))
    return add(answer, outcome)


def describe_user_scram_credentials(
    services: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials: the users in the metadata log, usually none: plog does not support SCRAM."""
    known: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), record in services.image.security.scram_credentials.items():
        known.setdefault(name, []).append(CredentialInfo(mechanism, record.iterations))
    asked = Counter(user.name for user in request.users or ())
    results = []
    for name in asked or known:
        result = DescribeUserScramCredentialsResult(name, error_message=None, credential_infos=known.get(name, []))
        if asked[name] > 1:
            result.error_code, result.credential_infos = ErrorCode.DUPLICATE_RESOURCE, []
            result.error_message = f"user {name} is asked for twice"
        elif name not in known:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"user {name} has no SCRAM credentials"
        results.append(result)
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


_NO_AUTHORIZER = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
"""Kafka's error and message if there is no authorizer; so there are no ACLs."""

_UNKNOWN = 0


def describe_acls(services: Services, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    _ensure_no_unknowns(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(0, *_NO_AUTHORIZER)


def create_acls(services: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    for acl in request.creations:
        _ensure_no_unknowns(acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type)
    return CreateAclsResponse(results=[AclCreationResult(*_NO_AUTHORIZER)] * len(request.creations))


def delete_acls(services: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    for acl in request.filters:
        _ensure_no_unknowns(acl.resource_type_filter, acl.pattern_type_filter, acl.operation, acl.permission_type)
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(*_NO_AUTHORIZER)] * len(request.filters))


def _ensure_no_unknowns(*codes: int) -> None:
    """Raises MalformedMessageError if a resource type, a pattern, an operation or a permission is UNKNOWN."""
    if _UNKNOWN in codes:
        raise MalformedMessageError("an ACL has UNKNOWN elements")


def _refuse_description(_request: DescribeClientQuotasRequest, code: ErrorCode) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=code.text, entries=None)


def _refuse_users(
    request: DescribeUserScramCredentialsRequest, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """As Kafka does, the results do not name the users."""
    results = [DescribeUserScramCredentialsResult("", code, code.text) for _ in request.users or ()]
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=code.text, results=results)


def _refuse_quotas(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[AlteredQuotasResult(code, code.text, entry.entity) for entry in request.entries]
    )


def _refuse_creations(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(code, code.text) for _ in request.creations])


def _refuse_deletions(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(code, code.text) for _ in request.filters])


SERVES = (
    ServedApi(
        DESCRIBE_CLIENT_QUOTAS, describe_client_quotas, whole(DESCRIBE_CLUSTER_CONFIGS, refuse=_refuse_description)
    ),
    ServedApi(
        ALTER_CLIENT_QUOTAS,
        alter_client_quotas,
        whole(ALTER_CLUSTER_CONFIGS, refuse=_refuse_quotas),
        is_for_controllers=True,
    ),
    ServedApi(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        describe_user_scram_credentials,
        whole(DESCRIBE_THE_CLUSTER, refuse=_refuse_users),
        needs_quorum=True,
    ),
    ServedApi(
        DESCRIBE_ACLS, describe_acls, whole(DESCRIBE_THE_CLUSTER), needs_quorum=True
    ),  # members of a cluster leave them to Kafka's brokers
    ServedApi(CREATE_ACLS, create_acls, whole(ALTER_CLUSTER, refuse=_refuse_creations), needs_quorum=True),
    ServedApi(DELETE_ACLS, delete_acls, whole(ALTER_CLUSTER, refuse=_refuse_deletions), needs_quorum=True),
)
