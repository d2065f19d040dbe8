"""ACLs and delegation tokens in ZooKeeper, as Kafka 3.9's AclAuthorizer writes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import cast
from unittest.mock import patch

import pytest

from core.common.clock import SystemClock
from core.common.errors import KafkaError, MalformedMessageError
from core.security.acl import Acl, AclFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from core.security.acl_rules import AclRules
from core.security.principal import Principal
from core.zookeeper import stored_acls
from core.zookeeper.stored_acls import Edit, ResourcePattern, StoredAcls
from core.zookeeper.zookeeper_session import ZooKeeperSession
from core.zookeeper.zookeeper_transaction import (
    Answer,
    Create,
    Delete,
    Node,
    Operation,
    Refusal,
    SetData,
    ZooKeeperError,
)
from tests.support.fake_zookeeper import FakeSession, FakeZooKeeper
from tests.support.for_each import for_each
from tests.support.manual_clock import ManualClock
from tests.support.zookeeper_sessions import Ensemble, Fault, FaultyModel, until

ALICE = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}


def acls(count: int = 1) -> bytes:
    entries = [{**ALICE, "principal": f"User:alice{number or ''}"} for number in range(count)]
    return json.dumps({"version": 1, "acls": entries}).encode()


def put(zookeeper: FakeZooKeeper, path: str, data: bytes) -> None:
    """As kazoo's makepath: the nodes above are made without data."""
    parts = path.split("/")[1:]
    for length in range(1, len(parts)):
        above = "/" + "/".join(parts[:length])
        if above not in zookeeper.nodes:
            zookeeper.set(above, b"")
    zookeeper.set(path, data)


async def stored_in(zookeeper: FakeZooKeeper, found: list[int] | None = None) -> StoredAcls:
    changes = [] if found is None else found

    def on_change() -> None:
        changes.append(len(stored.rules) + stored.tokens)

    session = cast(ZooKeeperSession, zookeeper.session())
    stored = StoredAcls(session, AclRules(), on_change, clock=ManualClock(0))
    await stored.start()
    return stored


async def change(stored: StoredAcls, resource: ResourcePattern, edit: Edit) -> None:
    for error in (await stored.change({resource: edit})).values():
        raise error


async def settle() -> None:
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)


PLACES = [
    "/kafka-acl/Topic/secret",
    "/kafka-acl/Cluster/kafka-cluster",
    "/kafka-acl/User/alice",
    "/kafka-acl/TransactionalId/t",
    "/kafka-acl-extended/prefixed/DelegationToken/pre",
    "/delegation_token/tokens/Zm9v",
]


@for_each("path", PLACES)
async def test_rules_that_are_there(path: str) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, path, acls())
    stored = await stored_in(zookeeper)
    assert (len(stored.rules), stored.tokens) == ((0, 1) if "token" in path else (1, 0))


@for_each("path", PLACES)
@for_each("has_folders", [True, False])
async def test_rules_that_appear_without_a_notice(path: str, has_folders: bool) -> None:
    """A tool, or a restored backup, may have written the node."""
    zookeeper = FakeZooKeeper()
    if has_folders:
        put(zookeeper, path.rpartition("/")[0], b"")
    found: list[int] = []
    await stored_in(zookeeper, found)
    assert set(found) == {0}
    put(zookeeper, path, acls())
    await settle()
    assert found[-1] == 1
    zookeeper.delete(path)
    await settle()
    assert found[-1] == 0


TOPIC = ResourcePattern(ResourceType.TOPIC, "t:1", PatternType.LITERAL)
GROUPS = ResourcePattern(ResourceType.GROUP, "g", PatternType.PREFIXED)
NOTICES = [
    (TOPIC, "/kafka-acl/Topic/t:1", "/kafka-acl-changes/acl_changes_", b"TOPIC:t:1"),
    (
        GROUPS,
        "/kafka-acl-extended/prefixed/Group/g",
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}',
    ),
]
"""What ZkData of Kafka 3.9 writes of a resource, as read in its source."""


def read_by(who: str, resource: ResourcePattern, operation: AclOperation = AclOperation.READ) -> Acl:
    return Acl(*resource, f"User:{who}", "*", operation, AclPermissionType.ALLOW)


@for_each("resource, path, folder, notice", NOTICES)
async def test_a_notice_names_a_node_with_other_acls(
    resource: ResourcePattern, path: str, folder: str, notice: bytes
) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, path, acls())
    stored = await stored_in(zookeeper)
    assert stored.rules.find(AclFilter()) == [read_by("alice", resource)]
    zookeeper.set(path, acls(2))
    await settle()
    assert len(stored.rules) == 1, "nothing tells of it yet"
    put(zookeeper, f"{folder}0000000007", notice)
    await settle()
    assert set(stored.rules.find(AclFilter())) == {read_by("alice", resource), read_by("alice1", resource)}


@for_each("resource, path, folder, notice", NOTICES)
async def test_a_change_is_written_with_its_notice(
    resource: ResourcePattern, path: str, folder: str, notice: bytes
) -> None:
    zookeeper = FakeZooKeeper()
    here, there = await stored_in(zookeeper), await stored_in(zookeeper)
    acl = Acl(*resource, "User:a", "10.0.0.1", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
    await change(here, resource, lambda acls: acls | {acl})
    assert here.rules.find(AclFilter()) == [acl], "before it is answered"
    entry = {"principal": "User:a", "permissionType": "Deny", "operation": "DescribeConfigs", "host": "10.0.0.1"}
    assert json.loads(zookeeper.nodes[path].data) == {"version": 1, "acls": [entry]}
    assert [node.data for name, node in zookeeper.nodes.items() if name.startswith(folder)] == [notice]
    await settle()
    assert there.rules.find(AclFilter()) == [acl]
    await change(there, resource, lambda acls: acls - {acl})
    await settle()
    assert (path in zookeeper.nodes, len(here.rules), len(there.rules)) == (False, 0, 0)
    written = len(zookeeper.nodes)
    await change(there, resource, lambda acls: acls - {acl})
    assert len(zookeeper.nodes) == written, "there was nothing to change"


UNREADABLE = [
    b"{",
    b"[]",
    b'{"version":1}',
    b'{"version":2,"acls":[]}',
    b'{"version":9,"acls":7}',
    b"\xff",
    b"{" * 5000,
    b'{"version":1,"acls":[7]}',
    *(
        json.dumps({"version": 1, "acls": [ALICE, {**ALICE, key: text}]}).encode()
        for key, text in [("principal", "alice"), ("permissionType", "Perhaps"), ("operation", "Fly"), ("host", None)]
    ),
]


@for_each("data", UNREADABLE)
async def test_of_what_can_not_be_read_nobody_has_a_right(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/*", acls())
    put(zookeeper, "/kafka-acl/Topic/t", data)
    stored = await stored_in(zookeeper)
    alice, boss = Principal("User", "alice"), Principal("User", "boss")
    asked = ("127.0.0.1", AclOperation.READ, ResourceType.TOPIC)
    assert not stored.rules.decide(alice, *asked, "t").is_allowed
    assert stored.rules.decide(alice, *asked, "u").is_allowed
    assert not stored.rules.decide(boss, *asked, "u").is_allowed
    assert "the ACLs of Topic:LITERAL:t can't be read, so nobody but super users may use it: ZooKeeper" in caplog.text
    with pytest.raises(MalformedMessageError, match="ZooKeeper node /kafka-acl/Topic/t"):
        await change(stored, ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL), lambda _: frozenset())
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    put(zookeeper, "/kafka-acl-changes/acl_changes_0000000007", b"TOPIC:t")
    await settle()
    assert stored.rules.decide(alice, *asked, "t").is_allowed


async def test_a_node_that_we_may_not_read_locks_its_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    zookeeper = FakeZooKeeper()
    for name in ("t", "u"):
        put(zookeeper, f"/kafka-acl/Topic/{name}", acls())
    read = FakeSession.read_many

    async def read_some(session: FakeSession, paths: Sequence[str]) -> list[Node | None]:
        if "/kafka-acl/Topic/t" in paths:
            raise ZooKeeperError(Refusal.NO_AUTH, "/kafka-acl/Topic/t")
        return await read(session, paths)

    monkeypatch.setattr(FakeSession, "read_many", read_some)
    stored = await stored_in(zookeeper)
    assert {acl.resource_name: acl.permission_type for acl in stored.rules.find(AclFilter())} == {
        "t": AclPermissionType.DENY,
        "u": AclPermissionType.ALLOW,
    }


@for_each("notice", [b"garbage", b"COMET:x", b"TOPIC:", b"\xff:t"])
async def test_after_a_notice_that_can_not_be_read_all_is_read(notice: bytes) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    stored = await stored_in(zookeeper)
    zookeeper.set("/kafka-acl/Topic/t", acls(2))
    put(zookeeper, "/kafka-acl-changes/acl_changes_0000000000", notice)
    await settle()
    assert len(stored.rules) == 2


async def test_after_an_expiry_all_is_read(ensembles: Callable[[], Ensemble]) -> None:
    """Notices may have come and gone meanwhile."""
    ensemble = ensembles()
    async with ensemble.session() as session, ensemble.session() as other:
        stored = StoredAcls(cast(ZooKeeperSession, session), AclRules(), lambda: None, clock=SystemClock())
        await stored.make_folders()
        await other.commit([Create(f"/kafka-acl/Topic/t{number}", acls()) for number in range(3)])
        await stored.start()
        assert len(stored.rules) == 3
        await other.commit([SetData("/kafka-acl/Topic/t0", acls(5)), Delete("/kafka-acl/Topic/t1")])
        await ensemble.expire(session)
        if isinstance(session, FaultyModel):
            ensemble._model.tell(["/kafka-acl-changes"])  # as the watch of a new session does
        await until(lambda: len(stored.rules) == 6)
        stored.stop()


async def test_nothing_is_looked_at_once_it_has_stopped() -> None:
    zookeeper, found = FakeZooKeeper(), list[int]()
    stored = await stored_in(zookeeper, found)
    before = list(found)
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    stored.stop()
    await settle()
    assert (found, zookeeper._watches) == (before, [])


async def test_old_notices_are_deleted() -> None:
    zookeeper, clock = FakeZooKeeper(), ManualClock(0)
    session = cast(ZooKeeperSession, zookeeper.session())
    stored = StoredAcls(session, AclRules(), lambda: None, clock=clock)
    await stored.start()
    await change(stored, TOPIC, lambda acls: acls | {read_by("a", TOPIC)})
    await settle()
    clock.advance(15 * 60 * 1000)
    await change(stored, TOPIC, lambda acls: acls | {read_by("b", TOPIC)})
    await settle()
    assert len(zookeeper.children("/kafka-acl-changes") or ()) == 2
    clock.advance(1)
    await change(stored, TOPIC, lambda acls: acls | {read_by("c", TOPIC)})
    await settle()
    assert zookeeper.children("/kafka-acl-changes") == []


# --- conflicts


async def test_two_writers_lose_nothing(ensembles: Callable[[], Ensemble], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_acls, "_BACKOFF_S", (0.0, 0.0))
    ensemble = ensembles()
    async with ensemble.session() as first, ensemble.session() as second:
        sessions = [cast(ZooKeeperSession, one) for one in (first, second)]
        stored = [StoredAcls(one, AclRules(), lambda: None, clock=SystemClock()) for one in sessions]
        for one in stored:
            await one.start()
        wanted = {read_by(f"{number}", TOPIC) for number in range(20)}

        async def add(one: StoredAcls, acl: Acl) -> None:
            await change(one, TOPIC, lambda acls: acls | {acl})

        some = sorted(wanted)
        for pair in zip(some[::2], some[1::2], strict=True):
            await asyncio.gather(*(add(one, acl) for one, acl in zip(stored, pair, strict=True)))
        await until(lambda: all(set(one.rules.find(AclFilter())) == wanted for one in stored))
        for one in stored:
            one.stop()


OUTCOMES = [
    (Fault.DONE, ""),
    (Fault.NOT_DONE, ""),
    (Refusal.BAD_VERSION, ""),
    (Refusal.NODE_EXISTS, ""),
    (Refusal.SESSION_EXPIRED, ""),
    (Refusal.NO_NODE, ""),
    (Refusal.NO_AUTH, "our login may not"),
    (Refusal.NOT_EMPTY, "has nodes below it"),
]


@for_each("fault, error", OUTCOMES)
async def test_a_change_that_fails_is_tried_again(
    fault: Fault | Refusal, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_acls, "_BACKOFF_S", (0.0, 0.0))
    async with Ensemble(None, "/").session() as session:
        stored = StoredAcls(cast(ZooKeeperSession, session), AclRules(), lambda: None, clock=ManualClock(0))
        await stored.start()
        await stored.make_folders()
        acl = read_by("a", TOPIC)
        for wanted in ({acl}, set()):
            session.faults.append(fault)
            with pytest.raises(ZooKeeperError, match=error) if error else nullcontext():
                await change(stored, TOPIC, lambda _, wanted=wanted: frozenset(wanted))  # type: ignore[misc]
            if error:
                await change(stored, TOPIC, lambda _, wanted=wanted: frozenset(wanted))  # type: ignore[misc]
            assert set(stored.rules.find(AclFilter())) == wanted


async def test_it_gives_up_after_as_many_tries_as_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_acls, "_BACKOFF_S", (0.0, 0.0))
    async with Ensemble(None, "/").session() as session:
        stored = StoredAcls(cast(ZooKeeperSession, session), AclRules(), lambda: None, clock=ManualClock(0))
        await stored.start()
        await stored.make_folders()
        session.faults.extend([Refusal.BAD_VERSION] * 11)
        with pytest.raises(ZooKeeperError, match="was changed by somebody else"):
            await change(stored, TOPIC, lambda _: frozenset([read_by("a", TOPIC)]))
        assert (len(session.transactions), len(stored.rules)) == (11, 0)


async def test_a_node_that_is_too_large_is_not_sent() -> None:
    """ZooKeeper would end the session, and with it the broker's place."""
    zookeeper = FakeZooKeeper()
    stored = await stored_in(zookeeper)
    many = frozenset(read_by("a" * 9_000 + str(number), TOPIC) for number in range(100))
    with pytest.raises(KafkaError, match="more than 900000 bytes of ACLs"):
        await change(stored, TOPIC, lambda _: many)
    assert zookeeper.nodes == {}


async def test_many_are_changed_in_few_transactions_and_one_that_fails_alone() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t120", b"{")
    session = zookeeper.session()
    stored = StoredAcls(cast(ZooKeeperSession, session), AclRules(), lambda: None, clock=ManualClock(0))
    await stored.make_folders()
    await stored.start()
    resources = [ResourcePattern(ResourceType.TOPIC, f"t{number}", PatternType.LITERAL) for number in range(250)]
    wanted = {one: frozenset([read_by("a", one)]) for one in resources}
    failures = await stored.change({one: wanted[one].union for one in resources})
    assert [str(one) for one in failures] == ["Topic:LITERAL:t120"]
    assert len(session.committed) == 3
    assert len(stored.rules) == 250, "of one all is denied"

    commit = session.commit

    async def refused(operations: Sequence[Operation]) -> list[Answer]:
        if any(one.path.endswith("/t7") for one in operations):
            raise ZooKeeperError(Refusal.NOT_EMPTY, "/kafka-acl/Topic/t7")
        return await commit(operations)

    with patch.object(session, "commit", refused):
        failures = await stored.change({one: lambda _: frozenset() for one in resources if one.name != "t120"})
    assert [str(one) for one in failures] == ["Topic:LITERAL:t7"]
    assert {acl.resource_name for acl in stored.rules.find(AclFilter())} == {"t7", "t120"}
