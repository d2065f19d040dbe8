"""InitProducerId (API 22): a producer id and epoch for idempotent and transactional producers."""

from __future__ import annotations

from core.protocol.message import Api, int16, int32, int64, message, string


@message(api_key=22, valid="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", -1)
    producer_epoch: int = int16("3+", -1)


@message(api_key=22, valid="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64("0+", -1)
    producer_epoch: int = int16()


INIT_PRODUCER_ID = Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse)
