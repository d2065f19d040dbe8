"""Keys and values of the records in __share_group_state: how far share groups have read (KIP-932).

Framed as those of __consumer_offsets are. Source:
org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde and its message definitions.
"""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, int8, int16, int32, int64, string, uuid


class SharePartitionKey(Struct):
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, api_key=0, valid="0", flexible="0+", key=SharePartitionKey):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("0+", -1, tagged="0+", tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateValue(Message, api_key=1, valid="0", flexible="0+", key=SharePartitionKey):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("0+", -1, tagged="0+", tag=0)
    state_batches: list[StateBatch] = array(StateBatch)
