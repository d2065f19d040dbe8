"""Frames: an int32 size, then a header, then a request or response of that many bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from core.common.errors import MalformedMessageError
from core.protocol.api import Api
from core.protocol.message_codec import codec
from core.protocol.primitives import Piece
from core.protocol.schema.header import RequestHeader, ResponseHeader

Req = TypeVar("Req")
Res = TypeVar("Res")

SIZE = struct.Struct(">i")
_KEY_VERSION_CORRELATION = struct.Struct(">hhi")


class RequestStart(NamedTuple):
    """The first eight bytes of every request, whatever its header's version."""

    api_key: int
    api_version: int
    correlation_id: int


def read_request_start(frame: memoryview) -> RequestStart:
    """From a frame without its size; MalformedMessageError where it is shorter than that."""
    if len(frame) < _KEY_VERSION_CORRELATION.size:
        raise MalformedMessageError(f"a request of {len(frame)} bytes has no room for its header")
    return RequestStart(*_KEY_VERSION_CORRELATION.unpack_from(frame))


def decode_request(api: Api[Req, Any], version: int, frame: memoryview) -> tuple[RequestHeader, Req]:
    """Header and request of a frame without its size; MalformedMessageError where they do not decode."""
    header, position = codec(RequestHeader, api.request_header_version(version)).decode(frame)
    request, end = codec(api.request, version).decode(frame, position)
    if end != len(frame):
        raise MalformedMessageError(f"{len(frame) - end} bytes follow a {api.name} request version {version}")
    return header, request


def encode_request(api: Api[Req, Any], version: int, correlation_id: int, client_id: str | None, request: Req) -> bytes:
    """A whole frame, size included."""
    header = RequestHeader(api.key, version, correlation_id, client_id)
    body = codec(RequestHeader, api.request_header_version(version)).encode(header)
    body += codec(api.request, version).encode(request)
    return SIZE.pack(len(body)) + body


def decode_response(api: Api[Any, Res], version: int, frame: memoryview) -> tuple[int, Res]:
    """Correlation id and response of a frame without its size."""
    header, position = codec(ResponseHeader, api.response_header_version(version)).decode(frame)
    response, _ = codec(api.response, version).decode(frame, position)
    return header.correlation_id, response


def encode_response(api: Api[Any, Res], version: int, correlation_id: int, response: Res) -> list[Piece]:
    """A whole frame, size included, as bytes with file regions between them where the response holds some."""
    pieces: list[Piece] = []
    header = ResponseHeader(correlation_id)
    codec(ResponseHeader, api.response_header_version(version)).encode_into(header, pieces.append)
    codec(api.response, version).encode_into(response, pieces.append)
    size = SIZE.pack(sum(map(len, pieces)))
    return _join_bytes([size, *pieces])


def _join_bytes(pieces: Iterable[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    run: list[bytes | bytearray | memoryview] = []
    for piece in pieces:
        if isinstance(piece, bytes | bytearray | memoryview):
            run.append(piece)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined
