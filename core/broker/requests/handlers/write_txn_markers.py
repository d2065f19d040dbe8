"""WriteTxnMarkers: ends transactions on partitions. Coordinators of other brokers send it, and administrators, for a
transaction that no coordinator knows any longer (KIP-664).

The answer waits until the markers are committed: after it, a coordinator considers the transaction ended, and does not
write the marker again.
"""

from __future__ import annotations

import logging
from functools import partial

from core.broker.requests.commit_wait import Uncommitted, error_of_uncommitted, find_uncommitted, when_committed
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.coordinator.transaction_state import RAISES_EPOCH
from core.protocol.schema.write_txn_markers import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from core.records.control_record import EndTransactionMarker

_log = logging.getLogger("plog.transactions")


def handle(
    services: Services, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
    answer = WriteTxnMarkersResponse()
    waiting: list[Uncommitted] = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            results = []
            for number in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(number)
                results.append(result)
                waiting += _write(services, marker, topic.name, result)
            topics.append(WritableTxnMarkerTopicResult(topic.name, results))
        answer.markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
    return when_committed(services.replicas, waiting, answer)


def _write(
    services: Services, marker: WritableTxnMarker, topic: str, result: WritableTxnMarkerPartitionResult
) -> list[Uncommitted]:
    """Writes the marker to one partition; returns its uncommitted records. An error goes into the result."""
    number = result.partition_index
    try:
        services.node.ensure_writable()
        partition = services.replicas.find(topic, number)
        if marker.transaction_version < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"transaction.version {marker.transaction_version}")
        if marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"a marker of epoch {marker.producer_epoch}")
        state = partition.log.producers.find(marker.producer_id)
        if (
            marker.transaction_version >= RAISES_EPOCH
            and state is not None
            and marker.producer_epoch <= state.producer_epoch
        ):  # each end raises the epoch, so this marker is late (KIP-1228)
            result.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return find_uncommitted(partition, partial(_refuse, result))  # it may not be committed yet
        end = EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch)
        services.transaction_log.append_marker(partition, end, marker.producer_id, marker.producer_epoch)
    except KafkaError as error:
        result.error_code = error.code
        return []
    _log.log(
        logging.INFO if services.membership is None else logging.DEBUG,  # in a cluster, coordinators do it all the time
        "transaction of producer %d is %s on %s-%d, as asked",
        marker.producer_id,
        "committed" if marker.transaction_result else "aborted",
        topic,
        number,
    )
    return find_uncommitted(partition, partial(_refuse, result))


def _refuse(result: WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
    result.error_code = error_of_uncommitted(code)


SERVES = ServedApi(WRITE_TXN_MARKERS, handle)
