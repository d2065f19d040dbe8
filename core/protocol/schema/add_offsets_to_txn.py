"""AddOffsetsToTxn (API 25): a transaction will commit offsets of a group (KIP-98)."""

from __future__ import annotations

from core.protocol.message import Api, int16, int32, int64, message, string


@message(api_key=25, valid="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(api_key=25, valid="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()


ADD_OFFSETS_TO_TXN = Api(25, "AddOffsetsToTxn", AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
