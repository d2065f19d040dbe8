"""Access control lists, in the terms of Kafka (org.apache.kafka.common.acl, org.apache.kafka.common.resource).

An `Acl` allows or denies an operation on a resource, or on all resources with a prefix, to a principal from a host. The
numbers of the enums are those of the protocol and of the metadata log; their names are those of Kafka's files and
tools.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from core.common.error_code import ErrorCode
from core.common.java_limits import INT_MAX

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network


class _Code(IntEnum):
    """Each of the enums has an UNKNOWN, as which the numbers of a later Kafka are read."""

    __hash__ = int.__hash__  # Enum's own is Python code: a decision that is remembered would take half as long again

    @property
    def camel_name(self) -> str:
        """The name as Kafka's tools, nodes and audit log have it: `ClusterAction`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def _missing_(cls, value: object) -> _Code:  # noqa: ARG003 - the number does not matter
        return cls(0)


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How the name of an ACL is compared; in filters, MATCH stands for all ACLs that apply to the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_OP = AclOperation
OPERATIONS = {
    ResourceType.TOPIC: (
        _OP.READ, _OP.WRITE, _OP.CREATE, _OP.DELETE, _OP.ALTER, _OP.DESCRIBE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_OP.READ, _OP.DELETE, _OP.DESCRIBE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _OP.CREATE, _OP.ALTER, _OP.DESCRIBE, _OP.CLUSTER_ACTION, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS,
        _OP.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_OP.WRITE, _OP.DESCRIBE, _OP.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_OP.DESCRIBE,),
    ResourceType.USER: (_OP.CREATE_TOKENS, _OP.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that each type of resource has (org.apache.kafka.security.authorizer.AclEntry)."""

_IMPLIED_BY = {
    _OP.DESCRIBE: (_OP.READ, _OP.WRITE, _OP.DELETE, _OP.ALTER),
    _OP.DESCRIBE_CONFIGS: (_OP.ALTER_CONFIGS,),
}
ALLOWED_BY = {operation: (operation, *_IMPLIED_BY.get(operation, ()), _OP.ALL) for operation in AclOperation}
"""The operations of which an ALLOW is enough. A DENY implies no other operation."""

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error with which a request for a resource of the type is refused."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of the type CLUSTER."""

ANY_NAME = "*"
"""The name of a literal ACL that applies to all resources of its type."""

ANY_HOST = "*"


_RANGE = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})/([0-9]{1,2})")
_PREFIX = re.compile(r"[+-]?[0-9]+")


def parse_host_range(host: str) -> IPv4Network | IPv6Network:
    """Returns the addresses of a host such as `10.0.0.0/8`, which may have bits beyond its prefix, or zeros before a
    number (KIP-1276). Raises ValueError with the message of Kafka's CidrUtils.
    """
    from ipaddress import IPv4Network, IPv6Address, IPv6Network

    failed = f"Could not parse [{host}]"
    if ":" not in host:
        if (found := _RANGE.fullmatch(host)) is None:
            raise ValueError(failed)
        *octets, bits = map(int, found.groups())
        for value, most in (*((octet, 255) for octet in octets), (bits, 32)):
            if value > most:
                raise ValueError(f"Value [{value}] not in range [0,{most}]")
        return IPv4Network((bytes(octets), bits), strict=False)
    address, slash, prefix = host.partition("/")
    if not slash:
        raise ValueError(f"{failed} - missing prefix length")
    if not _PREFIX.fullmatch(prefix) or len(prefix) > 100 or abs(int(prefix)) > INT_MAX:
        raise ValueError(f"{failed} - invalid prefix length")
    if not 0 <= int(prefix) <= 128:
        raise ValueError(f"{failed} - prefix length must be between 0 and 128")
    try:
        parsed = IPv6Address(address)
        if parsed.scope_id is not None:  # a name that means something on one machine alone
            raise ValueError
    except ValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if parsed.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return IPv6Network((parsed.packed, int(prefix)), strict=False)


@lru_cache(maxsize=1024)
def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Returns the address of a client, or None if the text is none."""
    from ipaddress import ip_address

    try:
        return ip_address(host)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def javas_text(host: str) -> str:
    """Returns a client's address as Java writes it, and Kafka compares it with the hosts of ACLs:
    `0:0:0:0:0:0:0:1` for `::1`, and `10.0.0.1` for `::ffff:10.0.0.1`.
    """
    address = parse_address(host) if ":" in host else None
    if address is None or address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = (f"{int.from_bytes(address.packed[start : start + 2]):x}" for start in range(0, 16, 2))
    return ":".join(groups) + (f"%{address.scope_id}" if address.scope_id else "")


Codes = tuple[ResourceType, PatternType, AclOperation, AclPermissionType]


class Acl(NamedTuple):
    """One entry: AclBinding of Kafka. `principal` is a text such as `User:alice`, as it is stored."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    @classmethod
    def of_numbers(
        cls, kind: int, name: str, pattern_type: int, principal: str, host: str, operation: int, permission: int
    ) -> Acl:
        """Makes an ACL of the numbers of a message or a record; one that plog does not know becomes UNKNOWN."""
        pattern = ResourceType(kind), name, PatternType(pattern_type)
        return cls(*pattern, principal, host, AclOperation(operation), AclPermissionType(permission))

    @property
    def codes(self) -> Codes:
        """The parts that are no texts, in the order of Kafka's checks."""
        return self.resource_type, self.pattern_type, self.operation, self.permission_type

    @property
    def is_known(self) -> bool:
        """Whether it has no value of a later Kafka, which this plog can neither write nor name, and none of those that
        filters have: a damaged log may, and to name such an ACL would name others.
        """
        return min(self.codes) > 1 and self.pattern_type is not PatternType.MATCH

    def applies_to(self, resource_type: ResourceType, name: str) -> bool:
        """Returns whether it is about that resource."""
        if self.resource_type is not resource_type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, ANY_NAME)


class AclFilter(NamedTuple):
    """Finds ACLs: AclBindingFilter of Kafka. None and the ANY of each enum stand for all."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    @property
    def codes(self) -> Codes:
        """See `Acl.codes`."""
        return self.resource_type, self.pattern_type, self.operation, self.permission_type

    def matches(self, acl: Acl) -> bool:
        """Returns whether the ACL is one of those (ResourcePatternFilter and AccessControlEntryFilter of Kafka)."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    def _matches_name(self, acl: Acl) -> bool:
        pattern_type, name = self.pattern_type, self.resource_name
        if pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None:
            return True
        return name == acl.resource_name or (
            pattern_type is PatternType.MATCH and acl.applies_to(acl.resource_type, name)
        )


@dataclass(frozen=True, eq=False, slots=True)
class Right:
    """What a request needs: an operation on a resource of a type. `Right.of` has the one of each kind: decisions are
    found by its identity, as the hash of an enum takes longer than all the rest.
    """

    operation: AclOperation
    resource_type: ResourceType

    @staticmethod
    def of(operation: AclOperation, resource_type: ResourceType) -> Right:
        return _RIGHTS[resource_type][operation]

    @property
    def refusal(self) -> ErrorCode:
        """The error without the right."""
        return REFUSALS[self.resource_type]


_RIGHTS = [[Right(operation, resource_type) for operation in AclOperation] for resource_type in ResourceType]

READ_TOPIC = Right.of(_OP.READ, ResourceType.TOPIC)
WRITE_TOPIC = Right.of(_OP.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Right.of(_OP.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Right.of(_OP.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Right.of(_OP.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Right.of(_OP.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right.of(_OP.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Right.of(_OP.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP = Right.of(_OP.READ, ResourceType.GROUP)
DELETE_GROUP = Right.of(_OP.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Right.of(_OP.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Right.of(_OP.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = Right.of(_OP.ALTER_CONFIGS, ResourceType.GROUP)
CREATE_IN_CLUSTER = Right.of(_OP.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER = Right.of(_OP.ALTER, ResourceType.CLUSTER)
DESCRIBE_THE_CLUSTER = Right.of(_OP.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION = Right.of(_OP.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right.of(_OP.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right.of(_OP.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Right.of(_OP.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
WRITE_TRANSACTIONAL_ID = Right.of(_OP.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right.of(_OP.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT = Right.of(_OP.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
