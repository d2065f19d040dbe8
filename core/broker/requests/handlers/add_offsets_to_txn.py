"""AddOffsetsToTxn: adds a group's partition of __consumer_offsets to a transaction."""

from __future__ import annotations

import logging
from functools import partial

from core.broker.coordinators.transaction_guard import code_for_client
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.protocol.schema.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from core.records.record_batch import ProducerIdAndEpoch

_log = logging.getLogger("plog.transactions")

_FIRST_VERSION_WITH_PRODUCER_FENCED = 2  # KIP-588


def handle(
    services: Services, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Pending[AddOffsetsToTxnResponse]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        services.group_log.ensure_topic()
        offsets = services.group_log.name_of(request.group_id)
        services.transactions.add_partitions(request.transactional_id, producer, frozenset([offsets]), 0)
    except KafkaError as error:
        knows_fenced = context.api_version >= _FIRST_VERSION_WITH_PRODUCER_FENCED
        return AddOffsetsToTxnResponse(error_code=code_for_client(error.code, knows_fenced=knows_fenced))
    except OSError as error:
        _log.error("__consumer_offsets could not be created: %s", error)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = AddOffsetsToTxnResponse()
    return services.transaction_log.when_committed(request.transactional_id, answer, partial(_refuse, answer))


def _refuse(answer: AddOffsetsToTxnResponse, _code: ErrorCode) -> None:
    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


SERVES = ServedApi(ADD_OFFSETS_TO_TXN, handle)
