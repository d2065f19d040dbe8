"""Requests for one partition or one resource, of which most of the fields are the same in all tests."""

from __future__ import annotations

from core.broker.requests.request_dispatcher import served_apis
from core.protocol.schema.configs import (
    ChangedConfig,
    ChangedResource,
    IncrementalAlterConfigsRequest,
)
from core.protocol.schema.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from core.protocol.schema.topic_changes import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

SERVED_APIS = list(served_apis(None))
"""Those that clients of a lone broker may use."""


def commit_of(group: str, offset: int, partition: int = 0) -> OffsetCommitRequest:
    """Of topic `t`, by somebody who is no member."""
    partitions = [OffsetCommitRequestPartition(partition, offset)]
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("t", partitions=partitions)])


def transactional_commit_of(
    transactional_id: str, group: str, producer: tuple[int, int], offset: int, topic: str = "t"
) -> TxnOffsetCommitRequest:
    """Of partition 0; `producer` is its id and epoch."""
    topics = [TxnOffsetCommitRequestTopic(topic, partitions=[TxnOffsetCommitRequestPartition(0, offset)])]
    return TxnOffsetCommitRequest(transactional_id, group, *producer, topics=topics)


def committed_of(
    group: str, topic: str = "t", partition: int = 0, *, topic_id: bytes = bytes(16), is_stable: bool = False
) -> OffsetFetchRequest:
    """Asks for the offset of one partition, from version 8 on."""
    topics = [OffsetFetchRequestTopic(topic, topic_id, [partition])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=is_stable)


def deletion_of(topic: str, partition: int, offset: int, timeout_ms: int = 1000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])], timeout_ms)


def changes_of(
    type_: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    """Each change is a key, an operation and a value."""
    resource = ChangedResource(type_, name, [ChangedConfig(*change) for change in changes])
    return IncrementalAlterConfigsRequest([resource], validate_only)
