"""What is asked of a broker, and of which: a client of one made-up broker, whose metadata come a moment late."""

from __future__ import annotations

from typing import Any, cast

import pytest

from core.client.admin.security_admin import AuthorizerSettings, ScramCredential, SecurityAdmin
from core.client.net import retry
from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.protocol.schema.acls import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from core.protocol.schema.quotas_and_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from core.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from core.security.principal import Principal
from tests.support.manual_clock import ManualTime


@pytest.fixture(autouse=True)
def _no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "time", ManualTime())


def acl(number: int, permission: AclPermissionType = AclPermissionType.ALLOW) -> Acl:
    return Acl(ResourceType.TOPIC, f"t{number}", PatternType.LITERAL, "User:a", "*", AclOperation.READ, permission)


class Broker:
    """A client, its connection and the broker in one. `late`: so many descriptions are of the time before."""

    def __init__(self, *, late: int = 0, is_private: bool = True, code: int = 0) -> None:
        self.is_private = is_private
        self.place = "on it"
        self.asked: list[Any] = []
        self.at_controller = 0
        self._late = late
        self._code = code
        self._acls: list[Acl] = []
        self._users: list[ScramCredential] = []

    def any_connection(self) -> Broker:
        return self

    def controller_connection(self) -> Broker:
        self.at_controller += 1
        self._code = 0
        return self

    def call(self, _api: Any, request: Any) -> Any:
        self.asked.append(request)
        match request:
            case CreateAclsRequest():
                self._acls += [Acl(*map(getattr, [one] * 7, FIELDS)) for one in request.creations]
                return CreateAclsResponse(results=[AclCreationResult(self._code, "no") for _ in request.creations])
            case DeleteAclsRequest():
                return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult() for _ in request.filters])
            case AlterUserScramCredentialsRequest():
                self._users += [ScramCredential(u.name, "SCRAM-SHA-512", u.iterations) for u in request.upsertions]
                names = [one.name for one in (*request.upsertions, *request.deletions)]
                return AlterUserScramCredentialsResponse(
                    results=[AlterUserScramCredentialsResult(name, self._code, None) for name in names]
                )
        self._late -= 1
        is_late = self._late >= 0
        if hasattr(request, "users"):
            infos = [CredentialInfo(2, one.iterations) for one in self._users if not is_late]
            code = 0 if infos else ErrorCode.RESOURCE_NOT_FOUND
            return DescribeUserScramCredentialsResponse(
                results=[DescribeUserScramCredentialsResult("u", code, None, infos)]
            )
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(a.resource_type, a.resource_name, a.pattern_type, [AclDescription(*a[3:])])
                for a in self._acls
                if not is_late
            ]
        )


FIELDS = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation",
          "permission_type")  # fmt: skip


def admin_of(broker: Broker) -> SecurityAdmin:
    return SecurityAdmin(cast(KafkaClient, broker))


def test_denials_are_added_first_in_pieces_and_all_are_known_at_the_end() -> None:
    broker = Broker(late=2)
    denial = acl(9999, AclPermissionType.DENY)
    admin_of(broker).create_acls([*map(acl, range(1500)), denial])
    denials, first, second, *described = broker.asked
    assert [one.resource_name for one in denials.creations] == [denial.resource_name]
    assert (len(first.creations), len(second.creations), len(described)) == (1000, 500, 3)


def test_each_acl_is_deleted_by_a_filter_of_its_own_and_denials_last() -> None:
    broker = Broker()
    admin_of(broker).delete_acls([acl(1, AclPermissionType.DENY), acl(2)])
    filters = [one for request in broker.asked[:2] for one in request.filters]
    assert [(one.resource_name_filter, one.pattern_type_filter, one.operation) for one in filters] == [
        ("t2", PatternType.LITERAL, AclOperation.READ), ("t1", PatternType.LITERAL, AclOperation.READ)
    ]  # fmt: skip


def test_an_acl_of_a_later_kafka_is_not_named_to_a_broker() -> None:
    broker = Broker()
    with pytest.raises(UsageError):
        admin_of(broker).delete_acls([acl(1), acl(2)._replace(operation=AclOperation.UNKNOWN)])
    assert not broker.asked


def test_a_broker_that_forwards_nothing_sends_to_the_controller() -> None:
    broker = Broker(code=ErrorCode.NOT_CONTROLLER)
    admin_of(broker).set_password(ScramCredential("u", "SCRAM-SHA-512", 4096), "x", allows_plaintext=False)
    assert broker.at_controller == 1


def test_a_refusal_names_the_acl() -> None:
    with pytest.raises(KafkaError) as caught:
        admin_of(Broker(code=ErrorCode.INVALID_REQUEST)).create_acls([acl(1)])
    assert caught.value.message == "User:a ALLOW READ on topic t1 from *: no"


def test_a_password_is_not_sent_in_plain() -> None:
    broker = Broker(is_private=False, late=1)
    credential = ScramCredential("u", "SCRAM-SHA-512", 4096)
    with pytest.raises(UsageError):
        admin_of(broker).set_password(credential, "x", allows_plaintext=False)
    assert not broker.asked
    admin_of(broker).set_password(credential, "x", allows_plaintext=True)
    assert len(broker.asked) == 1 + 2  # it waits until the user is known


def test_settings_that_are_hidden_are_taken_from_the_file() -> None:
    hidden = AuthorizerSettings.parse({"authorizer.class.name": "C", "super.users": None})
    assert hidden.unknown() == ["super.users"]
    file = AuthorizerSettings.parse({"super.users": "User:CN=a,O=b; User:c", "allow.everyone.if.no.acl.found": "true"})
    found = hidden.or_else(file)
    assert found == AuthorizerSettings("C", frozenset({Principal("User", "CN=a,O=b"), Principal("User", "c")}), False)
