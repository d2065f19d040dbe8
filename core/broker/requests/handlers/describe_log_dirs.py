"""DescribeLogDirs: the data directory, the logs in it, and how full its disk is."""

from __future__ import annotations

import shutil

from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from core.security.acl import DESCRIBE_THE_CLUSTER


@serves(DESCRIBE_LOG_DIRS, DESCRIBE_THE_CLUSTER, is_whole=True)
def handle(services: Services, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    served, unloaded = services.replicas.partitions, services.log_manager.unloaded
    if request.topics is None:
        wanted = [*served, *unloaded]
    else:
        asked = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
        wanted = [partition for partition in asked if services.replicas.holds(partition)]
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in sorted(wanted):
        size = served[partition].log.size_bytes if partition in served else unloaded[partition].size_bytes
        topics.setdefault(partition.topic, []).append(DescribeLogDirsPartition(partition.partition, size))
    result = DescribeLogDirsResult(log_dir=str(services.node.directory.absolute()))
    try:
        usage = shutil.disk_usage(services.node.directory)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.topics = [DescribeLogDirsTopic(*found) for found in topics.items()]
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    return DescribeLogDirsResponse(results=[result])
