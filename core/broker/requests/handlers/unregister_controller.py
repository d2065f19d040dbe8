"""UnregisterController: refused, because this node is the only controller of its metadata log."""

from __future__ import annotations

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE
from core.common.error_code import ErrorCode
from core.protocol.schema.unregister_controller import (
    UNREGISTER_CONTROLLER,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

_FIRST_LEVEL = 33  # 4.4-IV2, which has UnregisterControllerRecord


def handle(
    services: Services, request: UnregisterControllerRequest, context: RequestContext
) -> UnregisterControllerResponse:
    if services.image.features.get(METADATA_VERSION_FEATURE, 0) < _FIRST_LEVEL:
        code, text = ErrorCode.UNSUPPORTED_VERSION, f"{METADATA_VERSION_FEATURE} is below {_FIRST_LEVEL}"
    elif request.controller_id == services.node.node_id:
        code, text = ErrorCode.INVALID_REQUEST, f"controller {request.controller_id} is active"
    else:
        code, text = ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"there is no controller {request.controller_id}"
    return UnregisterControllerResponse(error_code=code, error_message=text)


SERVES = ServedApi(UNREGISTER_CONTROLLER, handle, needs_quorum=True)
