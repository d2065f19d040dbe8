"""UnregisterBroker (API 64): says that a broker is gone for good (KIP-500)."""

from __future__ import annotations

from core.protocol.message import Api, int16, int32, message, string


@message(api_key=64, valid="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = int32()


@message(api_key=64, valid="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


UNREGISTER_BROKER = Api(64, "UnregisterBroker", UnregisterBrokerRequest, UnregisterBrokerResponse)
