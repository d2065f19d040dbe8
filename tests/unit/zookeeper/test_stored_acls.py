"""ACLs and delegation tokens in ZooKeeper, as Kafka 3.9's AclAuthorizer writes them: counted, and noticed."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from core.zookeeper.stored_acls import StoredAcls
from core.zookeeper.zookeeper_session import ZooKeeperSession
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.for_each import for_each

ALICE = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}


def acls(count: int = 1) -> bytes:
    return json.dumps({"version": 1, "acls": [ALICE] * count}).encode()


def put(zookeeper: FakeZooKeeper, path: str, data: bytes) -> None:
    """As kazoo's makepath: the nodes above are made without data."""
    parts = path.split("/")[1:]
    for length in range(1, len(parts)):
        above = "/" + "/".join(parts[:length])
        if above not in zookeeper.nodes:
            zookeeper.set(above, b"")
    zookeeper.set(path, data)


async def rules_of(zookeeper: FakeZooKeeper, found: list[int]) -> StoredAcls:
    rules = StoredAcls(cast(ZooKeeperSession, zookeeper.session()), lambda: found.append(rules.acls + rules.tokens))
    await rules.start()
    return rules


async def settle() -> None:
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)


PLACES = [
    "/kafka-acl/Topic/secret",
    "/kafka-acl/Cluster/kafka-cluster",
    "/kafka-acl/TransactionalId/team/7",  # which Kafka 3.9 refuses
    "/kafka-acl/User/alice",
    "/kafka-acl-extended/prefixed/Topic/pre",
    "/delegation_token/tokens/Zm9v",
]


@for_each("path", PLACES)
async def test_rules_that_are_there(path: str) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, path, acls())
    rules = await rules_of(zookeeper, [])
    assert (rules.acls, rules.tokens) == ((0, 1) if "token" in path else (1, 0))


@for_each("path", PLACES)
@for_each("has_folders", [True, False])
async def test_rules_that_appear(path: str, has_folders: bool) -> None:
    zookeeper = FakeZooKeeper()
    if has_folders:
        put(zookeeper, path.rpartition("/")[0], b"")
    found: list[int] = []
    await rules_of(zookeeper, found)
    assert found == []
    put(zookeeper, path, acls())
    await settle()
    assert found == [1]


async def test_rules_given_to_a_node_that_had_none() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t", acls(0))
    found: list[int] = []
    rules = await rules_of(zookeeper, found)
    assert (rules.acls, rules.has_folders) == (0, True)
    zookeeper.set("/kafka-acl/Topic/t", acls(2))
    await settle()
    assert found == [2]
    put(zookeeper, "/kafka-acl/Topic/u", acls())
    await settle()
    assert found == [2], "the first ones are news"


@for_each("data", [b"{", b"[]", b'{"version":1}', b'{"version":9,"acls":7}', b"\xff", b"{" * 5000])
async def test_what_can_not_be_read_may_be_a_rule(data: bytes) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t", data)
    assert (await rules_of(zookeeper, [])).acls == 1


async def test_folders_and_rules_that_went_are_none() -> None:
    zookeeper = FakeZooKeeper()
    for kind in ("Topic", "Group", "Cluster"):
        put(zookeeper, f"/kafka-acl/{kind}", b"")
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    zookeeper.delete("/kafka-acl/Topic/t")
    found: list[int] = []
    rules = await rules_of(zookeeper, found)
    assert (rules.acls, rules.tokens, rules.has_folders) == (0, 0, True)
    put(zookeeper, "/kafka-acl/Topic/again", acls())
    zookeeper.delete("/kafka-acl/Topic/again")
    await settle()
    assert found == []


async def test_nothing_is_looked_at_once_it_has_stopped() -> None:
    zookeeper, found = FakeZooKeeper(), list[int]()
    rules = await rules_of(zookeeper, found)
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    rules.stop()
    await settle()
    assert found == []


@pytest.mark.parametrize("count", [3, 1000])
async def test_many_are_counted_without_a_watch_of_each(count: int) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic", b"")
    for number in range(count):
        zookeeper.set(f"/kafka-acl/Topic/t{number}", acls(2))
    assert (await rules_of(zookeeper, [])).acls == 2 * count
    assert zookeeper._watches == []
