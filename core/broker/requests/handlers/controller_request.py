"""Answers requests that only the controller of a cluster answers, among them those that only brokers send."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.broker.controller.active_controller import ActiveController
from core.broker.controller.controller_elector import ControllerElector
from core.broker.requests.handlers.control_request import ensure_between_brokers
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.controller.controller_writes import Decision
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import wait_for
from core.common.task import Task
from core.protocol.schema import controller_request as schema
from core.security.acl import CLUSTER_ACTION

T = TypeVar("T")


def find_control(services: Services) -> ControllerElector | None:
    """Returns the controller of this broker's cluster if this broker is it, and not cut off from ZooKeeper. A broker
    that is cut off refuses at once, because it is unknown when it, or which other broker, can decide.
    """
    control = None if services.membership is None else services.membership.control
    return control if control is not None and control.can_decide else None


def find_term(services: Services) -> ActiveController | None:
    """Returns this broker's term as the controller, or None if it is not the controller or in no cluster."""
    control = find_control(services)
    return None if control is None else control.term


def decide_in_office(services: Services, decide: Callable[[ActiveController], Decision[T]]) -> Task[T]:
    """Returns the controller's decision. Raises its KafkaError; NOT_CONTROLLER if this broker is not the controller, or
    no longer when it would decide.
    """
    term = find_term(services)
    if term is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    outcome = yield from wait_for(term.ask(lambda: decide(term)))
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


_FIRST_VERSION_WITH_IDS = 2


@serves(
    schema.ALTER_PARTITION,
    CLUSTER_ACTION,
    is_whole=True,
    is_for_controllers=True,
    first_of_members=_FIRST_VERSION_WITH_IDS,
)
def alter_partition(
    services: Services, request: schema.AlterPartitionRequest, context: RequestContext
) -> Task[schema.AlterPartitionResponse]:
    """AlterPartition: a leader changes its ISR, if the controller agrees (KIP-497)."""
    ensure_between_brokers(services, context, "AlterPartition")
    try:
        return (yield from decide_in_office(services, lambda term: term.controller.alter_partitions(request)))
    except KafkaError as error:
        return schema.AlterPartitionResponse(error_code=error.code)


@serves(schema.ALLOCATE_PRODUCER_IDS, CLUSTER_ACTION, is_whole=True, is_for_controllers=True)
def allocate_producer_ids(
    services: Services, request: schema.AllocateProducerIdsRequest, context: RequestContext
) -> Task[schema.AllocateProducerIdsResponse]:
    """AllocateProducerIds: gives a broker a block of unused producer ids (KIP-730)."""
    ensure_between_brokers(services, context, "AllocateProducerIds")
    term = find_term(services)
    if term is None:
        return schema.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    outcome = yield from wait_for(term.do(lambda: term.allocate_producer_ids(request.broker_id, request.broker_epoch)))
    if isinstance(outcome, range):
        return schema.AllocateProducerIdsResponse(producer_id_start=outcome.start, producer_id_len=len(outcome))
    return schema.AllocateProducerIdsResponse(error_code=outcome.code if isinstance(outcome, KafkaError) else outcome)


@serves(schema.CONTROLLED_SHUTDOWN, CLUSTER_ACTION, is_whole=True, is_for_controllers=True)
def controlled_shutdown(
    services: Services, request: schema.ControlledShutdownRequest, context: RequestContext
) -> Task[schema.ControlledShutdownResponse]:
    """ControlledShutdown: the controller moves leadership away from a broker that is about to stop."""
    ensure_between_brokers(services, context, "ControlledShutdown")
    try:
        outcome = yield from decide_in_office(
            services, lambda term: term.controller.shut_down(request.broker_id, request.broker_epoch)
        )
    except KafkaError as error:
        outcome = error.code
    if isinstance(outcome, ErrorCode):
        return schema.ControlledShutdownResponse(error_code=outcome)
    return schema.ControlledShutdownResponse(
        remaining_partitions=[schema.RemainingPartition(one.topic, one.partition) for one in outcome]
    )
