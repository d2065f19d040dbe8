"""The broker's authorizer: when there is one, that it follows the ACLs of the metadata, and its audit log."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from core.broker.broker_server import BrokerServer
from core.broker.config.broker_config import BrokerConfig
from core.broker.observe.metrics import broker_metrics
from core.broker.requests import authorizer
from core.broker.requests.authorizer import Asker, Authorizer
from core.broker.requests.client_session import Session
from core.broker.requests.request_context import RequestContext
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.task import finish
from core.common.topic_partition import random_uuid
from core.protocol.frame import decode_response, encode_request
from core.protocol.schema.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from core.protocol.schema.reassignments import LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest
from core.security.acl import (
    CLUSTER_NAME,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    Acl,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    Right,
)
from core.security.acl_rules import AclRules
from core.security.principal import Principal
from tests.support.authorizers import RULES, SUPER_USER, recorded
from tests.support.broker import (
    SteeredNode,
    open_broker,
    open_secured_broker,
    open_session,
    serving,
    write_acls,
)
from tests.support.for_each import for_each

ALICE_READS = Acl(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW
)


def sees(broker: SteeredNode, principal: str = "User:alice", topic: str = "t") -> bool:
    return may(open_session(broker, principal), topic)


def may(session: Session, topic: str = "t") -> bool:
    return RequestContext(0, None, session, "Metadata").may(DESCRIBE_TOPIC, topic)


def test_rules_follow_the_metadata(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path, super_users="User:root;User:CN=a,O=b")
    assert not sees(broker)
    assert sees(broker, "User:root")
    assert sees(broker, "User:CN=a,O=b")
    first, second = write_acls(broker, ALICE_READS, ALICE_READS)
    assert (sees(broker), sees(broker, "User:bob"), sees(broker, topic="u")) == (True, False, False)
    for acl_id, is_left in ((first, True), (second, False)):
        remove(broker, acl_id)
        assert sees(broker) is is_left


def remove(broker: SteeredNode, acl_id: bytes) -> None:
    assert isinstance(broker.services.controller, SingleNodeController)
    broker.services.controller._submit([RemoveAccessControlEntryRecord(acl_id)])


def test_a_directory_that_holds_acls_is_served_by_them(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path, ALICE_READS)
    broker.close()
    broker = open_broker(tmp_path)
    assert (sees(broker), sees(broker, "User:bob")) == (True, False)
    broker.close()
    config = BrokerConfig(ignores_security=True)
    assert SteeredNode(tmp_path, config).authorizer is None


def test_a_command_without_a_server_may_do_everything(tmp_path: Path) -> None:
    open_secured_broker(tmp_path, ALICE_READS).close()
    embedded = BrokerServer(tmp_path, BrokerConfig())
    assert embedded.authorizer is None
    embedded.close()


def test_without_a_setting_and_acls_there_is_none(tmp_path: Path) -> None:
    assert open_broker(tmp_path).authorizer is None


def test_everyone_is_allowed_what_no_acl_is_about(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path, ALICE_READS, allow_everyone_if_no_acl_found="true")
    assert (sees(broker, "User:bob"), sees(broker, "User:bob", "u")) == (False, True)


@for_each(
    "changes",
    [
        {"resource_type": 99},
        {"pattern_type": -7},
        {"operation": 42},
        {"permission_type": 9},
        {"principal": "alice"},
        {"principal": ""},
    ],
)
def test_acls_that_no_kafka_writes_stay_and_never_match(
    tmp_path: Path, changes: dict[str, int | str], caplog: pytest.LogCaptureFixture
) -> None:
    fields: dict[str, int | str] = {
        "resource_type": 2,
        "resource_name": "t",
        "pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }
    record = AccessControlEntryRecord(random_uuid(), **{**fields, **changes})  # type: ignore[arg-type]
    broker = open_secured_broker(tmp_path)
    assert isinstance(broker.services.controller, SingleNodeController)
    broker.services.controller._submit([record])
    assert not sees(broker)
    broker.close()
    caplog.clear()
    broker = open_broker(tmp_path)
    assert not sees(broker)
    is_about_nothing = bool({*changes} & {"resource_type", "pattern_type"})
    assert ("1 ACL of the metadata with an unknown type" in caplog.text) is is_about_nothing
    assert broker.services.image.security.acls == {record.id: record}
    remove(broker, record.id)
    assert not broker.services.image.security.acls


def test_metrics_count_answers_and_acls(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path, ALICE_READS)
    assert [sees(broker), sees(broker), sees(broker, "User:bob")] == [True, True, False]
    found = {(s.name, *s.labels.values()): s.value for m in finish(broker_metrics(broker)) for s in m.samples}
    counts = found["plog_authorizations_total", "allowed"], found["plog_authorizations_total", "denied"]
    assert (*counts, found["plog_acls",]) == (2, 1, 1)


async def test_a_listener_of_a_test_names_the_client(tmp_path: Path) -> None:
    describe = ALICE_READS._replace(
        resource_type=ResourceType.CLUSTER, resource_name=CLUSTER_NAME, operation=AclOperation.DESCRIBE
    )
    broker = open_secured_broker(tmp_path, describe)
    codes = []
    for name in ("alice", "bob"):
        async with serving(broker, lambda _listener, _host: Principal("User", name)) as server:  # noqa: B023
            reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
            request = ListPartitionReassignmentsRequest(1000, None)
            writer.write(encode_request(LIST_PARTITION_REASSIGNMENTS, 0, 1, "test", request))
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.close()
            codes.append(decode_response(LIST_PARTITION_REASSIGNMENTS, 0, memoryview(answer))[1].error_code)
    assert codes == [0, 31]


def test_what_is_decided_is_remembered_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client chooses the names, and how many there are."""
    monkeypatch.setattr(authorizer, "_MOST_REMEMBERED", 200)
    session = open_session(open_secured_broker(tmp_path, ALICE_READS), "User:alice")
    for number in range(250):
        session.has(DESCRIBE_TOPIC, f"topic-{number}")
    assert len(session.decisions) <= 200
    session.decisions.clear()
    session.has(DESCRIBE_TOPIC, "t" * 30_000)
    assert not session.decisions
    assert session.has(DESCRIBE_TOPIC, "t")


def test_what_is_remembered_for_all_clients_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client may have a session for each of its addresses, of which IPv6 gives it as many as it likes."""
    monkeypatch.setattr(authorizer, "_MOST_REMEMBERED_OF_ALL", 100)
    broker = open_secured_broker(tmp_path, ALICE_READS)
    sessions = [open_session(broker, "User:alice", f"10.0.0.{number}") for number in range(50)]
    for session in sessions:
        for name in ("t", "u", "v"):
            assert [session.has(DESCRIBE_TOPIC, name) for _ in range(2)] == [name == "t"] * 2
        assert sum(len(one.decisions) for one in sessions) <= 100
    assert sum(len(one.decisions) for one in sessions) > 3


def test_the_audit_log_has_a_bound_a_second_and_says_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(authorizer, "monotonic", lambda: now[0])
    broker = open_secured_broker(tmp_path)
    session = open_session(broker, "User:alice")
    with caplog.at_level("INFO", "plog.authorizer"):
        for number in range(1500):
            may(session, "a\nb")
            if not number % 3:  # the lines of others have their room
                sees(broker, f"User:{number}")
        assert len(caplog.records) == 1000
        now[0] += 1
        may(session)
    assert broker.authorizer is not None
    assert broker.authorizer.denied == 2001
    texts = [record.getMessage() for record in caplog.records]
    assert texts[-2] == "1000 decisions of one second are left out here"
    assert texts[-1] == (
        "Principal = User:alice is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Metadata with resourceRefCount = 1 based on rule DefaultDeny"
    )
    assert "on resource = Topic:LITERAL:a\\nb for" in texts[0]


def test_a_right_on_any_resource_is_remembered_until_an_acl_changes(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path)
    alice = open_session(broker, "User:alice")
    assert not alice.may_somewhere(READ_TOPIC)
    (acl_id,) = write_acls(broker, ALICE_READS)
    assert [alice.may_somewhere(READ_TOPIC) for _ in range(2)] == [True, True]
    remove(broker, acl_id)
    assert not alice.may_somewhere(READ_TOPIC)


@pytest.mark.parametrize("kafkas", RULES)
def test_audit_lines_are_kafkas(kafkas: str, caplog: pytest.LogCaptureFixture) -> None:
    """The recorded lines of AclAuthorizer are those of refusals."""
    caplog.set_level(logging.DEBUG if kafkas == "StandardAuthorizer" else logging.INFO, "plog.authorizer")
    cases, answers = recorded(kafkas)
    remaining = iter(answers)
    compared = 0
    for case in cases[:30]:
        rules = RULES[kafkas](case.acls, super_users=[SUPER_USER], allows_everyone_if_none=case.allows_everyone_if_none)
        ours = Authorizer(rules)
        for principal, host, operation, resource_type, name in case.questions:
            _, line = next(remaining)
            if not line.isprintable() or (name is None and kafkas == "StandardAuthorizer"):
                continue
            caplog.clear()
            asker, right = Asker(principal, host), Right.of(operation, resource_type)
            if name is None:
                ours.authorize_somewhere(asker, right, "Metadata")
            else:
                ours.authorize(asker, right, name, "Metadata")
            assert "".join(caplog.messages) == line
            compared += bool(line)
    assert compared > 200


def test_a_long_name_is_cut_in_an_audit_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plog.authorizer")
    asker, right = Asker(Principal("User", "a"), "10.0.0.1"), Right.of(AclOperation.READ, ResourceType.GROUP)
    Authorizer(AclRules()).authorize(asker, right, "\0" * 32_767, "Heartbeat")
    (line,) = caplog.messages
    assert len(line) < 5000
    assert "(32775 characters)" in line


def test_no_name_breaks_an_audit_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "plog.authorizer")
    anything = Acl(
        ResourceType.GROUP, "a\n", PatternType.PREFIXED, "User:*", "*", AclOperation.ALL, AclPermissionType.DENY
    )
    asker = Asker(Principal("User", "b\r"), "10.0.0.1")
    Authorizer(AclRules([anything])).authorize(asker, Right.of(AclOperation.READ, ResourceType.GROUP), "a\n\0", "Fetch")
    (line,) = caplog.messages
    assert line.isprintable()
    assert r"User:b\r is Denied" in line and r"Group:LITERAL:a\n\x00 for" in line and r"resourceName=a\n, " in line
