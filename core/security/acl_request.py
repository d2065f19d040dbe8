"""The options of `plog acl`: which ACLs to add, and which to look for, in the words of kafka-acls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from core.common.command_option import ensure_compatible, excludes, flag, needs, option, options
from core.common.errors import UsageError
from core.common.topic_partition import is_valid_topic_name
from core.security.acl import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    javas_text,
    parse_address,
    parse_host_range,
)
from core.security.acl_text import parse_operation
from core.security.principal import USER_TYPE, Principal

_OP = AclOperation
_PRODUCER = {
    ResourceType.TOPIC: (_OP.WRITE, _OP.DESCRIBE, _OP.CREATE),
    ResourceType.TRANSACTIONAL_ID: (_OP.WRITE, _OP.DESCRIBE),
}
_CONSUMER = {ResourceType.TOPIC: (_OP.READ, _OP.DESCRIBE), ResourceType.GROUP: (_OP.READ,)}
_CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)


class PatternChoice(StrEnum):
    literal = "literal"
    prefixed = "prefixed"
    match = "match"
    any = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class AclRequest:
    """Without an option for them, all resources, principals, hosts and operations are looked for; several options are
    combined, each with each.
    """

    principals: Sequence[str] = options("ACLs that allow or deny this principal.", "--principal", metavar="TYPE:NAME")
    allow_principals: Sequence[str] = options(
        "An allowed principal, such as User:alice.", "--allow-principal", metavar="TYPE:NAME"
    )
    deny_principals: Sequence[str] = options("A denied principal.", "--deny-principal", metavar="TYPE:NAME")
    allow_hosts: Sequence[str] = options("A client IP address for --allow-principal.", "--allow-host", metavar="IP")
    deny_hosts: Sequence[str] = options("A client IP address for --deny-principal.", "--deny-host", metavar="IP")
    operations: Sequence[str] = options("An operation, such as Read or DescribeConfigs.", "--operation", metavar="NAME")
    producer: bool = flag("Write, Describe and Create on each --topic; Write and Describe on each --transactional-id.")
    consumer: bool = flag("Read and Describe on each --topic; Read on each --group.")
    idempotent: bool = flag("With --producer: IdempotentWrite on the cluster, for brokers before 2.8.")
    topics: Sequence[str] = options("A topic, or * for all.", "--topic", metavar="TOPIC", completes="topic")
    groups: Sequence[str] = options("A consumer group.", "--group", metavar="GROUP", completes="group")
    cluster: bool = flag("The cluster itself.")
    transactional_ids: Sequence[str] = options("A transactional id.", "--transactional-id", metavar="ID")
    delegation_tokens: Sequence[str] = options("A delegation token.", "--delegation-token", metavar="ID")
    user_principals: Sequence[str] = options(
        "A user for whom others may create delegation tokens.", "--user-principal", metavar="TYPE:NAME"
    )
    pattern: PatternChoice | None = option(
        "The type of the ACLs: literal (the default) or prefixed; to find ACLs also any, for both, and match, for "
        "all that apply to the name.",
        "--resource-pattern-type",
    )

    def __post_init__(self) -> None:
        ensure_compatible(self, RULES)

    @property
    def has_resource(self) -> bool:
        return bool(self.resources())

    @property
    def is_of_all(self) -> bool:
        """Whether nothing is said that an ACL could fail to match."""
        return self.filters() == [AclFilter()]

    @property
    def is_producer_alone(self) -> bool:
        return self.producer and not self.consumer

    @property
    def is_consumer_alone(self) -> bool:
        return self.consumer and not self.producer

    # --- what is to be added

    def acls(self) -> list[Acl]:
        """Returns the ACLs to add. Raises UsageError for those that make no sense, or could never match."""
        ensure_compatible(self, RULES_OF_ADD)
        if self.pattern in (PatternChoice.match, PatternChoice.any):
            raise UsageError(f"--resource-pattern-type {self.pattern} finds ACLs; one is added as literal or prefixed")
        pattern = PatternType.PREFIXED if self.pattern is PatternChoice.prefixed else PatternType.LITERAL
        rights = self._rights(AclOperation.ALL)
        for type_, name, operation in rights:
            _ensure_sound(type_, name or "", operation)
        parties = [
            (_ensure_principal(principal.strip()), _ensure_host(host), permission)
            for principals, hosts, permission in (
                (self.allow_principals, self.allow_hosts, AclPermissionType.ALLOW),
                (self.deny_principals, self.deny_hosts, AclPermissionType.DENY),
            )
            for principal, host in product(principals, hosts or (ANY_HOST,))
        ]
        return [
            Acl(
                resource_type=type_,
                resource_name=name or "",
                pattern_type=PatternType.LITERAL if type_ is ResourceType.CLUSTER else pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for (type_, name, operation), (principal, host, permission) in product(rights, parties)
        ]

    def warnings(self) -> Iterator[str]:
        """Yields what is accepted and does something else than it looks like."""
        for host in dict.fromkeys((*self.allow_hosts, *self.deny_hosts)):
            if "/" in host:
                yield f"{host}: brokers before Kafka 4.4, and those with ZooKeeper, find no client in a range"
            elif host != javas_text(host):
                yield f"{host}: the ACL has it as {javas_text(host)}, as brokers write the address"
        for principal in dict.fromkeys((*self.allow_principals, *self.deny_principals)):
            if re.search(r"=[^,]*, +\w+=", principal):
                yield f"{principal}: the name in a certificate has no space after a comma, unless a rule maps it so"
        if self.pattern is PatternChoice.prefixed and ANY_NAME in (name for _, name in self.resources()):
            yield "prefixed *: the names that begin with a star; without --resource-pattern-type, * is all names"

    # --- what is looked for

    def filters(self, pattern: PatternType | None = None) -> list[AclFilter]:
        """Returns the filters, of which an ACL has to match one. `pattern` replaces the pattern type of the options.
        Raises UsageError for names of no operation or principal.
        """
        if pattern is None:
            pattern = PatternType.LITERAL if self.pattern is None else PatternType[self.pattern.name.upper()]
        if pattern is PatternType.MATCH and not self.has_resource:
            raise UsageError("--resource-pattern-type match goes with a name", hint="for example --topic orders")
        parties: list[tuple[str | None, str | None, AclPermissionType]] = []
        for principals, hosts, permission in (
            (self.principals, (), AclPermissionType.ANY),
            (self.allow_principals, self.allow_hosts, AclPermissionType.ALLOW),
            (self.deny_principals, self.deny_hosts, AclPermissionType.DENY),
        ):
            if principals or hosts:
                parsed = [str(Principal.parse(text.strip())) for text in principals]
                spelled = [text for host in hosts for text in dict.fromkeys((host, javas_text(host)))]
                parties += [(p, h, permission) for p, h in product(parsed or (None,), spelled or (None,))]
        return [
            AclFilter(
                resource_type=type_,
                resource_name=name,
                pattern_type=self._pattern_type(type_, name, pattern),
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
            for (type_, name, operation), (principal, host, permission) in product(
                self._rights(AclOperation.ANY), parties or [(None, None, AclPermissionType.ANY)]
            )
        ]

    def _pattern_type(self, type_: ResourceType, name: str | None, pattern: PatternType) -> PatternType:
        is_any = type_ is ResourceType.CLUSTER or (name is None and self.pattern is None)
        return PatternType.ANY if is_any else pattern

    # --- resources and operations

    def _rights(self, default: AclOperation) -> list[tuple[ResourceType, str | None, AclOperation]]:
        """Returns the operations on each resource, `default` if none is named; None stands for any name."""
        names = self.resources()
        if not (self.producer or self.consumer):
            words = (word for text in self.operations for word in text.split(","))
            operations = dict.fromkeys(map(parse_operation, words)) or (default,)
            return [(type_, name, one) for type_, name in names or [(ResourceType.ANY, None)] for one in operations]
        found: list[tuple[ResourceType, str | None, AclOperation]] = []
        for is_asked, operations_of in ((self.producer, _PRODUCER), (self.consumer, _CONSUMER)):
            if is_asked:
                wanted = names or [(type_, None) for type_ in operations_of]
                found += [(type_, name, one) for type_, name in wanted for one in operations_of.get(type_, ())]
        if self.idempotent:
            found.append((*_CLUSTER, AclOperation.IDEMPOTENT_WRITE))
        return found

    def resources(self) -> list[tuple[ResourceType, str | None]]:
        """Returns the named resources, by type and name."""
        named = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, self.user_principals),
        )
        found: list[tuple[ResourceType, str | None]] = [_CLUSTER] if self.cluster else []
        return found + [(type_, name.strip()) for type_, names in named for name in names]


RULES = (
    excludes("producer consumer", "operations", "--producer and --consumer name the operations: not with --operation"),
    excludes("producer consumer", "deny_principals deny_hosts",
             "--producer and --consumer are about what is allowed: not with --deny-principal or --deny-host"),
    excludes("producer consumer", "cluster delegation_tokens user_principals",
             "--producer and --consumer are about topics, groups and transactional ids"),
    excludes("is_producer_alone", "groups", "--producer needs no group: --group goes with --consumer"),
    excludes("is_consumer_alone", "transactional_ids",
             "--consumer needs no transactional id: --transactional-id goes with --producer"),
    needs("idempotent", "producer", "--idempotent goes with --producer"),
)  # fmt: skip
RULES_OF_ADD = (
    needs("allow_hosts", "allow_principals", "--allow-host goes with --allow-principal"),
    needs("deny_hosts", "deny_principals", "--deny-host goes with --deny-principal"),
    needs("producer", "topics", "--producer goes with --topic"),
    needs("consumer", "topics", "--consumer goes with --topic and --group"),
    needs("consumer", "groups", "--consumer goes with --topic and --group"),
)  # fmt: skip


def _ensure_sound(type_: ResourceType, name: str, operation: AclOperation) -> None:
    """Raises UsageError for an ACL that Kafka would store, and that no request could ever match."""
    if type_ is ResourceType.ANY:
        raise UsageError("no resource is named", hint="--topic T, --group G, --cluster or --transactional-id X")
    if operation is not AclOperation.ALL:
        ensure_has_operation(type_, operation)
    if not name:
        raise UsageError(f"an empty name of a {type_.name}", hint="is a variable unset? * is all names")
    if type_ is ResourceType.USER and name != ANY_NAME:
        Principal.parse(name)
    if type_ is ResourceType.TOPIC and name != ANY_NAME and not is_valid_topic_name(name):
        is_glob = name.endswith(ANY_NAME) and is_valid_topic_name(name[:-1])
        hint = f"did you mean --topic {name[:-1]} --resource-pattern-type prefixed?" if is_glob else None
        raise UsageError(f"no topic can be called {name!r}, so that the ACL would match none", hint=hint)


def ensure_has_operation(type_: ResourceType, operation: AclOperation) -> None:
    """Raises UsageError for an operation that no request asks for on such a resource."""
    if operation not in OPERATIONS[type_]:
        names = ", ".join(one.name for one in OPERATIONS[type_])
        raise UsageError(f"a {type_.name} has no operation {operation.name}", hint=f"one of {names}")


def _ensure_principal(text: str) -> str:
    """Returns the principal. Raises UsageError for one that no client has because of the case of its type."""
    principal = Principal.parse(text)
    if principal.type != USER_TYPE and principal.type.lower() == USER_TYPE.lower():
        raise UsageError(f"no client is {text!r}: case counts", hint=f"did you mean {USER_TYPE}:{principal.name}?")
    return text


def _ensure_host(host: str) -> str:
    """Returns the host as brokers compare it. Raises UsageError for what no address of a client is."""
    is_sound = host == ANY_HOST or parse_address(host) is not None
    if "/" in host:
        with suppress(ValueError):
            is_sound = bool(parse_host_range(host))
    if not is_sound:
        raise UsageError(
            f"host {host!r} is no IP address, and brokers compare no names", hint="an IP address, or * for any"
        )
    return javas_text(host)
