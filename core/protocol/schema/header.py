"""Headers that go before every request and response: versions 1 and 2, 0 and 1 (2 and 1 are flexible)."""

from __future__ import annotations

from core.protocol.message import Message, int16, int32, string


class RequestHeader(Message, valid="1-2", flexible="2+"):
    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string("1+", nullable="1+", never_flexible=True, is_lenient=True)


class ResponseHeader(Message, valid="0-1", flexible="1+"):
    correlation_id: int = int32()
