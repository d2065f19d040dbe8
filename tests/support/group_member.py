"""A member of a group that leaves it, though librdkafka may not say that it has."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer

from tests.support.waiting import machine_seconds

_PATIENCE_S = 20


def close(member: Consumer) -> None:
    """Has it leave its group. librdkafka was seen to wait for ever in `close` while its group was rebalanced; what the
    others of the group are given then says whether it has left.
    """
    closing = threading.Thread(target=member.close, daemon=True)
    closing.start()
    deadline = machine_seconds() + _PATIENCE_S
    while closing.is_alive() and machine_seconds() < deadline:
        closing.join(0.1)
