"""How requests are answered that only the controller of a cluster answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.broker.controller.active_controller import ActiveController
from core.broker.controller.controller_elector import ControllerElector
from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.controller.controller_writes import Decision
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending

T = TypeVar("T")
Res = TypeVar("Res")


def find_control(services: Services) -> ControllerElector | None:
    """Finds what the controller does in its cluster, if this broker is the controller, and not cut off from ZooKeeper:
    who asks is refused at once then, as nobody knows when it could decide again, or who will.
    """
    membership = services.membership
    control = None if membership is None else membership.control
    return None if control is None or not control.can_decide else control


def find_term(services: Services) -> ActiveController | None:
    """Finds this broker's time in office; None if it is not the controller of its cluster, or in none."""
    control = find_control(services)
    return None if control is None else control.term


def ensure_between_brokers(services: Services, context: RequestContext, api: str) -> None:
    """Raises MalformedMessageError for a request of brokers that came to a listener for clients: it can take partitions
    from their leaders.
    """
    inner = services.config.inter_broker_listener
    if context.listener not in ("", inner):
        raise MalformedMessageError(f"{api} came to listener {context.listener}, brokers send it to {inner}")


def answer_in_office(
    services: Services,
    decide: Callable[[ActiveController], Decision[T]],
    answer: Callable[[T], Res],
    refuse: Callable[[KafkaError], Res],
) -> Res | Pending[Res]:
    """Gives what `answer` makes of the controller's decision; what `refuse` makes of NOT_CONTROLLER if this broker is
    not in office, or is no more when it would decide.
    """
    term = find_term(services)
    if term is None:
        return refuse(KafkaError(ErrorCode.NOT_CONTROLLER))
    return term.ask(lambda: decide(term)).map(
        lambda outcome: refuse(outcome) if isinstance(outcome, KafkaError) else answer(outcome)
    )
