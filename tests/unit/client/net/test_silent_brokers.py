"""Brokers that take connections, or requests, and answer nothing: who is asked instead, and what the user hears."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.client.net import client_connection, connect_notice, port_probe
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import Connector, KafkaClient
from core.client.read.consumer import Consumer
from core.client.read.record_source import ReadOptions
from core.client.write.producer import Producer
from core.common.errors import ConnectionFailedError, UnansweredError
from core.common.topic_partition import TopicPartition
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.frame import Endpoint, read_request_start
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.groups import LIST_GROUPS, ListGroupsRequest
from core.protocol.schema.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.topic_changes import DELETE_TOPICS, DeleteTopicsRequest
from core.security.client_security import ClientSecurity, Tls, TrustStore
from tests.support.broker import SteeredNode
from tests.support.certificates import make_ca, sign
from tests.support.secured_door import server_context
from tests.support.waiting import ANSWER_SECONDS, machine_seconds
from tests.unit.client.write.test_producer import rows_of, stored

ANSWERED = {API_VERSIONS.key, METADATA.key}
"""The keys of what is answered."""

MANY_TOPICS = MetadataResponse(topics=[MetadataResponseTopic(name=f"{n:0100d}") for n in range(3000)])


class Server:
    """Speaks ApiVersions and Metadata with one connection after the other, and answers what it is told to, so late."""

    def __init__(
        self,
        answered: set[int],
        context: ssl.SSLContext | None = None,
        *,
        delay_s: float = 0,
        silent_connections: int = 0,
    ) -> None:
        self._answered = answered
        self._context = context
        self._delay_s = delay_s
        self._silent_connections = silent_connections
        self._is_over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1", int(self._listener.getsockname()[1])
        self.where = f"127.0.0.1:{self.address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(OSError), self._listener.accept()[0] as plain:
                plain.settimeout(ANSWER_SECONDS)
                if self._silent_connections > 0:
                    self._silent_connections -= 1
                    while plain.recv(1 << 16):
                        pass
                else:
                    self._is_over.wait(self._delay_s)
                    self._serve_one(self._context.wrap_socket(plain, server_side=True) if self._context else plain)

    def _serve_one(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as requests:
            while size := requests.read(4):
                self._answer(client, requests.read(int.from_bytes(size, "big")))

    def _answer(self, client: socket.socket, frame: bytes) -> None:
        key, version, correlation_id = read_request_start(memoryview(frame))
        if key in self._answered:
            api: Api[Any, Any] = API_VERSIONS if key == API_VERSIONS.key else METADATA
            response = ApiVersionsResponse(0, [ApiVersion(k, 0, 9) for k in range(76)]) if key == 18 else MANY_TOPICS
            self._is_over.wait(self._delay_s)
            answer = Endpoint(api, version).encode_response(correlation_id, response)
            client.sendall(b"".join(bytes(piece) for piece in answer))  # type: ignore[arg-type]


@pytest.fixture
def silence_seconds() -> float:
    return 1.0


@pytest.fixture(autouse=True)
def silence_is_soon_noticed(monkeypatch: pytest.MonkeyPatch, silence_seconds: float) -> None:
    monkeypatch.setattr(port_probe, "_PROBE_SECONDS", 0.1)
    for module in (connect_notice, client_connection):
        monkeypatch.setattr(module, "SILENCE_SECONDS", silence_seconds)


where_nobody_is_silent = pytest.mark.parametrize("silence_seconds", [5.0])
"""For tests in which all answer, though the machine may stand still for a moment."""


Protocol = tuple[ssl.SSLContext | None, ClientSecurity | None]
"""Of the servers, and of the client."""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    ca = make_ca()
    folder: Path = tmp_path_factory.mktemp("silent")
    context = server_context(*map(str, sign(ca).write(folder, "server")))
    return context, ClientSecurity(Tls(TrustStore(certificates=ca.pem)), None)


@pytest.fixture(scope="module", params=["PLAINTEXT", pytest.param("TLS", marks=pytest.mark.longer)])
def protocol(request: pytest.FixtureRequest, tls: Protocol) -> Protocol:
    return tls if request.param == "TLS" else (None, None)


def said(caplog: pytest.LogCaptureFixture, *, but_of: str = "nobody") -> list[str]:
    """What was said; but that one is waited for which does answer, a moment later if the machine stood still."""
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if not line.startswith(f"waiting for {but_of},")]


def test_a_silent_broker_is_passed_over(protocol: Protocol, caplog: pytest.LogCaptureFixture) -> None:
    """The client of the same cluster that is made next begins with the broker that answers."""
    context, security = protocol
    with Server(set(), silent_connections=99).running() as silent, Server(ANSWERED, context).running() as well:
        since_s = machine_seconds()
        client = KafkaClient([silent.address, well.address], security=security)
        assert len(client.refresh()) == 3000
        client.close()
        other = client.another()
        other.close()
        assert machine_seconds() - since_s < 15, "an answer may take 30 s"
    assert said(caplog, but_of=well.where) == [f"{silent.where} does not answer; asking {well.where}"]


def test_a_slow_broker_is_asked_again_last(protocol: Protocol, caplog: pytest.LogCaptureFixture) -> None:
    """It answers its second connection, and that after more than a hasty client waits."""
    context, security = protocol
    slow_one = Server(ANSWERED, context, delay_s=1.5, silent_connections=1)
    with slow_one.running() as slow, Server(set(), silent_connections=99).running() as silent:
        KafkaClient([slow.address, silent.address], connector=Connector(security, timeout_s=60)).close()
    assert said(caplog)[:2] == [
        f"{slow.where} does not answer; asking {silent.where}",
        f"{silent.where} does not answer; asking {slow.where}",
    ]


def test_the_only_broker_is_waited_for(protocol: Protocol, caplog: pytest.LogCaptureFixture) -> None:
    context, security = protocol
    with Server(ANSWERED, context, delay_s=1.5).running() as slow:
        client = KafkaClient([slow.address], connector=Connector(security, timeout_s=60))
        assert len(client.refresh()) == 3000
        client.close()
    assert "does not answer; asking" not in "".join(said(caplog))
    assert said(caplog)[-1] == f"waiting for {slow.where}, which has not answered Metadata in 1 s"


def test_metadata_are_asked_of_another_broker_if_one_falls_silent(
    protocol: Protocol, caplog: pytest.LogCaptureFixture
) -> None:
    context, security = protocol
    with Server({API_VERSIONS.key}, context).running() as hung, Server(ANSWERED, context).running() as well:
        client = KafkaClient([hung.address, well.address], security=security)
        assert len(client.refresh()) == 3000
        client.forget_connections()
        assert len(client.refresh()) == 3000
        client.close()
    assert said(caplog, but_of=well.where) == [f"{hung.where} does not answer; asking another broker"]


@where_nobody_is_silent
def test_a_connection_that_was_closed_is_not_asked_again(protocol: Protocol, caplog: pytest.LogCaptureFixture) -> None:
    """Brokers close one that is idle for ten minutes; another one is made then, if it has to be to another broker."""
    context, security = protocol
    with Server(ANSWERED, context).running() as one, Server(ANSWERED, context).running() as other:
        client = KafkaClient([one.address, other.address], security=security)
        client._brokers = {1: one.address, 2: other.address}
        for _ in range(3):
            client.any_connection().close()
            assert not client.is_replaced(1, [TopicPartition("none", 0)])
            assert len(client.refresh()) == 3000
            client._brokers = {1: one.address, 2: other.address}
        client.close()
        alone = KafkaClient([one.address], security=security)
        alone.any_connection().close()
        with pytest.raises(ConnectionFailedError):
            alone.refresh()
        assert len(alone.refresh()) == 3000
        alone.close()
    assert said(caplog) == []


def test_no_broker_answers(protocol: Protocol) -> None:
    _, security = protocol
    with Server(set(), silent_connections=99).running() as one, Server(set(), silent_connections=99).running() as other:
        addresses = [one.address, other.address]
        with pytest.raises(UnansweredError, match=r"in 1\.5 s"):
            KafkaClient(addresses, connector=Connector(security, timeout_s=1.5))


@where_nobody_is_silent
def test_a_small_answer_after_a_large_one_is_noticed_with_tls(tls: Protocol, caplog: pytest.LogCaptureFixture) -> None:
    """The socket waits for a large one to come in large pieces."""
    context, security = tls
    with Server(ANSWERED, context).running() as well:
        connection = Connector(security, timeout_s=60)(*well.address)
        for _ in range(3):
            assert len(connection.call(METADATA, MetadataRequest([])).topics) == 3000
            connection.call(API_VERSIONS, ApiVersionsRequest("plog", "1"))
        connection.close()
    assert said(caplog) == []


@pytest.mark.parametrize(
    ("call", "name", "hint"),
    [
        (
            lambda c: c.call(DELETE_TOPICS, DeleteTopicsRequest()),
            "DeleteTopics",
            "the broker may still carry out the request",
        ),
        (lambda c: c.call(LIST_GROUPS, ListGroupsRequest()), "ListGroups", "is the broker well?"),
    ],
)
def test_a_request_without_an_answer(
    call: Callable[[ClientConnection], object],
    name: str,
    hint: str,
    protocol: Protocol,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker had answered before, so that neither TLS nor SASL is what was wrong."""
    context, security = protocol
    with Server(ANSWERED, context).running() as hung:
        connection = Connector(security, timeout_s=3)(*hung.address)
        with pytest.raises(UnansweredError) as raised:
            call(connection)
        connection.close()
    assert raised.value.message == f"lost the connection to {hung.where}: no answer in 3 s"
    assert (raised.value.hint or "").startswith(hint)
    assert said(caplog) == [f"waiting for {hung.where}, which has not answered {name} in 1 s"]


# --- leaders that hang


class Hung(EmbeddedTransport):
    """Does the first request of one kind, and gives no answer to it while it is waited for."""

    def __init__(self, broker: SteeredNode, key: int, silences: list[str]) -> None:
        super().__init__(broker.dispatcher)
        self._hangs_at = key
        self._silences = silences
        self._is_asked = False

    def send(self, frame: bytearray) -> None:
        key, _, _ = read_request_start(memoryview(frame)[4:])
        self._is_asked = key == self._hangs_at
        super().send(frame)

    def await_answer(self, on_silence: Callable[[str], None]) -> None:
        if self._is_asked and not self._silences:
            self._silences.append("embedded:0")
            on_silence("embedded:0")


class Replacing(KafkaClient):
    """Of a cluster that has another leader by now, which has the same log here."""

    def __init__(self, broker: SteeredNode, api: Api[Any, Any]) -> None:
        self.silences: list[str] = []
        self.asked: list[Sequence[TopicPartition]] = []
        super().__init__([("embedded", 0)], lambda _host, _port: Hung(broker, api.key, self.silences))

    def is_replaced(self, node_id: int, partitions: Any) -> bool:
        self.asked.append(list(partitions))
        return True


def test_a_leader_that_hangs_is_given_up_when_there_is_another_one(
    broker: SteeredNode, caplog: pytest.LogCaptureFixture
) -> None:
    """What it had written, and had not answered, is not written twice."""
    client = Replacing(broker, PRODUCE)
    producer = Producer(client, "t")
    producer.send(rows_of(0, 1, 2))
    producer.flush()
    assert client.asked == [[TopicPartition("t", 0)]]
    assert producer.acknowledged == 2
    assert stored(broker) == [1, 2]
    assert said(caplog) == ["waiting for embedded:0, which has not answered Produce in 1 s"]


def test_without_sequences_nothing_is_sent_again_before_its_time(broker: SteeredNode) -> None:
    client = Replacing(broker, PRODUCE)
    producer = Producer(client, "t", acks=1)
    producer.send(rows_of(0, 1, 2))
    producer.flush()
    assert client.silences
    assert client.asked == []
    assert stored(broker) == [1, 2]


@pytest.mark.parametrize("seconds", [30.0, 0.0])
def test_a_reader_gives_up_a_leader_that_hangs(broker: SteeredNode, seconds: float) -> None:
    """Unless it does not try again."""
    producer = Producer(KafkaClient([("embedded", 0)], lambda _h, _p: EmbeddedTransport(broker.dispatcher)), "t")
    producer.send(rows_of(0, *range(100)))
    producer.flush()
    client, told, one = Replacing(broker, FETCH), list[str](), TopicPartition("t", 0)
    consumer = Consumer(client, options=ReadOptions(seconds, tell=told.append))
    batches = [batch for _, some in consumer.read({one: 0}, {one: 100}) for batch in some]
    assert [int(record.value or b"") for batch in batches for record in batch.records()] == list(range(100))
    assert client.silences
    assert bool(client.asked) == bool(told) == bool(seconds)


@pytest.mark.parametrize(
    ("leaders", "brokers", "is_replaced"),
    [
        ([1, 1], 2, False),
        ([1, 2], 2, True),
        ([1, -1], 2, False),
        ([], 2, False),
        ([2, 2], 1, False),
    ],
)
def test_whether_another_broker_leads(leaders: list[int], brokers: int, is_replaced: bool, broker: SteeredNode) -> None:
    partitions = [MetadataResponsePartition(partition_index=n, leader_id=leader) for n, leader in enumerate(leaders)]
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])
    client = KafkaClient(
        [("embedded", 0)],
        lambda _host, _port: EmbeddedTransport(broker.dispatcher),
        find_metadata=lambda _topics: answer,
    )
    client._brokers = {n: ("embedded", n) for n in range(brokers)}
    assert client.is_replaced(1, [TopicPartition("t", 0), TopicPartition("t", 1)]) == is_replaced
    assert client._topics == {}


def test_nobody_tells_whether_another_broker_leads(broker: SteeredNode) -> None:
    def fails(_topics: Sequence[str]) -> MetadataResponse:
        raise ConnectionFailedError("nobody answers")

    client = KafkaClient(
        [("embedded", 0)], lambda _host, _port: EmbeddedTransport(broker.dispatcher), find_metadata=fails
    )
    client._brokers = {1: ("embedded", 1), 2: ("embedded", 2)}
    assert not client.is_replaced(1, [TopicPartition("t", 0)])
