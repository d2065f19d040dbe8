"""StopReplica: the controller makes this broker stop, and perhaps delete, replicas."""

from __future__ import annotations

from core.broker.requests.handlers.control_request import member_asked, pass_fence
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.task import Task
from core.protocol.schema.stop_replica import (
    STOP_REPLICA,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

_FIRST_VERSION_WITH_STATES = 3  # KIP-570


def handle(services: Services, request: StopReplicaRequest, context: RequestContext) -> Task[StopReplicaResponse]:
    membership = member_asked(services, context, "StopReplica", _FIRST_VERSION_WITH_STATES)
    error = yield from pass_fence(membership, request, [])
    if error is not None:
        return StopReplicaResponse(error_code=error)
    errors = yield from membership.assigned.stop(request)
    return StopReplicaResponse(
        ErrorCode.NONE,
        [StopReplicaPartitionError(name.topic, name.partition, error) for name, error in errors.items()],
    )


SERVES = ServedApi(STOP_REPLICA, handle, is_owed=True, is_between_brokers=True)
