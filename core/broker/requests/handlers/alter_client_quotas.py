"""AlterClientQuotas: changes the client quotas of a cluster; any of its brokers can do that."""

from __future__ import annotations

from collections import Counter

from core.broker.config.client_quotas import ClientQuotas
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    AlteredQuotasResult,
)

_Outcome = KafkaError | Pending[KafkaError | None] | None


def handle(
    services: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse | Pending[AlterClientQuotasResponse]:
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


SERVES = ServedApi(ALTER_CLIENT_QUOTAS, handle, is_for_controllers=True)
