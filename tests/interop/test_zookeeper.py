"""Our sessions, their watches and transactions with a real Apache ZooKeeper, and with kazoo as another client of it."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.broker.replication.zookeeper_registration import ZooKeeperRegistration
from core.common.clock import SystemClock
from core.common.endpoint import Endpoint
from core.common.errors import AccessError, PlogError, UsageError
from core.security.client_security import KeyStore, Tls, TrustStore
from core.security.secret import Secret
from core.zookeeper.cluster_bootstrap import finalize_features
from core.zookeeper.config_changes import ConfigChanges
from core.zookeeper.session_thread import SessionThread
from core.zookeeper.znodes import (
    CONFIG_CHANGE_PREFIX,
    CONTROLLER_EPOCH,
    PERSISTENT_PATHS,
    BrokerNode,
    ConfigEntity,
    encode_config,
    encode_config_change,
)
from core.zookeeper.zookeeper_config import ZooKeeperConfig, ZooKeeperLogin
from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Check, Create, Delete, NodeStat, Refusal, SetData, ZooKeeperError
from tests.support.certificates import make_ca, sign
from tests.support.free_ports import free_ports
from tests.support.manual_clock import ManualClock
from tests.support.server import Server, call_plog
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper
from tests.support.zookeeper_sessions import session_of, until

pytestmark = [requires_zookeeper, pytest.mark.java]


async def aside(function: Callable[..., Any], *arguments: Any) -> Any:
    """What blocks, while the loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


# --- a broker's start


async def test_a_directory_is_not_made_for_an_id_that_is_taken(
    zookeeper: ZooKeeperServer, chroot: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("core.zookeeper.registration._GRACE_MS", 0)
    entry = ZooKeeperRegistration(zookeeper.config(chroot, session_timeout_ms=1000), SystemClock())
    async with session_of(zookeeper.config(chroot)) as holder:
        await holder.ensure_paths(PERSISTENT_PATHS)
        await holder.create_ephemeral("/brokers/ids/3", BrokerNode((), 0).encode())
        with pytest.raises(AccessError, match="node id 3 is taken"):
            await entry.open(tmp_path / "new", 3)
        await entry.close()
    assert not (tmp_path / "new").exists()


async def test_who_begins_a_cluster_makes_its_path(zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path) -> None:
    entry = ZooKeeperRegistration(zookeeper.config(f"{chroot}/my/own"), SystemClock())
    await entry.open(tmp_path / "new", 3, may_begin=True)
    await entry.close()
    with zookeeper.client() as client:
        assert json.loads(client.get(f"{chroot}/my/own/cluster/id")[0])["id"] == entry.cluster_id


# --- transactions


async def test_a_controller_of_an_older_epoch_changes_nothing(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Each change of a controller's checks the version of /controller_epoch."""
    async with session_of(zookeeper.config(chroot)) as old, session_of(zookeeper.config(chroot)) as new:
        await old.commit([Create(CONTROLLER_EPOCH, b"1"), Create("/state", b"by old")])
        (epoch,) = await new.commit([SetData(CONTROLLER_EPOCH, b"2", version=0)])
        assert isinstance(epoch, NodeStat)
        assert epoch.version == 1
        with pytest.raises(ZooKeeperError) as refused:
            await old.commit([Check(CONTROLLER_EPOCH, 0), SetData("/state", b"zombie"), Create("/more")])
        assert refused.value.refusal is Refusal.BAD_VERSION
        assert refused.value.operation == Check(CONTROLLER_EPOCH, 0)
        assert not refused.value.is_lost
        assert refused.value.message == (
            "ZooKeeper: /controller_epoch was changed by somebody else, it no longer has version 0"
        )
        assert await old.read("/more") is None
        node = await new.read("/state")
        assert node is not None
        assert (node.data, node.stat.version) == (b"by old", 0)
        answers = await new.commit(
            [Check(CONTROLLER_EPOCH, 1), SetData("/state", b"by new", 0), Create("/more"), Delete("/more", 0)]
        )
        assert [type(answer) for answer in answers] == [type(None), NodeStat, str, type(None)]


@pytest.mark.parametrize(
    ("operations", "refusal", "path"),
    [
        ([Create("/a"), Create("/a")], Refusal.NODE_EXISTS, "/a"),
        ([Create("/a"), SetData("/b", b"")], Refusal.NO_NODE, "/b"),
        ([Create("/a"), Create("/a/b"), Delete("/a")], Refusal.NOT_EMPTY, "/a"),
        ([Create("/no/parent")], Refusal.NO_NODE, "/no/parent"),
    ],
)
async def test_the_error_names_the_operation_that_failed(
    zookeeper: ZooKeeperServer, chroot: str, operations: list[Any], refusal: Refusal, path: str
) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        with pytest.raises(ZooKeeperError) as refused:
            await session.commit(operations)
        assert (refused.value.refusal, refused.value.where) == (refusal, path)
        assert refused.value.operation == operations[-1]
        assert await session.read("/a") is None


async def test_paths_are_below_the_chroot(zookeeper: ZooKeeperServer, chroot: str) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        assert await session.commit([Create("/a"), Create("/a/n-", is_sequential=True)]) == [
            "/a",
            "/a/n-0000000000",
        ]
        assert await session.children("/a") == ["n-0000000000"]
        assert await session.children("/b") is None
        root, missing, node = await session.read_many(["/", "/b", "/a"])
        assert root is not None
        assert missing is None
        assert node is not None


async def test_a_chroot_that_is_missing_is_named(zookeeper: ZooKeeperServer, chroot: str) -> None:
    with pytest.raises(AccessError, match="has no node /kafak") as refused:
        async with session_of(zookeeper.config("/kafak")):
            pass
    assert chroot in (refused.value.hint or "")
    assert "/zookeeper" not in (refused.value.hint or "")


# --- watches


async def test_children_and_data_are_watched(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Before a node is there, while it changes, and after it is gone."""
    names: list[list[str] | None] = []
    data: list[bytes | None] = []
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        watch = await session.watch_children("/ids", names.append)
        await session.watch_data("/ids/1", lambda node: data.append(node and node.data))
        assert (names, data) == ([None], [None])
        await other.commit([Create("/ids")])
        await until(lambda: names[-1] == [])
        await other.create_ephemeral("/ids/1", b"x")
        await until(lambda: names[-1] == ["1"] and data[-1] == b"x")
        await other.commit([SetData("/ids/1", b"y")])
        await until(lambda: data[-1] == b"y")
        watch.cancel()
        await other.commit([Delete("/ids/1"), Create("/ids/2")])
        await until(lambda: data[-1] is None)
        assert names[-1] == ["1"]


async def test_a_watch_that_was_given_up_before_it_began_tells_nothing(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """As of a controller that is deposed while it takes office. ZooKeeper has been asked for it."""
    given_up: list[object] = []
    data: list[bytes | None] = []
    async with session_of(zookeeper.config(chroot)) as session:
        await session.commit([Create("/a", b"0")])
        beginning = asyncio.ensure_future(session.watch_data("/a", given_up.append))
        await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        await session.watch_data("/a", lambda node: data.append(node and node.data))
        await session.commit([SetData("/a", b"1")])
        await until(lambda: data[-1] == b"1")
        await session.read("/a")  # which is answered after what was asked at the change
        assert given_up == []


async def test_watches_go_on_after_an_expiry_and_after_a_crash(zookeeper: ZooKeeperServer, chroot: str) -> None:
    data: list[bytes | None] = []
    states: list[SessionState] = []
    async with session_of(zookeeper.config(chroot)) as session:
        session.subscribe(states.append)
        await session.commit([Create("/a", b"0")])
        await session.watch_data("/a", lambda node: data.append(node and node.data))
        await aside(zookeeper.expire, session)
        await until(lambda: SessionState.EXPIRED in states and states[-1] is SessionState.CONNECTED)
        await session.commit([SetData("/a", b"1")])
        await until(lambda: data[-1] == b"1")
        await aside(zookeeper.kill)
        await until(lambda: session.state is SessionState.SUSPENDED)
        waiting = asyncio.ensure_future(session.read("/a"))
        zookeeper.start()  # not in another thread: it ends with the one that starts it
        node = await waiting
        assert node is not None
        assert node.data == b"1", "what was acknowledged is there"
        await session.commit([SetData("/a", b"2")])
        await until(lambda: data[-1] == b"2")


async def test_a_server_that_hangs_suspends_the_session(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """A transaction that was under way says that it may have been done."""
    async with session_of(zookeeper.config(chroot, session_timeout_ms=4000)) as session:
        states: list[SessionState] = []
        session.subscribe(states.append)
        with zookeeper.paused():
            with pytest.raises(ZooKeeperError) as lost:
                await session.commit([Create("/a")])
            assert lost.value.is_lost
            await until(lambda: session.state is not SessionState.CONNECTED)
            reading = asyncio.ensure_future(session.read("/a"))
        node = await reading
        assert states[0] is SessionState.SUSPENDED
        assert session.state is SessionState.CONNECTED
        assert (node is None) is (await session.read("/a") is None)


# --- settings


async def test_changes_of_settings_arrive(zookeeper: ZooKeeperServer, chroot: str) -> None:
    seen: list[tuple[str, Mapping[str, str]]] = []
    async with session_of(zookeeper.config(chroot)) as session, session_of(zookeeper.config(chroot)) as other:
        await other.ensure_paths([*PERSISTENT_PATHS, "/config/users/a%20b/clients"])
        alice = ConfigEntity("users", "a b", "app")
        topic = ConfigEntity("topics", "t1")
        await other.commit([Create(topic.path, encode_config({"retention.ms": "1"}))])
        await other.commit([Create(alice.path, encode_config({"producer_byte_rate": "9"}))])
        await other.commit([Create(f"{CONFIG_CHANGE_PREFIX}", encode_config_change(topic), is_sequential=True)])
        changes = ConfigChanges(
            session, lambda entity, config: seen.append((str(entity.entity_path), config)), clock=SystemClock()
        )
        await changes.start()
        first = [
            ("topics/t1", {"retention.ms": "1"}),
            ("users/a%20b", {}),
            ("users/a%20b/clients/app", {"producer_byte_rate": "9"}),
        ]
        assert seen == first

        async def change(entity: ConfigEntity, config: dict[str, str]) -> None:
            await other.commit([SetData(entity.path, encode_config(config))])
            await other.commit([Create(CONFIG_CHANGE_PREFIX, encode_config_change(entity), is_sequential=True)])

        await change(alice, {})
        await until(lambda: seen[3:] == [("users/a%20b/clients/app", {})])
        await other.commit([Create(CONFIG_CHANGE_PREFIX, b"garbage", is_sequential=True)])
        await change(topic, {"retention.ms": "2"})
        await until(lambda: seen[4:] == [("topics/t1", {"retention.ms": "2"})])
        await aside(zookeeper.expire, session)
        await until(lambda: len(seen) == 8)
        assert seen[5:] == [
            ("topics/t1", {"retention.ms": "2"}),
            ("users/a%20b", {}),
            ("users/a%20b/clients/app", {}),
        ]
        made = ConfigEntity("topics", "made-since")
        await other.commit([Create(made.path, encode_config({"retention.ms": "3"}))])
        found = await changes.read_many([made, ConfigEntity("topics", "none")])
        assert found == [{"retention.ms": "3"}, {}], "no change tells of it"
        changes.stop()


async def test_old_changes_are_deleted(zookeeper: ZooKeeperServer, chroot: str) -> None:
    """Those of more than a quarter of an hour ago."""
    clock = ManualClock(SystemClock().now_ms())
    topic = ConfigEntity("topics", "t")
    async with session_of(zookeeper.config(chroot)) as session:
        await session.ensure_paths(PERSISTENT_PATHS)
        await ConfigChanges(session, lambda _entity, _config: None, clock=clock).start()
        write = [Create(CONFIG_CHANGE_PREFIX, encode_config_change(topic), is_sequential=True)]
        await session.commit(write)
        assert await session.children("/config/changes") == ["config_change_0000000000"]
        clock.advance(16 * 60 * 1000)
        await session.commit(write)
        left: list[list[str] | None] = []
        await session.watch_children("/config/changes", left.append)
        await until(lambda: left[-1] == [])


# --- rights


async def test_with_a_login_only_we_change_what_we_made(zookeeper: ZooKeeperServer, chroot: str) -> None:
    ours = ZooKeeperLogin("kafka", Secret("secret"))

    def acls_of(path: str) -> Any:
        with zookeeper.client() as client:
            client.add_auth("digest", "kafka:secret")
            return client.get_acls(path)[0]

    config = zookeeper.config(chroot, digest=ours, sets_acls=True)
    async with session_of(config) as session, session_of(zookeeper.config(chroot)) as stranger:
        await session.ensure_paths(PERSISTENT_PATHS)
        await session.commit([Create("/brokers/ids/1", b"1"), Create("/config/users/alice", b"salt")])
        await session.commit([SetData("/brokers/ids/1", b"2")])
        assert await stranger.read("/brokers/ids/1") is not None, "everybody may read what is no secret"
        with pytest.raises(ZooKeeperError) as refused:
            await stranger.commit([SetData("/brokers/ids/1", b"3")])
        assert refused.value.refusal is Refusal.NO_AUTH
        with pytest.raises(ZooKeeperError, match="our login may not read or change /config/users/alice") as refused:
            await stranger.read("/config/users/alice")
        assert "zookeeper.set.acl" in (refused.value.hint or "")
        await stranger.commit([Create("/consumers/old-group")])
        acls = [
            [(acl.perms, acl.id.scheme) for acl in await aside(acls_of, f"{chroot}{path}")]
            for path in ("/brokers/ids/1", "/config/users/alice", "/consumers")
        ]
        assert acls == [[(31, "digest"), (1, "world")], [(31, "digest")], [(31, "world")]]


async def test_sasl_proves_who_we_are(
    zookeeper: ZooKeeperServer, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    def acls_of(path: str) -> Any:
        with zookeeper.client() as client:
            return client.get_acls(path)[0]

    login = ZooKeeperLogin("kafka", Secret("secret"))
    async with session_of(zookeeper.config(chroot, sasl=login, sets_acls=True)) as session:
        await session.commit([Create("/a")])
        acls = await aside(acls_of, f"{chroot}/a")
        assert [(acl.perms, acl.id.scheme, acl.id.id) for acl in acls] == [
            (31, "sasl", "kafka"),
            (1, "world", "anyone"),
        ]
    with pytest.raises(ZooKeeperError, match="the login was refused") as refused:
        async with session_of(zookeeper.config(chroot, sasl=ZooKeeperLogin("kafka", Secret("wrong")))):
            pass
    assert refused.value.refusal is Refusal.AUTH_FAILED
    assert "password" in (refused.value.hint or "")
    assert "has ended: ZooKeeper: the login was refused" in caplog.text


def test_rights_without_a_login_are_refused(zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(UsageError, match=r"zookeeper\.set\.acl needs a login"):
        ZooKeeperSession(zookeeper.config(sets_acls=True))


# --- TLS


async def test_tls_with_certificates_on_both_sides(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By something that stands before ZooKeeper and does the TLS for it."""
    ca = make_ca()
    ca_file, _ = ca.write(tmp_path, "ca")
    certificate, key = sign(ca, "client").write(tmp_path, "client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca_file)
    context.load_cert_chain(*sign(ca).write(tmp_path, "server"))
    context.verify_mode = ssl.CERT_REQUIRED

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain_reader, plain_writer = await asyncio.open_connection(*zookeeper.address.split(":"))
        copies = [asyncio.ensure_future(copy(reader, plain_writer)), asyncio.ensure_future(copy(plain_reader, writer))]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        plain_writer.close()
        writer.close()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    listener = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    servers = (Endpoint("127.0.0.1", listener.sockets[0].getsockname()[1]),)
    own = KeyStore(certificate_location=str(certificate), key_location=str(key))
    ours = Tls(TrustStore(str(ca_file)), own)
    async with session_of(ZooKeeperConfig(servers, chroot, tls=ours)) as session:
        await session.commit([Create("/a", b"x")])
    other_ca, _ = make_ca().write(tmp_path, "other")
    stranger = ZooKeeperSession(ZooKeeperConfig(servers, chroot, tls=Tls(TrustStore(str(other_ca)))))
    opening = asyncio.ensure_future(stranger.open())
    await until(lambda: "certificate verify failed" in caplog.text)
    await stranger.close()
    with pytest.raises(ZooKeeperError):
        await opening
    listener.close()


# --- no ZooKeeper


async def test_it_waits_for_a_zookeeper_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        config = ZooKeeperConfig((Endpoint("127.0.0.1", free_ports()[0]),))
        session = ZooKeeperSession(config)
        opening = asyncio.ensure_future(session.open())
        await until(lambda: "no ZooKeeper answers" in caplog.text)
        assert not opening.done()
        assert f"no ZooKeeper answers at {config}, waiting for it: connection refused" in caplog.text
        await session.close()
        with pytest.raises(ZooKeeperError) as closed:
            await opening
        assert closed.value.refusal is Refusal.CLOSED
    assert caplog.text.count("no ZooKeeper answers") == 1
    assert not [record for record in caplog.records if record.name.startswith("kazoo")]


async def test_who_waits_for_an_answer_learns_that_the_session_was_closed(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    async with session_of(zookeeper.config(chroot)) as session:
        with zookeeper.paused():
            reading = asyncio.ensure_future(session.read("/"))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(session.close())
            with pytest.raises(PlogError, match="the session is closed"):
                await reading
        await closing


# --- before the brokers of a cluster start


def test_only_a_cluster_that_is_not_there_begins_with_features(zookeeper: ZooKeeperServer, chroot: str) -> None:
    def finalize(where: str, **levels: int) -> bool:
        with SessionThread(zookeeper.config(where)) as thread:
            features = {f"{name}.version": level for name, level in levels.items()}
            return thread.run(finalize_features(thread.session, features))

    assert finalize(chroot, group=1)
    assert not finalize(chroot, transaction=2)
    with zookeeper.client() as client:
        written, _ = client.get(f"{chroot}/feature")
        client.create(f"{chroot}/older/brokers/ids", makepath=True)
    assert json.loads(written) == {"version": 2, "status": 1, "features": {"group.version": {"max_version_level": 1}}}
    assert not finalize(f"{chroot}/older", group=1), "a cluster of Kafka before 2.7"
    with pytest.raises(AccessError, match=f"has no node {chroot}/missing"):
        finalize(f"{chroot}/missing", group=1)
    with zookeeper.client() as client:
        assert client.exists(f"{chroot}/older/feature") is None
        assert client.exists(f"{chroot}/missing") is None


def test_the_path_of_a_new_cluster_is_made(zookeeper: ZooKeeperServer, chroot: str) -> None:
    for where, is_made in ((f"{chroot}/a/b", True), (f"{chroot}/a/b", False), ("", False)):
        with SessionThread(zookeeper.config(where), makes_chroot=True) as thread:
            assert thread.session.has_made_chroot is is_made
    with zookeeper.client() as client:
        assert client.get_children(f"{chroot}/a") == ["b"]


def test_the_first_topics_of_a_member_are_there_when_it_is_ready(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    """Until the controller has told a member of the cluster, the member disconnects clients: also this one."""
    (tmp_path / "f").write_text("one\ntwo\n")
    joined = ["--zookeeper", zookeeper.address + chroot, "--new-cluster", "--node-id", "1"]
    of_transactions = {"replication.factor": 1, "min.isr": 1, "num.partitions": 2}
    replicas = [f"--set=transaction.state.log.{name}={value}" for name, value in of_transactions.items()]
    first = ["--topic", "orders:2:retention.ms=-1", "--seed", f"orders={tmp_path / 'f'}"]
    with Server(tmp_path / "data", *joined, *replicas, *first) as server:
        for _ in range(2):
            found = call_plog("consume", "orders", "--bootstrap-server", server.address)
            assert sorted(found.stdout.split()) == [b"one", b"two"]
            server.stop()
            server.start()
        said = server.log.read_text()
    assert "orders has records already, up to offset" in said
