"""ListOffsets: the offset of a timestamp, or of one of the special ones below (org.apache.kafka.common.requests). After
it OffsetForLeaderEpoch: the end offset of a leader epoch here, so that a reader notices truncated records.

Consumers learn of committed records alone. Other replicas, and debugging consumers, learn of all records in the log;
debugging consumers also where this broker follows, to see its position. For a partition without a leader the controller
asks, and elects by the answer: records that a power cut could lose do not count.
"""

from __future__ import annotations

from collections import Counter

from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.partition.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task, Yield
from core.protocol.schema import list_offsets as schema
from core.security.acl import CLUSTER_ACTION, DESCRIBE_TOPIC

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# KIP-734, KIP-405, KIP-1005, KIP-1023
_FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5  # KIP-207
_MOST_AT_ONCE = 50
"""Topics of one step, if nothing of them is read."""

_CONSUMER = -1
_DEBUGGING_CONSUMER = -2


@serves(schema.LIST_OFFSETS, DESCRIBE_TOPIC)
def list_offsets(
    services: Services, request: schema.ListOffsetsRequest, context: RequestContext
) -> Task[schema.ListOffsetsResponse]:
    times = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    topics = []
    for number, topic in enumerate(request.topics, 1):
        if not number % _MOST_AT_ONCE:
            yield Yield.GIVE_WAY
        partitions = []
        is_allowed = context.may(DESCRIBE_TOPIC, topic.name)
        for wanted in topic.partitions:
            try:
                if not is_allowed:
                    raise KafkaError(DESCRIBE_TOPIC.refusal)
                if times[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if not _is_known(wanted.timestamp, request.isolation_level, context.api_version):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                partition = services.replicas.find_replica(topic.name, wanted.partition_index)
                found = yield from _look_up(services.replicas, partition, wanted, request)
                partitions.append(found)
            except KafkaError as error:
                code = _code_for_client(error.code, context.api_version)
                partitions.append(schema.ListOffsetsPartitionResponse(wanted.partition_index, code))
        topics.append(schema.ListOffsetsTopicResponse(topic.name, partitions))
    return schema.ListOffsetsResponse(topics=topics)


def _is_known(timestamp: int, isolation_level: int, version: int) -> bool:
    """Returns whether the version has the special timestamp, if it is one, and the isolation level exists."""
    is_timestamp_known = timestamp >= EARLIEST_PENDING_UPLOAD and version >= _FIRST_VERSION_OF.get(timestamp, 0)
    return is_timestamp_known and isolation_level in (READ_UNCOMMITTED, READ_COMMITTED)


def _code_for_client(code: ErrorCode, version: int) -> ErrorCode:
    """Returns the error that makes clients of that version retry."""
    is_unknown = code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE if is_unknown else code


def _look_up(
    replicas: ReplicaManager,
    partition: Partition,
    wanted: schema.ListOffsetsPartition,
    request: schema.ListOffsetsRequest,
) -> Task[schema.ListOffsetsPartitionResponse]:
    partition.ensure_leader_epoch(wanted.current_leader_epoch)
    if request.replica_id != _DEBUGGING_CONSUMER:
        partition.ensure_leading()
    is_for_consumer = request.replica_id == _CONSUMER
    log = partition.log
    end_offset = partition.end_offset(request.isolation_level, is_for_replica=not is_for_consumer)
    response = schema.ListOffsetsPartitionResponse(wanted.partition_index)
    match wanted.timestamp:
        case -1:
            if is_for_consumer:
                partition.ensure_end_is_known()
            response.offset = end_offset
            response.leader_epoch = log.leader_epochs.latest_epoch
            if not partition.state.has_leader:
                replicas.ensure_flushed(partition)
                response.leader_epoch = log.leader_epochs.epoch_of(end_offset - 1)  # an epoch may have no record
        case -2 | -4:
            response.offset = log.log_start_offset
            response.leader_epoch = log.leader_epochs.epoch_of(log.log_start_offset)
        case -5 | -6:
            pass  # nothing is tiered
        case timestamp:
            is_of_newest = timestamp == MAX_TIMESTAMP
            steps = log.find_max_timestamp() if is_of_newest else log.find_offset_by_timestamp(timestamp)
            found = yield from replicas.read_in_steps(partition, steps)
            if found is not None and found.offset < end_offset:
                response.timestamp, response.offset, response.leader_epoch = found
            elif found is not None and is_for_consumer:
                partition.ensure_end_is_known()
            yield Yield.GIVE_WAY
    return response


@serves(schema.OFFSET_FOR_LEADER_EPOCH, CLUSTER_ACTION, DESCRIBE_TOPIC)
def offset_for_leader_epoch(
    services: Services, request: schema.OffsetForLeaderEpochRequest, context: RequestContext
) -> schema.OffsetForLeaderEpochResponse:
    is_broker = context.may(CLUSTER_ACTION, is_asked=False)
    topics = []
    for topic in request.topics:
        if is_broker or context.may(DESCRIBE_TOPIC, topic.topic):
            found = [_find_epoch_end(services, topic.topic, asked) for asked in topic.partitions]
        else:
            found = [schema.EpochEndOffset(DESCRIBE_TOPIC.refusal, asked.partition) for asked in topic.partitions]
        topics.append(schema.OffsetForLeaderTopicResult(topic.topic, found))
    return schema.OffsetForLeaderEpochResponse(topics=topics)


def _find_epoch_end(services: Services, topic: str, asked: schema.OffsetForLeaderPartition) -> schema.EpochEndOffset:
    """Finds the end offset; epoch and offset are -1 if the epoch is too early or too late to be known."""
    try:
        partition = services.replicas.find(topic, asked.partition)
        partition.ensure_leader_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        return schema.EpochEndOffset(error.code, asked.partition)
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_of(asked.leader_epoch, log.log_end_offset)
    return schema.EpochEndOffset(0, asked.partition, epoch, end_offset)
