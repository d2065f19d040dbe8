"""Frames: an int32 size, then a header, then a request or response of that many bytes."""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar

from core.common.errors import MalformedMessageError
from core.protocol.message import Api
from core.protocol.message_codec import MessageCodec, codec
from core.protocol.primitives import Piece, Spans
from core.protocol.schema.header import RequestHeader, ResponseHeader

Req = TypeVar("Req")
Res = TypeVar("Res")

SIZE = struct.Struct(">i")
_KEY_VERSION_CORRELATION = struct.Struct(">hhi")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_BYTES_LIKE = (bytes, bytearray, memoryview)


def read_request_start(frame: memoryview) -> tuple[int, int, int]:
    """Reads API key, version and correlation id: what every request starts with, whatever its header's version.

    From a frame without its size; raises MalformedMessageError if it is shorter than that.
    """
    if len(frame) < _KEY_VERSION_CORRELATION.size:
        raise MalformedMessageError(f"a request of {len(frame)} bytes has no room for its header")
    return _KEY_VERSION_CORRELATION.unpack_from(frame)


def encode_request(
    api: Api[Req, Any], version: int, correlation_id: int, client_id: str | None, request: Req
) -> bytearray:
    """Writes a whole frame, size included; each byte is copied once."""
    pieces: list[Any] = [b"", _header_end(api, version, client_id)]  # bytes-like, or Spans
    _request_codecs(api, version)[1].encode_into(request, pieces.append)
    size = _KEY_VERSION_CORRELATION.size + sum(map(len, pieces))
    pieces[0] = SIZE.pack(size) + _KEY_VERSION_CORRELATION.pack(api.key, version, correlation_id)
    try:
        return bytearray().join(pieces)
    except TypeError:  # spans are no bytes
        return bytearray().join(
            part for piece in pieces for part in (piece.parts if type(piece) is Spans else (piece,))
        )


def decode_response(api: Api[Any, Res], version: int, frame: memoryview) -> tuple[int, Res]:
    """Reads the correlation id and response of a frame without its size."""
    header_codec, response_codec = _response_codecs(api, version)
    header, position = header_codec.decode(frame)
    response, _ = response_codec.decode(frame, position)
    return header.correlation_id, response


@lru_cache(maxsize=1000)
def _header_end(api: Api[Any, Any], version: int, client_id: str | None) -> bytes:
    """Writes what follows the correlation id in the header of all requests of that API and that client."""
    header_codec, _ = _request_codecs(api, version)
    return header_codec.encode(RequestHeader(api.key, version, 0, client_id))[_KEY_VERSION_CORRELATION.size :]


@cache
def _request_codecs(api: Api[Any, Any], version: int) -> tuple[MessageCodec[RequestHeader], MessageCodec[Any]]:
    return codec(RequestHeader, api.request_header_version(version)), codec(api.request, version)


@cache
def _response_codecs(api: Api[Any, Any], version: int) -> tuple[MessageCodec[ResponseHeader], MessageCodec[Any]]:
    return codec(ResponseHeader, api.response_header_version(version)), codec(api.response, version)


class Endpoint(Generic[Req, Res]):
    """One version of an API as its server sees it: requests in, responses out; immutable, made once per version."""

    def __init__(self, api: Api[Req, Res], version: int) -> None:
        self._header, self._request = _request_codecs(api, version)
        self._response = codec(api.response, version)
        self._flexible_header = b"\0" if api.response_header_version(version) == 1 else b""

    def decode_request(self, frame: memoryview) -> tuple[RequestHeader, Req]:
        """Reads the header and request of a frame without its size; raises MalformedMessageError if they do not decode.

        Ignores bytes after the request, as Kafka does: librdkafka's Metadata request for all topics has three bytes too
        many.
        """
        header, position = self._header.decode(frame)
        request, _ = self._request.decode(frame, position)
        return header, request

    def encode_response(self, correlation_id: int, response: Res) -> list[Piece]:
        """Writes a whole frame, size included, as bytes with file regions between them if the response holds some."""
        pieces: list[Piece] = [b"", self._flexible_header]  # the header's tagged fields: none
        self._response.encode_into(response, pieces.append)
        size = sum(map(len, pieces))
        pieces[0] = _SIZE_AND_CORRELATION.pack(size + 4, correlation_id)
        try:
            return [b"".join(pieces)]  # type: ignore[arg-type]  # a file region is no bytes: TypeError
        except TypeError:
            return _join_bytes(pieces)


def _join_bytes(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    run: list[bytes | bytearray | memoryview] = []
    for piece in pieces:
        if isinstance(piece, _BYTES_LIKE):
            run.append(piece)
            continue
        joined += (b"".join(run), piece)
        run = []
    joined.append(b"".join(run))
    return joined
