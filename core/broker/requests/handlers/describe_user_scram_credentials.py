"""DescribeUserScramCredentials: the users in the metadata log, usually none: plog does not support SCRAM."""

from __future__ import annotations

from collections import Counter

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.protocol.schema.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    services: Services, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
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


SERVES = ServedApi(DESCRIBE_USER_SCRAM_CREDENTIALS, handle, needs_quorum=True)
