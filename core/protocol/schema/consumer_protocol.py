"""What consumers send each other through a classic group, opaque to the broker: subscriptions and assignments.

Each is an int16 version, then the message (KIP-429, KIP-792;
org.apache.kafka.clients.consumer.internals.ConsumerProtocol).
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, binary, int32, string


class AssignedPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array("int32")


class ConsumerProtocolSubscription(Message, valid="0-3", flexible="none"):
    topics: list[str] = array("string")
    user_data: bytes | None = binary("0+", None, nullable="0+")
    owned_partitions: list[AssignedPartitions] = array(AssignedPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", -1, ignorable=True)
    rack_id: str | None = string("3+", None, nullable="3+", ignorable=True)


class ConsumerProtocolAssignment(Message, valid="0-3", flexible="none"):
    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)
    user_data: bytes | None = binary("0+", None, nullable="0+")
