"""FindCoordinator: a lone broker coordinates every group and every transactional id; in a cluster the coordinator is
the leader of the partition that keeps it.

The first request creates the internal topic; its answer, and those of concurrent requests, come when that is done.
"""

from __future__ import annotations

import logging

from core.broker.coordinators.consumer_offsets_topic import GROUPS_TOPIC
from core.broker.coordinators.transaction_state_topic import TRANSACTIONS_TOPIC
from core.broker.requests.metadata_brokers import MetadataBroker, MetadataBrokers
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task
from core.common.topic_partition import TopicPartition
from core.protocol.schema.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from core.security.acl import CLUSTER_ACTION, DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID

_log = logging.getLogger("plog.broker")

_FIRST_BATCHED_VERSION = 4  # KIP-699
_FIRST_VERSION_WITH_SHARE_GROUPS = 6  # KIP-932
_GROUP, _TRANSACTIONAL_ID, _SHARE_GROUP = range(3)
_RIGHTS = {
    _GROUP: DESCRIBE_GROUP,
    _TRANSACTIONAL_ID: DESCRIBE_TRANSACTIONAL_ID,
    _SHARE_GROUP: CLUSTER_ACTION,  # brokers alone look for the coordinator of a share group's state
}
_NO_COORDINATOR = "this broker does not coordinate share groups"


@serves(FIND_COORDINATOR, DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, CLUSTER_ACTION, is_owed=True)
def handle(
    services: Services, request: FindCoordinatorRequest, context: RequestContext
) -> Task[FindCoordinatorResponse]:
    """Answers COORDINATOR_NOT_AVAILABLE for keys without a coordinator, INVALID_REQUEST for an unknown key type."""
    is_batched = context.api_version >= _FIRST_BATCHED_VERSION
    keys = request.coordinator_keys if is_batched else [request.key]
    right = _RIGHTS.get(request.key_type)
    refused = {key for key in keys if right is not None and not context.may(right, key)}
    failure = None
    if any(key not in refused for key in keys):
        failure = yield from _find_failure(services, request.key_type, context)
    known = MetadataBrokers(services, context)
    found = [
        _none(right.refusal, right.refusal.text)
        if right is not None and key in refused
        else failure or _find(services, known, key, request.key_type)
        for key in keys
    ]
    if not is_batched:
        return found[0]
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, one.node_id, one.host, one.port, one.error_code, one.error_message)
            for key, one in zip(keys, found, strict=True)
        ]
    )


def _find(services: Services, known: MetadataBrokers, key: str, key_type: int) -> FindCoordinatorResponse:
    log, topic = (
        (services.group_log, GROUPS_TOPIC) if key_type == _GROUP else (services.transaction_log, TRANSACTIONS_TOPIC)
    )
    leader: MetadataBroker | None = known.own
    if known.is_cluster:
        leader = known.find_leader(TopicPartition(topic, log.number_of(key)))
    if leader is None:
        return _none(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {topic} that this id belongs to has no leader"
        )
    return FindCoordinatorResponse(node_id=leader.node_id, host=leader.host, port=leader.port)


def _find_failure(services: Services, key_type: int, context: RequestContext) -> Task[FindCoordinatorResponse | None]:
    """Creates the topic if it is missing; returns the answer to all keys if none can have a coordinator, or None."""
    if key_type == _SHARE_GROUP and context.api_version >= _FIRST_VERSION_WITH_SHARE_GROUPS:
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_COORDINATOR)
    if key_type not in (_GROUP, _TRANSACTIONAL_ID):
        return _none(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    topic = GROUPS_TOPIC if key_type == _GROUP else TRANSACTIONS_TOPIC
    try:
        if key_type == _GROUP:
            yield from services.group_log.ensure_topic_in_steps()
        else:
            services.node.ensure_writable()
            yield from services.transaction_log.ensure_topic_in_steps()
    except (KafkaError, OSError) as error:
        if services.membership is not None:  # the controller has not created it yet
            return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        _log.error("%s could not be created: %s", topic, error)
        return _none(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} could not be created")
    return None


def _none(code: ErrorCode, message: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
