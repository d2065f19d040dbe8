"""A client of TLS whose records a test holds in its hands before they are sent."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from core.broker.serving.door import Door
from core.broker.serving.listener_endpoints import Listener
from core.broker.serving.socket_server import ServedListener, SocketServer
from core.security.client_security import Tls
from core.security.server_security import ListenerSecurity, ServerTls
from tests.support.certificates import make_ca, sign


@cache
def contexts(folder: Path, **settings: Any) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(the server's, the client's), who trust each other; `settings` are attributes of both."""
    ca = make_ca()
    found = []
    for name, protocol in (("server", ssl.PROTOCOL_TLS_SERVER), ("client", ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(protocol)
        context.load_cert_chain(*sign(ca, name).write(folder, name))
        context.load_verify_locations(cadata=ca.pem)
        for key, value in settings.items():
            setattr(context, key, value)
        found.append(context)
    return found[0], found[1]


@contextmanager
def doors_with(context: ssl.SSLContext) -> Iterator[None]:
    """Servers that start meanwhile have TLS at each of their listeners, whatever is configured."""
    security = ListenerSecurity(ServerTls(Tls()))

    def serve(_: SocketServer, listener: Listener) -> ServedListener:
        return ServedListener(Door(listener.name, security, context))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SocketServer, "_serve", serve)
        yield


def without_certificate(client: ssl.SSLContext) -> ssl.SSLContext:
    """The context of a client that trusts the same, and shows nothing."""
    return ssl.create_default_context(cadata=ssl.DER_cert_to_PEM_cert(client.get_ca_certs(binary_form=True)[0]))


def shaken(
    client: ssl.SSLContext,
    server: ssl.SSLContext,
    session: ssl.SSLSession | None = None,
    name: str | None = "localhost",
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends, in memory, after a handshake and a byte of the server's; ssl.SSLError where either refuses."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(a, b, server_hostname=name, session=session), server.wrap_bio(b, a, server_side=True)
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    ends[1].write(b"x")
    ends[0].read(1)
    return ends


class TlsPeer:
    """`sock` does not block."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.has_ended = False
        """Whether close_notify came."""

    def shake(self) -> bytes:
        """One step of the handshake: what there is to send now."""
        self.receive()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def seal(self, *pieces: bytes) -> bytes:
        """A record of each."""
        for piece in pieces:
            self.tls.write(piece)
        return self.outgoing.read()

    def new_keys(self, count: int, *, asks: bool = True) -> bytes:
        """KeyUpdates (RFC 8446, 4.6.3), which ask for the other side's new keys, too."""
        library = _openssl()
        for _ in range(count):
            address = ctypes.cast(id(self.tls._sslobj) + 24, ctypes.POINTER(ctypes.c_void_p))[0]  # type: ignore[attr-defined]
            assert library.SSL_key_update(ctypes.c_void_p(address), int(asks)) == 1
            self.tls.do_handshake()
        return self.outgoing.read()

    def end(self) -> bytes:
        """close_notify."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self.sock.recv(1 << 16):
                self.incoming.write(data)
            self.incoming.write_eof()

    def read(self) -> bytes:
        """All data that came. Raises ssl.SSLError for an alert, and for an end without close_notify."""
        self.receive()
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            try:
                while data := self.tls.read(1 << 16):
                    found += data
            except ssl.SSLZeroReturnError:
                pass
            self.has_ended = True
        return found


@cache
def _openssl() -> ctypes.CDLL:
    """The library that Python itself uses."""
    maps = Path("/proc/self/maps").read_text()
    return ctypes.CDLL(next(line.split()[-1] for line in maps.splitlines() if "libssl" in line))


def records_of(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 5 + int.from_bytes(data[3:5])
        found.append(data[:end])
        data = data[end:]
    return found


def bend(records: list[bytes], dice: Random) -> bytes:
    """Records of TLS cut, flipped, in another order, twice, with others between, or none at all."""
    bent = [bytearray(record) for record in records]
    for _ in range(dice.choice((0, 1, 1, 1, 3))):
        number = dice.randrange(len(bent))
        record = bent[number]
        position = dice.randrange(len(record)) if record else 0
        match dice.randrange(9):
            case 0 if record:
                record[position] ^= 1 << dice.randrange(8)
            case 1:
                del record[position:]
            case 2:
                dice.shuffle(bent)
            case 3:
                bent.insert(dice.randrange(len(bent) + 1), bytearray(record))
            case 4:
                del bent[number]
                if not bent:
                    return dice.randbytes(dice.randrange(200))
            case 5:
                record[3:5] = dice.choice((0, 1, 22, 23, 16384, 16641, 18433, 65535)).to_bytes(2)
            case 6:
                kind = dice.choice((20, 21, 22, 23, 24, dice.randrange(256)))
                size = dice.choice((0, 1, 2, 50, 16640))
                bent.insert(
                    number, bytearray([kind, 3, dice.choice((1, 3, 3, 4)), *size.to_bytes(2), *dice.randbytes(size)])
                )
            case 7:
                record[position:position] = dice.randbytes(dice.randrange(1, 40))
            case _:
                record[:3] = bytes([dice.choice((20, 21, 22, 23)), 3, dice.randrange(5)])
    return b"".join(bent)
