"""WriteTxnMarkers: ends transactions on partitions. Coordinators of other brokers send it, and administrators, for a
transaction that no coordinator knows of any more (KIP-664).
"""

from __future__ import annotations

import logging

from core.broker.request_context import RequestContext
from core.broker.served_api import Needs, ServedApi
from core.broker.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
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


def handle(services: Services, request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(number, _write(services, marker, topic.name, number))
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _write(services: Services, marker: WritableTxnMarker, topic: str, number: int) -> ErrorCode:
    try:
        services.node.ensure_writable()
        partition = services.replicas.find(topic, number)
        state = partition.log.producers.find(marker.producer_id)
        if (
            marker.transaction_version >= RAISES_EPOCH
            and state is not None
            and marker.producer_epoch <= state.producer_epoch
        ):  # where each end raises the epoch, one that does not is late (KIP-1228)
            return ErrorCode.INVALID_PRODUCER_EPOCH
        end = EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch)
        services.transaction_log.append_marker(partition, end, marker.producer_id, marker.producer_epoch)
    except KafkaError as error:
        return error.code
    _log.info(
        "transaction of producer %d is %s on %s-%d, as asked",
        marker.producer_id,
        "committed" if marker.transaction_result else "aborted",
        topic,
        number,
    )
    return ErrorCode.NONE


SERVES = ServedApi(WRITE_TXN_MARKERS, handle, Needs.NOTHING)
