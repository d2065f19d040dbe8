"""Finds the protocol of a port that does not answer as a broker would, and advice about an address without a broker.

A broker with TLS closes a connection that begins without it, some servers wait for the end of a line that does not
come, and a broker that is stopped says nothing at all. So other protocols are tried on the port, on connections of
their own.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from core.common.errors import ConnectionFailedError
from core.protocol.frame import SIZE, encode_request
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest

_PROBE_SECONDS = 2.0
_START_BYTES = 16
_CORRELATION_ID = 0x706C6F67


class Speech(StrEnum):
    TLS = "TLS"
    HTTP = "HTTP"
    KAFKA = "Kafka's protocol without TLS"


_HINTS = {
    Speech.TLS: "--command-config FILE with security.protocol=SSL or SASL_SSL; plog help security",
    Speech.HTTP: "is that the port of a broker?",
    Speech.KAFKA: "--command-config FILE with security.protocol=PLAINTEXT or SASL_PLAINTEXT; plog help security",
}


def connect_hint(host: str, error: OSError | str) -> str:
    """Returns advice about an address that could not be reached."""
    if isinstance(error, socket.gaierror):
        known = "names of containers and pods are known in their own network only"
        return f"{known}; from elsewhere: --resolve {host}=HOST:PORT"
    hint = "is a broker listening there? (plog serve)"
    is_loopback = host in ("localhost", "127.0.0.1", "::1")
    if is_loopback and isinstance(error, ConnectionRefusedError) and Path("/.dockerenv").exists():
        hint += "; inside a container, localhost is the container: name the broker's, or host.docker.internal"
    return hint


def speaks(where: str, speech: Speech) -> ConnectionFailedError:
    """Returns the error about a port with another protocol than Kafka's."""
    return ConnectionFailedError(f"could not connect to {where}: it speaks {speech}", where=where, hint=_HINTS[speech])


def recognize(start: bytes) -> Speech | None:
    """Returns the protocol that the first bytes of an answer belong to, or None if they may be Kafka's."""
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        return Speech.TLS
    return Speech.HTTP if start[:4] in (b"HTTP", b"<htm", b"<!DO") else None


def find_speech(address: tuple[str, int], *, has_tls: bool, timeout_s: float | None) -> Speech | None:
    """Returns a protocol that the port speaks, other than ours, or None if we recognize none. It takes four seconds at
    most, or twice the timeout of an answer.
    """
    seconds = _PROBE_SECONDS if timeout_s is None else min(timeout_s, _PROBE_SECONDS)
    asked: list[tuple[bytes, Callable[[bytes], bool]]] = [
        (_kafka_request(), _is_kafka) if has_tls else (_client_hello(), lambda start: recognize(start) is Speech.TLS),
        (b"GET / HTTP/1.0\r\n\r\n", lambda start: recognize(start) is Speech.HTTP),
    ]
    for request, is_understood in asked:
        start = _ask(address, request, seconds)
        if is_understood(start):
            return recognize(start) or Speech.KAFKA
    return None


def _ask(address: tuple[str, int], request: bytes, seconds: float) -> bytes:
    """Returns the first bytes of the answer; fewer, or b"", if the answer is shorter."""
    start = b""
    deadline_s = time.monotonic() + seconds
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=seconds) as plain:
        plain.sendall(request)
        while len(start) < _START_BYTES and (left_s := deadline_s - time.monotonic()) > 0:
            plain.settimeout(left_s)
            more = plain.recv(_START_BYTES - len(start))
            if not more:
                break
            start += more
    return start


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said to it but this
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def _kafka_request() -> bytes:
    return bytes(encode_request(API_VERSIONS, 0, _CORRELATION_ID, "plog", ApiVersionsRequest("plog", "1")))


def _is_kafka(start: bytes) -> bool:
    return start[SIZE.size : SIZE.size + 4] == _CORRELATION_ID.to_bytes(4, "big")
