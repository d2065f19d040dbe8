"""Finds the coordinator of a group or a transactional id, and asks it patiently."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import RETRIABLE, KafkaClient
from core.client.net.leader_retry import retry_while_leader_moves
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest

_FIRST_BATCHED_VERSION = 4  # KIP-699
_RETRY_SECONDS = 0.1
_TIMEOUT_SECONDS = 10.0

Result = TypeVar("Result")


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def find_coordinator(client: KafkaClient, type_: CoordinatorType, key: str) -> int:
    """Returns the node id of the key's coordinator, which the client can connect to afterwards. Raises KafkaError if
    there is no coordinator yet.
    """
    connection = client.any_connection()
    if connection.version_of(FIND_COORDINATOR) >= _FIRST_BATCHED_VERSION:
        request = FindCoordinatorRequest(key_type=type_, coordinator_keys=[key])
        (found,) = connection.call(FIND_COORDINATOR, request).coordinators
        code, message, node_id = found.error_code, found.error_message, found.node_id
    else:
        old = connection.call(FIND_COORDINATOR, FindCoordinatorRequest(key, key_type=type_))
        code, message, node_id = old.error_code, old.error_message, old.node_id
    ensure_success(code, key, message)
    if node_id not in client.node_ids:
        client.refresh([])
    return node_id


def at_coordinator(
    client: KafkaClient, type_: CoordinatorType, key: str, work: Callable[[ClientConnection], Result]
) -> Result:
    """Returns what `work` returns at the coordinator; repeats it, for a while, if the coordinator moves, loads or is
    being created, or dies and another broker takes over (`retry_while_leader_moves`).
    """
    return retry_while_leader_moves(client, lambda: work(client.connection_to(find_coordinator(client, type_, key))))


def patiently(
    work: Callable[[], Result],
    retriable: frozenset[ErrorCode] = RETRIABLE,
    *,
    seconds: float = _TIMEOUT_SECONDS,
    pause_seconds: float = _RETRY_SECONDS,
    note: Callable[[KafkaError], None] = lambda _error: None,
) -> Result:
    """Repeats `work`, for so long, on retriable errors; `note` is called with each of them."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except KafkaError as error:
            if error.code not in retriable or time.monotonic() > deadline:
                raise
            note(error)
        time.sleep(pause_seconds)


def ensure_success(code: int, what: str, message: str | None = None) -> None:
    """Raises KafkaError for a code that is not NONE."""
    if code:
        error = ErrorCode.of(code)
        raise KafkaError(error, message or f"{what}: {error.text}")
