"""ACLs as text: the lines of `plog acl export`, the output of kafka-acls --list, and the words of the command line.

A line is a JSON object of the seven parts of an ACL, each by Kafka's name for it:

    {"principal": "User:alice", "permission_type": "ALLOW", "operation": "READ", "resource_type": "TOPIC",
     "resource_name": "orders", "pattern_type": "LITERAL", "host": "*"}

One line an ACL, in one order, so that a diff of two exports is the difference of two clusters; names with spaces,
commas and quotes need no rules of their own. Kafka's tool prints a head line for each resource, and a line an ACL:

    Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`:
            (principal=User:alice, host=*, operation=READ, permissionType=ALLOW)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, TypeVar

from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType

COLUMNS = ["principal", "permission_type", "operation", "resource_type", "resource_name", "pattern_type", "host"]

_HEAD = re.compile(
    r"Current ACLs for resource `(?:ResourcePattern\()?resourceType=(\w+), name=(.*), patternType=(\w+)\)?`: *",
)
_ENTRY = re.compile(r"\s*\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\) *")
_NO_VALUES = ("UNKNOWN", "ANY", "MATCH")
"""Values that filters have, and ACLs have not."""

E_ = TypeVar("E_", bound=IntEnum)


def parse_word(kind: type[E_], text: str, what: str) -> E_:
    """Returns the member of that name, as `DESCRIBE_CONFIGS`, `DescribeConfigs` or `describe-configs`. Raises
    UsageError for another name.
    """
    known = {name.replace("_", "").lower(): member for name, member in kind.__members__.items()}
    found = known.get(re.sub("[-_ ]", "", text).lower())
    if found is None or found.name in _NO_VALUES:
        names = [name for name in kind.__members__ if name not in _NO_VALUES]
        raise UsageError(f"{what} {text!r} is unknown", hint=did_you_mean(text, names) or f"one of {', '.join(names)}")
    return found


def parse_operation(text: str) -> AclOperation:
    return parse_word(AclOperation, text, "operation")


def acl_row(acl: Acl) -> dict[str, str]:
    """Returns the parts by their names, in the order of the columns."""
    values = {name: value.name if isinstance(value, IntEnum) else value for name, value in acl._asdict().items()}
    return {column: values[column] for column in COLUMNS}


def acl_text(acl: Acl) -> str:
    """Returns the ACL in words, for a message."""
    about = f"{acl.resource_type.name.lower()} {acl.resource_name}"
    prefixed = " (prefixed)" if acl.pattern_type is PatternType.PREFIXED else ""
    return f"{acl.principal} {acl.permission_type.name} {acl.operation.name} on {about}{prefixed} from {acl.host}"


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """Returns the ACLs, each once, as every listing has them: by resource, principal, permission and operation."""
    return sorted(
        set(acls),
        key=lambda a: (
            a.resource_type, a.resource_name, a.pattern_type, a.principal, a.permission_type, a.operation, a.host,
        ),
    )  # fmt: skip


def write_acls(acls: Iterable[Acl]) -> Iterator[str]:
    """Yields a line for each ACL, in order, without its end, in ASCII: a name may hold what moves a terminal."""
    for acl in in_order(acls):
        yield json.dumps(acl_row(acl))


def read_acls(text: str, name: str) -> list[Acl]:
    """Reads lines of `write_acls`, the same as one JSON array, or what kafka-acls --list prints; lines that begin with
    # say nothing. Raises UsageError, with the name of the file and the line, for anything else.
    """
    if text.lstrip().startswith("["):
        try:
            return [_read_row(row, f"{name}, ACL {number}") for number, row in enumerate(json.loads(text), 1)]
        except json.JSONDecodeError as error:
            raise UsageError(f"{name}:{error.lineno}: no JSON: {error.msg}") from error
    found, resource = [], None
    for number, line in enumerate(text.split("\n"), 1):  # a name may hold other ends of lines that Unicode has
        where = f"{name}:{number}"
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("{"):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UsageError(f"{where}: no JSON: {error.msg}") from error
            found.append(_read_row(row, where))
        elif head := _HEAD.fullmatch(line.strip()):
            resource = head.groups()
        elif (entry := _ENTRY.fullmatch(line.rstrip())) and resource is not None:
            type_, resource_name, pattern = resource
            principal, host, operation, permission = entry.groups()
            parts = (principal, permission, operation, type_, resource_name, pattern, host)
            found.append(_read_row(dict(zip(COLUMNS, parts, strict=True)), where))
        else:
            raise UsageError(
                f"{where}: expected an ACL, found {line.strip()[:80]!r}",
                hint="lines of plog acl export, or the output of kafka-acls --list",
            )
    return found


def _read_row(row: Any, where: str) -> Acl:
    if not isinstance(row, dict) or set(row) != set(COLUMNS) or not all(isinstance(v, str) for v in row.values()):
        odd = sorted(set(row) ^ set(COLUMNS)) if isinstance(row, dict) else []
        about = f" ({'; '.join(('no ' if name in COLUMNS else 'unknown ') + name for name in odd)})" if odd else ""
        raise UsageError(f"{where}: expected an object of {', '.join(COLUMNS)}, each a text{about}")
    try:
        return Acl(
            resource_type=parse_word(ResourceType, row["resource_type"], "resource_type"),
            resource_name=row["resource_name"],
            pattern_type=parse_word(PatternType, row["pattern_type"], "pattern_type"),
            principal=row["principal"],
            host=row["host"],
            operation=parse_operation(row["operation"]),
            permission_type=parse_word(AclPermissionType, row["permission_type"], "permission_type"),
        )
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
