"""UnregisterController (API 94): says that a controller is gone for good (KIP-1312)."""

from __future__ import annotations

from core.protocol.message import Api, int16, int32, message, string


@message(api_key=94, valid="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: int = int32()


@message(api_key=94, valid="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


UNREGISTER_CONTROLLER = Api(94, "UnregisterController", UnregisterControllerRequest, UnregisterControllerResponse)
