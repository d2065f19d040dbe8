"""TLS at listeners: versions, suites, certificates of clients and new certificates of the listener, as in Kafka.

tests/golden/security/tls.json.gz has what Kafka answered; `../security_deviations.toml` says where plog differs, and
why. The listeners are those of the captured broker: TLS asks for no certificate, TLSREQ for one, MTLS insists on it and
maps names by `RULE:^CN=([^,]*),OU=eng.*$/$1/L,DEFAULT`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.serving.listener_endpoints import Listener
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.socket_server import SocketServer
from core.common.background import run_now
from core.protocol.schema.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.support.answers.message_codec import decode_response, encode_request
from tests.support.broker import SteeredNode, ask
from tests.support.certificates import Certificate, make_ca, sign
from tests.support.manual_clock import ManualClock
from tests.support.requests import changes_of
from tests.support.security_captures import Difference, Fields, assert_explained, capture, differences

RULES = "RULE:^CN=([^,]*),OU=eng.*$/$1/L,DEFAULT"
PASSWORD = "changeit"
_ANSWER_SECONDS = 10


class Certificates(NamedTuple):
    """Those of the captured broker and its clients."""

    ca: Certificate
    server: Certificate
    server2: Certificate
    wronghost: Certificate
    client: Certificate
    stranger: Certificate
    expired: Certificate

    @classmethod
    def make(cls) -> Certificates:
        ca = make_ca()
        return cls(
            ca,
            sign(ca, "127.0.0.1"),
            sign(ca, "127.0.0.1"),
            sign(ca, "example.org", names=("example.org",)),
            sign(ca, "alice", organisation=("plog", "eng")),
            sign(make_ca(), "mallory"),
            sign(ca, "old", days=(-9, -2)),
        )

    def serial_name(self, der: bytes) -> str:
        found = (name for name, one in self._asdict().items() if ssl.PEM_cert_to_DER_cert(one.pem) == der)
        return next(found, "another")


class Lab:
    """The captured broker's listeners with TLS, by plog, and clients of Python's ssl in threads."""

    def __init__(self, folder: Path, server: SocketServer, node: SteeredNode, certificates: Certificates) -> None:
        self.folder = folder
        self.server = server
        self.node = node
        self.certificates = certificates

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path) -> AsyncIterator[Lab]:
        certificates = Certificates.make()
        (folder / "ca.pem").write_text(certificates.ca.pem)
        for name in ("server", "server2", "wronghost", "stranger"):
            (folder / f"{name}.p12").write_bytes(getattr(certificates, name).pkcs12(PASSWORD))
        settings = {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(folder / "server.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.tlsreq.ssl.client.auth": "requested",
            "listener.name.mtls.ssl.principal.mapping.rules": RULES,
            "listener.name.saslp.plain.sasl.jaas.config": "PlainLoginModule required user_alice=alice;",
            "super.users": "User:admin",
        }
        node = SteeredNode(folder / "data", BrokerConfig.parse(settings))
        runtime = node.runtime.follow(LoopRuntime(asyncio.get_running_loop(), node.directory))
        node.runtime.use(run_in_background=run_now)
        listeners = [Listener(name, "SSL", "127.0.0.1:0") for name in ("TLS", "TLSREQ", "MTLS")]
        server = SocketServer(node, runtime, listeners)
        await server.start()
        try:
            yield cls(folder, server, node, certificates)
        finally:
            server.close()
            node.close()

    def describe(self, theirs: list[Fields]) -> list[Fields]:
        """Those of the broker's settings that Kafka answered."""
        resource = DescribeConfigsResource(4, str(self.node.services.node.node_id), [one["Name"] for one in theirs])
        (result,) = ask(self.node, DESCRIBE_CONFIGS, DescribeConfigsRequest([resource])).results
        return [
            {
                "Name": one.name,
                "Value": one.value,
                "ReadOnly": one.read_only,
                "ConfigSource": one.config_source,
                "IsSensitive": one.is_sensitive,
            }
            for one in result.configs
        ]

    async def connect(self, listener: str = "TLS", **how: Any) -> Fields:
        """What a client finds out, in the capture's words."""
        plain = socket.create_connection(("127.0.0.1", self.server.endpoints[listener].port), _ANSWER_SECONDS)
        connection, said = await asyncio.to_thread(self._shake_hands, plain, **how)
        if "ApiVersions" in said:
            said["principal"] = self._principal_of(connection.getsockname()[1])
        connection.close()
        return said

    def _principal_of(self, port: int) -> str:
        sessions = (one._session for one in self.server._connections if one._peer.endswith(f":{port}"))
        session = next(sessions)
        assert session is not None
        return session.principal.name

    def _shake_hands(
        self,
        plain: socket.socket,
        *,
        own: str | None = None,
        version: ssl.TLSVersion | None = None,
        ciphers: str | None = None,
        trusts: bool = True,
    ) -> tuple[socket.socket, Fields]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if ciphers is not None:
            context.set_ciphers(ciphers)
        context.load_verify_locations(cadata=(self.certificates if trusts else Certificates.make()).ca.pem)
        if own is not None:
            context.load_cert_chain(*getattr(self.certificates, own).write(self.folder, own))
        said: Fields = {}
        try:
            connection = context.wrap_socket(plain, server_hostname="localhost")
        except ssl.SSLError as error:
            return plain, {"error": error.reason}
        shown = connection.getpeercert(binary_form=True)
        assert shown is not None
        said = {"tls": connection.version(), "cipher": (connection.cipher() or [None])[0]}
        said["serial"] = self.certificates.serial_name(shown)
        try:
            connection.sendall(REQUEST)
            answer = connection.recv(65536)
            said["ApiVersions"] = decode_response("ApiVersions", 3, answer[4:])["ErrorCode"]
        except ssl.SSLError as error:
            said["error"] = error.reason
        return connection, said


_FRAME = encode_request("ApiVersions", 3, 1, "lab", {"ClientSoftwareName": "lab", "ClientSoftwareVersion": "1"})
REQUEST = struct.pack(">i", len(_FRAME)) + _FRAME


def comparable(theirs: Fields) -> Fields:
    """Kafka's answer as `Lab.connect` has it; the first certificate is called `server`."""
    found = {name: theirs[name] for name in ("tls", "cipher", "ApiVersions") if name in theirs}
    if "serial" in theirs:
        first = capture("tls")["tls"][0]["serial"]
        found["serial"] = "server" if theirs["serial"] == first else "server2"
    if "token" in theirs:
        found["principal"] = theirs["token"]["PrincipalName"]
    if "error" in theirs:
        found["error"] = re.search(r"SSL: (\w+)", theirs["error"])[1]  # type: ignore[index]
    return found


_CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "TLS 1.2": {"version": ssl.TLSVersion.TLSv1_2},
    "TLS 1.1": {"version": ssl.TLSVersion.TLSv1_1, "ciphers": "ALL:@SECLEVEL=0"},
    "client cert where none is asked for": {"own": "client"},
    "client does not know the CA": {"trusts": False},
    "a cipher of CBC, TLS 1.2": {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-AES128-SHA"},
    "ChaCha20": {"version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-CHACHA20-POLY1305"},
}
_OF_CLIENTS = re.compile(r"client auth (required|requested), certificate (\w+), (TLSv1_[23])")


def _how(case: str) -> dict[str, Any]:
    found = _OF_CLIENTS.fullmatch(case)
    if found is None:
        return _CASES[case]
    own = {"None": None}.get(found[2], found[2])
    version = ssl.TLSVersion[found[3]]
    return {"listener": {"required": "MTLS", "requested": "TLSREQ"}[found[1]], "own": own, "version": version}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
async def test_versions_suites_and_certificates_of_clients(tmp_path: Path) -> None:
    found: dict[str, list[Difference]] = {}
    async with Lab.open(tmp_path) as lab:
        for theirs in capture("tls")["tls"][:-2]:
            ours = await lab.connect(**_how(theirs["case"]))
            found[theirs["case"]] = differences("client", ours, comparable(theirs))
        *_, plaintext, silence = capture("tls")["tls"]
        answer = {"answer": await _answer(lab, REQUEST)}
        found[plaintext["case"]] = differences("client", answer, {"answer": plaintext["answer"]})
        assert silence["answer"] == "TimeoutError('timed out')"
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.server.endpoints["TLS"].port)
        writer.write(b"\x16\x03\x01")
        assert (await lab.connect())["ApiVersions"] == 0, "others are served meanwhile"
        assert not reader.at_eof()
        writer.close()
    assert_explained("tls", found)


async def _answer(lab: Lab, data: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", lab.server.endpoints["TLS"].port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer.hex() or str({"closed": "closed"})


async def test_new_certificates_of_the_listener(tmp_path: Path) -> None:
    found: dict[str, list[Difference]] = {}
    after = 0
    async with Lab.open(tmp_path) as lab:
        certificates = lab.certificates
        (tmp_path / "live.p12").write_bytes(certificates.server2.pkcs12(PASSWORD))
        pem = {"certificate.chain": certificates.server.pem, "key": certificates.server.key_pem()}
        for theirs in capture("tls")["reload"]:
            case = theirs["case"]
            if case == "DescribeConfigs of secrets":
                found[case] = differences(
                    "admin", {"answer": lab.describe(theirs["answer"])}, {"answer": theirs["answer"]}
                )
                continue
            if case == "file changed, nothing said":
                (tmp_path / "live.p12").write_bytes(certificates.server.pkcs12(PASSWORD))
            lab.server._housekeep()
            if "keys" not in theirs:
                after += case == "after"
                name = f"{case} {after}" if case == "after" else case
                found[name] = differences("client", await lab.connect(), comparable(theirs))
                continue
            settings = {
                key: pem[key.partition("keystore.")[2]] if value == "(PEM)" else _here(tmp_path, value)
                for key, value in theirs["keys"].items()
            }
            changes = ((key, 0, value) for key, value in settings.items())
            me = str(lab.node.services.node.node_id)
            (result,) = ask(lab.node, INCREMENTAL_ALTER_CONFIGS, changes_of(4, me, *changes)).responses
            theirs = {"ErrorCode": theirs["answer"]["ErrorCode"]}
            found[case] = differences("admin", {"ErrorCode": result.error_code}, theirs)
            assert PASSWORD not in (result.error_message or "")
    assert_explained("tls_reload", found)


def _here(folder: Path, value: str) -> str:
    return str(folder / Path(value).name) if value.startswith("/") else value


async def test_a_session_does_not_outlive_the_certificate_of_its_client(tmp_path: Path) -> None:
    """Kafka's Java keeps sessions for a day; what it does with such a client is not captured."""
    async with Lab.open(tmp_path) as lab:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=lab.certificates.ca.pem)
        context.load_cert_chain(*lab.certificates.client.write(tmp_path, "client"))
        sessions: list[ssl.SSLSession | None] = [None]

        def ask_again() -> tuple[bool, bytes]:
            plain = socket.create_connection(("127.0.0.1", lab.server.endpoints["MTLS"].port), _ANSWER_SECONDS)
            with context.wrap_socket(plain, server_hostname="localhost", session=sessions[-1]) as connection:
                is_resumed = bool(connection.session_reused)
                connection.sendall(REQUEST)
                answer = connection.recv(4)
                sessions.append(connection.session)
                with contextlib.suppress(OSError):
                    connection.unwrap()  # else OpenSSL does not keep the session
                return is_resumed, answer

        first, second = await asyncio.to_thread(ask_again), await asyncio.to_thread(ask_again)
        assert (first[0], second[0]) == (False, True)
        assert len(second[1]) == 4
        lab.node.runtime.clock = ManualClock(int(time.time() * 1000) + 40 * 86_400_000)
        assert await asyncio.to_thread(ask_again) == (True, b""), "it is closed without an answer"
