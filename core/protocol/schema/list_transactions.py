"""ListTransactions (API 66): which transactional ids there are (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from core.protocol.message import Api, Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message, api_key=66, valid="0-2", flexible="0+"):
    state_filters: list[str] = array("string")
    producer_id_filters: list[int] = array("int64")
    duration_filter: int = int64("1+", -1)
    transactional_id_pattern: str | None = string("2+", None, nullable="2+")


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api_key=66, valid="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array("string")
    transaction_states: list[TransactionState] = array(TransactionState)


LIST_TRANSACTIONS = Api(ListTransactionsRequest, ListTransactionsResponse)
