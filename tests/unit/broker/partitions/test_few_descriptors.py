"""A server with fewer descriptors than it has partitions, and than it has clients: all of them are served."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.broker.partitions.replica_manager import ReplicaManager
from core.common.fd_limits import LEAST_DESCRIPTORS
from core.log.log_segment import LogSegment
from core.protocol.frame import decode_response, encode_request
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from core.protocol.schema.produce import PRODUCE
from tests.support.broker import PRODUCE_BY_NAME, SteeredNode, Timers, add_topic, open_broker, produce, produce_request
from tests.support.logs import make_batch
from tests.support.server import PLOG, Server, call_plog
from tests.support.waiting import ANSWER_SECONDS

DESCRIPTORS = 96
PARTITIONS = 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"', PLOG, "serve"]
    running = Server(tmp_path / "data", command=limited)
    with running:
        created = call_plog(
            "topic", "create", "t", "--partitions", str(PARTITIONS), "--bootstrap-server", running.address
        )
        assert created.returncode == 0
        yield running
    assert "ERROR" not in running.log.read_text()


class Client:
    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(server.host_and_port, timeout=ANSWER_SECONDS)

    def ask(self, api: Api, request: object, version: int = PRODUCE_BY_NAME):  # type: ignore[type-arg, no-untyped-def]
        self.socket.sendall(encode_request(api, version, 1, "x", request))
        return decode_response(api, version, memoryview(self.receive()))[1]

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece
            data += piece
        return data

    def produce_everywhere(self, value: bytes) -> None:
        for partition in range(PARTITIONS):
            response = self.ask(PRODUCE, produce_request(make_batch(value), partition=partition))
            assert response.responses[0].partition_responses[0].error_code == 0

    def sizes_everywhere(self) -> set[int]:
        wanted = [FetchPartition(number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(PARTITIONS)]
        request = FetchRequest(max_wait_ms=0, max_bytes=1 << 24, topics=[FetchTopic("t", partitions=wanted)])
        partitions = self.ask(FETCH, request).responses[0].partitions
        assert {data.error_code for data in partitions} == {0}
        return {len(data.records) for data in partitions}


@pytest.mark.longer
def test_more_partitions_than_descriptors(server: Server) -> None:
    client = Client(server)
    client.produce_everywhere(b"a")
    size = len(make_batch(b"a").buffer)
    assert client.sizes_everywhere() == {size}
    client.produce_everywhere(b"b")
    server.kill()
    server.start()
    assert Client(server).sizes_everywhere() == {2 * size}


@pytest.mark.longer
def test_more_clients_than_descriptors(server: Server) -> None:
    """Whoever comes after the last that there is room for waits until another goes."""
    first = Client(server)
    clients = [Client(server) for _ in range(DESCRIPTORS // 2)]  # the last of them wait in the backlog
    late = clients.pop()
    late.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        late.ask(API_VERSIONS, ApiVersionsRequest("x", "1"), 3)
    first.produce_everywhere(b"a")
    assert first.sizes_everywhere() == {len(make_batch(b"a").buffer)}
    for client in clients:
        client.socket.close()
    late.socket.settimeout(ANSWER_SECONDS)
    assert late.receive()
    assert server.log.read_text().count("as many as ulimit -n leaves room for; further clients wait") == 1


@pytest.mark.longer
@pytest.mark.parametrize("stop", [Server.stop, Server.kill])
def test_a_server_that_only_reads(tmp_path: Path, stop: Callable[[Server], None]) -> None:
    """By the fewest with which anything is served, and of a directory that was left as a crash leaves it, too."""
    with Server(tmp_path / "data") as writing:
        assert (
            call_plog(
                "topic", "create", "t", "--partitions", str(PARTITIONS), "--bootstrap-server", writing.address
            ).returncode
            == 0
        )
        Client(writing).produce_everywhere(b"a")
        stop(writing)
    limited = ["sh", "-c", f'ulimit -n {LEAST_DESCRIPTORS}; exec "$0" "$@"', PLOG, "serve"]
    with Server(tmp_path / "data", "--read-only", command=limited) as reading:
        clients = [Client(reading) for _ in range(5)]
        for client in clients:
            assert client.sizes_everywhere() == {len(make_batch(b"a").buffer)}
    assert "ERROR" not in reading.log.read_text()


@pytest.mark.longer
def test_too_few_for_anything(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 40; exec "$0" "$@"', PLOG, "serve"]
    with pytest.raises(AssertionError, match="this process may open 40 files and connections, a broker needs 64"):
        Server(tmp_path / "data", command=limited).start()


def test_a_sync_for_which_no_file_could_be_opened_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was not asked: the partition stays online, and an acknowledgement waits for the next try."""
    broker: SteeredNode = open_broker(tmp_path)
    timers = Timers()
    broker.runtime.use(schedule=timers)
    add_topic(broker, flush_messages="1")

    def refuse(_self: LogSegment, *, is_sealed: bool, is_log_synced: bool) -> None:
        raise OSError(errno.EMFILE, "Too many open files", f"of {is_sealed} {is_log_synced}")

    with monkeypatch.context() as patched:
        patched.setattr(LogSegment, "_sync_files", refuse)
        log = broker.services.replicas.find("t", 0).log
        log.append_as_leader(make_batch(b"a"), 0)
        broker.services.replicas.flush_as_configured(log)
    assert isinstance(broker.services.replicas, ReplicaManager)
    assert broker.services.replicas.find("t", 0).log is log
    assert log.recovery_point == 0
    timers.fire()
    assert log.recovery_point == 1
    assert produce(broker, make_batch(b"b")).error_code == 0
