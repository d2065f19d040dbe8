"""DescribeClientQuotas: the client quotas of a cluster, or of the metadata log of a lone broker."""

from __future__ import annotations

from core.broker.config.client_quotas import Filter, ensure_filters, find_quotas, quotas_in_image
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.errors import KafkaError
from core.protocol.schema.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntity,
    DescribedQuotas,
    DescribedValue,
)


def handle(
    services: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
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
            [DescribedEntity(kind, name) for kind, name in named.items()],
            [DescribedValue(key, value) for key, value in quotas.items()],
        )
        for named, quotas in found
    ]
    return DescribeClientQuotasResponse(error_message="" if membership is None else None, entries=entries)


SERVES = ServedApi(DESCRIBE_CLIENT_QUOTAS, handle)
