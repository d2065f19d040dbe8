from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.common.errors import UsageError
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
from core.security.acl_text import read_acls, write_acls
from tests.support.for_each import for_each

ODD = Acl(
    Kind.GROUP, 'a, "b" = c', Pattern.LITERAL, "User:CN=zoë,OU=x y,O=a\\,b", "*", Op.DESCRIBE_CONFIGS, Permission.DENY
)
PLAIN = Acl(Kind.TOPIC, "t", Pattern.PREFIXED, "User:bob", "10.0.0.1", Op.READ, Permission.ALLOW)

BY_KAFKA = """\
Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=a, "b" = c, patternType=LITERAL)`: 
 \t(principal=User:CN=zoë,OU=x y,O=a\\,b, host=*, operation=DESCRIBE_CONFIGS, permissionType=DENY) 

Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=PREFIXED)`: 
 \t(principal=User:bob, host=10.0.0.1, operation=READ, permissionType=ALLOW) 

"""  # noqa: W291


def test_a_line_is_json_in_kafkas_words() -> None:
    assert list(write_acls([PLAIN])) == [
        (
            '{"principal": "User:bob", "permission_type": "ALLOW", "operation": "READ", "resource_type": "TOPIC", '
            '"resource_name": "t", "pattern_type": "PREFIXED", "host": "10.0.0.1"}'
        )
    ]


@given(name=st.text(), principal=st.text(), host=st.text())
def test_any_text_comes_back(name: str, principal: str, host: str) -> None:
    acl = PLAIN._replace(resource_name=name, principal=principal, host=host)
    (line,) = write_acls([acl])
    assert line.isascii()
    assert read_acls(f"{line}\r\n", "f") == [acl]


def test_lines_come_in_one_order_each_once() -> None:
    lines = list(write_acls([ODD, PLAIN, ODD]))
    assert [json.loads(line)["resource_type"] for line in lines] == ["TOPIC", "GROUP"]
    assert lines == list(write_acls([PLAIN, ODD]))


@for_each(
    "text",
    [
        "\n".join(["# comment", "", *write_acls([ODD, PLAIN])]),
        json.dumps([json.loads(line) for line in write_acls([ODD, PLAIN])], indent=2),
        BY_KAFKA,
        BY_KAFKA.replace("\n", "\r\n"),
    ],
)
def test_what_is_read(text: str) -> None:
    assert set(read_acls(text, "f")) == {ODD, PLAIN}


def test_a_name_may_hold_what_other_programs_take_for_the_end_of_a_line() -> None:
    odd = [ODD._replace(resource_name=f"a{end}b", principal=f"User:{end}") for end in "\r\n\x0b\x85\u2028\u2029"]
    assert set(read_acls("\n".join(write_acls(odd)), "f")) == set(odd)


LINE = next(write_acls([PLAIN]))


@for_each(
    "text, message",
    [
        (f"{LINE}\nhello", "f:2: expected an ACL, found 'hello'"),
        (LINE[:-1], "f:1: no JSON"),
        ("[", "f:1: no JSON"),
        ("[1]", "f, ACL 1: expected an object"),
        (LINE.replace('"host"', '"hst"'), "(no host; unknown hst)"),
        (LINE.replace('"User:bob"', "null"), "f:1: expected an object"),
        (LINE.replace('"READ"', '"REED"'), "f:1: operation 'REED' is unknown"),
        (LINE.replace('"PREFIXED"', '"MATCH"'), "f:1: pattern_type 'MATCH' is unknown"),
        (BY_KAFKA.partition("\n")[2], "f:1: expected an ACL"),
    ],
)
def test_what_is_no_acl_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_acls(text, "f")
    assert message in caught.value.message


def test_nothing_is_no_acl() -> None:
    assert read_acls("", "f") == []
