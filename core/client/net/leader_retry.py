"""Repeats work for one certain broker of a cluster while another one takes over from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from core.client.net.kafka_client import RETRIABLE, KafkaClient
from core.client.net.read_options import FAILOVER_SECONDS
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError

_REFUSED_SECONDS = 10.0
_RETRY_SECONDS = 0.1
_RETRIABLE = RETRIABLE | {ErrorCode.BROKER_NOT_AVAILABLE}
"""The latter is `KafkaClient`'s own, for a broker that has just left."""

Result = TypeVar("Result")


def retry_while_leader_moves(client: KafkaClient, work: Callable[[], Result]) -> Result:
    """Returns what `work` returns, which finds its broker through the client. Repeats it, with new metadata, while that
    broker can't be reached, or answers with a retriable error. If an answer was lost, the work is done twice.

    Raises KafkaError if the error stays for 10 s, ConnectionFailedError if the broker stays away for 30 s; at once if
    the cluster has no other one.
    """
    lost_s: float | None = None
    since_s = time.monotonic()
    while True:
        try:
            return work()
        except ConnectionFailedError:
            client.forget_connections()
            since_s = time.monotonic()
            lost_s = since_s if lost_s is None else lost_s
            if len(client.node_ids) < 2 or since_s - lost_s > FAILOVER_SECONDS:
                raise
        except KafkaError as error:
            if error.code not in _RETRIABLE or time.monotonic() - since_s > _REFUSED_SECONDS:
                raise
        time.sleep(_RETRY_SECONDS)
        client.forget_topics()
