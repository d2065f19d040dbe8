"""TLS and SASL of a client's connections, and what is said when they fail, against a door before a plog broker."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.client.net import connect_notice
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import Connector, KafkaClient
from core.client.read.consumer import Consumer
from core.common.error_code import ErrorCode
from core.common.errors import AuthenticationError, ConnectionFailedError, KafkaError, PlogError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.metadata import METADATA, MetadataRequest
from core.security.client_settings import parse_client_settings
from core.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism
from core.security.sasl.server_steps import Done, PlainServer, ScramServer
from plog.testing import RunningBroker
from tests.support.certificates import Certificate, make_ca, sign
from tests.support.for_each import for_each
from tests.support.refusals import refused
from tests.support.sasl_servers import Bearer, OAuthBearerServer, credential_of
from tests.support.secured_door import Door, MakeSteps, secured_door, server_context
from tests.support.waiting import ANSWER_SECONDS

PASSWORD = "marked-password"
TOKEN = "marked.token.x"


def scram(mechanism: ScramMechanism) -> MakeSteps:
    credential = credential_of(mechanism, PASSWORD, b"0123456789abcdef", 4096)
    return lambda: ScramServer(
        mechanism,
        lambda name, is_token: credential if (name, is_token) in {("alice", False), ("token", True)} else None,
        secret=b"s",
    )


MECHANISMS: dict[str, MakeSteps] = {
    "PLAIN": lambda: PlainServer(lambda name, password: (name, password) == ("alice", PASSWORD)),
    "SCRAM-SHA-256": scram(SCRAM_SHA_256),
    "SCRAM-SHA-512": scram(SCRAM_SHA_512),
    "OAUTHBEARER": lambda: OAuthBearerServer(lambda token: Bearer("alice", 0) if token == TOKEN else None),
}


@dataclass
class Authority:
    """A CA, and files of what it signed."""

    ca: Certificate
    folder: Path

    @property
    def ca_path(self) -> str:
        path = self.folder / "ca.pem"
        path.write_text(self.ca.pem)
        return str(path)

    def server(
        self,
        *,
        names: tuple[str, ...] = ("localhost", "127.0.0.1"),
        days: tuple[int, int] = (-1, 30),
        wants_client: bool = False,
    ) -> ssl.SSLContext:
        paths = sign(self.ca, names=names, days=days).write(self.folder, "server")
        return server_context(*map(str, paths), ca=self.ca_path if wants_client else None)

    @property
    def trusted(self) -> dict[str, str]:
        """Settings of a client that trusts this CA."""
        return {"security.protocol": "SSL", "ssl.ca.location": self.ca_path}

    def client(self) -> dict[str, str]:
        certificate, key = sign(self.ca, "alice").write(self.folder, "alice")
        return {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(make_ca(), tmp_path_factory.mktemp("authority"))


def connector(settings: Mapping[str, str], *, timeout_s: float = 60.0) -> Connector:
    return Connector(parse_client_settings(settings).security, timeout_s=timeout_s)


def sasl(mechanism: str, protocol: str = "SASL_PLAINTEXT", **more: str) -> dict[str, str]:
    settings = {"security.protocol": protocol, "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.token"] = TOKEN
    else:
        settings |= {"sasl.username": "alice", "sasl.password": PASSWORD}
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def topics(door: Door, settings: Mapping[str, str]) -> list[str]:
    client = KafkaClient([("127.0.0.1", door.port)], connector=connector(settings))
    with contextlib.closing(client):
        return list(client.refresh())


def failure(
    door_port: int, settings: Mapping[str, str], *, host: str = "127.0.0.1", timeout_s: float = 60.0
) -> PlogError:
    with pytest.raises(PlogError) as raised:
        connector(settings, timeout_s=timeout_s)(host, door_port).close()
    told = f"{raised.value.message} {raised.value.hint}"
    assert "marked" not in told
    return raised.value


# --- what works


@for_each("mechanism", MECHANISMS)
@for_each("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_every_mechanism(mechanism: str, protocol: str, authority: Authority) -> None:
    context = authority.server() if protocol == "SASL_SSL" else None
    settings = sasl(mechanism, protocol) | ({"ssl.ca.location": authority.ca_path} if context else {})
    with secured_door(MECHANISMS, context) as door:
        assert topics(door, settings) == []
        assert door.names == ["alice"]


def test_a_delegation_token() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="token" password="{PASSWORD}" tokenauth="true";'
    )
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    with secured_door(MECHANISMS) as door:
        topics(door, settings)
        assert door.names == ["token"]


@for_each("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_with_a_certificate_of_ours(version: str, authority: Authority) -> None:
    settings = authority.trusted | {"ssl.enabled.protocols": version} | authority.client()
    with secured_door(context=authority.server(wants_client=True)) as door:
        assert topics(door, settings) == []


@for_each("mechanism, requests", [("PLAIN", 3), ("SCRAM-SHA-512", 4), ("OAUTHBEARER", 3)])
def test_connecting_takes_no_more_requests_than_the_protocol_needs(mechanism: str, requests: int) -> None:
    """ApiVersions, SaslHandshake, and a SaslAuthenticate for each message of the mechanism's."""
    with secured_door(MECHANISMS) as door:
        connector(sasl(mechanism))("127.0.0.1", door.port).close()
        assert door.requests == [18, 17, 36, 36][:requests]


def test_what_is_not_checked_is_passed_over(authority: Authority) -> None:
    """The name alone, with a broker of another one; and all of a certificate that has expired, too."""
    unnamed = authority.trusted | {"ssl.endpoint.identification.algorithm": ""}
    unchecked = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
    for settings, days in ((unnamed, (-1, 30)), (unchecked, (-30, -1))):
        with secured_door(context=authority.server(names=("kafka.example",), days=days)) as door:
            assert topics(door, settings) == []


def test_a_broker_of_tests_may_be_secured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's report shows its fixtures, and no secret with them."""
    with secured_door(MECHANISMS) as door:
        settings = sasl("SCRAM-SHA-512") | {"acks": "all"}
        broker = RunningBroker(door.address, door.broker.data_dir, settings)
        broker.create_topic("t", partitions=3)
        assert topics(door, sasl("PLAIN")) == ["t"]
        assert settings["sasl.password"] not in repr(broker)
        monkeypatch.setenv("PASSWORD_OF_ALICE", settings["sasl.password"])
        settings["sasl.password"] = "${env:PASSWORD_OF_ALICE}"
        RunningBroker(door.address, door.broker.data_dir, settings).create_topic("u")
        assert topics(door, sasl("PLAIN")) == ["t", "u"]


# --- authenticating again


def make_due(connection: ClientConnection) -> None:
    """Its session is renewed with the next request."""
    assert connection._authenticator is not None
    connection._authenticator._due_s = 0.0


@pytest.mark.parametrize("renewals", [2, pytest.param(5, marks=pytest.mark.longer)])
def test_a_session_is_renewed_on_the_same_connection(renewals: int) -> None:
    with secured_door(MECHANISMS, lifetime_s=1000) as door:
        connection = connector(sasl("SCRAM-SHA-256"))("127.0.0.1", door.port)
        for _ in range(renewals):
            make_due(connection)
            connection.send(METADATA, MetadataRequest([]))
            connection.send(METADATA, MetadataRequest([]))
            assert connection.receive().brokers
            assert connection.receive().brokers
        connection.close()
        assert door.wrongs == []
        assert door.connections == 1
        assert door.names == ["alice"] * (renewals + 1)


def test_the_answers_under_way_come_first_and_in_order() -> None:
    with secured_door(MECHANISMS, lifetime_s=1000) as door:
        connection = connector(sasl("PLAIN"))("127.0.0.1", door.port)
        connection.send(METADATA, MetadataRequest([]))
        connection.send(METADATA, MetadataRequest(None))
        make_due(connection)
        connection.send(METADATA, MetadataRequest([]))
        assert len(door.names) == 2
        for _ in range(3):
            assert connection.receive().brokers
        assert door.wrongs == []
        connection.close()


def test_a_login_that_is_refused_the_second_time() -> None:
    right = [True]
    mechanisms = {"PLAIN": lambda: PlainServer(lambda *_: right[0])}
    with secured_door(mechanisms, lifetime_s=1000) as door:
        connection = connector(sasl("PLAIN"))("127.0.0.1", door.port)
        right[0] = False
        make_due(connection)
        with refused(ErrorCode.SASL_AUTHENTICATION_FAILED):
            connection.call(METADATA, MetadataRequest([]))
        connection.close()


def test_clients_of_a_client_are_secured_as_it_is() -> None:
    with secured_door(MECHANISMS) as door:
        client = KafkaClient([("127.0.0.1", door.port)], connector=connector(sasl("PLAIN")))
        other = client.another(timeout_s=5)
        assert list(other.refresh()) == []
        door.broker.create_topic("t")
        assert Consumer(client.another()) is not None
        assert client.leader_of(TopicPartition("t", 0)) >= 0
        assert client.connection_to(client.leader_of(TopicPartition("t", 0)))
        assert door.names == ["alice"] * 4
        other.close()
        client.close()


# --- what does not, in words


@for_each("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(mechanism: str) -> None:
    with secured_door(MECHANISMS) as door:
        error = failure(door.port, sasl(mechanism, sasl_password="marked-wrong"))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert error.message.startswith(f"{mechanism} for 'alice': Authentication failed")
    assert error.hint == "are the user, the password and the mechanism right?"


def test_a_mechanism_that_is_not_offered() -> None:
    with secured_door({"SCRAM-SHA-512": MECHANISMS["SCRAM-SHA-512"]}) as door:
        error = failure(door.port, sasl("PLAIN"))
    assert error.message == "the broker does not take PLAIN on this listener; it takes SCRAM-SHA-512"
    assert error.hint == "sasl.mechanism=SCRAM-SHA-512"


def test_a_token_that_is_refused() -> None:
    """{"exp": 1000000000, "sub": "alice"}"""
    token = "e30.eyJleHAiOiAxMDAwMDAwMDAwLCAic3ViIjogImFsaWNlIn0.c2ln"
    with secured_door(MECHANISMS) as door:
        error = failure(door.port, sasl("OAUTHBEARER", sasl_oauthbearer_token=token))
    assert error.message == 'OAUTHBEARER: {"status":"invalid_token"}'
    assert error.hint is not None
    assert error.hint.startswith("the token: of alice, expires 2001-09-09 01:46:40 UTC; the clock here says ")


def test_sasl_at_a_listener_without() -> None:
    with secured_door() as door:
        error = failure(door.port, sasl("PLAIN"))
    assert error.message == "the listener does not authenticate"


def test_a_server_that_does_not_know_the_password() -> None:
    """It takes any proof, and can't sign."""
    credential = credential_of(SCRAM_SHA_256, "something else", b"0123456789abcdef", 4096)

    class Liar(ScramServer):
        def _end(self, client_final: str, begun: object) -> object:  # type: ignore[override]
            return Done("alice", b"v=" + b"A" * 43 + b"=")

    with secured_door({"SCRAM-SHA-256": lambda: Liar(SCRAM_SHA_256, lambda *_: credential, secret=b"")}) as door:
        error = failure(door.port, sasl("SCRAM-SHA-256"))
    assert isinstance(error, AuthenticationError)
    assert "signature is wrong" in error.message


def test_plaintext_at_a_port_with_sasl() -> None:
    with secured_door(MECHANISMS) as door:
        client = KafkaClient([("127.0.0.1", door.port)], connector=connector({}))
        with pytest.raises(ConnectionFailedError) as raised:
            client.refresh()
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("a listener with SASL closes connections like this: --command-config FILE")
    assert "a broker that joins a cluster" in raised.value.hint


@for_each(
    "settings, message",
    [
        ({"names": ("kafka.example", "10.0.0.1")}, "it is not for 127.0.0.1, but for kafka.example, 10.0.0.1"),
        ({"days": (-30, -1)}, "it expired at 20"),
        ({"days": (1, 30)}, "it is not good before 20"),
    ],
)
def test_a_certificate_that_is_not_good(
    settings: dict[str, tuple[str, ...]], message: str, authority: Authority
) -> None:
    with secured_door(context=authority.server(**settings)) as door:  # type: ignore[arg-type]
        error = failure(door.port, authority.trusted)
    assert isinstance(error, AuthenticationError)
    assert error.message.startswith(f"the certificate of {error.where} is not good: {message}")
    if "days" in settings:
        assert "UTC, and the clock here says 20" in error.message


def test_a_ca_that_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(make_ca("other").pem)
    with secured_door(context=authority.server()) as door:
        error = failure(door.port, {"security.protocol": "SSL", "ssl.ca.location": str(other)})
    assert error.message.endswith("it is of a CA that is not trusted, plog test CA")
    assert error.hint == "ssl.truststore.location or ssl.ca.location: the file with the CA's certificate"


@for_each("version", ["TLSv1.2", "TLSv1.3"])
@for_each("shows", ["nothing", "another CA's"])
def test_no_certificate_where_one_is_wanted(version: str, shows: str, authority: Authority, tmp_path: Path) -> None:
    settings = authority.trusted | {"ssl.enabled.protocols": version}
    if shows != "nothing":
        folder = tmp_path / "other"
        folder.mkdir()
        settings |= Authority(make_ca("other"), folder).client()
    with secured_door(context=authority.server(wants_client=True)) as door:
        error = failure(door.port, settings)
    if isinstance(error, ConnectionFailedError):  # its alert was lost, because we had sent more
        assert (
            error.hint
            == "a listener that wants the client's certificate, or has no TLS, may close connections like this"
        )
    else:
        what = "wants a certificate of the client's" if shows == "nothing" else "refuses our certificate"
        assert what in error.message


# --- ports that are something else


@contextlib.contextmanager
def port_that(does: Callable[[socket.socket], None]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                does(connection)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def answers(data: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(data)

    return answer


http = answers(b"HTTP/1.1 400 Bad Request\r\n\r\n")
old_http = answers(b"<!DOCTYPE HTML>\n<html>")  # as Python's own server answers to what is no line of HTTP's
closing = answers(b"")
claiming = answers((1 << 29).to_bytes(4, "big"))


def ssh(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    connection.recv(1 << 16)


def silent(connection: socket.socket) -> None:
    connection.settimeout(ANSWER_SECONDS)
    while connection.recv(1 << 16):
        pass


TLS = {"security.protocol": "SSL"}


@for_each(
    "does, settings, message, hint",
    [
        (http, TLS, "it speaks HTTP", "is that the port of a broker?"),
        (old_http, TLS, "it speaks HTTP", "is that the port of a broker?"),
        (old_http, {}, "it speaks HTTP", "is that the port of a broker?"),
        (http, {}, "it speaks HTTP", "is that the port of a broker?"),
        (closing, TLS, "it closed the connection when TLS began", "it may speak plaintext"),
        (closing, {}, "it was closed", "a listener with TLS or SASL closes connections like this"),
        (ssh, TLS, "it does not speak TLS", "it may speak plaintext"),
        (ssh, {}, "it does not speak Kafka's protocol", "is that the port of a broker?"),
        (claiming, {}, "it does not speak Kafka's protocol", "is that the port of a broker?"),
    ],
)
def test_ports_of_something_else(
    does: Callable[[socket.socket], None], settings: dict[str, str], message: str, hint: str
) -> None:
    with port_that(does) as port:
        error = failure(port, settings)
    assert isinstance(error, ConnectionFailedError)
    assert error.message.endswith(f"127.0.0.1:{port}: {message}")
    assert (error.hint or "").startswith(hint)


@for_each("settings, message", [(TLS, "TLS did not begin in 0.2 s"), ({}, "no answer in 0.2 s")])
def test_a_silent_port(settings: dict[str, str], message: str) -> None:
    with port_that(silent) as port:
        error = failure(port, settings, timeout_s=0.2)
    assert error.message.endswith(message)


def test_a_port_that_drips() -> None:
    def drips(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        gone = threading.Event()
        connection.sendall(b"\x16\x03\x03\x40\x00")
        while not gone.wait(0.02):
            connection.sendall(b"\0")

    with port_that(drips) as port:
        error = failure(port, TLS, timeout_s=0.2)
    assert isinstance(error, ConnectionFailedError)


def test_plaintext_at_a_port_with_tls(authority: Authority) -> None:
    with secured_door(context=authority.server()) as door:
        error = failure(door.port, {})
    assert isinstance(error, ConnectionFailedError)
    assert (error.hint or "").startswith("--command-config FILE with security.protocol=SSL") or "with TLS" in (
        error.hint or ""
    )


def test_tls_at_a_plaintext_port() -> None:
    with secured_door() as door:
        error = failure(int(door.broker_address.rpartition(":")[2]), TLS)
    assert error.message.endswith("it speaks Kafka's protocol without TLS")
    assert "security.protocol=PLAINTEXT" in (error.hint or "")


def test_a_tls_port_that_closes_without_an_alert(tmp_path: Path) -> None:
    """As Python's ssl does when a connection begins without TLS."""
    context = server_context(*map(str, sign(make_ca()).write(tmp_path, "server")))

    def tls(connection: socket.socket) -> None:
        if connection.recv(1, socket.MSG_PEEK) == b"\x16":
            context.wrap_socket(connection, server_side=True)

    with port_that(tls) as port:
        error = failure(port, {})
    assert error.message.endswith("it speaks TLS")
    assert "plog help security" in (error.hint or "")


def http_by_lines(connection: socket.socket) -> None:
    """It waits for the end of a line."""
    connection.settimeout(ANSWER_SECONDS)
    data = b""
    while b"\n" not in data:
        more = connection.recv(1 << 16)
        if not more:
            return
        data += more
    connection.sendall(b"HTTP/1.0 400 Bad request\r\n\r\n")


@pytest.mark.parametrize(
    ("does", "message"), [(silent, "no answer in 0.5 s"), (http_by_lines, "it speaks HTTP")], ids=["silent", "http"]
)
def test_who_waits_for_a_silent_port_says_so_once(
    does: Callable[[socket.socket], None],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connect_notice, "SILENCE_SECONDS", 0.01)
    with port_that(does) as port:
        connect = connector({}, timeout_s=0.5)
        with contextlib.suppress(ConnectionFailedError):
            connect("127.0.0.1", port)
        with pytest.raises(ConnectionFailedError) as raised:
            connect("127.0.0.1", port)
    assert raised.value.message.endswith(message)
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for 127.0.0.1:{port}, which accepted the connection and has not answered; is it a Kafka broker?"
    ]
