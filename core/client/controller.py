"""Work that changes a cluster's metadata, which is the controller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.client.client_connection import ClientConnection
from core.client.coordinator import patiently
from core.client.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

_NO_CONTROLLER = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})
"""Errors of a broker that is the controller no more, or that knows of none."""

Result = TypeVar("Result")


def at_controller(client: KafkaClient, work: Callable[[ClientConnection], Result]) -> Result:
    """Gives what `work` gives at any broker. Brokers of KRaft forward it; if this one does not, it is done at the
    controller. Waits a while if there is none, or it is none any more.
    """
    try:
        return work(client.any_connection())
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
    return patiently(lambda: work(client.controller_connection()), _NO_CONTROLLER)
