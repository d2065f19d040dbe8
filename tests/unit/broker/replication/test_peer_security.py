"""Connections to other brokers by TLS and SASL; the other one is asyncio's TLS, and frames made by hand."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.replication.peer_connection import PeerConnection, missing_right
from core.broker.replication.peer_security import PeerSecurity
from core.broker.serving.receive_buffers import ReceiveBuffers
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, UsageError
from core.protocol.schema.control_request import UPDATE_METADATA, UpdateMetadataBroker, UpdateMetadataRequest
from core.protocol.schema.controller_request import ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest
from core.security.principal import ANONYMOUS, Principal
from tests.support.certificates import Certificate, make_ca, sign
from tests.support.for_each import for_each

PASSWORD = "marked-password"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
HOUR_S = 3600.0
LARGE = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(n, rack="r" * 30_000) for n in range(100)])
"""More than a record of TLS, and than the buffers of both ends hold."""

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Files(NamedTuple):
    folder: Path
    ca: Certificate

    def write(self, certificate: Certificate, name: str) -> Path:
        path = self.folder / f"{name}.pem"
        path.write_text(certificate.key_pem() + certificate.pem)
        return path

    def context(self, certificate: Certificate, *, wants_certificate: bool = False) -> ssl.SSLContext:
        """Of the other broker."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.write(certificate, "other"))
        if wants_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.folder / "ca.pem")
        return context

    def config(self, protocol: str, **others: str) -> BrokerConfig:
        settings = {
            "listeners": "INTERNAL://127.0.0.1:9093",
            "listener.security.protocol.map": f"INTERNAL:{protocol}",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.internal.plain.sasl.jaas.config": f'{PLAIN_LOGIN} required username="broker" '
            f'password="{PASSWORD}" user_broker="{PASSWORD}";',
            "listener.name.internal.ssl.truststore.location": str(self.folder / "ca.pem"),
            "listener.name.internal.ssl.keystore.location": str(self.folder / "own.pem"),
            "listener.name.internal.ssl.client.auth": "required",
            **{name.replace("_", "."): value for name, value in others.items()},
        }
        return BrokerConfig.parse({name: value for name, value in settings.items() if value})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("stores")
    ca = make_ca()
    (folder / "ca.pem").write_text(ca.pem)
    found = Files(folder, ca)
    found.write(sign(ca, "broker-1", organisation=("plog",)), "own")
    return found


class Other:
    """Answers each request: of SASL as PLAIN's server, any other with what AllocateProducerIds answers."""

    def __init__(self, lifetimes_ms: tuple[int, ...] = (), password: str = PASSWORD) -> None:
        self.keys: list[int] = []
        self.shown: list[bytes | None] = []
        self.password = password
        self._lifetimes_ms = list(lifetimes_ms)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        self.shown.append(tls and tls.getpeercert(binary_form=True))
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(size)
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            self.keys.append(key)
            body = self._answer(key, frame)
            writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
            await writer.drain()

    def _answer(self, key: int, frame: bytes) -> bytes:
        if key == 17:
            is_known = b"PLAIN" in frame
            return struct.pack(">hih5s", 0 if is_known else 33, 1, 5, b"PLAIN")
        if key == 36:
            if f"\0broker\0{self.password}".encode() not in frame:
                text = b"Authentication failed: Invalid username or password"
                return struct.pack(">bhb", 0, 58, len(text) + 1) + text + struct.pack(">bqb", 1, 0, 0)
            lifetime_ms = self._lifetimes_ms.pop(0) if self._lifetimes_ms else 0
            return struct.pack(">bhbbqb", 0, 0, 0, 1, lifetime_ms, 0)
        if key == 6:
            return struct.pack(">bhb", 0, 0, 0)
        return struct.pack(">bihqib", 0, 0, 0, 7000, 1000, 0)


@asynccontextmanager
async def served(script: Script, context: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await script(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])


def security_of(config: BrokerConfig) -> PeerSecurity:
    return PeerSecurity(lambda: config)


async def connect(endpoint: Endpoint, security: PeerSecurity, connect_timeout_s: float = HOUR_S) -> PeerConnection:
    return await PeerConnection.connect(
        endpoint,
        ReceiveBuffers(),
        client_id="broker-1-fetcher-0",
        connect_timeout_s=connect_timeout_s,
        request_timeout_s=HOUR_S,
        security=security,
    )


async def ask(connection: PeerConnection) -> int:
    answer = await connection.send(ALLOCATE_PRODUCER_IDS, 0, AllocateProducerIdsRequest(1, 1))
    return answer.producer_id_start


@for_each(
    "protocol, keys, principal",
    [
        ("SSL", [67, 6, 67], Principal("User", "CN=broker-1,O=plog")),
        ("SASL_PLAINTEXT", [17, 36, 67, 6, 67], Principal("User", "broker")),
        ("SASL_SSL", [17, 36, 67, 6, 67], Principal("User", "broker")),
    ],
)
async def test_each_protocol(files: Files, protocol: str, keys: list[int], principal: Principal) -> None:
    other = Other()
    context = files.context(sign(files.ca), wants_certificate=True) if protocol.endswith("SSL") else None
    security = security_of(files.config(protocol))
    async with served(other, context) as endpoint:
        connection = await connect(endpoint, security)
        assert await ask(connection) == 7000
        large, after = (
            connection.send(UPDATE_METADATA, 8, LARGE),
            connection.send(ALLOCATE_PRODUCER_IDS, 0, AllocateProducerIdsRequest(1, 1)),
        )
        assert (await large).error_code == 0
        assert (await after).producer_id_start == 7000
        assert other.keys == keys
        assert (other.shown[0] is not None) == (context is not None)
        assert security.principal == principal
        connection.close()


def test_what_a_refused_broker_may_do(files: Files) -> None:
    """Kafka's brokers need ClusterAction, by super.users or an ACL."""
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for protocol, who, quoted in [
        ("SASL_SSL", "User:broker", "User:broker"),
        ("SSL", "User:CN=broker-1,O=plog", "'User:CN=broker-1,O=plog'"),
    ]:
        assert missing_right(refused, security_of(files.config(protocol))) == (
            f"; this broker is {who} there, who lacks a right: super.users={who} at all brokers, or plog acl add "
            f"(or kafka-acls --add) --allow-principal {quoted} --operation ClusterAction --cluster"
        )


def test_a_broker_whose_certificate_nobody_asks_for_is_anonymous(files: Files) -> None:
    config = files.config("SSL", **{"listener.name.internal.ssl.client.auth": "none"})
    assert security_of(config).principal == ANONYMOUS


# --- what goes wrong


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def close_at_once(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """As Kafka does with a ClientHello: it is a size of 369 MB."""
    await reader.readexactly(4)


async def say_alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As a port with TLS does with a request in plain."""
    await reader.readexactly(4)
    writer.write(bytes.fromhex("15030300020246"))
    await writer.drain()


async def claim_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Anybody can listen at a broker's address: it must not fill our memory."""
    await reader.readexactly(4)
    writer.write(struct.pack(">i", 600_000))
    await reader.read()


async def say_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(4)
    writer.write(b"\x00\x00\x00\x07nonsense")
    await writer.drain()


@for_each(
    "protocol, script, certificate, settings, reason",
    [
        (
            "SASL_SSL",
            Other(password="changed"),
            {},
            {},
            "PLAIN for 'broker': Authentication failed: Invalid username or password; are the user, the password and",
        ),
        (
            "SSL",
            Other(),
            {"ca": make_ca("another CA")},
            {},
            "the certificate of .* is not good: it is of a CA that is not trusted, another CA; ssl.truststore.location",
        ),
        (
            "SASL_SSL",
            Other(),
            {"days": (-10, -2)},
            {},
            "the certificate of .* is not good: it expired at .*, and the clock here says .* the cluster needs a new",
        ),
        (
            "SSL",
            Other(),
            {"names": ("kafka-2.example",)},
            {},
            "is not good: it is not for 127.0.0.1, but for kafka-2.example; .*advertised.listeners",
        ),
        (
            "SSL",
            close_at_once,
            None,
            {},
            "closed the connection when TLS began; does its listener speak plaintext.* must say the same at all broker",
        ),
        (
            "SASL_PLAINTEXT",
            say_alert,
            None,
            {},
            "it speaks TLS; listener.security.protocol.map must say the same at all brokers",
        ),
        ("SSL", say_nonsense, None, {}, "it does not speak TLS; listener.security.protocol.map"),
        ("SASL_PLAINTEXT", say_nonsense, None, {}, ""),
        ("SASL_PLAINTEXT", claim_much, None, {}, "an answer claims 600000 bytes"),
        ("SASL_SSL", hang, None, {}, "TLS did not begin in 0.05 s"),
        ("SASL_PLAINTEXT", hang, None, {}, "no answer to the login in 0.05 s"),
    ],
)
async def test_what_goes_wrong(
    files: Files,
    protocol: str,
    script: Script,
    certificate: Mapping[str, object] | None,
    settings: Mapping[str, str],
    reason: str,
) -> None:
    made = None if certificate is None else sign(**{"ca": files.ca, **certificate})
    context = None if made is None else files.context(made)
    security = security_of(files.config(protocol, **settings))
    timeout_s = 0.05 if "0.05 s" in reason else HOUR_S
    async with served(script, context) as endpoint:
        with pytest.raises(ConnectionFailedError, match=f"could not connect to {endpoint}: .*{reason}") as first:
            await connect(endpoint, security, timeout_s)
        with pytest.raises(ConnectionFailedError) as second:
            await connect(endpoint, security, timeout_s)
    assert second.value.message == first.value.message, "or the log would have it once a second"
    assert PASSWORD not in first.value.message


async def test_a_certificate_that_is_missing_is_said_with_the_first_answer(files: Files) -> None:
    """In TLS 1.3 we are done before the other one has looked for it. asyncio's TLS says no alert."""
    config = files.config("SSL", **{"listener.name.internal.ssl.keystore.location": ""})
    security = PeerSecurity(lambda: config)
    context = files.context(sign(files.ca), wants_certificate=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            with listener.accept()[0] as plain:
                while data := plain.recv(65536):
                    incoming.write(data)
                    with suppress(ssl.SSLError):
                        tls.do_handshake()
                    plain.sendall(outgoing.read())

        refusing = asyncio.ensure_future(asyncio.to_thread(refuse))
        with pytest.raises(ConnectionFailedError, match="wants a certificate of the client's, and plog has none"):
            await ask(await connect(Endpoint("127.0.0.1", listener.getsockname()[1]), security))
        await refusing


# --- the session's end, and what changes


async def test_it_logs_in_again_before_the_session_ends(files: Files) -> None:
    other = Other(lifetimes_ms=(1200, 0))
    config = files.config("SASL_PLAINTEXT")
    async with served(other) as endpoint:
        connection = await connect(endpoint, security_of(config))
        now_s = [connection._loop.time()]
        assert connection._authenticator is not None
        connection._authenticator._clock = lambda: now_s[0]
        await ask(connection)
        now_s[0] += 1.19
        assert await asyncio.gather(*(ask(connection) for _ in range(3))) == [7000] * 3
        assert other.keys == [17, 36, 67, 17, 36, 67, 67, 67]
        connection.close()


async def test_who_is_refused_later_loses_the_connection(files: Files) -> None:
    other = Other(lifetimes_ms=(1200,))
    config = files.config("SASL_PLAINTEXT")
    async with served(other) as endpoint:
        connection = await connect(endpoint, security_of(config))
        now_s = connection._loop.time() + 1.19
        assert connection._authenticator is not None
        connection._authenticator._clock = lambda: now_s
        other.password = "rotated"
        with pytest.raises(ConnectionFailedError, match="this broker could not log in again: PLAIN for 'broker'"):
            await ask(connection)
        assert connection.is_closed


async def test_files_and_settings_that_change(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    own = files.folder / "changing.pem"
    own.write_bytes((files.folder / "own.pem").read_bytes())
    changed = {"listener.name.internal.ssl.keystore.location": str(own)}
    config = [files.config("SASL_SSL", **changed)]
    security = PeerSecurity(lambda: config[0])
    other = Other()
    async with served(other, files.context(sign(files.ca), wants_certificate=True)) as endpoint:
        (await connect(endpoint, security)).close()
        second = sign(files.ca, "broker-1", organisation=("plog",))
        own.write_text(second.key_pem() + second.pem)
        (await connect(endpoint, security)).close()
        own.write_text("half of it")
        for _ in range(2):
            (await connect(endpoint, security)).close()
        first = ssl.PEM_cert_to_DER_cert(
            (files.folder / "own.pem").read_text().partition("-----END PRIVATE KEY-----\n")[2]
        )
        assert other.shown == [first, *[ssl.PEM_cert_to_DER_cert(second.pem)] * 3]
        errors = [one.message for one in caplog.records if one.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert "other brokers are connected to as before" in errors[0]
        assert str(own) in errors[0]
        other.password = "rotated"
        with pytest.raises(ConnectionFailedError, match="Invalid username or password"):
            await connect(endpoint, security)
        jaas = f'{PLAIN_LOGIN} required username="broker" password="rotated";'
        config[0] = files.config("SASL_SSL", **{"listener.name.internal.plain.sasl.jaas.config": jaas})
        (await connect(endpoint, security)).close()


@for_each(
    "settings, reason",
    [
        ({"sasl_mechanism_inter_broker_protocol": "SSL"}, "sasl.mechanism.inter.broker.protocol.*SSL, expected one of"),
        ({"sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512"}, "sasl.mechanism.inter.broker.protocol"),
        ({"listener_name_internal_plain_sasl_jaas_config": f"{PLAIN_LOGIN} required user_a=b;"}, "no username"),
        ({"listener_name_internal_plain_sasl_jaas_config": f'{PLAIN_LOGIN} required username="a'}, "is not closed"),
        ({"listener_name_internal_ssl_truststore_location": "/nowhere"}, "could not read /nowhere"),
    ],
)
def test_settings_with_which_nobody_can_be_reached(files: Files, settings: Mapping[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        PeerSecurity(lambda: files.config("SASL_SSL", **settings))
    assert PASSWORD not in str(refused.value)
