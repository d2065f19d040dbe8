"""A client of SASL by raw frames, coded by Kafka's own message definitions and not by plog, and a broker for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import Listener
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.common.clock import Clock
from tests.support.answers.message_codec import Fields, api_keys, decode_response, encode_request
from tests.support.broker import SteeredNode, joined

_SIZE = struct.Struct(">i")
CLIENT_ID = "lab"


class ClosedError(Exception):
    """The broker closed the connection."""


class RawClient:
    """Sends what it is told to, right or wrong. An answer that does not come raises ClosedError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, port: int) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        self._writer.close()

    @property
    def is_closed(self) -> bool:
        return self._reader.at_eof()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(_SIZE.pack(len(frame)) + frame)

    async def frame(self) -> bytes:
        try:
            size = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))[0]
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ClosedError from error

    def request(self, api: str, version: int, fields: Fields) -> bytes:
        """The frame of a request, without its size."""
        self._correlation_id += 1
        return encode_request(api, version, self._correlation_id, CLIENT_ID, fields)

    async def ask(self, api: str, version: int, fields: Fields) -> Fields:
        self.send_frame(self.request(api, version, fields))
        frame = await self.frame()
        assert frame[:4] == _SIZE.pack(self._correlation_id)
        return decode_response(api, version, frame)

    async def shake_hands(self, mechanism: str = "PLAIN", version: int = 1) -> Fields:
        return await self.ask("SaslHandshake", version, {"Mechanism": mechanism})

    async def authenticate(self, token: bytes, version: int = 2) -> Fields:
        return await self.ask("SaslAuthenticate", version, {"AuthBytes": token})

    async def log_in(self, name: str, password: str, version: int = 2) -> Fields:
        """By PLAIN."""
        answer = await self.shake_hands()
        return answer if answer["ErrorCode"] else await self.authenticate(f"\0{name}\0{password}".encode(), version)

    async def scram(
        self, user: str, password: str, mech: str = "SCRAM-SHA-256", ext: str = "", version: int = 2, bad: str = ""
    ) -> Fields:
        """Logs in by SCRAM, with `ext` after the nonce, and `bad` spoiled: `nonce`, `binding` or `proof`."""
        answer = await self.shake_hands(mech)
        if answer["ErrorCode"]:
            return answer
        digest = mech.removeprefix("SCRAM-").replace("-", "").lower()

        def keyed(key: bytes, data: bytes) -> bytes:
            return hmac.new(key, data, digest).digest()

        bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=fyko+d2lbbFgONRv9qkxdawL{ext}"
        answer = await self.authenticate(f"n,,{bare}".encode(), version)
        if answer["ErrorCode"]:
            return answer
        first = bytes.fromhex(answer["AuthBytes"]).decode()
        said = dict(part.split("=", 1) for part in first.split(","))
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(said["s"]), int(said["i"]))
        client_key = keyed(salted, b"Client Key")
        nonce = said["r"] + ("x" if bad == "nonce" else "")
        without_proof = f"c={'eSws' if bad == 'binding' else 'biws'},r={nonce}"
        message = f"{bare},{first},{without_proof}".encode()
        signature = keyed(hashlib.new(digest, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        proof = bytes(len(proof)) if bad == "proof" else proof
        last = await self.authenticate(f"{without_proof},p={base64.b64encode(proof).decode()}".encode(), version)
        if not last["ErrorCode"]:
            proven = base64.b64encode(keyed(keyed(salted, b"Server Key"), message)).decode()
            assert bytes.fromhex(last["AuthBytes"]).decode() == f"v={proven}"
        return {**last, "_server_first": first}


def raw_request(key: int, version: int, body: bytes) -> bytes:
    """A request with a header of version 1, by hand."""
    return struct.pack(">hhih", key, version, 7, len(CLIENT_ID)) + CLIENT_ID.encode() + body


def keys_of(api: str) -> int:
    return api_keys()[api]


def upsertion(name: str, password: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"") -> Any:
    """The fields of AlterUserScramCredentials that set a password."""
    salt = salt or hashlib.sha256(name.encode()).digest()[:20]
    digest = {1: "sha256", 2: "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return {
        "Name": name, "Mechanism": mechanism, "Iterations": iterations, "Salt": salt, "SaltedPassword": salted,
    }  # fmt: skip


USERS = ("admin", "alice", "bob", "carol")
"""The users of PLAIN, whose passwords are their names and `-secret`, as in the captures."""
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{name}-secret"' for name in USERS
)
SETTINGS = {
    "listener.name.saslp.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.saslp.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.reauth.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.reauth.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.reauth.plain.connections.max.reauth.ms": "3000",
}
"""Those of the captured broker, as far as they are about SASL."""
SAM = (
    upsertion("sam", "pw1"),
    upsertion("sam", "pw1", 2, 8192),
    upsertion("a,b=c", "x"),
    upsertion("zoë", "pässwörd"),
)
"""The captured users of SCRAM."""


def set_users(broker: SteeredNode, *upsertions: Any) -> None:
    """Sets credentials of SCRAM, one in a request."""
    for one in upsertions:
        _alter(broker, {"Deletions": [], "Upsertions": [one]})


def delete_user(broker: SteeredNode, name: str, mechanism: int = 1) -> None:
    _alter(broker, {"Deletions": [{"Name": name, "Mechanism": mechanism}], "Upsertions": []})


def _alter(broker: SteeredNode, fields: Fields) -> None:
    frame = encode_request("AlterUserScramCredentials", 0, 1, None, fields)
    pieces = broker.dispatcher.handle(memoryview(bytearray(frame)))
    answer = decode_response("AlterUserScramCredentials", 0, joined(pieces)[4:])
    assert [one["ErrorCode"] for one in answer["Results"]] == [0]


class SaslServer(NamedTuple):
    """A broker with two listeners at which clients log in: SASLP, and REAUTH, whose sessions last for 3 s."""

    broker: SteeredNode
    server: SocketServer

    @property
    def port(self) -> int:
        return self.server.endpoints["SASLP"].port

    @property
    def reauth_port(self) -> int:
        return self.server.endpoints["REAUTH"].port


@asynccontextmanager
async def sasl_server(
    directory: Path, clock: Clock | None = None, *, delays: bool = False, **settings: str
) -> AsyncIterator[SaslServer]:
    """With `delays`, failures are answered as late as by Kafka, else at once."""
    loop = asyncio.get_running_loop()
    given = {name.replace("_", "."): value for name, value in settings.items()}
    broker = SteeredNode(directory, BrokerConfig.parse({**SETTINGS, **given}), clock=clock)
    listeners = [Listener(name, "SASL_PLAINTEXT", "127.0.0.1:0") for name in ("SASLP", "REAUTH")]
    server = SocketServer(broker, broker.runtime.follow(LoopRuntime(loop, directory)), listeners)
    if not delays:
        broker.runtime.use(schedule=lambda _, function: loop.call_soon(function))
    await server.start()
    running = asyncio.create_task(server.run())
    try:
        yield SaslServer(broker, server)
    finally:
        server.stop()
        await running
        broker.close()
