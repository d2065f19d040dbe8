"""AlterPartition: a leader changes its ISR, if the controller agrees (KIP-497)."""

from __future__ import annotations

from core.broker.requests.handlers.control_request import ensure_between_brokers
from core.broker.requests.handlers.controller_request import answer_in_office
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.pending import Pending
from core.protocol.schema.alter_partition import ALTER_PARTITION, AlterPartitionRequest, AlterPartitionResponse

_FIRST_VERSION_WITH_IDS = 2


def handle(
    services: Services, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse | Pending[AlterPartitionResponse]:
    ensure_between_brokers(services, context, "AlterPartition")
    return answer_in_office(
        services,
        lambda term: term.controller.alter_partitions(request),
        lambda answer: answer,
        lambda error: AlterPartitionResponse(error_code=error.code),
    )


SERVES = ServedApi(ALTER_PARTITION, handle, is_for_controllers=True, first_of_members=_FIRST_VERSION_WITH_IDS)
