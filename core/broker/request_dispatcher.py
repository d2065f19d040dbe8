"""From a request's bytes to its answer's: no sockets, no loop.

`handle` gives the pieces of the answer in order; None where there is none (acks=0); or a `PendingAnswer` where it must
wait. What is advertised in ApiVersions is what stands in the table here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from core.broker.connection_memory import LARGE_BYTES
from core.broker.delayed_operation import DelayedOperation
from core.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from core.broker.pending_answer import DelayedAnswer, PendingAnswer
from core.broker.produce_lane import ProduceLane
from core.broker.request_context import RequestContext
from core.broker.request_log import is_logging_requests, log_request
from core.broker.request_metrics import RequestMetrics
from core.common.deferred import Deferred
from core.common.errors import MalformedMessageError
from core.protocol.api import Api
from core.protocol.frame import Endpoint, read_request_start
from core.protocol.primitives import Piece
from core.protocol.schema.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from core.protocol.schema.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from core.protocol.schema.alter_configs import ALTER_CONFIGS
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from core.protocol.schema.create_partitions import CREATE_PARTITIONS
from core.protocol.schema.create_topics import CREATE_TOPICS
from core.protocol.schema.delete_groups import DELETE_GROUPS
from core.protocol.schema.delete_records import DELETE_RECORDS
from core.protocol.schema.delete_topics import DELETE_TOPICS
from core.protocol.schema.describe_cluster import DESCRIBE_CLUSTER
from core.protocol.schema.describe_configs import DESCRIBE_CONFIGS
from core.protocol.schema.describe_groups import DESCRIBE_GROUPS
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS
from core.protocol.schema.describe_producers import DESCRIBE_PRODUCERS
from core.protocol.schema.describe_quorum import DESCRIBE_QUORUM
from core.protocol.schema.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from core.protocol.schema.describe_transactions import DESCRIBE_TRANSACTIONS
from core.protocol.schema.elect_leaders import ELECT_LEADERS
from core.protocol.schema.end_txn import END_TXN
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.find_coordinator import FIND_COORDINATOR
from core.protocol.schema.heartbeat import HEARTBEAT
from core.protocol.schema.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from core.protocol.schema.init_producer_id import INIT_PRODUCER_ID
from core.protocol.schema.join_group import JOIN_GROUP
from core.protocol.schema.leave_group import LEAVE_GROUP
from core.protocol.schema.list_config_resources import LIST_CONFIG_RESOURCES
from core.protocol.schema.list_groups import LIST_GROUPS
from core.protocol.schema.list_offsets import LIST_OFFSETS
from core.protocol.schema.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from core.protocol.schema.list_transactions import LIST_TRANSACTIONS
from core.protocol.schema.metadata import METADATA
from core.protocol.schema.offset_commit import OFFSET_COMMIT
from core.protocol.schema.offset_delete import OFFSET_DELETE
from core.protocol.schema.offset_fetch import OFFSET_FETCH
from core.protocol.schema.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.sync_group import SYNC_GROUP
from core.protocol.schema.txn_offset_commit import TXN_OFFSET_COMMIT
from core.protocol.schema.update_features import UPDATE_FEATURES
from core.protocol.schema.write_txn_markers import WRITE_TXN_MARKERS

if TYPE_CHECKING:
    from core.broker.broker import Broker

AnyApi = Api[Any, Any]
Handler = Callable[["Broker", Any, RequestContext], Any]

MAX_SMALL_REQUEST_BYTES = 16 * 1024 * 1024
"""The largest request of any API but Produce: its objects take several times its bytes."""

_HANDLERS: dict[int, tuple[AnyApi, Handler]] = {
    api.key: (api, handler)
    for api, handler in (
        (PRODUCE, produce.handle),
        (FETCH, fetch.handle),
        (LIST_OFFSETS, list_offsets.handle),
        (METADATA, metadata.handle),
        (FIND_COORDINATOR, find_coordinator.handle),
        (API_VERSIONS, api_versions.handle),
        (CREATE_TOPICS, create_topics.handle),
        (DELETE_TOPICS, delete_topics.handle),
        (DELETE_RECORDS, delete_records.handle),
        (INIT_PRODUCER_ID, init_producer_id.handle),
        (DESCRIBE_CONFIGS, describe_configs.handle),
        (CREATE_PARTITIONS, create_partitions.handle),
        (INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
        (CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat.handle),
        (CONSUMER_GROUP_DESCRIBE, consumer_group_describe.handle),
        (OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle),
        (ALTER_CONFIGS, alter_configs.handle),
        (DESCRIBE_LOG_DIRS, describe_log_dirs.handle),
        (ELECT_LEADERS, elect_leaders.handle),
        (LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.handle),
        (DESCRIBE_QUORUM, describe_quorum.handle),
        (DESCRIBE_CLUSTER, describe_cluster.handle),
        (DESCRIBE_PRODUCERS, describe_producers.handle),
        (LIST_CONFIG_RESOURCES, list_config_resources.handle),
        (DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle),
        (OFFSET_COMMIT, offset_commit.handle),
        (OFFSET_FETCH, offset_fetch.handle),
        (JOIN_GROUP, join_group.handle),
        (HEARTBEAT, heartbeat.handle),
        (LEAVE_GROUP, leave_group.handle),
        (SYNC_GROUP, sync_group.handle),
        (DESCRIBE_GROUPS, describe_groups.handle),
        (LIST_GROUPS, list_groups.handle),
        (DELETE_GROUPS, delete_groups.handle),
        (OFFSET_DELETE, offset_delete.handle),
        (LIST_TRANSACTIONS, list_transactions.handle),
        (DESCRIBE_TRANSACTIONS, describe_transactions.handle),
        (UPDATE_FEATURES, update_features.handle),
        (TXN_OFFSET_COMMIT, txn_offset_commit.handle),
        (WRITE_TXN_MARKERS, write_txn_markers.handle),
        (END_TXN, end_txn.handle),
        (ADD_OFFSETS_TO_TXN, add_offsets_to_txn.handle),
        (ADD_PARTITIONS_TO_TXN, add_partitions_to_txn.handle),
    )
}

SERVED_APIS: list[AnyApi] = [api for api, _ in _HANDLERS.values()]


Answer = list[Piece] | PendingAnswer | None


class RequestDispatcher:
    """Owned by the broker's task."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.metrics: RequestMetrics | None = None
        """Counts requests once there is one."""
        self._produce_lane = ProduceLane(broker)
        self._routes: dict[tuple[int, int], tuple[Handler, Endpoint[Any, Any]]] = {}

    def handle(self, frame: memoryview, local_host: str = "", client_host: str = "") -> Answer:
        """Answers one request, a frame without its size; `frame` may be overwritten when this returns,
        unless it is larger than `LARGE_BYTES` and the answer is at work: then when that answer is there.

        MalformedMessageError: bytes that are no request, an API or a version that is not served; the connection is then
        of no more use, as Kafka too decides. UnacknowledgedError as of `handlers.produce`.
        """
        key, version, correlation_id = read_request_start(frame)
        is_observed = self.metrics is not None or is_logging_requests()
        may_be_usual = key == PRODUCE.key and not is_observed and len(frame) <= LARGE_BYTES
        if may_be_usual:
            answer = self._produce_lane.handle(frame, version)
            if answer is not None:
                return answer
        route = self._routes.get((key, version)) or self._find_route(key, version)
        if route is None:
            refusal = api_versions.unsupported_version()
            return _endpoint(API_VERSIONS, 0).encode_response(correlation_id, refusal)
        if len(frame) > MAX_SMALL_REQUEST_BYTES and key != PRODUCE.key:
            raise MalformedMessageError(f"request of {len(frame)} bytes to API {key}")
        handler, endpoint = route
        header, request = endpoint.decode_request(frame)
        context = RequestContext(version, header.client_id, local_host, client_host)
        encode: Callable[[Any], list[Piece]] = partial(endpoint.encode_response, correlation_id)
        if is_observed:
            encode = partial(self._observe, encode, _HANDLERS[key][0], context, correlation_id, request, perf_counter())
        elif may_be_usual:
            self._produce_lane.learn(frame, header, request, endpoint)
        if self._broker.log_manager.unloaded:
            response = self._broker.late_loads.answer(key, request, partial(handler, self._broker, request, context))
        else:
            response = handler(self._broker, request, context)
        if isinstance(response, DelayedOperation | Deferred):
            return DelayedAnswer(response, encode if is_observed else partial(_encode_if_any, encode))
        if response is None and not is_observed:
            return None
        return encode(response) or None

    def _observe(
        self,
        encode: Callable[[Any], list[Piece]],
        api: AnyApi,
        context: RequestContext,
        correlation_id: int,
        request: Any,
        started_s: float,
        response: Any,
    ) -> list[Piece]:
        """Encodes, and tells of the request who wants to know; a response of None is none."""
        pieces = encode(response) if response is not None else []
        time_ms = (perf_counter() - started_s) * 1000
        if self.metrics is not None:
            self.metrics.add(api.name, context.api_version, response, time_ms)
        if is_logging_requests():
            log_request(api, correlation_id, context, request, response, time_ms)
        return pieces

    def _find_route(self, key: int, version: int) -> tuple[Handler, Endpoint[Any, Any]] | None:
        """None for a version of ApiVersions that is not known; MalformedMessageError for what is not served."""
        entry = _HANDLERS.get(key)
        if entry is None:
            raise MalformedMessageError(f"request of unknown API {key}")
        api, handler = entry
        if version not in api.versions:
            if api is API_VERSIONS:
                return None
            raise MalformedMessageError(
                f"{api.name} version {version} is not served, only {api.versions.first} to {api.versions.last}"
            )
        route = self._routes[key, version] = handler, _endpoint(api, version)
        return route


def _encode_if_any(encode: Callable[[Any], list[Piece]], response: Any) -> list[Piece]:
    """There is none to a Produce with acks=0."""
    return [] if response is None else encode(response)


@cache
def _endpoint(api: AnyApi, version: int) -> Endpoint[Any, Any]:
    return Endpoint(api, version)
