"""UnregisterBroker: the controller of a ZooKeeper-mode cluster no longer waits for that broker's replicas.

In KRaft it removes the registration of a broker that is gone for good. With ZooKeeper a registration ends by itself,
but partitions still wait for records that the broker may have (`ClusterController.forget`).
"""

from __future__ import annotations

from core.broker.requests.handlers.controller_request import answer_in_office
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.pending import Pending
from core.protocol.schema.unregister_broker import (
    UNREGISTER_BROKER,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


def handle(
    services: Services, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse | Pending[UnregisterBrokerResponse]:
    return answer_in_office(
        services,
        lambda term: term.controller.forget(request.broker_id),
        lambda _: UnregisterBrokerResponse(error_message=None),
        lambda error: UnregisterBrokerResponse(error_code=error.code, error_message=error.message),
    )


SERVES = ServedApi(UNREGISTER_BROKER, handle, is_for_controllers=True)
