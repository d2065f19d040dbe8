"""Keys and values of the records in __transaction_state: what transactional ids there are, and where
each stands.

Framed as those of __consumer_offsets are. Source:
kafka.coordinator.transaction.TransactionStateTopic and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Struct):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array("int32")


class TransactionLogValue(Message, api_key=0, valid="0-1", flexible="1+", key=TransactionLogKey):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", -1, tagged="1+", tag=0)
    next_producer_id: int = int64("1+", -1, tagged="1+", tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", -1, tagged="1+", tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", 0, tagged="1+", tag=2)
