"""How ACLs decide: as Kafka's authorizers did when they were asked, and as a model says that looks at every ACL.

`tests/interop/test_authorizers.py` asks Kafka itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.security.acl import (
    ALLOWED_BY,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    parse_host_range,
)
from core.security.acl_rules import AclRules, ZooKeeperAclRules
from core.security.principal import ANONYMOUS, ANY_USER, LOCAL, Principal
from tests.support.authorizers import RULES, differences, recorded

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"

both = pytest.mark.parametrize("rules_class", [AclRules, ZooKeeperAclRules])


def acl(
    name: str,
    pattern: PatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
    operation: AclOperation = READ,
    who: str = "User:alice",
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, name, pattern, who, host, operation, permission)


# --- as Kafka did


@pytest.mark.parametrize("authorizer", RULES)
def test_two_thousand_recorded_questions(authorizer: str) -> None:
    cases, answers = recorded(authorizer)
    assert len(answers) == 2_000
    assert differences(authorizer, cases, answers) == []


# --- as a model says

_patterns = st.tuples(st.sampled_from(["a", "ab", "abc", "b", "*", "hardcode"]), st.sampled_from([LITERAL, PREFIXED]))
_operations = st.sampled_from([READ, WRITE, DESCRIBE, ALL, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS])
_acls = st.builds(
    lambda kind, pattern, *rest: Acl(kind, *pattern, *rest),
    st.sampled_from([TOPIC, GROUP]),
    _patterns,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", HOST, "10.0.0.2"]),
    _operations,
    st.sampled_from([ALLOW, DENY]),
)
_sets = st.lists(_acls, max_size=12, unique=True)
_names = st.sampled_from(["", "a", "ab", "abcd", "b", "*", "c", "*a"])


def model(acls: Sequence[Acl], everyone: bool, operation: AclOperation, name: str) -> bool:
    """Alice at HOST and a topic: looks at every ACL, as the documentation of Kafka says it."""
    about = [
        each
        for each in acls
        if each.resource_type is TOPIC
        and (name.startswith(each[1]) if each.pattern_type is PREFIXED else each.resource_name in (name, "*"))
    ]
    hers = [each for each in about if each.principal in ("User:alice", "User:*") and each.host in ("*", HOST)]
    if any(each.permission_type is DENY and each.operation in (operation, ALL) for each in hers):
        return False
    implied_by = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }
    enough = {operation, ALL} | implied_by.get(operation, set())
    return any(each.permission_type is ALLOW and each.operation in enough for each in hers) or (everyone and not about)


def model_somewhere(acls: Sequence[Acl], everyone: bool, operation: AclOperation, *, is_standard: bool) -> bool:
    """As KIP-679 says it: what is allowed by name or prefix is not below what is denied; `*` decides first."""
    said = {
        (each.permission_type, *each[1:3])
        for each in acls
        if (each.resource_type, each.principal in ("User:alice", "User:*"), each.host in ("*", HOST))
        == (TOPIC, True, True)
        and each.operation in (operation, ALL)
    }
    if is_standard and model(acls, everyone, operation, "hardcode"):
        return True
    if (DENY, "*", LITERAL) in said or (everyone and not is_standard):
        return (DENY, "*", LITERAL) not in said
    denied = {name for permission, name, pattern in said if (permission, pattern) == (DENY, PREFIXED)}
    return any(
        permission is ALLOW
        and ((name, pattern) == ("*", LITERAL) or not (
            any(map(name.startswith, denied)) or (pattern is LITERAL and (DENY, name, LITERAL) in said)
        ))
        for permission, name, pattern in said
    )  # fmt: skip


@both
@given(acls=_sets, everyone=st.booleans(), operation=_operations, name=_names)
def test_decides_as_the_model(
    rules_class: type[AclRules], acls: list[Acl], everyone: bool, operation: AclOperation, name: str
) -> None:
    rules = rules_class(acls, allows_everyone_if_none=everyone)
    decision = rules.decide(ALICE, HOST, operation, TOPIC, name)
    assert decision.is_allowed is model(acls, everyone, operation, name)
    alone = [rules_class([each]).decide(ALICE, HOST, operation, TOPIC, name) for each in acls]
    assert decision.acl in [each.acl for each in alone if each.acl] or [None]
    if decision.acl is not None:
        assert decision.is_allowed is (decision.acl.permission_type is ALLOW)


@both
@given(acls=_sets, everyone=st.booleans(), operation=_operations)
def test_decides_about_any_resource_as_the_model(
    rules_class: type[AclRules], acls: list[Acl], everyone: bool, operation: AclOperation
) -> None:
    allowed = rules_class(acls, allows_everyone_if_none=everyone).allows_somewhere(ALICE, HOST, operation, TOPIC)
    assert allowed is model_somewhere(acls, everyone, operation, is_standard=rules_class is AclRules)


@given(st.lists(st.tuples(st.booleans(), _acls), max_size=40), _sets)
def test_changes_leave_what_a_set_would_hold(changes: list[tuple[bool, Acl]], first: list[Acl]) -> None:
    rules, held = AclRules(first), set(first)
    for is_added, each in changes:
        before = rules.generation
        rules.change(added=[each] * is_added, removed=[each] * (not is_added))
        assert (rules.generation != before) is ((each in held) is not is_added)
        held = held | {each} if is_added else held - {each}
        assert len(rules) == len(held)
        assert set(rules.find(AclFilter())) == held
    for name in ("a", "abcd", "*"):
        for operation in (READ, DESCRIBE):
            decision = rules.decide(ALICE, HOST, operation, TOPIC, name)
            assert decision == AclRules(held).decide(ALICE, HOST, operation, TOPIC, name)


@given(
    _sets,
    st.builds(
        AclFilter,
        st.sampled_from([ResourceType.ANY, TOPIC, ResourceType.USER]),
        st.none() | _names,
        st.sampled_from([PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED]),
        st.sampled_from([None, "User:alice"]),
    ),
)
def test_find_returns_what_the_filter_matches(acls: list[Acl], asked: AclFilter) -> None:
    found = AclRules(acls).find(asked)
    assert sorted(found) == sorted(each for each in acls if asked.matches(each))
    assert found == AclRules(reversed(acls)).find(asked)  # in one order, however they came


# --- corners


@both
def test_what_is_removed_decides_no_more_and_the_rest_goes_on(rules_class: type[AclRules]) -> None:
    rules = rules_class([acl("ab", PREFIXED), acl("cd", PREFIXED), acl("cde", PREFIXED)])
    assert rules.decide(ALICE, HOST, READ, TOPIC, "cd").acl == acl("cd", PREFIXED)
    rules.change(removed=[acl("ab", PREFIXED)])
    assert not rules.decide(ALICE, HOST, READ, TOPIC, "abc").is_allowed
    assert rules.decide(ALICE, HOST, READ, TOPIC, "cdx").is_allowed


@both
@pytest.mark.parametrize(
    ("allowed", "denied", "is_left"),
    [
        (acl("ab"), acl("a", PREFIXED, DENY), False),
        (acl("ab", PREFIXED), acl("a", PREFIXED, DENY), False),
        (acl("ab"), acl("ab", permission=DENY), False),
        (acl("ab"), acl("*", permission=DENY), False),
        (acl("ab", PREFIXED), acl("ab", permission=DENY), True),
        (acl("a", PREFIXED), acl("ab", PREFIXED, DENY), True),
        (acl("*"), acl("a", PREFIXED, DENY), True),
        (acl("ab", operation=WRITE), acl("b", permission=DENY), False),
    ],
)
def test_a_right_on_any_resource(rules_class: type[AclRules], allowed: Acl, denied: Acl, *, is_left: bool) -> None:
    assert rules_class([allowed, denied]).allows_somewhere(ALICE, HOST, READ, TOPIC) is is_left


def test_one_change_of_many_is_one_generation() -> None:
    rules = AclRules()
    before = rules.generation
    rules.change(added=[acl("a"), acl("b"), acl("a")])
    assert (rules.generation, len(rules)) == (before + 1, 2)
    rules.change(removed=[acl("a"), acl("c")], added=[acl("c")])
    assert (rules.generation, rules.find(AclFilter())) == (before + 2, [acl("c"), acl("b")])


@both
def test_no_acl_binds_a_super_user(rules_class: type[AclRules]) -> None:
    rules = rules_class([acl("*", permission=DENY, operation=ALL, who="User:*")], super_users=[ALICE])
    for who in (ALICE, LOCAL):
        assert rules.decide(who, HOST, READ, TOPIC, "a").rule_text == "SuperUser"
        assert rules.allows_somewhere(who, HOST, READ, TOPIC)
    assert not rules.decide(BOB, HOST, READ, TOPIC, "a").is_allowed


@both
def test_acls_of_others_end_the_freedom_of_everyone(rules_class: type[AclRules]) -> None:
    rules = rules_class([acl("pay", PREFIXED, who="User:bob", host="10.9.9.9")], allows_everyone_if_none=True)
    assert rules.decide(ANONYMOUS, HOST, READ, TOPIC, "orders").rule_text == "DefaultAllow"
    assert rules.decide(ANONYMOUS, HOST, READ, TOPIC, "payments").rule_text == "DefaultDeny"
    assert rules.decide(ANONYMOUS, HOST, READ, GROUP, "payments").is_allowed


@both
def test_a_user_whose_name_is_a_star_has_what_everybody_has(rules_class: type[AclRules]) -> None:
    rules = rules_class([acl("a", who="User:*"), acl("b")])
    assert rules.decide(ANY_USER, HOST, READ, TOPIC, "a").acl == acl("a", who="User:*")
    assert not rules.decide(ANY_USER, HOST, READ, TOPIC, "b").is_allowed


@both
@pytest.mark.parametrize("name", ["*a", "!ab", "\0", " b"])
def test_a_star_applies_to_names_that_no_topic_has(rules_class: type[AclRules], name: str) -> None:
    """Kafka 4.4 lets everyone into `*a`, fails for `!ab`, and never answers for `!ab` beside `!bb`."""
    acls = [acl("*", permission=DENY, who="User:*"), acl("!aa"), acl("!bb")]
    assert not rules_class(acls, allows_everyone_if_none=True).decide(ALICE, HOST, READ, TOPIC, name).is_allowed


def test_ranges_of_hosts_are_for_the_standard_authorizer() -> None:
    rules = [acl("a", host="10.0.0.0/30")]
    assert AclRules(rules).decide(ALICE, "10.0.0.3", READ, TOPIC, "a").is_allowed
    assert AclRules(rules).allows_somewhere(ALICE, "10.0.0.3", READ, TOPIC)
    assert not AclRules(rules).decide(ALICE, "10.0.0.4", READ, TOPIC, "a").is_allowed
    assert not AclRules(rules).decide(ALICE, "no address", READ, TOPIC, "a").is_allowed
    assert not ZooKeeperAclRules(rules).decide(ALICE, "10.0.0.3", READ, TOPIC, "a").is_allowed


@both
@pytest.mark.parametrize(
    ("host", "javas"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::5", "2001:db8:0:0:0:0:0:5"),
        ("fe80::1%1", "fe80:0:0:0:0:0:0:1%1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_hosts_are_compared_as_java_writes_them(rules_class: type[AclRules], host: str, javas: str) -> None:
    """InetAddress.getHostAddress of Java 17 wrote these. So an ACL for `::1` never matches, in Kafka neither."""
    for named, is_allowed in ((javas, True), (host, False)):
        rules = rules_class([acl("a", host=named)])
        assert rules.decide(ALICE, host, READ, TOPIC, "a").is_allowed is is_allowed
        assert rules.allows_somewhere(ALICE, host, READ, TOPIC) is is_allowed


@pytest.mark.parametrize("host", ["10.0.0.0/33", "10.0.0/8", "10.0.0.0/255.0.0.0", "::/129", "a/8", "256.0.0.0/8", "/"])
def test_what_is_no_range_of_hosts(host: str) -> None:
    with pytest.raises(ValueError):
        parse_host_range(host)


def test_names_the_acl_that_kafka_names() -> None:
    """The first DENY, and the last ALLOW, in the order of StandardAcl: names in descending order, then `*`."""
    allowing = [acl("*", operation=ALL), acl("a", PREFIXED), acl("ab", PREFIXED), acl("ab")]
    denying = [acl("ab", PREFIXED, DENY, who="User:*"), acl("a", PREFIXED, DENY), acl("*", permission=DENY)]
    rules = AclRules([*allowing, *denying])
    for each in (*denying, *allowing):
        assert rules.decide(ALICE, HOST, READ, TOPIC, "ab").acl == each
        rules.change(removed=[each])


def test_says_the_rule_as_kafkas_audit_log() -> None:
    decision = AclRules([acl("a")]).decide(ALICE, HOST, DESCRIBE, TOPIC, "a")
    assert decision.rule_text == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=a, patternType=LITERAL, principal=User:alice, "
        "host=*, operation=READ, permissionType=ALLOW])"
    )


def test_names_the_operations_that_would_be_enough() -> None:
    assert ALLOWED_BY[READ] == (READ, ALL)
    assert set(ALLOWED_BY[DESCRIBE]) == {DESCRIBE, READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL}
