"""Why is my client denied?"""

from __future__ import annotations

from core.security.acl import (
    Acl,
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
from core.security.acl_explanation import Question, find_reasons, find_ways_out
from core.security.acl_rules import AclRules
from core.security.principal import Principal

ALICE = Principal("User", "alice")


def topic(name: str, operation: Op, principal: str = "User:alice", host: str = "*", *, denies: bool = False) -> Acl:
    pattern = Pattern.PREFIXED if name.endswith("-") else Pattern.LITERAL
    return Acl(Kind.TOPIC, name, pattern, principal, host, operation, Permission.DENY if denies else Permission.ALLOW)


def explained(
    acls: list[Acl], operation: Op = Op.READ, host: str = "10.0.0.1", principal: Principal = ALICE
) -> tuple[bool, list[tuple[str, Acl]], list[str]]:
    question = Question(principal, host, operation, Kind.TOPIC, "app-orders")
    decision = AclRules(acls).decide(*question)
    reasons = find_reasons(question, decision, acls)
    return decision.is_allowed, [tuple(reason) for reason in reasons], find_ways_out(question, decision, reasons)


def test_a_denial_counts_more_than_all_that_allow() -> None:
    allows = [topic("app-orders", Op.READ), topic("*", Op.ALL, "User:*"), topic("app-", Op.READ)]
    denies = topic("app-", Op.ALL, "User:*", denies=True)
    is_allowed, reasons, ways = explained([*allows, denies])
    assert not is_allowed
    assert reasons[0] == ("decides", denies)
    assert {why for why, _ in reasons[1:]} == {"overruled"}
    assert ways == [
        "plog acl remove --deny-principal 'User:*' --operation ALL --topic app- --resource-pattern-type prefixed"
    ]


def test_without_an_acl_the_line_that_would_allow_it_is_shown() -> None:
    assert explained([]) == (
        False, [],
        ["plog acl add --allow-principal User:alice --allow-host 10.0.0.1 --operation READ --topic app-orders"],
    )  # fmt: skip


def test_near_misses() -> None:
    near = {
        "other host": topic("app-orders", Op.READ, host="10.0.0.2"),
        "other operation": topic("app-orders", Op.WRITE),
        "other operation and host": topic("app-orders", Op.WRITE, host="10.0.0.2"),
        "other spelling of the principal": topic("app-orders", Op.READ, "User:Alice"),
    }
    far = [topic("orders", Op.READ), topic("app-orders", Op.READ, "User:bob")]
    assert explained([*far, *near.values()])[:2] == (False, list(near.items()))


def test_the_blanks_of_a_certificates_name() -> None:
    acl = topic("app-orders", Op.READ, "User:CN=alice, OU=eng")
    _, reasons, _ = explained([acl], principal=Principal("User", "CN=alice,OU=eng"))
    assert reasons == [("other spelling of the principal", acl)]


def test_read_implies_describe_and_a_denial_implies_nothing() -> None:
    read = topic("app-orders", Op.READ)
    assert explained([read], Op.DESCRIBE)[:2] == (True, [("decides", read)])
    denied = topic("app-orders", Op.READ, denies=True)
    is_allowed, reasons, _ = explained([topic("app-orders", Op.WRITE), denied], Op.DESCRIBE)
    assert is_allowed
    assert ("other operation", denied) in reasons


def test_a_super_user_needs_no_acl() -> None:
    question = Question(ALICE, "*", Op.READ, Kind.TOPIC, "t")
    denied = topic("*", Op.ALL, denies=True)
    decision = AclRules([denied], super_users=[ALICE]).decide(*question)
    assert decision.is_allowed
    assert decision.rule_text == "SuperUser"
    assert find_reasons(question, decision, [denied]) == [("matches too", denied)]
