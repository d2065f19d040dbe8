"""DescribeLogDirs: the data directory, what lies in it, and how full its disk is."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from core.broker.request_context import RequestContext
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from core.broker.broker import Broker


def handle(broker: Broker, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    served, unloaded = broker.replicas.partitions, broker.log_manager.unloaded
    if request.topics is None:
        wanted = [*served, *unloaded]
    else:
        asked = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
        wanted = [partition for partition in asked if broker.replicas.leads(partition)]
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in sorted(wanted):
        size = served[partition].log.size_bytes if partition in served else unloaded[partition].size_bytes
        topics.setdefault(partition.topic, []).append(DescribeLogDirsPartition(partition.partition, size))
    result = DescribeLogDirsResult(log_dir=str(broker.directory.absolute()))
    try:
        usage = shutil.disk_usage(broker.directory)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.topics = [DescribeLogDirsTopic(*found) for found in topics.items()]
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    return DescribeLogDirsResponse(results=[result])
