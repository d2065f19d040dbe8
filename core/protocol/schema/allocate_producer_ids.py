"""AllocateProducerIds (API 67): a broker asks the controller for a block of producer ids (KIP-730).

Between brokers.
"""

from __future__ import annotations

from core.protocol.message import Api, int16, int32, int64, message


@message(api_key=67, valid="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64("0+", -1)


@message(api_key=67, valid="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


ALLOCATE_PRODUCER_IDS = Api(67, "AllocateProducerIds", AllocateProducerIdsRequest, AllocateProducerIdsResponse)
