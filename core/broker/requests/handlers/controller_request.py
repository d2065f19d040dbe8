"""Answers requests that only the controller of a cluster answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.broker.controller.active_controller import ActiveController
from core.broker.controller.controller_elector import ControllerElector
from core.broker.requests.services import Services
from core.cluster.controller.controller_writes import Decision
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending

T = TypeVar("T")
Res = TypeVar("Res")


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


def answer_in_office(
    services: Services,
    decide: Callable[[ActiveController], Decision[T]],
    answer: Callable[[T], Res],
    refuse: Callable[[KafkaError], Res],
) -> Res | Pending[Res]:
    """Returns the result of `answer` on the controller's decision, or of `refuse` on its KafkaError; NOT_CONTROLLER if
    this broker is not the controller, or no longer when it would decide.
    """
    term = find_term(services)
    if term is None:
        return refuse(KafkaError(ErrorCode.NOT_CONTROLLER))
    return term.ask(lambda: decide(term)).map(
        lambda outcome: refuse(outcome) if isinstance(outcome, KafkaError) else answer(outcome)
    )
