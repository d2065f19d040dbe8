"""A broker that is about to stop has the controller hand over what it leads (KIP-3, ControlledShutdown).

The controller elects other leaders among the replicas in sync, and takes this broker out of them. It goes on serving
until it is told so, by LeaderAndIsr and StopReplica, and stops then: clients lose no time.

Source: kafka.server.KafkaServer.controlledShutdown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.controller_channel import ControllerChannel
from core.common.errors import ConnectionFailedError, KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.controlled_shutdown import (
    CONTROLLED_SHUTDOWN,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

_log = logging.getLogger("plog.broker")

_VERSION = 3
_MOST_NAMED = 10
"""Partitions that a message names."""


async def controlled_shutdown(
    channel: ControllerChannel, config: BrokerConfig, *, node_id: int, broker_epoch: Callable[[], int]
) -> bool:
    """Asks the controller, again if partitions remain or there is no answer, `controlled.shutdown.max.retries` times
    at most. Says whether nothing is led here any more; the log says why not. Nobody is asked if
    `controlled.shutdown.enable` is off.
    """
    if not config.controlled_shutdown_enable:
        return False
    for tries_left in reversed(range(config.controlled_shutdown_max_retries)):
        request = ControlledShutdownRequest(node_id, broker_epoch())
        try:
            answer = await channel.try_once(CONTROLLED_SHUTDOWN, _VERSION, request, _find_error)
            reason = _remaining(answer)
        except (ConnectionFailedError, KafkaError) as error:
            reason = str(error)
        if reason is None:
            return True
        ending = "it is asked again" if tries_left else "it stops all the same, and others lead when that is noticed"
        _log.warning("the controller has not taken over all that broker %d leads: %s; %s", node_id, reason, ending)
        if tries_left:
            await channel.wait_for_change(config.controlled_shutdown_retry_backoff_ms)
    return False


def _remaining(answer: ControlledShutdownResponse) -> str | None:
    """Says what this broker still leads; None if it is nothing."""
    remaining = [str(TopicPartition(one.topic_name, one.partition_index)) for one in answer.remaining_partitions]
    if not remaining:
        return None
    more = len(remaining) - _MOST_NAMED
    return f"nobody else can lead {', '.join(remaining[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}"


def _find_error(answer: ControlledShutdownResponse) -> int:
    return answer.error_code
