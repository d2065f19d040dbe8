"""Finds the coordinator of a group or a transactional id, and asks it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.client.net.retry import Result
from core.common.errors import ensure_success
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest

_FIRST_BATCHED_VERSION = 4  # KIP-699


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


def find_coordinator(client: KafkaClient, type_: CoordinatorType, key: str) -> int:
    """Returns the node id of the key's coordinator, which the client can connect to afterwards. Raises KafkaError if
    there is no coordinator yet.
    """
    connection = client.any_connection()
    is_batched = connection.version_of(FIND_COORDINATOR) >= _FIRST_BATCHED_VERSION
    request = FindCoordinatorRequest("" if is_batched else key, type_, [key] if is_batched else [])
    answer = connection.call(FIND_COORDINATOR, request)
    (found,) = answer.coordinators if is_batched else [answer]
    ensure_success(found.error_code, key, found.error_message)
    if found.node_id not in client.node_ids:
        client.refresh([])
    return found.node_id


def at_coordinator(
    client: KafkaClient, type_: CoordinatorType, key: str, work: Callable[[ClientConnection], Result]
) -> Result:
    """Returns what `work` returns at the coordinator; repeats it, for a while, if the coordinator moves, loads or is
    being created, or dies and another broker takes over (`KafkaClient.retry_while_leader_moves`).
    """
    return client.retry_while_leader_moves(lambda: work(client.connection_to(find_coordinator(client, type_, key))))
