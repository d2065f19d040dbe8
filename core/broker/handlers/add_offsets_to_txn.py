"""AddOffsetsToTxn: a transaction will write offsets of a group, to the partition of __consumer_offsets that has it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from core.broker.delayed_flush import DelayedFlush, when_flushed
from core.broker.request_context import RequestContext
from core.broker.transaction_guard import code_for_client
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from core.records.record_batch import ProducerIdAndEpoch

if TYPE_CHECKING:
    from core.broker.broker import Broker

_log = logging.getLogger("plog.transactions")

_FIRST_VERSION_WITH_PRODUCER_FENCED = 2


def handle(
    broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | DelayedFlush:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        broker.group_log.ensure_topic()
        offsets = broker.group_log.partition(request.group_id).log.partition
        broker.transactions.add_partitions(request.transactional_id, producer, frozenset([offsets]), 0)
    except KafkaError as error:
        knows_fenced = context.api_version >= _FIRST_VERSION_WITH_PRODUCER_FENCED
        return AddOffsetsToTxnResponse(error_code=code_for_client(error.code, knows_fenced=knows_fenced))
    except OSError as error:
        _log.error("__consumer_offsets could not be made: %s", error)
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = AddOffsetsToTxnResponse()
    waiting = broker.transaction_log.unflushed(request.transactional_id, partial(_refuse, answer))
    waited: AddOffsetsToTxnResponse | DelayedFlush = when_flushed(broker, answer, waiting)
    return waited


def _refuse(answer: AddOffsetsToTxnResponse, _code: ErrorCode) -> None:
    answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
