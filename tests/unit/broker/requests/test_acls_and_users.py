"""CreateAcls, DescribeAcls, DeleteAcls and AlterUserScramCredentials, of clients and of the directory's owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.broker.requests.client_session import Session
from core.broker.requests.handlers import quotas_and_users
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError
from core.common.pending import Pending
from core.protocol.schema.acls import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from core.protocol.schema.quotas_and_users import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from core.security.acl import DESCRIBE_TOPIC
from core.security.principal import LOCAL
from tests.support.broker import SteeredNode, ask, ask_later, open_broker, open_secured_broker, open_session

ANY = 1
EVERYTHING: dict[str, Any] = {
    **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), ANY),
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
}
NO_AUTHORIZER = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
CREDENTIAL = ScramCredentialUpsertion("ann", 1, 4096, b"salt", b"salted")


def creation(name: str = "t", **changes: Any) -> AclCreation:
    fields = {"principal": "User:ann", "host": "*", "operation": 3, "permission_type": 3, "resource_type": 2}
    return AclCreation(resource_name=name, **{**fields, **changes})


def create(broker: SteeredNode, *creations: AclCreation, session: Session | None = None) -> list[Any]:
    answer = ask(broker, CREATE_ACLS, CreateAclsRequest(list(creations)), session=session)
    return [(one.error_code, one.error_message) for one in answer.results]


def shown(broker: SteeredNode, session: Session | None = None, **wanted: Any) -> list[Any]:
    answer = ask(broker, DESCRIBE_ACLS, DescribeAclsRequest(**{**EVERYTHING, **wanted}), session=session)
    obeys = session is None or session.authorizer is not None
    assert (answer.error_code, answer.error_message) == (0, "" if obeys else NO_AUTHORIZER[1])
    return [(resource.resource_name, acl.principal) for resource in answer.resources for acl in resource.acls]


def delete(broker: SteeredNode, *wanted: dict[str, Any], session: Session | None = None) -> list[Any]:
    filters = [DeleteAclsFilter(**{**EVERYTHING, **one}) for one in wanted]
    answer = ask(broker, DELETE_ACLS, DeleteAclsRequest(filters), session=session)
    return [(one.error_code, [acl.resource_name for acl in one.matching_acls]) for one in answer.filter_results]


def test_without_an_authorizer_the_owner_may_change_acls_and_clients_may_not(tmp_path: Path) -> None:
    """The owner has the socket, or the directory itself; the next start obeys what is there then."""
    broker = open_broker(tmp_path)
    client, owner = open_session(broker, "User:ANONYMOUS"), open_session(broker, str(LOCAL))
    assert create(broker, creation(), creation(""), session=client) == [NO_AUTHORIZER] * 2
    assert [code for code, _ in delete(broker, {}, session=client)] == [ErrorCode.SECURITY_DISABLED]
    described = ask(broker, DESCRIBE_ACLS, DescribeAclsRequest(**EVERYTHING), session=client)
    assert (described.error_code, described.error_message) == NO_AUTHORIZER
    assert create(broker, creation("a"), session=owner) == create(broker, creation("b")) == [(0, "")]
    assert shown(broker, owner) == shown(broker) == [("a", "User:ann"), ("b", "User:ann")]
    broker.close()
    again = open_broker(tmp_path)
    assert open_session(again, "User:ann").has(DESCRIBE_TOPIC, "b")
    assert not open_session(again, "User:ann").has(DESCRIBE_TOPIC, "c")
    assert shown(again, open_session(again, str(LOCAL))) == [("a", "User:ann"), ("b", "User:ann")]


def test_what_is_created_and_deleted_holds_for_the_next_request(tmp_path: Path) -> None:
    broker = open_secured_broker(tmp_path, super_users="User:root")
    root, ann = open_session(broker, "User:root"), open_session(broker, "User:ann")
    assert not ann.has(DESCRIBE_TOPIC, "t")
    assert create(broker, creation(), session=root) == [(0, "")]
    assert ann.has(DESCRIBE_TOPIC, "t")
    refused = [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.text)]
    assert create(broker, creation("u"), session=ann) == refused
    assert delete(broker, {"resource_name_filter": "t"}, {}, session=root) == [(0, ["t"]), (0, ["t"])]
    assert not ann.has(DESCRIBE_TOPIC, "t")
    assert shown(broker, root) == []


def test_one_acl_that_is_a_filter_spoils_the_request(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    for change in ({"operation": ANY}, {"permission_type": ANY}, {"resource_pattern_type": 2}, {"resource_type": ANY}):
        assert create(broker, creation(), creation(**change)) == [(ErrorCode.UNKNOWN_SERVER_ERROR, None)] * 2
    assert shown(broker) == []


@pytest.mark.parametrize("place", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_unknown_element_closes_the_connection(tmp_path: Path, place: str) -> None:
    broker = open_broker(tmp_path)
    with pytest.raises(MalformedMessageError, match="UNKNOWN"):
        create(broker, creation(), creation(**{place: 0}))
    name = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}.get(place, place)
    for find in (shown, delete):
        with pytest.raises(MalformedMessageError, match="UNKNOWN"):
            shown(broker, **{name: 0}) if find is shown else delete(broker, {name: 0})
    assert shown(broker, **{name: 99}) == [], "that of a later Kafka"
    assert create(broker, creation(**{place: 99}))[0][0] == ErrorCode.INVALID_REQUEST


def test_odd_names_are_kept_and_those_that_kafka_could_not_read_are_not(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    longest = "\u20ac" * (0x7FFF // 3)
    names = ["a\0b", "\U0001f600", " ", longest]
    assert create(broker, *map(creation, names)) == [(0, "")] * 4
    assert [name for name, _ in shown(broker)] == names
    for field in ("resource_name", "principal", "host"):
        fields = {"resource_name": "t", "principal": "User:", field: "User:" + longest}
        with pytest.raises(MalformedMessageError, match="expected at most 32767"):
            create(broker, creation(fields.pop("resource_name"), **fields))
    with pytest.raises(MalformedMessageError, match="expected at most 32767"):
        alter(broker, ScramCredentialUpsertion(longest + "aa", 1, 4096, b"s", b"p"))
    assert len(shown(broker)) == 4


def alter(broker: SteeredNode, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, Any]:
    request = AlterUserScramCredentialsRequest(
        [one for one in changes if isinstance(one, ScramCredentialDeletion)],
        [one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    answer = ask(broker, ALTER_USER_SCRAM_CREDENTIALS, request)
    return {one.user: (one.error_code, one.error_message) for one in answer.results}


def test_users_need_no_authorizer_and_the_right_to_alter_the_cluster_with_one(tmp_path: Path) -> None:
    assert alter(open_broker(tmp_path / "open"), CREDENTIAL) == {"ann": (0, None)}
    broker = open_secured_broker(tmp_path / "secured")
    request = AlterUserScramCredentialsRequest([ScramCredentialDeletion("bob", 1)], [CREDENTIAL])
    answer = ask(broker, ALTER_USER_SCRAM_CREDENTIALS, request, session=open_session(broker, "User:ann"))
    assert {one.user: one.error_code for one in answer.results} == dict.fromkeys(
        ("ann", "bob"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )
    assert not broker.services.image.security.scram_credentials


def test_a_broker_that_writes_nothing_changes_nothing(tmp_path: Path) -> None:
    open_broker(tmp_path).close()
    broker = open_broker(tmp_path, is_read_only=True)
    assert [code for code, _ in create(broker, creation())] == [ErrorCode.POLICY_VIOLATION]
    assert delete(broker, {}) == [(ErrorCode.POLICY_VIOLATION, [])]
    assert [code for code, _ in alter(broker, CREDENTIAL).values()] == [ErrorCode.POLICY_VIOLATION]
    assert shown(broker) == []


def test_a_request_names_so_many_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas_and_users, "_MOST_NAMED", 2)
    broker = open_broker(tmp_path)
    assert [code for code, _ in create(broker, *[creation()] * 3)] == [ErrorCode.POLICY_VIOLATION] * 3
    assert create(broker, *[creation()] * 2) == [(0, "")] * 2
    assert delete(broker, {}, {}, {}) == [(ErrorCode.POLICY_VIOLATION, [])] * 3
    three = [ScramCredentialUpsertion(name, 1, 4096, b"s", b"p") for name in "abc"]
    assert {code for code, _ in alter(broker, *three).values()} == {ErrorCode.POLICY_VIOLATION}
    assert shown(broker) == [("t", "User:ann")]


# --- stores that fail, or answer later


def test_a_store_that_fails_as_a_whole_fails_all_that_was_sound(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)

    def fail(_records: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    broker.services.security._submit = fail  # type: ignore[attr-defined]
    full = (ErrorCode.KAFKA_STORAGE_ERROR, "full")
    invalid = (ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    assert create(broker, creation(), creation(""), creation("u")) == [full, invalid, full]
    assert [code for code, _ in delete(broker, {}, {})] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert alter(broker, CREDENTIAL, ScramCredentialDeletion("bob", 1)) == {"ann": full, "bob": full}


def test_a_store_may_answer_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = open_broker(tmp_path)
    security = broker.services.security
    waiting: list[tuple[Pending[Any], Any]] = []
    for name in ("create_acls", "delete_acls", "alter_scram_credentials"):
        now = getattr(security, name)

        def later(asked: Any, now: Any = now) -> Pending[Any]:
            waiting.append((Pending(), now(asked)))
            return waiting[-1][0]

        monkeypatch.setattr(security, name, later)
    created = ask_later(broker, CREATE_ACLS, CreateAclsRequest([creation(""), creation()]), 3)
    deleted = ask_later(broker, DELETE_ACLS, DeleteAclsRequest([DeleteAclsFilter(**EVERYTHING)]), 3)
    altered = ask_later(broker, ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest([], [CREDENTIAL]), 0)
    assert created == deleted == altered == []
    for pending, value in waiting:
        pending.complete_with(value)
    assert [one.error_code for one in created[0].results] == [ErrorCode.INVALID_REQUEST, 0]
    assert [acl.resource_name for acl in deleted[0].filter_results[0].matching_acls] == ["t"]
    assert [(one.user, one.error_code) for one in altered[0].results] == [("ann", 0)]
