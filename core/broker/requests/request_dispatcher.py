"""From a request's bytes to its answer's: no sockets, no loop.

`handle` returns the pieces of the answer in order; None for a request without one (acks=0); or a `Pending` of them if
it must wait. ApiVersions advertises the APIs in the table here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from time import perf_counter  # noqa: TID251  how long a request takes
from types import GeneratorType
from typing import Any

from core.broker.observe.request_log import is_logging_requests, log_request
from core.broker.observe.request_metrics import RequestMetrics, error_codes
from core.broker.requests.handlers import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    control_request,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
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
    unregister_broker,
    unregister_controller,
    update_features,
    write_txn_markers,
)
from core.broker.requests.handlers.produce import ProduceFastPath, RememberedRequest
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import Finalized, ServedApi
from core.broker.requests.services import Services
from core.broker.serving.connections_memory import LARGE_BYTES
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.protocol.frame import SIZE, Endpoint, decode_response, read_request_start
from core.protocol.message import Api, VersionRange
from core.protocol.primitives import Piece
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.produce import PRODUCE

AnyApi = Api[Any, Any]
Handler = Callable[[Services, Any, RequestContext], Any]

MAX_SMALL_REQUEST_BYTES = 16 * 1024 * 1024
"""The largest request of any API but Produce: its objects take several times its bytes."""

_PRODUCE_KEY = PRODUCE.key.to_bytes(2)
_CORRELATION_ID = slice(4, 8)
_NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

_HANDLERS = (
    produce, fetch, list_offsets, metadata, find_coordinator, api_versions, create_topics, delete_topics,
    delete_records, init_producer_id, describe_configs, create_partitions, incremental_alter_configs,
    consumer_group_heartbeat, consumer_group_describe, offset_for_leader_epoch, alter_configs, describe_log_dirs,
    elect_leaders, list_partition_reassignments, describe_quorum, describe_cluster, describe_producers,
    list_config_resources, describe_topic_partitions, offset_commit, offset_fetch, join_group, heartbeat, leave_group,
    sync_group, describe_groups, list_groups, delete_groups, offset_delete, list_transactions, describe_transactions,
    update_features, txn_offset_commit, write_txn_markers, end_txn, unregister_broker, unregister_controller,
    add_offsets_to_txn, add_partitions_to_txn, alter_partition, allocate_producer_ids, controlled_shutdown,
    alter_partition_reassignments, describe_client_quotas, describe_user_scram_credentials, alter_client_quotas,
)  # fmt: skip

_SERVED: dict[int, ServedApi[Any, Any]] = {
    served.api.key: served
    for served in (*(module.SERVES for module in _HANDLERS), *control_request.SERVES, *acls.SERVES)
}


def served_apis(finalized: Finalized | None) -> dict[AnyApi, VersionRange]:
    """Returns the APIs and versions that ApiVersions advertises."""
    return {served.api: served.versions(finalized) for served in _SERVED.values() if served.is_advertised(finalized)}


Answer = list[Piece] | Pending[list[Piece]] | None


class RequestDispatcher:
    """Owned by the broker's task."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.metrics: RequestMetrics | None = None
        """Counts requests, if set."""
        self._produce_memory = ProduceFastPath(services)
        self._routes: dict[tuple[int, int], tuple[Handler, Endpoint[Any, Any]]] = {}

    def handle(self, frame: memoryview, local_host: str = "", client_host: str = "", listener: str = "") -> Answer:
        """Answers one request, a frame without its size. The caller may overwrite `frame` when this returns, unless it
        is larger than `LARGE_BYTES` and the answer is at work: then after that answer is complete.

        Raises MalformedMessageError for bytes that are not a request, and an API or version that is not served; the
        connection must be closed then, as Kafka does. Raises what `handlers.produce` raises.
        """
        is_logging = is_logging_requests()
        may_be_usual = frame[:2] == _PRODUCE_KEY and len(frame) <= LARGE_BYTES
        if may_be_usual and (found := self._produce_memory.find(frame)) is not None:
            known, records = found
            started_s = perf_counter()
            answer = produce.handle_remembered(self._services, known, records, frame[_CORRELATION_ID])
            if answer is not None:
                if is_logging:
                    context = RequestContext(known.version, known.client_id, local_host, client_host, listener)
                    return self._log_remembered(known, frame, context, started_s, answer)
                if self.metrics is None:
                    return answer
                if isinstance(answer, Pending):
                    return answer.map(partial(known.count_in, self.metrics, started_s))
                return known.count_in(self.metrics, started_s, answer)
        is_observed = is_logging or self.metrics is not None
        return self._handle_decoded(
            frame, (local_host, client_host, listener), may_be_usual=may_be_usual, is_observed=is_observed
        )

    def _handle_decoded(
        self, frame: memoryview, came_by: tuple[str, str, str], *, may_be_usual: bool, is_observed: bool
    ) -> Answer:
        """`came_by`: the last fields of `RequestContext`."""
        key, version, correlation_id = read_request_start(frame)
        route = self._routes.get((key, version)) or self._find_route(key, version)
        if route is None:
            refusal = api_versions.unsupported_version()
            return _endpoint(API_VERSIONS, 0).encode_response(correlation_id, refusal)
        if len(frame) > MAX_SMALL_REQUEST_BYTES and key != PRODUCE.key:
            raise MalformedMessageError(f"request of {len(frame)} bytes to API {key}")
        handler, endpoint = route
        header, request = endpoint.decode_request(frame)
        context = RequestContext(version, header.client_id, *came_by)
        encode: Callable[[Any], list[Piece]] = partial(_encode_if_any, endpoint, correlation_id)
        if may_be_usual:
            self._produce_memory.learn(frame, header, request, endpoint)
        if not self._services.controller.is_informed and not _SERVED[key].is_between_brokers:
            encode = partial(_encode_if_sure, encode)
        if is_observed:
            encode = partial(self._observe, encode, _SERVED[key].api, context, correlation_id, request, perf_counter())
        if self._services.log_manager.unloaded:
            response = self._services.late_loads.answer(
                key, request, partial(self._call, key, handler, request, context)
            )
        else:
            response = self._call(key, handler, request, context)
        if isinstance(response, Pending):
            return response.map(encode)
        return encode(response) or None

    def _call(self, key: int, handler: Handler, request: Any, context: RequestContext) -> Any:
        """Returns the handler's answer, or a Pending with it. If the handler is a task, drives it."""
        response = handler(self._services, request, context)
        if isinstance(response, GeneratorType):
            return self._services.stepped_answers.answer(response, is_owed=_SERVED[key].is_owed)
        return response

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
        """Encodes the response, if it is not None, and reports the request to metrics and request log."""
        pieces = encode(response)
        time_ms = (perf_counter() - started_s) * 1000
        if self.metrics is not None:
            self.metrics.add(api.name, context.api_version, error_codes(response), time_ms)
        if is_logging_requests():
            log_request(api, correlation_id, context, request, response, time_ms)
        return pieces

    def _log_remembered(
        self,
        known: RememberedRequest,
        frame: memoryview,
        context: RequestContext,
        started_s: float,
        answer: list[Piece] | Pending[list[Piece]],
    ) -> Answer:
        """Writes a remembered request to the request log, and counts it, when it is answered."""
        request = known.endpoint.decode_request(frame)[1]

        def log(pieces: list[Piece]) -> list[Piece]:
            time_ms = (perf_counter() - started_s) * 1000
            (whole,) = pieces
            assert isinstance(whole, bytes)
            correlation_id, response = decode_response(PRODUCE, known.version, memoryview(whole)[SIZE.size :])
            log_request(PRODUCE, correlation_id, context, request, response, time_ms)
            return pieces if self.metrics is None else known.count_in(self.metrics, started_s, pieces)

        return answer.map(log) if isinstance(answer, Pending) else log(answer)

    def _find_route(self, key: int, version: int) -> tuple[Handler, Endpoint[Any, Any]] | None:
        """Returns None for an unknown version of ApiVersions. Raises MalformedMessageError if it is not served."""
        served = _SERVED.get(key)
        finalized = self._services.finalized_of_cluster
        if served is None or not served.is_known(finalized):
            raise MalformedMessageError(f"request of unknown API {key}")
        api = served.api
        versions = served.versions(finalized)
        if version not in versions:
            if api is API_VERSIONS:
                return None
            raise MalformedMessageError(
                f"{api.name} version {version} is not served, only {versions.first} to {versions.last}"
            )
        route = self._routes[key, version] = served.handle, _endpoint(api, version)
        return route


def _encode_if_any(endpoint: Endpoint[Any, Any], correlation_id: int, response: Any) -> list[Piece]:
    """Encodes the response, if it is not None: a Produce with acks=0 has none."""
    return [] if response is None else endpoint.encode_response(correlation_id, response)


def _encode_if_sure(encode: Callable[[Any], list[Piece]], response: Any) -> list[Piece]:
    """Raises NotInformedError for an answer that denies a topic's existence."""
    if not _NO_SUCH_TOPIC.isdisjoint(error_codes(response)):
        raise NotInformedError
    return encode(response)


@cache
def _endpoint(api: AnyApi, version: int) -> Endpoint[Any, Any]:
    return Endpoint(api, version)
