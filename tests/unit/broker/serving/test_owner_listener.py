"""The socket in the data directory: who may come by it, what stood in its place, and when it answers."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextlib import nullcontext as does_not_raise
from pathlib import Path
from struct import pack

import pytest

from core.broker.serving.owner_listener import OwnerListener, find_intruder
from core.client.net.connect_notice import ConnectNotice
from core.client.net.kafka_client import Connector
from core.client.net.owner_socket import OwnerNotice, connect_as_owner
from core.common.errors import AccessError, UsageError
from core.pipeline.session import Session
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.reassignments import LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest
from core.security.client_security import ClientSecurity, PasswordLogin, Tls
from core.security.client_settings import ClientSettings
from core.security.secret import Secret
from plog.testing import running_broker
from tests.support.broker import open_broker, open_secured_broker, serving
from tests.support.for_each import for_each
from tests.support.waiting import PROMPT_SECONDS

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NOT_AUTHORIZED = 31


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """The error of a request that needs a right on the cluster."""
    request = ListPartitionReassignmentsRequest(1000, None)
    writer.write(encode_request(LIST_PARTITION_REASSIGNMENTS, 0, 1, "test", request))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    return decode_response(LIST_PARTITION_REASSIGNMENTS, 0, memoryview(answer))[1].error_code


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """By the path as the system takes it, as it is short."""
    reader, writer = await asyncio.open_unix_connection(directory / ".plog.sock")
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_whoever_comes_by_the_socket_is_the_owner(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path)
    async with serving(broker) as server:
        found = (tmp_path / ".plog.sock").lstat()
        assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)
        async with connected(tmp_path) as ours:
            assert await ask(*ours) == 0
        by_network = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        assert await ask(*by_network) == NOT_AUTHORIZED
        by_network[1].close()
    assert not os.path.lexists(tmp_path / ".plog.sock")


def test_its_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        listener = OwnerListener(tmp_path, 1)
        assert stat.S_IMODE((tmp_path / ".plog.sock").lstat().st_mode) == 0o600
        listener.close()
        listener.close()
        os.umask(0o777)
        with pytest.raises(OSError, match="its mode is s---------"):
            OwnerListener(tmp_path, 1)
    finally:
        os.umask(before)
    assert not os.path.lexists(tmp_path / ".plog.sock")


def test_what_a_killed_broker_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / ".plog.sock"))
    listener = OwnerListener(tmp_path, 1)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / ".plog.sock"))
    listener.close()


def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as elsewhere:
        elsewhere.bind(str(tmp_path / "evil"))
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / ".plog.sock").symlink_to(tmp_path / "evil")
        listener = OwnerListener(tmp_path / "data", 1)
        assert stat.S_ISSOCK((tmp_path / "data" / ".plog.sock").lstat().st_mode)
        listener.close()
    assert (tmp_path / "evil").exists()


async def test_another_file_of_that_name_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = open_broker(tmp_path)
    (tmp_path / ".plog.sock").write_text("mine")
    async with serving(broker):
        pass
    assert f"no socket for commands with --data-dir {tmp_path}: another file has that name" in caplog.text
    assert (tmp_path / ".plog.sock").read_text() == "mine"


@for_each(
    "settings, is_served",
    [
        ({}, True),
        ({"authorizer_class_name": STANDARD}, False),
        ({"authorizer_class_name": STANDARD, "super_users": " ;"}, False),
        ({"authorizer_class_name": STANDARD, "super_users": "User:root"}, True),
    ],
)
async def test_a_broker_that_nobody_could_administer_is_refused(
    tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, is_served: bool
) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    broker = open_broker(tmp_path, **settings)
    expected = does_not_raise() if is_served else pytest.raises(UsageError, match="does not say which user connects")
    with expected as refused:
        async with serving(broker):
            assert not os.path.lexists(tmp_path / ".plog.sock")
    assert is_served or "--set super.users=User:NAME" in refused.value.hint


async def test_a_broker_that_only_reads_makes_none(tmp_path: Path) -> None:
    open_broker(tmp_path).close()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / ".plog.sock"))
    before = (tmp_path / ".plog.sock").lstat()
    broker = open_broker(tmp_path, is_read_only=True, authorizer_class_name=STANDARD)
    assert not broker._unreadable
    async with serving(broker):
        pass
    assert (tmp_path / ".plog.sock").lstat() == before


class PeerOf(socket.socket):
    uid = 0

    def getsockopt(self, *_: object) -> bytes:  # type: ignore[override]
        return pack("3i", 1, self.uid, 0)


@for_each("uid, euid, found", [(0, 1000, None), (1000, 1000, None), (1001, 1000, 1001), (1000, 0, 1000)])
def test_only_the_brokers_user_and_root_may_connect(
    uid: int, euid: int, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    with PeerOf(socket.AF_UNIX) as peer:
        peer.uid = uid
        assert find_intruder(peer) == found


async def test_an_intruder_is_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = open_broker(tmp_path)
    async with serving(broker) as server:
        monkeypatch.setattr("core.broker.serving.socket_server.find_intruder", lambda _: 4711)
        async with connected(tmp_path) as (reader, _):
            assert await reader.read() == b""
        assert server.open_connections == 0
    assert "closing a connection to the socket in the data directory: it is of user id 4711" in caplog.text


async def test_it_answers_when_clients_have_taken_all_connections(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, max_connections="2", max_connections_per_ip="2")
    async with serving(broker) as server:
        clients = [await asyncio.open_connection(server.endpoint.host, server.endpoint.port) for _ in range(2)]
        for client in clients:
            assert await ask(*client) == 0
        owners = [await asyncio.open_unix_connection(tmp_path / ".plog.sock") for _ in range(8)]
        for owner in owners:
            assert await ask(*owner) == 0
        waiting = await asyncio.open_unix_connection(tmp_path / ".plog.sock")
        answer = asyncio.ensure_future(ask(*waiting))
        await asyncio.wait([answer], timeout=0)
        assert not answer.done()
        owners[0][1].close()
        assert await asyncio.wait_for(answer, PROMPT_SECONDS) == 0
        for _, writer in [*clients, *owners, waiting]:
            writer.close()


async def test_owners_are_not_counted_among_the_clients_of_an_address(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, max_connections_per_ip="1")
    async with serving(broker) as server, connected(tmp_path) as first, connected(tmp_path) as second:
        assert [await ask(*first), await ask(*second)] == [0, 0]
        client = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        assert await ask(*client) == 0
        client[1].close()


async def test_half_a_frame_and_a_stop(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    async with serving(broker):
        reader, writer = await asyncio.open_unix_connection(tmp_path / ".plog.sock")
        writer.write(b"\0\0\0\x40\0\x03")
        async with connected(tmp_path) as other:
            assert await ask(*other) == 0
    assert await reader.read() == b""
    writer.close()


# --- the client


def topics_of(directory: Path) -> list[str]:
    with Session(directory=directory).open_client() as client:
        return sorted(client.refresh())


def test_a_command_with_the_directory_may_do_everything(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["x" * 100] * 2)
    directory.mkdir(parents=True)
    with running_broker(directory, authorizer_class_name=STANDARD) as broker:
        with Session(directory=directory).open_client() as client:
            client.topic("made", may_create=True)
            assert (
                client.connection_to(1)
                .call(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(1000, None))
                .error_code
                == 0
            )
        assert len(str(directory)) > 200
        with Session(directory=directory, find_named_server=lambda: broker.bootstrap_servers).open_client() as client:
            assert client.refresh() == {}


def test_the_settings_are_for_the_other_brokers_of_a_cluster(tmp_path: Path) -> None:
    """The owner needs no login, and a broker alone has no others: its settings are not even read."""
    settings = ClientSettings(ClientSecurity(Tls(), PasswordLogin("PLAIN", "alice", Secret("wrong"))))
    asked: list[bool] = []
    session = Session(directory=tmp_path, find_settings=lambda: asked.append(True) or settings)
    with running_broker(tmp_path) as broker:
        broker.create_topic("t")
        for version in ("1", "0"):
            meta = (tmp_path / "meta.properties").read_text().replace("version=1", f"version={version}")
            (tmp_path / "meta.properties").write_text(meta)
            with session.open_client() as client:
                assert list(client.refresh()) == ["t"]
                assert client.any_connection().is_private
            assert asked == [True] * (version == "0")


def test_without_a_socket_it_takes_the_listener(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create_topic("t")
        (tmp_path / ".plog.sock").unlink()
        assert topics_of(tmp_path) == ["t"]
        with socket.socket(socket.AF_UNIX) as left:  # a socket of a killed broker, where the present one can't have one
            left.bind(str(tmp_path / ".plog.sock"))
        assert topics_of(tmp_path) == ["t"]


def test_a_socket_of_another_process_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running_broker(tmp_path) as broker:
        broker.create_topic("t")
        monkeypatch.setattr("core.client.net.owner_socket.find_holder_pid", lambda _: 1)
        assert topics_of(tmp_path) == ["t"]
    assert f"{tmp_path}/.plog.sock is not used: another process holds the directory" in caplog.text


def test_a_socket_of_another_user_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_broker(tmp_path) as broker:
        monkeypatch.setattr("core.client.net.owner_socket.os.geteuid", lambda: os.getuid() + 54321)
        with pytest.raises(AccessError) as refused:
            topics_of(tmp_path)
        monkeypatch.undo()
    assert f"{tmp_path} is served by a broker of user " in refused.value.message
    assert f"--bootstrap-server {broker.bootstrap_servers}" in (refused.value.hint or "")


def test_other_brokers_of_a_cluster_are_reached_by_their_addresses(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "version=1\ncluster.id=c\nnode.id=7\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    found = OwnerNotice(ConnectNotice(), tmp_path, [("127.0.0.1", 1)])
    found.note_advertised({6: ("six", 9092), 7: ("seven", 9092)})
    assert found._addresses == [("127.0.0.1", 1), ("seven", 9092)]


def test_a_link_is_no_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "evil"))
    (tmp_path / ".plog.sock").symlink_to("evil")
    connector = Connector()
    connect_as_owner(connector, tmp_path, [("127.0.0.1", 1)])
    assert not isinstance(connector.notice, OwnerNotice)


def test_a_client_waits_for_its_place(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / ".plog.sock"))
        listening.listen(0)
        found = OwnerNotice(ConnectNotice(), tmp_path, [("127.0.0.1", 1)])
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / ".plog.sock"))
            with pytest.raises(TimeoutError):
                found.connect(("127.0.0.1", 1), 0.001)
