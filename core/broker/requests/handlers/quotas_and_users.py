"""Quotas of clients, which plog does not enforce, the users of SCRAM, and ACLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING

from core.broker.config.client_quotas import ClientQuotas, Filter, ensure_filters, find_quotas, quotas_in_image
from core.broker.requests.client_session import Session
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending, wait_for
from core.common.task import Task
from core.protocol.schema import acls as acl_schema
from core.protocol.schema import quotas_and_users as schema
from core.security.acl import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    CLUSTER_NAME,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_THE_CLUSTER,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    Right,
)

if TYPE_CHECKING:
    from core.cluster.image.security_store import Deletions, ScramAlteration


@serves(schema.DESCRIBE_CLIENT_QUOTAS, DESCRIBE_CLUSTER_CONFIGS)
def describe_client_quotas(
    services: Services, request: schema.DescribeClientQuotasRequest, context: RequestContext
) -> schema.DescribeClientQuotasResponse:
    """DescribeClientQuotas: the client quotas of a cluster, or of the metadata log of a lone broker."""
    filters = [(one.entity_type, Filter(one.match_type, one.match)) for one in request.components]
    try:
        context.ensure(DESCRIBE_CLUSTER_CONFIGS)
        ensure_filters(filters)
    except KafkaError as error:
        return schema.DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    membership = services.membership
    known = quotas_in_image(services.image.security) if membership is None else membership.quotas.all()
    found = find_quotas(known, dict(filters), is_strict=request.strict)
    entries = [
        schema.DescribedQuotas(
            [schema.QuotaEntity(kind, name) for kind, name in named.items()],
            [schema.DescribedValue(key, value) for key, value in quotas.items()],
        )
        for named, quotas in found
    ]
    return schema.DescribeClientQuotasResponse(error_message="" if membership is None else None, entries=entries)


@serves(schema.ALTER_CLIENT_QUOTAS, ALTER_CLUSTER_CONFIGS, is_for_controllers=True)
def alter_client_quotas(
    services: Services, request: schema.AlterClientQuotasRequest, context: RequestContext
) -> Task[schema.AlterClientQuotasResponse]:
    """AlterClientQuotas: changes the client quotas of a cluster; any of its brokers can do that."""
    assert services.membership is not None, "a lone broker does not know it"
    quotas = services.membership.quotas
    refusal = _lacks(ALTER_CLUSTER_CONFIGS, context)
    times = Counter(_name(entry) for entry in request.entries)
    outcomes = [
        refusal or _alter(quotas, entry, times[_name(entry)], validate_only=request.validate_only)
        for entry in request.entries
    ]
    results = []
    for entry, outcome in zip(request.entries, outcomes, strict=True):
        error = yield from wait_for(outcome)
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        results.append(schema.AlteredQuotasResult(code, message, entry.entity))
    return schema.AlterClientQuotasResponse(entries=results)


def _lacks(right: Right, context: RequestContext) -> KafkaError | None:
    """Returns the refusal of everything that the request names, if the client lacks the right."""
    return None if context.may(right) else KafkaError(right.refusal)


def _name(entry: schema.AlteredQuotas) -> frozenset[tuple[str, str | None]]:
    return frozenset((one.entity_type, one.entity_name) for one in entry.entity)


def _alter(
    quotas: ClientQuotas, entry: schema.AlteredQuotas, times: int, *, validate_only: bool
) -> KafkaError | Pending[KafkaError | None] | None:
    named = {one.entity_type: one.entity_name for one in entry.entity}
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    try:
        if times > 1 or len(named) < len(entry.entity) or len(changes) < len(entry.ops):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A client quota entity, a type or a key is named twice")
        return quotas.alter(named, changes, validate_only=validate_only)
    except KafkaError as error:
        return error


@serves(schema.DESCRIBE_USER_SCRAM_CREDENTIALS, DESCRIBE_THE_CLUSTER)
def describe_user_scram_credentials(
    services: Services, request: schema.DescribeUserScramCredentialsRequest, context: RequestContext
) -> schema.DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials: the named users with SCRAM credentials, or all of them if none is named."""
    if (refusal := _lacks(DESCRIBE_THE_CLUSTER, context)) is not None:  # as in Kafka, the results do not name the users
        code, text = refusal.code, refusal.message
        results = [schema.DescribeUserScramCredentialsResult("", code, text) for _ in request.users or ()]
        return schema.DescribeUserScramCredentialsResponse(error_code=code, error_message=text, results=results)
    known = services.security.scram_users()
    asked = Counter(user.name for user in request.users or ())
    results = []
    for name in asked or known:
        result = schema.DescribeUserScramCredentialsResult(name, error_message="")
        if asked[name] > 1:
            what = "Cannot describe SCRAM credentials for the same user twice in a single request"
            result.error_code, result.error_message = ErrorCode.DUPLICATE_RESOURCE, f"{what}: {name}"
        elif name not in known:
            what = "Attempt to describe a user credential that does not exist"
            result.error_code, result.error_message = ErrorCode.RESOURCE_NOT_FOUND, f"{what}: {name}"
        else:
            result.credential_infos = [schema.CredentialInfo(*one) for one in known[name].items()]
        results.append(result)
    return schema.DescribeUserScramCredentialsResponse(error_message="", results=results)


@serves(schema.ALTER_USER_SCRAM_CREDENTIALS, ALTER_CLUSTER)
def alter_user_scram_credentials(
    services: Services, request: schema.AlterUserScramCredentialsRequest, context: RequestContext
) -> Task[schema.AlterUserScramCredentialsResponse]:
    """AlterUserScramCredentials: sets and deletes credentials. The password itself never comes here."""
    alterations: list[ScramAlteration] = [*request.deletions, *request.upsertions]
    refusal = _lacks(ALTER_CLUSTER, context) or (_TOO_MANY if len(alterations) > _MOST_NAMED else None)
    if refusal is not None:
        return _altered({one.name: refusal for one in alterations})
    _ensure_storable(one.name for one in alterations)
    try:
        services.node.ensure_writable()
        return _altered((yield from wait_for(services.security.alter_scram_credentials(alterations))))
    except KafkaError as error:
        return _altered({one.name: error for one in alterations})


def _altered(outcomes: Mapping[str, KafkaError | None]) -> schema.AlterUserScramCredentialsResponse:
    results = [
        schema.AlterUserScramCredentialsResult(user, *_code_and_message(error)) for user, error in outcomes.items()
    ]
    return schema.AlterUserScramCredentialsResponse(results=results)


def _code_and_message(error: KafkaError | None, success: str | None = None) -> tuple[ErrorCode, str | None]:
    """Returns the fields of an outcome; `success` is the message without an error. As in Kafka, an error that is not
    foreseen has none.
    """
    if error is None:
        return ErrorCode.NONE, success
    return error.code, None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message


_NO_AUTHORIZER = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""Kafka's error if there is no authorizer."""

_MOST_NAMED = 50_000
"""The most ACLs, filters or credentials in a request, which take a second or two; a frame has room for ten times more.
"""

_TOO_MANY = KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")

_LONGEST_TEXT = 0x7FFF
"""The most bytes of a text that Kafka reads, in requests and in the metadata log."""


def _find_refusal(session: Session) -> KafkaError | None:
    """Returns the error for requests about ACLs that nobody obeys. The owner of the data directory may see and change
    them all the same: a broker that starts on a directory with ACLs obeys them, and somebody has to make the first.
    """
    return None if session.authorizer is not None or session.principal.is_local else _NO_AUTHORIZER


@serves(acl_schema.DESCRIBE_ACLS, DESCRIBE_THE_CLUSTER, is_whole=True)
def describe_acls(
    services: Services, request: acl_schema.DescribeAclsRequest, context: RequestContext
) -> acl_schema.DescribeAclsResponse:
    """DescribeAcls: the ACLs that match the filter, by resource. The owner of a directory that is served without an
    authorizer learns from the message that nobody obeys them yet.
    """
    wanted = _filter_of(request)
    if (refusal := _find_refusal(context.session)) is not None:
        return acl_schema.DescribeAclsResponse(0, refusal.code, refusal.message)
    resources: dict[tuple[int, str, int], acl_schema.DescribeAclsResource] = {}
    for acl in filter(wanted.matches, services.security.acls()):
        resource = resources.setdefault(acl[:3], acl_schema.DescribeAclsResource(*acl[:3]))
        resource.acls.append(acl_schema.AclDescription(*acl[3:]))
    is_open = context.session.authorizer is None and context.session.listener
    message = _NO_AUTHORIZER.message if is_open else ""
    return acl_schema.DescribeAclsResponse(error_message=message, resources=list(resources.values()))


@serves(acl_schema.CREATE_ACLS, ALTER_CLUSTER)
def create_acls(
    services: Services, request: acl_schema.CreateAclsRequest, context: RequestContext
) -> Task[acl_schema.CreateAclsResponse]:
    """CreateAcls: adds ACLs, all that are sound at once."""
    count = len(request.creations)
    refusal = _lacks(ALTER_CLUSTER, context) or (_TOO_MANY if count > _MOST_NAMED else None)
    if refusal is not None:
        return _created([refusal] * count)
    acls = [_acl_of(one) for one in request.creations]
    refusal = _find_refusal(context.session)
    if refusal is None and any(map(_is_for_filters, acls)):
        refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if refusal is not None:
        return _created([refusal] * len(acls))
    problems = [_find_problem(acl) for acl in acls]
    sound = [acl for acl, problem in zip(acls, problems, strict=True) if problem is None]
    try:
        services.node.ensure_writable()
        of_sound = iter((yield from wait_for(services.security.create_acls(sound))))
    except KafkaError as error:
        of_sound = repeat(error)
    return _created([next(of_sound) if problem is None else problem for problem in problems])


def _created(outcomes: Iterable[KafkaError | None]) -> acl_schema.CreateAclsResponse:
    return acl_schema.CreateAclsResponse(
        results=[acl_schema.AclCreationResult(*_code_and_message(error, "")) for error in outcomes]
    )


def _find_problem(acl: Acl) -> KafkaError | None:
    """Returns why Kafka's brokers do not pass the ACL on, or None (kafka.server.AclApis)."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        return KafkaError(ErrorCode.INVALID_REQUEST, message)
    return None if acl.resource_name else KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")


@serves(acl_schema.DELETE_ACLS, ALTER_CLUSTER)
def delete_acls(
    services: Services, request: acl_schema.DeleteAclsRequest, context: RequestContext
) -> Task[acl_schema.DeleteAclsResponse]:
    """DeleteAcls: deletes the ACLs that match any of the filters."""
    count = len(request.filters)
    refusal = _lacks(ALTER_CLUSTER, context) or (_TOO_MANY if count > _MOST_NAMED else None)
    if refusal is not None:
        return _deleted([refusal] * count)
    filters = [_filter_of(one) for one in request.filters]
    if (refusal := _find_refusal(context.session)) is not None:
        return _deleted([refusal] * len(filters))
    try:
        services.node.ensure_writable()
        return _deleted((yield from wait_for(services.security.delete_acls(filters))))
    except KafkaError as error:
        return _deleted([error] * len(filters))


def _deleted(outcomes: Deletions) -> acl_schema.DeleteAclsResponse:
    results = []
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            results.append(acl_schema.DeleteAclsFilterResult(*_code_and_message(outcome)))
            continue
        result = acl_schema.DeleteAclsFilterResult(error_message=None)
        for acl, error in outcome:
            code, message = _code_and_message(error)
            result.matching_acls.append(acl_schema.DeleteAclsMatchingAcl(code, message, *acl))
        results.append(result)
    return acl_schema.DeleteAclsResponse(filter_results=results)


def _acl_of(asked: acl_schema.AclCreation) -> Acl:
    _ensure_known(asked.resource_type, asked.resource_pattern_type, asked.operation, asked.permission_type)
    _ensure_storable((asked.resource_name, asked.principal, asked.host))
    pattern = asked.resource_type, asked.resource_name, asked.resource_pattern_type
    return Acl.of_numbers(*pattern, asked.principal, asked.host, asked.operation, asked.permission_type)


def _filter_of(asked: acl_schema.DescribeAclsRequest | acl_schema.DeleteAclsFilter) -> AclFilter:
    _ensure_known(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    return AclFilter(
        resource_type=ResourceType(asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=PatternType(asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=AclOperation(asked.operation),
        permission_type=AclPermissionType(asked.permission_type),
    )


def _ensure_known(*codes: int) -> None:
    """Raises MalformedMessageError if a resource type, a pattern, an operation or a permission is UNKNOWN by its own
    number. That of a later Kafka is left to the store.
    """
    if 0 in codes:
        raise MalformedMessageError("an ACL has UNKNOWN elements")


def _ensure_storable(texts: Iterable[str]) -> None:
    """Raises MalformedMessageError for a text that Kafka could not read: it would not open the directory again."""
    for text in texts:
        if len(text) * 4 > _LONGEST_TEXT and (size := len(text.encode())) > _LONGEST_TEXT:
            raise MalformedMessageError(f"a text of {size} bytes, expected at most {_LONGEST_TEXT}")


def _is_for_filters(acl: Acl) -> bool:
    """Returns whether it has elements that only filters may have: Kafka's AclBinding can't be made of them."""
    kind = acl.pattern_type
    return 1 in (acl.resource_type, kind, acl.operation, acl.permission_type) or kind is PatternType.MATCH
