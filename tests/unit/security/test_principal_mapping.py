"""`ssl.principal.mapping.rules`, by answers of Kafka's SslPrincipalMapper (tests/golden/security/principals.json)."""

from __future__ import annotations

import json
import time

import pytest

from core.common.errors import UsageError
from core.security.principal_mapping import PrincipalMapping
from tests.support.principals import RECORDED, map_name

_MAPPED: dict[str, dict[str, str | None]] = json.loads(RECORDED.read_text())["mapped"]

_REFUSED = {
    "RULE:.*/$1/": "$1 in its replacement is no group of the pattern",
    "RULE:CN=([^,]*).*/$1$2$3/": "$3 in its replacement is no group of the pattern",
    "RULE:CN=(?<who>[^,]*).*/${other}/U": "${other} in its replacement is no group of the pattern",
    "RULE:(.*)*$/$1/": "a group before * that may match nothing is not supported in a pattern",
    "RULE:^CN=(?=a)(.*)/$1/": "(?=a is not supported in a pattern",
    r"RULE:^CN=(a)\1.*/$1/": r"\1 is not supported in a pattern",
    "RULE:CN=([a-z&&[^b]]+).*/$1/": "&&[^ is not supported in a pattern",
    "RULE:CN=(a*+)(.*)/$2/": "bad repetition operator: *+",
    "RULE:CN=(.*)/a/X": "expected RULE:pattern/replacement/, which may end in L or U, or DEFAULT",
    "RULE:CN=(.*)": "expected RULE:pattern/replacement/, which may end in L or U, or DEFAULT",
    "RULE:CN=(/x/": "missing ): CN=(",
    "RULE:CN={a}/x/": "{a} is not supported in a pattern",
    "default": "expected RULE:pattern/replacement/, which may end in L or U, or DEFAULT",
}
"""Kafka refuses some of them at the start, too; the first three of them when a client comes."""

_DOUBTFUL = {
    ("RULE:(?i)cn=([a-z]+).*/$1/", "CN=\u017f\u212a,OU=x"),
}
"""Names that RE2 and Java may match in different ways: nobody may log in by one."""


@pytest.mark.parametrize("rules", [rules for rules in _MAPPED if rules not in _REFUSED])
def test_names_are_mapped_as_kafka_maps_them(rules: str) -> None:
    for text, expected in _MAPPED[rules].items():
        found = map_name(rules, text)
        assert found == (None if (rules, text) in _DOUBTFUL else expected, False), text


@pytest.mark.parametrize(("rules", "why"), _REFUSED.items())
def test_rules_that_are_refused_at_the_start(rules: str, why: str) -> None:
    assert rules in _MAPPED
    with pytest.raises(UsageError) as error:
        PrincipalMapping(rules)
    assert error.value.message == f"ssl.principal.mapping.rules: {rules}: {why}"
    assert error.value.hint == "as RULE:^CN=([^,]*),.*$/$1/L,DEFAULT"


def test_a_name_that_ends_in_a_line_end_is_refused_where_the_pattern_has_an_end() -> None:
    assert PrincipalMapping("RULE:CN=([^,]*)$/$1/,DEFAULT").find_name("CN=a\n") is None
    assert PrincipalMapping("RULE:CN=([^,]*)/$1/,DEFAULT").find_name("CN=a\n") == "a\n"


def test_a_pattern_that_takes_java_for_ever_takes_no_time() -> None:
    rules = PrincipalMapping("RULE:CN=((a+)+)+b/$1/,DEFAULT")
    name = "CN=" + "a" * 2000
    began_s = time.process_time()
    assert rules.find_name(name) == name
    assert time.process_time() - began_s < 0.5


def test_an_endless_name_is_refused_before_a_pattern_sees_it() -> None:
    name = "CN=" + "xy" * 50_000
    assert PrincipalMapping("RULE:(x|.*y|.)*/$1/,DEFAULT").find_name(name) is None
    assert PrincipalMapping("DEFAULT").find_name(name) == name
