"""What people type to kafka-acls, and where it goes wrong for them (KAFKA-3790, KIP-252, KIP-290, KIP-679)."""

from __future__ import annotations

from typing import Any

import pytest

from core.common.errors import UsageError
from core.security.acl import (
    Acl,
    AclFilter,
)
from core.security.acl import (
    AclOperation as Op,
)
from core.security.acl import (
    AclPermissionType as Permission,
)
from core.security.acl import (
    PatternType as Pattern,
)
from core.security.acl import (
    ResourceType as Kind,
)
from core.security.acl_request import AclRequest, PatternChoice
from tests.support.for_each import for_each

ALICE = "User:alice"


def acl(kind: Kind, name: str, operation: Op, principal: str = ALICE, **more: Any) -> Acl:
    parts = {"pattern_type": Pattern.LITERAL, "host": "*", "permission_type": Permission.ALLOW, **more}
    return Acl(kind, name, parts["pattern_type"], principal, parts["host"], operation, parts["permission_type"])


def added(**options: Any) -> set[Acl]:
    return set(AclRequest(**options).acls())


def test_without_an_operation_all_is_allowed_from_any_host() -> None:
    assert added(allow_principals=[ALICE], topics=["t"]) == {acl(Kind.TOPIC, "t", Op.ALL)}


def test_each_goes_with_each() -> None:
    found = added(
        allow_principals=[ALICE, "User:*"],
        deny_principals=["User:eve"],
        allow_hosts=["10.0.0.1", "10.0.0.2"],
        operations=["Read,describe-configs"],
        topics=["a", "b"],
    )
    assert len(found) == 2 * 2 * 2 * 2 + 1 * 2 * 2
    assert acl(Kind.TOPIC, "b", Op.DESCRIBE_CONFIGS, "User:*", host="10.0.0.2") in found
    assert acl(Kind.TOPIC, "a", Op.READ, "User:eve", permission_type=Permission.DENY) in found


def test_a_producer_has_what_kafka_acls_gives_it() -> None:
    found = added(allow_principals=[ALICE], producer=True, idempotent=True, topics=["t"], transactional_ids=["x"])
    assert found == {
        acl(Kind.TOPIC, "t", Op.WRITE), acl(Kind.TOPIC, "t", Op.DESCRIBE), acl(Kind.TOPIC, "t", Op.CREATE),
        acl(Kind.TRANSACTIONAL_ID, "x", Op.WRITE), acl(Kind.TRANSACTIONAL_ID, "x", Op.DESCRIBE),
        acl(Kind.CLUSTER, "kafka-cluster", Op.IDEMPOTENT_WRITE),
    }  # fmt: skip


def test_the_cluster_stays_literal_among_prefixes() -> None:
    found = added(
        allow_principals=[ALICE], topics=["app-"], cluster=True, operations=["Create"], pattern=PatternChoice.prefixed
    )
    assert found == {
        acl(Kind.TOPIC, "app-", Op.CREATE, pattern_type=Pattern.PREFIXED), acl(Kind.CLUSTER, "kafka-cluster", Op.CREATE)
    }  # fmt: skip


def test_a_consumer_has_what_kafka_acls_gives_it() -> None:
    assert added(allow_principals=[ALICE], consumer=True, topics=["t"], groups=["g"]) == {
        acl(Kind.TOPIC, "t", Op.READ), acl(Kind.TOPIC, "t", Op.DESCRIBE), acl(Kind.GROUP, "g", Op.READ)
    }  # fmt: skip


def test_the_name_of_a_certificate_is_taken_as_it_is() -> None:
    name = "User:CN=alice,OU=a b,O=plog"
    (found,) = AclRequest(allow_principals=[name], topics=["t"]).acls()
    assert found.principal == name
    assert not list(AclRequest(allow_principals=[name], topics=["t"]).warnings())


@for_each(
    "options, message",
    [
        ({"topics": ["orders*"]}, "no topic can be called 'orders*'"),
        ({"topics": ["my topic"]}, "no topic can be called"),
        ({"topics": [""]}, "an empty name of a TOPIC"),
        ({}, "no resource is named"),
        ({"topics": ["t"], "allow_hosts": ["app.example.com"]}, "'app.example.com' is no IP address"),
        ({"topics": ["t"], "allow_hosts": ["10.0.0.0/99"]}, "is no IP address"),
        ({"topics": ["t"], "allow_hosts": [""]}, "is no IP address"),
        ({"topics": ["t"], "deny_hosts": ["10.0.0.1"]}, "--deny-host goes with --deny-principal"),
        ({"topics": ["t"], "operations": ["Reed"]}, "operation 'Reed' is unknown"),
        ({"topics": ["t"], "operations": ["any"]}, "operation 'any' is unknown"),
        ({"groups": ["g"], "operations": ["Write"]}, "a GROUP has no operation WRITE"),
        ({"topics": ["t"], "consumer": True}, "--consumer goes with --topic and --group"),
        ({"groups": ["g"], "consumer": True}, "--consumer goes with --topic and --group"),
        ({"transactional_ids": ["x"], "producer": True}, "--producer goes with --topic"),
        ({"topics": ["t"], "producer": True, "groups": ["g"]}, "--producer needs no group"),
        ({"topics": ["t"], "consumer": True, "groups": ["g"], "transactional_ids": ["x"]}, "needs no transactional id"),
        ({"topics": ["t"], "idempotent": True}, "--idempotent goes with --producer"),
        ({"topics": ["t"], "producer": True, "operations": ["Read"]}, "not with --operation"),
        ({"topics": ["t"], "producer": True, "deny_principals": [ALICE]}, "not with --deny-principal"),
        ({"topics": ["t"], "pattern": PatternChoice.match}, "match finds ACLs"),
        ({"topics": ["t"], "allow_principals": ["alice"]}, "'alice' is no principal"),
        ({"topics": ["t"], "allow_principals": ["user:alice"]}, "no client is 'user:alice'"),
        ({"user_principals": ["alice"]}, "'alice' is no principal"),
    ],
)  # fmt: skip
def test_what_could_never_match_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        AclRequest(**{"allow_principals": [ALICE], **options}).acls()
    assert message in caught.value.message


def test_a_star_at_the_end_is_meant_as_a_prefix() -> None:
    with pytest.raises(UsageError) as caught:
        AclRequest(allow_principals=[ALICE], topics=["orders-*"]).acls()
    assert caught.value.hint == "did you mean --topic orders- --resource-pattern-type prefixed?"


@for_each(
    "options, warning",
    [
        ({"allow_hosts": ["10.0.0.0/8"]}, "10.0.0.0/8: brokers before Kafka 4.4"),
        ({"allow_hosts": ["::1"]}, "::1: the ACL has it as 0:0:0:0:0:0:0:1"),
        ({"allow_principals": ["User:CN=a, OU=b"]}, "User:CN=a, OU=b: the name in a certificate has no space"),
        ({"topics": ["*"], "pattern": PatternChoice.prefixed}, "prefixed *: the names that begin with a star"),
    ],
)
def test_what_is_not_as_it_looks_is_named(options: dict[str, Any], warning: str) -> None:
    request = AclRequest(**{"allow_principals": [ALICE], "topics": ["t"], **options})
    (found,) = request.warnings()
    assert found.startswith(warning)


def test_an_address_is_stored_as_brokers_write_it_and_found_by_either_text() -> None:
    (found,) = AclRequest(allow_principals=[ALICE], topics=["t"], allow_hosts=["::1"]).acls()
    assert found.host == "0:0:0:0:0:0:0:1"
    filters = AclRequest(allow_hosts=["::1"]).filters()
    assert all(any(one.matches(found._replace(host=host)) for one in filters) for host in ("::1", found.host))


# --- what is looked for

STORED = [
    acl(Kind.TOPIC, "orders", Op.READ),
    acl(Kind.TOPIC, "orders", Op.WRITE, host="10.0.0.1"),
    acl(Kind.TOPIC, "or", Op.READ, pattern_type=Pattern.PREFIXED),
    acl(Kind.TOPIC, "*", Op.READ, "User:*"),
    acl(Kind.TOPIC, "orders", Op.READ, "User:eve", permission_type=Permission.DENY),
    acl(Kind.GROUP, "orders", Op.READ),
    acl(Kind.CLUSTER, "kafka-cluster", Op.CREATE),
]


@for_each(
    "options, found",
    [
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        ({"topics": ["orders"]}, [0, 1, 4]),
        ({"topics": ["orders"], "pattern": PatternChoice.match}, [0, 1, 2, 3, 4]),
        ({"topics": ["or"], "pattern": PatternChoice.any}, [2]),
        ({"topics": ["or"]}, []),
        ({"pattern": PatternChoice.prefixed}, [2]),
        ({"topics": ["*"]}, [3]),  # and not all topics
        ({"principals": ["User:eve"]}, [4]),
        ({"allow_principals": ["User:eve"]}, []),
        ({"allow_principals": [ALICE], "topics": ["orders"]}, [0, 1]),  # all operations: Kafka's tool takes All alone
        ({"allow_hosts": ["10.0.0.1"]}, [1]),
        ({"deny_hosts": ["*"]}, [4]),
        ({"cluster": True, "pattern": PatternChoice.prefixed}, [6]),
        ({"operations": ["Create", "Write"]}, [1, 6]),
        ({"consumer": True, "allow_principals": [ALICE]}, [0, 2, 5]),
        ({"consumer": True, "groups": ["orders"]}, [5]),
    ],
)
def test_what_is_found(options: dict[str, Any], found: list[int]) -> None:
    filters = AclRequest(**options).filters()
    assert [n for n, one in enumerate(STORED) if any(f.matches(one) for f in filters)] == found


def test_match_goes_with_a_name() -> None:
    with pytest.raises(UsageError):
        AclRequest(pattern=PatternChoice.match).filters()


def test_nothing_said_is_everything() -> None:
    assert AclRequest().filters() == [AclFilter()]
    assert AclRequest().is_of_all
    assert AclRequest(pattern=PatternChoice.any).is_of_all
    assert not AclRequest(operations=["Read"]).is_of_all
