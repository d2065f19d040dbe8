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
from core.broker.requests.client_session import Session
from core.broker.requests.handlers import (
    api_versions,
    cluster_nodes,
    configs,
    control_request,
    controller_request,
    describe_log_dirs,
    fetch,
    find_coordinator,
    group_offsets,
    groups,
    list_offsets,
    metadata,
    produce,
    quotas_and_users,
    reassignments,
    sasl_exchange,
    topic_changes,
    transaction_states,
    transactions,
)
from core.broker.requests.handlers.produce import ProduceFastPath
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import Finalized, ServedApi
from core.broker.requests.services import Services
from core.broker.serving.connections_memory import LARGE_BYTES
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.protocol.frame import Endpoint, read_request_start
from core.protocol.message import Api, VersionRange
from core.protocol.primitives import Piece
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.produce import PRODUCE

AnyApi = Api[Any, Any]

MAX_SMALL_REQUEST_BYTES = 16 * 1024 * 1024
"""The largest request of any API but Produce: its objects take several times its bytes."""

_PRODUCE_KEY = PRODUCE.key.to_bytes(2)
_CORRELATION_ID = slice(4, 8)
_NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

_HANDLERS = (
    api_versions, cluster_nodes, configs, control_request, controller_request, describe_log_dirs, fetch,
    find_coordinator, group_offsets, groups, list_offsets, metadata, produce, quotas_and_users, reassignments,
    sasl_exchange, topic_changes, transaction_states, transactions,
)  # fmt: skip

_SERVED: dict[int, ServedApi[Any, Any]] = {
    served.api.key: served
    for served in sorted(
        (one for module in _HANDLERS for one in vars(module).values() if isinstance(one, ServedApi)),
        key=lambda served: served.api.key,
    )
}
"""In the order of their keys, in which ApiVersions lists them, as in Kafka."""


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
        self._local = Session()
        self._routes: dict[tuple[int, int], tuple[ServedApi[Any, Any], Endpoint[Any, Any]]] = {}

    def handle(self, frame: memoryview, session: Session | None = None) -> Answer:
        """Answers one request of a session, a frame without its size; without a session, of whoever owns the data
        directory. The caller may overwrite `frame` when this returns, unless it is larger than `LARGE_BYTES` and the
        answer is at work: then after that answer is complete.

        Raises MalformedMessageError for bytes that are not a request, and an API or version that is not served; the
        connection must be closed then, as Kafka does. Raises what `handlers.produce` raises.
        """
        if session is None:
            session = self._local
        is_logging = is_logging_requests()
        may_be_usual = frame[:2] == _PRODUCE_KEY and len(frame) <= LARGE_BYTES
        authorizer = session.authorizer
        memory: ProduceFastPath | None = session.produce_memory
        if memory is None:
            memory = session.produce_memory = ProduceFastPath(self._services, authorizer)
        if is_logging or (authorizer is not None and authorizer.logs_allowed):
            may_be_usual = False  # a log shows what was decoded
        if may_be_usual and (found := memory.find(frame)) is not None:
            known, records = found
            started_s = perf_counter()
            answer = produce.handle_remembered(self._services, known, records, frame[_CORRELATION_ID])
            if answer is not None:
                if authorizer is not None:
                    authorizer.allowed += 1
                if self.metrics is None:
                    return answer
                if isinstance(answer, Pending):
                    return answer.map(partial(known.count_in, self.metrics, started_s))
                return known.count_in(self.metrics, started_s, answer)
        is_observed = is_logging or self.metrics is not None
        return self._handle_decoded(frame, session, memory if may_be_usual else None, is_observed=is_observed)

    def _handle_decoded(
        self, frame: memoryview, session: Session, memory: ProduceFastPath | None, *, is_observed: bool
    ) -> Answer:
        """`memory`: learns the request, if it is a usual one."""
        key, version, correlation_id = read_request_start(frame)
        route = self._routes.get((key, version)) or self._find_route(key, version)
        if route is None:
            refusal = api_versions.unsupported_version()
            return _endpoint(API_VERSIONS, 0).encode_response(correlation_id, refusal)
        if len(frame) > MAX_SMALL_REQUEST_BYTES and key != PRODUCE.key:
            raise MalformedMessageError(f"request of {len(frame)} bytes to API {key}")
        served, endpoint = route
        header, request = endpoint.decode_request(frame)
        context = RequestContext(version, header.client_id, session, served.api.name)
        encode: Callable[[Any], list[Piece]] = partial(_encode_if_any, endpoint, correlation_id)
        if memory is not None:
            memory.learn(frame, header, request, endpoint, session)
        if not self._services.controller.is_informed and not served.is_between_brokers:
            encode = partial(_encode_if_sure, encode)
        if is_observed:
            encode = partial(self._observe, encode, served.api, context, correlation_id, request, perf_counter())
        refused = None if session.authorizer is None else served.find_refusal(request, context)
        if refused is not None:
            response = refused
        elif self._services.log_manager.unloaded:
            response = self._services.late_loads.answer(
                key, request, partial(self._call, served, request, context), partial(served.may_touch, session)
            )
        else:
            response = self._call(served, request, context)
        if isinstance(response, Pending):
            return response.map(encode)
        return encode(response) or None

    def _call(self, served: ServedApi[Any, Any], request: Any, context: RequestContext) -> Any:
        """Returns the handler's answer, or a Pending with it. If the handler is a task, drives it."""
        response = served.handle(self._services, request, context)
        if isinstance(response, GeneratorType):
            return self._services.stepped_answers.answer(response, is_owed=served.is_owed)
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

    def _find_route(self, key: int, version: int) -> tuple[ServedApi[Any, Any], Endpoint[Any, Any]] | None:
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
        route = self._routes[key, version] = served, _endpoint(api, version)
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
