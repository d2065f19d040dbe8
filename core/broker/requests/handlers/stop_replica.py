"""StopReplica: the controller makes this broker stop, and perhaps delete, replicas."""

from __future__ import annotations

from core.broker.replication.cluster_membership import Membership
from core.broker.requests.handlers.control_request import answer_controller, member_asked
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.common.task import Task
from core.protocol.schema.stop_replica import (
    STOP_REPLICA,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

_FIRST_VERSION_WITH_STATES = 3  # KIP-570


def handle(
    services: Services, request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse | Pending[StopReplicaResponse]:
    membership = member_asked(services, context, "StopReplica", _FIRST_VERSION_WITH_STATES)
    return answer_controller(
        membership,
        request,
        [],
        lambda: services.stepped_answers.answer(_answer(membership, request), is_owed=True),
        lambda error: StopReplicaResponse(error_code=error),
    )


def _answer(membership: Membership, request: StopReplicaRequest) -> Task[StopReplicaResponse]:
    errors = yield from membership.assigned.stop(request)
    return StopReplicaResponse(
        ErrorCode.NONE,
        [StopReplicaPartitionError(name.topic, name.partition, error) for name, error in errors.items()],
    )


SERVES = ServedApi(STOP_REPLICA, handle, is_between_brokers=True)
