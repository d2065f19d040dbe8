"""FindCoordinator: no group and no transactional id has a coordinator here.

The API is served all the same: librdkafka holds a broker without it for one of 2014, and leaves batches that should be
LZ4 uncompressed. Who only assigns partitions never needs the answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.protocol.schema.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker

_log = logging.getLogger("plog.broker")

_FIRST_BATCHED_VERSION = 4
_KEY_TYPES = ("group", "transactional id", "share group")
_NO_COORDINATOR = "this broker has no coordinator: assign partitions instead of subscribing"


def handle(broker: Broker, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """COORDINATOR_NOT_AVAILABLE for every key, INVALID_REQUEST where they are of no known type."""
    is_batched = context.api_version >= _FIRST_BATCHED_VERSION
    keys = request.coordinator_keys if is_batched else [request.key]
    if request.key_type in range(len(_KEY_TYPES)):
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_COORDINATOR
        _log.debug("%s looks for the coordinator of %s %s", context.client_id, _KEY_TYPES[request.key_type], keys)
    else:
        code, message = ErrorCode.INVALID_REQUEST, f"unknown key type {request.key_type}"
    if is_batched:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key, node_id=-1, host="", port=-1, error_code=code, error_message=message) for key in keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
