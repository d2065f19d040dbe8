"""FindCoordinator: this broker coordinates every group and every transactional id.

The first that is looked for makes the topic in which they are kept; its answer, and those of others who look for one
meanwhile, come when that is done.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from core.broker.group_log import GROUPS_TOPIC
from core.broker.request_context import RequestContext
from core.broker.stepped_answer import answer_in_turns
from core.broker.transaction_log import TRANSACTIONS_TOPIC
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.steps import Steps
from core.protocol.schema.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from core.broker.broker import Broker

_log = logging.getLogger("plog.broker")

_FIRST_BATCHED_VERSION = 4
_FIRST_VERSION_WITH_SHARE_GROUPS = 6
_GROUP, _TRANSACTIONAL_ID, _SHARE_GROUP = range(3)
_NO_COORDINATOR = "this broker does not coordinate share groups"


def handle(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> Any:  # the answer, or a Deferred
    """COORDINATOR_NOT_AVAILABLE for what has none here, INVALID_REQUEST where the keys are of no known type."""
    return answer_in_turns(broker, _answer(broker, request, context), is_owed=True)


def _answer(broker: Broker, request: FindCoordinatorRequest, context: RequestContext) -> Steps[FindCoordinatorResponse]:
    is_batched = context.api_version >= _FIRST_BATCHED_VERSION
    keys = request.coordinator_keys if is_batched else [request.key]
    found = yield from _find(broker, request.key_type, context)
    if is_batched:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key, found.node_id, found.host, found.port, found.error_code, found.error_message)
                for key in keys
            ]
        )
    return found


def _find(broker: Broker, key_type: int, context: RequestContext) -> Steps[FindCoordinatorResponse]:
    if key_type == _SHARE_GROUP and context.api_version >= _FIRST_VERSION_WITH_SHARE_GROUPS:
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_COORDINATOR)
    if key_type not in (_GROUP, _TRANSACTIONAL_ID):
        return _none(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    topic = GROUPS_TOPIC if key_type == _GROUP else TRANSACTIONS_TOPIC
    try:
        if key_type == _GROUP:
            yield from broker.group_log.ensure_topic_in_steps()
        else:
            broker.ensure_writable()
            yield from broker.transaction_log.ensure_topic_in_steps()
    except (KafkaError, OSError) as error:
        _log.error("%s could not be made: %s", topic, error)
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} could not be made")
    endpoint = broker.advertised_endpoint(context.local_host)
    return FindCoordinatorResponse(node_id=broker.node_id, host=endpoint.host, port=endpoint.port)


def _none(code: ErrorCode, message: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
