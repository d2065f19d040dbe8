"""TLS under a loop, as others have met it: each of the first tests is somebody's bug, named beside it."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from ssl import TLSVersion as V
from typing import Any

import pytest

from core.broker.serving import tls_transport
from core.broker.serving.tls_transport import TlsError, TlsTransport
from tests.support.certificates import make_ca, sign
from tests.support.tls_peer import TlsPeer, bend, contexts, records_of, without_certificate

BUFFER = memoryview(bytearray(300_000))


class Pair:
    """Both ends, in this thread."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.ours = ours
        self.transport = TlsTransport(ours, server, memoryview(bytearray(300_000)))
        self.peer = TlsPeer(theirs, client)

    def send(self, data: bytes) -> None:
        self.peer.sock.sendall(data)

    def shake_hands(self) -> Pair:
        while not self.transport.is_ready:
            self.send(self.peer.shake())
            with pytest.raises(BlockingIOError):
                self.transport.recv_into(BUFFER)
            while self.transport.needs_step:
                self.transport.shake_hands()
        assert self.peer.read() == b""  # the tickets
        return self

    def read(self, most: int = 0) -> bytes:
        """What the broker reads until it would wait for the loop."""
        found, has_more = b"", True
        while has_more:
            try:
                found += BUFFER[: self.transport.recv_into(BUFFER, most)]
            except BlockingIOError:
                has_more = self.transport.has_plaintext
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return contexts(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pair(both: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[Pair]:
    pair = Pair(*both)
    yield pair
    pair.ours.close()
    pair.peer.sock.close()


def test_data_beyond_a_small_buffer_is_told(pair: Pair) -> None:
    """mongoose 47, eggdrop 1501: 511 bytes were read of a record, and the selector knew nothing of the rest."""
    pair.shake_hands()
    pair.send(pair.peer.seal(bytes(600)))
    assert pair.transport.recv_into(BUFFER, 511) == 511
    assert pair.transport.has_plaintext
    assert pair.transport.recv_into(BUFFER, 511) == 89
    assert not pair.transport.has_plaintext


def test_the_next_record_is_told_too(pair: Pair) -> None:
    """curl 17596: SSL_pending knows of the record that is being read, and not of the one behind it."""
    pair.shake_hands()
    pair.send(pair.peer.seal(bytes(100), bytes(100), bytes(100)))
    assert pair.transport.recv_into(BUFFER, 100) == 100
    assert pair.transport.has_plaintext
    assert pair.transport.recv_into(BUFFER, 100) == 100
    assert pair.transport.has_plaintext
    assert pair.transport.recv_into(BUFFER, 100) == 100
    assert not pair.transport.has_plaintext


def test_a_part_of_a_record_is_nothing_to_read(pair: Pair) -> None:
    """curl 17601: SSL_has_pending is true of half a record, too, and the loop ran hot."""
    pair.shake_hands()
    record = pair.peer.seal(b"whole")
    for byte in record[:-1]:
        pair.send(bytes([byte]))
        with pytest.raises(BlockingIOError):
            pair.transport.recv_into(BUFFER)
        assert not pair.transport.has_plaintext
    pair.send(record[-1:])
    assert pair.read() == b"whole"


def test_data_before_the_end_is_read_first(pair: Pair) -> None:
    """twisted 5118, envoy 11619: close_notify came together with data, which was lost; and in TLS 1.3 the other
    direction stays open."""
    pair.shake_hands()
    pair.send(pair.peer.seal(b"last words") + pair.peer.end())
    assert pair.transport.recv_into(BUFFER) == 10
    assert pair.transport.has_plaintext, "else nobody reads the end: the selector may say nothing"
    assert pair.transport.recv_into(BUFFER) == 0
    assert pair.transport.recv_into(BUFFER) == 0, "as often as it is asked"
    assert pair.transport.send(b"answer") == 6
    assert pair.peer.read() == b"answer"


def test_we_say_that_we_close(pair: Pair) -> None:
    """twisted 5118: the side that began to close got no close_notify, and took the end for a cut."""
    pair.shake_hands()
    pair.send(pair.peer.end())
    assert pair.transport.recv_into(BUFFER) == 0
    pair.transport.close()
    assert pair.peer.read() == b""
    assert pair.peer.has_ended


def test_who_goes_before_the_handshake_is_gone(pair: Pair) -> None:
    """python/asyncio 472: it waited for ever. aiohttp 3052: it was logged as an error."""
    pair.send(pair.peer.shake()[:3])
    with pytest.raises(BlockingIOError):
        pair.transport.recv_into(BUFFER)
    pair.peer.sock.close()
    assert pair.transport.recv_into(BUFFER) == 0
    assert not pair.transport.needs_step


def test_half_a_hello_costs_its_bytes(pair: Pair) -> None:
    """tornado 2785, uvloop 565: handshakes that never end took the memory."""
    hello = pair.peer.shake()
    for part in (hello[:3], hello[3:-1]):
        pair.send(part)
        with pytest.raises(BlockingIOError):
            pair.transport.recv_into(BUFFER)
        assert not pair.transport.has_plaintext, "else the loop runs hot"
    assert not pair.transport.needs_step
    assert pair.transport.held_bytes == len(hello) - 1
    assert pair.transport._tls is None


@pytest.mark.parametrize("size", [1, 16384, 16385, 500_000])
def test_what_the_peer_does_not_take_waits_once(pair: Pair, size: int) -> None:
    """valkey 1737, toaststunt 36: after a partial write OpenSSL wants the same bytes again."""
    pair.shake_hands()
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    data = Random(size).randbytes(size)
    sent, came = 0, b""
    while sent < size:
        try:
            sent += pair.transport.send(data[sent:])
        except BlockingIOError:
            assert pair.transport.has_unsent
            assert pair.transport.held_bytes < 2 * tls_transport.PIECE_BYTES
            came += pair.peer.read()
    while pair.transport.has_unsent:
        came += pair.peer.read()
        try:
            pair.transport.flush()
        except BlockingIOError:
            continue
    assert came + pair.peer.read() == data


def test_new_keys_now_and_then(pair: Pair) -> None:
    """openssl 8068: more than 32 in the life of a connection are no attack."""
    pair.shake_hands()
    for _ in range(20):
        pair.send(pair.peer.seal(b"x") + pair.peer.new_keys(5))
        assert pair.read() == b"x"
    assert pair.transport.send(b"answer") == 6
    assert pair.peer.read() == b"answer"


@pytest.mark.parametrize(
    ("data", "asks", "message"),
    [
        (b"", True, "a peer that asks for new keys again and again"),
        (b"x", True, "a peer that asks for new keys again and again"),
        (b"", False, "bytes of TLS records without data"),
    ],
)
def test_new_keys_without_end(pair: Pair, data: bytes, asks: bool, message: str) -> None:
    """tls13-spec 1341, openssl 32501: OpenSSL 3 makes new keys as often as it is asked, and answers each time."""
    pair.shake_hands()
    flood = b"".join(pair.peer.new_keys(1, asks=asks) + (pair.peer.seal(data) if data else b"") for _ in range(1500))

    def receive() -> None:
        for start in range(0, len(flood), 10_000):
            pair.send(flood[start : start + 10_000])
            pair.read()

    with pytest.raises(TlsError, match=message):
        receive()
    assert pair.transport.held_bytes < 80_000


def test_answers_of_openssl_that_nobody_reads(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_transport, "PIECE_BYTES", 1000)
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    pair.shake_hands()

    def flood() -> None:
        for _ in range(1000):
            pair.send(pair.peer.new_keys(1) + pair.peer.seal(b"x"))
            assert pair.read() == b"x"

    with pytest.raises(ConnectionError):
        flood()
    assert len(pair.transport._unsent) < 3000


def test_one_receive_is_worth_a_turn(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """cpython 88202: a peer kept the loop busy with what is cheap to send."""
    pair.shake_hands()
    pair.send(pair.peer.seal(*[b"x"] * 1000))
    with monkeypatch.context() as hurry:
        hurry.setattr(tls_transport, "TURN_SECONDS", 0)
        count = pair.transport.recv_into(BUFFER)
        assert count == tls_transport._FIRST_BYTES // len(pair.peer.seal(b"x"))
        assert pair.transport.has_plaintext
    assert pair.read() == b"x" * (1000 - count)


@pytest.mark.parametrize("version", [V.TLSv1_2, V.TLSv1_3])
def test_the_socket_wakes_for_all_that_is_missing(tmp_path: Path, version: V) -> None:
    """And never for more: whatever came of a record counts."""
    server, client = contexts(tmp_path, maximum_version=version)
    pair = Pair(server, client).shake_hands()
    dice = Random(1)
    for _ in range(50):
        pieces = [dice.randbytes(dice.choice((1, 10, 1000, 16384))) for _ in range(dice.randrange(1, 20))]
        wire, size, came = pair.peer.seal(*pieces), sum(map(len, pieces)), 0
        while wire:
            first, wire = wire[: (cut := dice.randrange(1, len(wire) + 1))], wire[cut:]
            pair.send(first)
            came += len(pair.read())
            pair.transport.expect(size - came)
            assert pair.transport._low_water <= max(len(wire), 1)
        assert came == size
    assert pair.transport._low_water == 1


def claimed(size_bytes: int) -> bytes:
    """The start of a ClientHello that says to have so many bytes."""
    return b"\x16\x03\x01\x00\x09\x01" + size_bytes.to_bytes(3) + b"\x03\x03xyz"


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP at a port that speaks TLS"),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", "HTTP at a port that speaks TLS"),
        (b"\0\0\0\x20\0\x12\0\x03\0\0\0\1", "a request without TLS at a port that speaks TLS"),
        (b"\0", "a request without TLS at a port that speaks TLS"),
        (b"\x80\x2e\x01\x03\x01", "bytes that are no TLS (802e010301) at a port that speaks TLS"),
        (b"\x17\x03\x03\0\1x", "bytes that are no TLS (170303000178) at a port that speaks TLS"),
        (
            claimed(100_000),
            "TLS that begins with 010186a0, expected a ClientHello of at most 16384 bytes in its first record",
        ),
        (
            b"\x16\x03\x01\0\1\1",
            "TLS that begins with 01, expected a ClientHello of at most 16384 bytes in its first record",
        ),
        (
            b"\x16\x03\x01\0\0",
            "TLS that begins with , expected a ClientHello of at most 16384 bytes in its first record",
        ),
        (b"\x16\x03\x01\xff\xff\1\0\0\0", "no TLS connection: packet length too long"),
    ],
)
def test_other_things_than_tls_are_named(pair: Pair, start: bytes, message: str) -> None:
    def begin() -> None:
        with pytest.raises(BlockingIOError):
            pair.transport.recv_into(BUFFER)
        pair.transport.shake_hands()

    pair.send(start)
    with pytest.raises(TlsError, match=f"^{re.escape(message)}$"):
        begin()


def hello(groups: Sequence[int], shares: Sequence[int]) -> bytes:
    """A ClientHello of TLS 1.3 by hand (RFC 8446, 4.1.2), whose keys are any bytes."""

    def sized(data: bytes, width: int = 2) -> bytes:
        return len(data).to_bytes(width) + data

    extensions = {
        10: sized(b"".join(group.to_bytes(2) for group in groups)),
        13: sized(b"\x04\x03\x08\x04"),
        43: sized(b"\x03\x04", 1),
        51: sized(b"".join(group.to_bytes(2) + sized(b"\x55" * SIZES[group]) for group in shares)),
    }
    body = b"\x03\x03" + bytes(32) + sized(bytes(32), 1) + sized(b"\x13\x01") + sized(b"\0", 1)
    body += sized(b"".join(kind.to_bytes(2) + sized(data) for kind, data in extensions.items()))
    return b"\x16\x03\x01" + sized(b"\1" + sized(body, 3))


P_256, X25519, FFDHE_2048, FFDHE_8192, BRAINPOOL, GREASE = 23, 29, 256, 260, 26, 0x2A2A
SIZES = {X25519: 32, FFDHE_2048: 256, FFDHE_8192: 1024, GREASE: 1}


@pytest.mark.parametrize(
    ("groups", "shares", "is_refused"),
    [
        ([FFDHE_8192], [FFDHE_8192], True),
        ([FFDHE_8192], [], True),
        ([GREASE, BRAINPOOL, FFDHE_8192], [GREASE], True),  # none of the curves that OpenSSL would ask for
        ([X25519, P_256, FFDHE_2048], [FFDHE_2048, X25519], True),
        ([FFDHE_8192, GREASE, P_256], [], False),  # OpenSSL asks for a key of P-256, and takes no other
        ([X25519, P_256, FFDHE_2048, FFDHE_8192], [X25519], False),  # Java's, and OpenSSL's
        ([X25519], [X25519], False),
    ],
)
def test_keys_without_curves_are_refused(
    pair: Pair, groups: Sequence[int], shares: Sequence[int], *, is_refused: bool
) -> None:
    """D(HE)at, CVE-2002-20001: 1.2 KB of anybody, and the broker calculates for 150 ms."""
    pair.send(hello(groups, shares))
    with pytest.raises(BlockingIOError):
        pair.transport.recv_into(BUFFER)
    with pytest.raises(TlsError, match="without curves") if is_refused else contextlib.nullcontext():
        pair.transport.shake_hands()
    if not is_refused:
        answer = pair.peer.sock.recv(1 << 16)
        assert answer[5] == 2, "a ServerHello"
        assert shares or answer.endswith(b"\0\x33\0\2\0\x17" + b"\x14\x03\x03\0\1\1")


def test_a_hello_is_in_one_record(pair: Pair) -> None:
    """So that nothing in it goes unseen."""
    whole = hello([FFDHE_8192], [FFDHE_8192])[5:]
    parts = whole[:100], whole[100:]
    pair.send(b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts))
    with pytest.raises(BlockingIOError):
        pair.transport.recv_into(BUFFER)
    with pytest.raises(TlsError, match="in its first record"):
        pair.transport.shake_hands()


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_of_a_hello_are_read(seed: int) -> None:
    dice = Random(seed)
    data = bytearray(hello([X25519, FFDHE_8192], [X25519])[9:])
    for _ in range(dice.randrange(1, 9)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    tls_transport._groups_of(bytes(data[: dice.randrange(len(data) + 1)]))


@pytest.mark.parametrize(
    ("ours", "theirs", "message", "alert"),
    [
        (
            {"minimum_version": V.TLSv1_3},
            {"maximum_version": V.TLSv1_2},
            "it speaks no version of TLS that is enabled",
            "PROTOCOL_VERSION",
        ),
        (
            {"verify_mode": ssl.CERT_REQUIRED},
            {},
            "it shows no certificate, and ssl.client.auth is required",
            "CERTIFICATE_REQUIRED",
        ),
    ],
)
def test_a_refusal_says_why(
    tmp_path: Path, ours: dict[str, Any], theirs: dict[str, Any], message: str, alert: str
) -> None:
    """In the log, and to the client by an alert."""
    server, client = contexts(tmp_path)
    client = without_certificate(client)
    for context, settings in ((server, ours), (client, theirs)):
        for key, value in settings.items():
            setattr(context, key, value)
    pair = Pair(server, client)
    with pytest.raises(TlsError, match=f"^no TLS connection: {message}$"):
        pair.shake_hands()
    with pytest.raises(ssl.SSLError, match=alert):
        pair.peer.read()


@pytest.mark.parametrize("version", [V.TLSv1_2, V.TLSv1_3])
@pytest.mark.parametrize(("size_bytes", "is_refused"), [(30_000, False), (42_000, True)])
def test_a_chain_of_certificates_has_a_limit(tmp_path: Path, version: V, size_bytes: int, *, is_refused: bool) -> None:
    """OpenSSL keeps the chains of clients of TLS 1.2 that are gone: 72 KB each, and the broker grew by 3 GB."""
    ca = make_ca()
    server, client = (ssl.SSLContext(protocol) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    for name, context in (("server", server), ("client", client)):
        certificate, key = sign(ca, name).write(tmp_path, name)
        if name == "client":
            more = ca.pem * (size_bytes // len(ssl.PEM_cert_to_DER_cert(ca.pem)))
            Path(certificate).write_text(Path(certificate).read_text() + more)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=ca.pem)
        context.maximum_version = version
    server.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(TlsError, match="more than 40960 bytes") if is_refused else contextlib.nullcontext():
        Pair(server, client).shake_hands()


def test_a_flipped_bit_ends_what_was_sound(pair: Pair) -> None:
    """Data before it is handled; after it nothing is believed, and the peer hears of it."""
    pair.shake_hands()
    pair.send(pair.peer.seal(b"sound"))
    bent = bytearray(pair.peer.seal(b"bent"))
    bent[-1] ^= 1
    pair.send(bytes(bent))
    assert pair.transport.recv_into(BUFFER) == 5
    assert pair.transport.has_plaintext
    with pytest.raises(TlsError, match="broken TLS: decryption failed or bad record mac"):
        pair.transport.recv_into(BUFFER)
    with pytest.raises(TlsError):
        pair.transport.recv_into(BUFFER)
    with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
        pair.peer.read()


@pytest.mark.parametrize("version", [V.TLSv1_2, V.TLSv1_3])
def test_any_pieces_arrive_whole(tmp_path: Path, version: V) -> None:
    """Any sizes of data, of what the network brings at once, and of the broker's buffers."""
    dice = Random(version)
    server, client = contexts(tmp_path, maximum_version=version)
    pair = Pair(server, client).shake_hands()
    data = b"".join(dice.randbytes(dice.choice((1, 5, 300, 16384, 16385, 40_000))) for _ in range(60))
    wire, position = bytearray(), 0
    while position < len(data):
        size = dice.choice((1, 2, 100, 16384, 16384))
        wire += pair.peer.seal(data[position : position + size])
        position += size
    came = bytearray()
    while len(came) < len(data):
        size = dice.choice((1, 4, 5, 6, 1000, 16_406, 60_000, 300_000))
        with contextlib.suppress(BlockingIOError):
            del wire[: pair.peer.sock.send(wire[:size])]
        try:
            came += BUFFER[: pair.transport.recv_into(BUFFER, dice.choice((1, 20, 16_384, 60_000, 0, 0)))]
        except BlockingIOError:
            assert not pair.transport.has_plaintext
    assert came == data


def test_bent_records(both: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Before, in and after the handshake: each ends in data that was sent, or is refused as TLS; the longer tier has
    more of them (test_hostile_records.py).
    """
    dice = Random(1)
    for _ in range(60):
        pair = Pair(*both)
        stage = dice.randrange(3)
        flights = [pair.peer.shake]
        if stage == 2:
            pair.shake_hands()
            flights = [lambda peer=pair.peer: peer.seal(*(b"data" * n for n in range(1, 8)))]
        elif stage == 1:
            pair.send(pair.peer.shake())
            with pytest.raises(BlockingIOError):
                pair.transport.recv_into(BUFFER)
            pair.transport.shake_hands()
        pair.send(bend(records_of(flights[0]()), dice))
        pair.peer.sock.shutdown(socket.SHUT_WR)
        came = b""
        with contextlib.suppress(TlsError, ConnectionError):
            for _ in range(100):
                try:
                    count = pair.transport.recv_into(BUFFER)
                except BlockingIOError:
                    if pair.transport.needs_step:
                        pair.transport.shake_hands()
                    continue
                came += BUFFER[:count]
                if not count:
                    break
            else:
                pytest.fail("no end")
        assert set(came) <= set(b"data")
        pair.transport.close()
        pair.peer.sock.close()
