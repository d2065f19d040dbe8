"""EndTxn (API 26): commits or aborts a transaction; from version 5 with the next one's epoch (KIP-98, KIP-890)."""

from __future__ import annotations

from core.protocol.message import Api, boolean, int16, int32, int64, message, string


@message(api_key=26, valid="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(api_key=26, valid="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", -1, ignorable=True)
    producer_epoch: int = int16("5+", -1, ignorable=True)


END_TXN = Api(26, "EndTxn", EndTxnRequest, EndTxnResponse)
