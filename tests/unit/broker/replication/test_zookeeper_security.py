"""ACLs and users of a cluster with ZooKeeper, as requests change them at a member with and without an authorizer."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import Mock, patch

import pytest

from core.broker.replication.zookeeper_security import ZooKeeperSecurity
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.common.pending import Pending
from core.protocol.schema.quotas_and_users import ScramCredentialDeletion, ScramCredentialUpsertion
from core.security.acl import Acl, AclFilter, AclOperation, AclPermissionType, PatternType, ResourceType
from core.security.acl_rules import ZooKeeperAclRules
from core.security.sasl.scram import ScramCredential
from core.zookeeper.znodes import LOGIN_SECRET, acls_of
from core.zookeeper.zookeeper_transaction import Create
from tests.support.fake_zookeeper import FakeZooKeeper
from tests.support.for_each import for_each
from tests.unit.broker.replication.test_unenforced_security import SCRAM_USER, Opened, user
from tests.unit.zookeeper.test_stored_acls import acls, put, settle

AUTHORIZED = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:boss"}


async def opened_in(zookeeper: FakeZooKeeper, **settings: str) -> Opened:
    opened = Opened(zookeeper, **{**AUTHORIZED, **settings})
    await opened.start()
    return opened


def acl(name: str = "t", who: str = "User:a", operation: AclOperation = AclOperation.READ, prefix: bool = False) -> Acl:
    pattern_type = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return Acl(ResourceType.TOPIC, name, pattern_type, who, "*", operation, AclPermissionType.ALLOW)


LOGIN = {
    "listeners": "IN://127.0.0.1:9093",
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
    "listener.name.in.sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


async def outcome(pending: Any) -> Any:
    assert isinstance(pending, Pending)
    found: list[Any] = []
    pending.on_value = found.append
    await settle()
    return found[0]


def codes(outcomes: Sequence[KafkaError | None]) -> list[ErrorCode | None]:
    return [error and error.code for error in outcomes]


async def test_with_an_authorizer_rules_and_users_are_no_reason_to_leave() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    put(zookeeper, "/config/users/alice", SCRAM_USER)
    opened = await opened_in(zookeeper)
    put(zookeeper, "/kafka-acl/Topic/u", acls())
    put(zookeeper, "/delegation_token/tokens/x", b"{}")
    await settle()
    assert (opened.reasons, opened.entry.security.summary) == ([], "1 SCRAM user and 1 delegation token")
    assert len(opened.entry.security.acls.rules) == 2
    assert isinstance(opened.entry.security.acls.rules, ZooKeeperAclRules)
    assert {"/kafka-acl/Group", "/kafka-acl-extended/prefixed/User", "/kafka-acl-changes"} <= zookeeper.nodes.keys()


async def test_without_one_the_way_out_is_named_and_nothing_is_written(caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic", b"")
    opened = Opened(zookeeper)
    await opened.start()
    assert "set authorizer.class.name=kafka.security.authorizer.AclAuthorizer" in caplog.text
    before = set(zookeeper.nodes)
    store = opened.entry.security.store
    for ask in (
        lambda: store.create_acls([acl()]),
        lambda: store.alter_scram_credentials([ScramCredentialUpsertion("a", 1, 4096, b"s", b"p")]),
    ):
        with pytest.raises(KafkaError, match="leave a cluster with ACLs or users") as refused:
            cast(Any, ask)()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
    assert set(zookeeper.nodes) == before


async def test_acls_are_created_and_deleted() -> None:
    zookeeper = FakeZooKeeper()
    here, there = await opened_in(zookeeper), await opened_in(zookeeper)
    store = here.entry.security.store
    wanted = [acl(), acl(who="User:b"), acl("p", prefix=True), acl()]
    assert await outcome(store.create_acls(wanted)) == [None] * 4
    assert set(there.entry.security.store.acls()) == set(wanted)
    filters = [
        AclFilter(principal="User:b"),
        AclFilter(ResourceType.TOPIC, "pen", PatternType.MATCH),
        AclFilter(ResourceType.TOPIC),
        AclFilter(ResourceType.GROUP, "../../config/users/alice", PatternType.LITERAL),
    ]
    deleted = await outcome(there.entry.security.store.delete_acls(filters))
    assert [[one.acl for one in some] for some in deleted] == [[wanted[1]], [wanted[2]], [wanted[0]], []]
    assert all(one.error is None for some in deleted for one in some)
    await settle()
    assert (list(store.acls()), "/kafka-acl/Topic/t" in zookeeper.nodes) == ([], False)


async def test_an_acl_of_which_no_notice_has_told_is_deleted_by_its_name() -> None:
    zookeeper = FakeZooKeeper()
    opened = await opened_in(zookeeper)
    watches, zookeeper._watches = zookeeper._watches, []
    put(zookeeper, "/kafka-acl/Topic/t", acls())
    zookeeper._watches = watches
    store = opened.entry.security.store
    assert store.acls() == []
    (deleted,) = await outcome(store.delete_acls([AclFilter(ResourceType.TOPIC, "t", PatternType.LITERAL)]))
    assert [one.acl for one in deleted] == [acl(who="User:alice")]


@for_each(
    "wrong", [acl("a/b"), acl(".."), acl(who="alice"), acl(operation=AclOperation.TWO_PHASE_COMMIT), acl("a" * 11_000)]
)
async def test_an_acl_that_no_node_can_hold_is_refused(wrong: Acl) -> None:
    zookeeper = FakeZooKeeper()
    opened = await opened_in(zookeeper)
    outcomes = await outcome(opened.entry.security.store.create_acls([acl("x"), wrong]))
    assert codes(outcomes) == [None, ErrorCode.INVALID_REQUEST]
    assert list(opened.entry.security.store.acls()) == [acl("x")]


async def test_a_node_that_can_not_be_read_is_not_written_over(caplog: pytest.LogCaptureFixture) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/kafka-acl/Topic/t", b"{")
    opened = await opened_in(zookeeper)
    store = opened.entry.security.store
    (error,) = await outcome(store.create_acls([acl()]))
    ((deleted,),) = await outcome(store.delete_acls([AclFilter(principal="User:*")]))
    assert deleted.acl.permission_type is AclPermissionType.DENY, "which locks it"
    assert {error.code, deleted.error.code} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert zookeeper.nodes["/kafka-acl/Topic/t"].data == b"{"
    assert "ACLs or credentials of Topic:LITERAL:t were not changed: ZooKeeper node /kafka-acl/Topic/t" in caplog.text


async def test_only_nodes_that_a_filter_is_about_are_read_again() -> None:
    zookeeper = FakeZooKeeper()
    for number in range(100):
        put(zookeeper, f"/kafka-acl/Topic/t{number}", acls())
    opened = await opened_in(zookeeper)
    reads = Mock(side_effect=opened.session.read_many)
    with patch.object(opened.session, "read_many", reads):
        await outcome(opened.entry.security.store.delete_acls([AclFilter(resource_name="t7"), AclFilter(host="::1")]))
    paths = {path for one in reads.mock_calls for path in one.args[0] if not path.startswith("/kafka-acl-changes/")}
    assert paths == {"/kafka-acl/Topic/t7"}


# --- users

_SALTED = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
_CLIENT_KEY = hmac.digest(_SALTED, b"Client Key", "sha256")
KEYS = [b"salt", hashlib.sha256(_CLIENT_KEY).digest(), hmac.digest(_SALTED, b"Server Key", "sha256")]
TEXT = "salt={},stored_key={},server_key={},iterations=4096".format(*(b64encode(one).decode() for one in KEYS))
"""As org.apache.kafka.common.security.scram.internals.ScramCredentialUtils writes it (RFC 5802, 3)."""


async def store_of(zookeeper: FakeZooKeeper) -> ZooKeeperSecurity:
    opened = await opened_in(zookeeper)
    await opened.session.ensure_paths(["/config/users"])
    return opened.entry.security.store


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(user, mechanism, iterations, b"salt", _SALTED)


async def test_a_user_gets_and_loses_credentials() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/config/users/al%20ice", b'{"version":1,"config":{"producer_byte_rate":"9"}}')
    opened = await opened_in(zookeeper)
    store = opened.entry.security.store
    both = [upsertion("al ice"), upsertion("al ice", 2, 8192), upsertion("bob")]
    assert await outcome(store.alter_scram_credentials(both)) == {"al ice": None, "bob": None}
    config = json.loads(zookeeper.nodes["/config/users/al%20ice"].data)["config"]
    assert (config["producer_byte_rate"], config["SCRAM-SHA-256"]) == ("9", TEXT)
    assert store.scram_users() == {"al ice": {1: 4096, 2: 8192}, "bob": {1: 4096}}
    notices = [
        one.data
        for some in opened.session.committed
        for one in some
        if isinstance(one, Create) and "changes" in one.path
    ]
    assert [json.loads(data)["entity_path"] for data in notices] == ["users/al%20ice", "users/bob"]
    deletions = [ScramCredentialDeletion("al ice", 2), ScramCredentialDeletion("bob", 1)]
    assert await outcome(store.alter_scram_credentials(deletions)) == {"al ice": None, "bob": None}
    assert store.scram_users() == {"al ice": {1: 4096}}


async def test_users_that_are_refused_each_in_its_way() -> None:
    zookeeper = FakeZooKeeper()
    store = await store_of(zookeeper)
    asked = [
        upsertion("good"),
        upsertion("", 1),
        upsertion("what", 3),
        upsertion("few", 1, 4095),
        upsertion("many", 1, 16385),
        upsertion("twice"),
        upsertion("twice"),
        upsertion(".."),
        upsertion("<default>"),
        ScramCredentialDeletion("nobody", 1),
    ]
    outcomes = await outcome(store.alter_scram_credentials(asked))
    found = dict(zip(outcomes, codes(outcomes.values()), strict=True))
    bad = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert found == {
        "good": None,
        "": bad,
        "what": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "few": bad,
        "many": bad,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "..": bad,
        "<default>": bad,
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert zookeeper.children("/config/users") == ["good"]


@for_each("text", ["", "iterations=", "iterations=x", "salt=iterations=1", "iterations=99999999999"])
async def test_credentials_that_can_not_be_read_are_shown_without_iterations(text: str) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/config/users/a", json.dumps({"version": 1, "config": {"SCRAM-SHA-256": text, "x": "y"}}).encode())
    put(zookeeper, "/config/users/b", b"{")
    store = await store_of(zookeeper)
    assert store.scram_users() == {"a": {1: 0}}


async def test_a_login_is_held_against_what_zookeeper_has() -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, "/config/users/al%20ice", user(**{"SCRAM-SHA-256": TEXT, "SCRAM-SHA-512": "salt=?"}))
    put(zookeeper, "/config/users/bob", b"{not JSON")
    store = await store_of(zookeeper)
    expected = ScramCredential(KEYS[0], KEYS[1], KEYS[2], 4096)
    assert store.find_scram_credential("al ice", "SCRAM-SHA-256") == expected
    assert store.usual_scram_credential("SCRAM-SHA-256") == expected
    assert store.find_scram_credential("al ice", "SCRAM-SHA-512") is None
    assert store.find_scram_credential("bob", "SCRAM-SHA-256") is None
    assert await outcome(store.alter_scram_credentials([upsertion("carol", iterations=8192)])) == {"carol": None}
    carol = store.find_scram_credential("carol", "SCRAM-SHA-256")
    assert carol is not None
    assert carol.iterations == 8192
    assert await outcome(store.alter_scram_credentials([ScramCredentialDeletion("al ice", 1)])) == {"al ice": None}
    assert store.find_scram_credential("al ice", "SCRAM-SHA-256") is None
    assert store.usual_scram_credential("SCRAM-SHA-256") == carol


async def test_brokers_at_which_clients_log_in_share_a_secret() -> None:
    """Nobody else may read its node, as those of users."""
    zookeeper = FakeZooKeeper()
    found = []
    for _ in range(2):
        opened = Opened(zookeeper, **LOGIN)
        await opened.start()
        found.append(opened.entry.security.login_secret)
    assert found[0] == found[1]
    assert len(found[0]) == 32
    assert [one.permissions for one in acls_of(LOGIN_SECRET, is_secured=True)] == [31]
    none = await opened_in(FakeZooKeeper())
    assert none.entry.security.login_secret == b""


@for_each("data", [b"", b"no secret"])
async def test_a_secret_that_anybody_could_guess_is_refused(data: bytes) -> None:
    zookeeper = FakeZooKeeper()
    put(zookeeper, LOGIN_SECRET, data)
    with pytest.raises(UsageError, match=f"/plog-login-secret in ZooKeeper has {len(data)} bytes, expected 32 random"):
        await Opened(zookeeper, **LOGIN).start()
