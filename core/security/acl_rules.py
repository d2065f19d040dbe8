"""Decides by ACLs, as StandardAuthorizer of Kafka does, or AclAuthorizer of a Kafka with ZooKeeper.

A DENY that applies wins; then one ALLOW is enough. Nothing else allows, but for `allow.everyone.if.no.acl.found` on a
resource of which no ACL of anybody speaks, and for super users, of whom no ACL is asked. An ACL applies if all of it
does:

    resource    its name, literally; `*` alone, literally, for each name; a prefix, of which `*` is a letter
    principal   its text, or User:*
    host        its text, or *, or a range in which it is, as 10.1.0.0/16 (KIP-1276); not in AclAuthorizer
    operation   the same, or ALL; an ALLOW of what implies it (`ALLOWED_BY`), while a DENY implies nothing

Kafka 4.4's StandardAuthorizer departs from that for names that no topic can have, and here nothing does: it does not
apply a literal `*` to a longer name that begins with `*`, and may fail, or never end, for a name that begins with one
of the characters before `*`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from core.security.acl import (
    ALLOWED_BY,
    ANY_HOST,
    ANY_NAME,
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
from core.security.principal import ANY_USER, Principal

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

_ANY_USER = str(ANY_USER)
_EXAMPLE = "hardcode"
"""The name for which Kafka asks first if a right on any resource is enough."""


class Decision(NamedTuple):
    is_allowed: bool
    default_rule: str = ""
    """`SuperUser`, `DefaultDeny` or `DefaultAllow`, if no ACL decided."""
    acl: Acl | None = None
    """The ACL that decided, or None."""

    @property
    def rule_text(self) -> str:
        """What decided, as Kafka's audit log names it."""
        acl = self.acl
        if acl is None:
            return self.default_rule
        return (
            f"MatchingAcl(acl=StandardAcl[resourceType={acl.resource_type.name}, resourceName={acl.resource_name}, "
            f"patternType={acl.pattern_type.name}, principal={acl.principal}, host={acl.host}, "
            f"operation={acl.operation.name}, permissionType={acl.permission_type.name}])"
        )


_SUPER_USER = Decision(is_allowed=True, default_rule="SuperUser")
_DEFAULT_ALLOW = Decision(is_allowed=True, default_rule="DefaultAllow")
_DEFAULT_DENY = Decision(is_allowed=False, default_rule="DefaultDeny")


class _Rule(NamedTuple):
    """An ACL, ready to decide."""

    operations: int
    """Which it allows or denies: bit n is AclOperation(n)."""
    host: str
    host_range: IPv4Network | IPv6Network | None
    decision: Decision

    def is_for(self, host: str) -> bool:
        """Returns whether it applies to a client at that address."""
        if self.host_range is None:
            return self.host in (host, ANY_HOST)
        address = parse_address(host)
        return address is not None and address in self.host_range


class _Patterns:
    """Rules by what they say of names; of one type of resource, and of one principal or of all."""

    __slots__ = ("_lengths", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[PatternType, dict[str, dict[Acl, _Rule]]] = {pattern: {} for pattern in PatternType}
        """Other patterns than LITERAL and PREFIXED, if the log has them, apply to no name."""
        self._lengths: Counter[int] = Counter()
        """How many prefixes have that length."""

    def add(self, acl: Acl, rule: _Rule) -> None:
        by_name = self.by_name[acl.pattern_type]
        if acl.resource_name not in by_name:
            by_name[acl.resource_name] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                self._lengths[len(acl.resource_name)] += 1
        by_name[acl.resource_name][acl] = rule

    def remove(self, acl: Acl) -> None:
        by_name = self.by_name[acl.pattern_type]
        rules = by_name[acl.resource_name]
        del rules[acl]
        if rules:
            return
        del by_name[acl.resource_name]
        if acl.pattern_type is PatternType.PREFIXED:
            length = len(acl.resource_name)
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]

    def applying_to(self, name: str) -> Iterator[dict[Acl, _Rule]]:
        """Yields the rules of each pattern that applies to the name; no pattern is without rules."""
        literal, prefixed = self.by_name[PatternType.LITERAL], self.by_name[PatternType.PREFIXED]
        if name in literal:
            yield literal[name]
        if ANY_NAME in literal and name != ANY_NAME:
            yield literal[ANY_NAME]
        for length in self._lengths:
            if name[:length] in prefixed and length <= len(name):
                yield prefixed[name[:length]]

    def candidates(self, asked: AclFilter) -> Iterator[Acl]:
        """Yields the ACLs that the filter may match."""
        if asked.resource_name is None:
            for by_name in self.by_name.values():
                for rules in by_name.values():
                    yield from rules
        elif asked.pattern_type is PatternType.MATCH:
            for rules in self.applying_to(asked.resource_name):
                yield from rules
        else:
            for by_name in self.by_name.values():
                yield from by_name.get(asked.resource_name, ())


class AclRules:
    """The ACLs and settings of StandardAuthorizer; owned by the broker's task.

    A decision looks at the ACLs of one principal, and of User:*, that apply to the name: what it costs does not grow
    with the ACLs of others. A change costs the same however many there are.
    """

    AUDIT_LINE = (
        "Principal = {principal} is {verdict} operation = {operation} from host = {host} on resource = {resource} for "
        "request = {request} with resourceRefCount = {count} based on rule {rule}"
    )
    """The line of the audit log; `operation` is as `DESCRIBE_CONFIGS`, `Operation` as `DescribeConfigs`."""
    ANY_RESOURCE = ""
    """What it names for a right on any resource of a type; there is no such line if this is empty."""

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        *,
        super_users: Iterable[Principal] = (),
        allows_everyone_if_none: bool = False,
    ) -> None:
        """`allows_everyone_if_none` is `allow.everyone.if.no.acl.found`."""
        self.generation = 0
        """Changes with the ACLs, once a change."""
        self._super_users = frozenset(super_users)
        self._allows_everyone_if_none = allows_everyone_if_none
        self._acls: set[Acl] = set()
        self._of_all = [_Patterns() for _ in ResourceType]
        self._by_principal: list[dict[str, _Patterns]] = [{} for _ in ResourceType]
        self.change(added=acls)

    def __len__(self) -> int:
        return len(self._acls)

    def change(self, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Removes ACLs, then adds others, in one generation. Those that are there, or are not, change nothing."""
        is_changed = False
        for acl in removed:
            if acl in self._acls:
                is_changed = True
                self._remove(acl)
        for acl in added:
            if acl not in self._acls:
                is_changed = True
                self._add(acl)
        self.generation += is_changed

    def _add(self, acl: Acl) -> None:
        is_allowed = acl.permission_type is AclPermissionType.ALLOW
        rule = _Rule(_operations(acl), acl.host, self._host_range(acl.host), Decision(is_allowed, acl=acl))
        self._acls.add(acl)
        self._of_all[acl.resource_type].add(acl, rule)
        self._by_principal[acl.resource_type].setdefault(acl.principal, _Patterns()).add(acl, rule)

    @staticmethod
    def _host_range(host: str) -> IPv4Network | IPv6Network | None:
        try:
            return parse_host_range(host) if "/" in host else None
        except ValueError:  # Kafka kept any text before KIP-1276
            return None

    def _remove(self, acl: Acl) -> None:
        self._acls.remove(acl)
        self._of_all[acl.resource_type].remove(acl)
        by_principal = self._by_principal[acl.resource_type]
        by_principal[acl.principal].remove(acl)
        if not any(by_principal[acl.principal].by_name.values()):
            del by_principal[acl.principal]

    def find(self, asked: AclFilter) -> list[Acl]:
        """Returns the ACLs that match the filter, in Kafka's order."""
        types = ResourceType if asked.resource_type is ResourceType.ANY else (asked.resource_type,)
        return _sorted(acl for kind in types for acl in self._of_all[kind].candidates(asked) if asked.matches(acl))

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Decides whether the principal may do that on that resource, and names the ACL that Kafka names."""
        if principal.is_local or principal in self._super_users:
            return _SUPER_USER
        found = self._matching(principal, host, operation, resource_type, name)
        if found:
            return found[0] if len(found) == 1 else self._deciding(found)
        if self._allows_everyone_if_none and not any(self._of_all[resource_type].applying_to(name)):
            return _DEFAULT_ALLOW
        return _DEFAULT_DENY

    def _matching(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> list[Decision]:
        wanted = 1 << operation
        host = javas_text(host)
        by_principal = self._by_principal[resource_type]
        return [
            rule.decision
            for who in _principals(principal)
            if who in by_principal
            for rules in by_principal[who].applying_to(name)
            for rule in rules.values()
            if rule.operations & wanted and rule.is_for(host)
        ]

    @staticmethod
    def _deciding(found: list[Decision]) -> Decision:
        """StandardAuthorizer stops at the first DENY, and names the last ALLOW."""
        by_acl = {decision.acl: decision for decision in found if decision.acl is not None}
        acls = _sorted(by_acl)
        return by_acl[next((acl for acl in acls if not by_acl[acl].is_allowed), acls[-1])]

    def allows_somewhere(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the principal may do that on any resource of the type, which need not exist: the default
        authorizeByResourceType of Kafka's Authorizer. But for the first question, no operation implies another.
        """
        if self.decide(principal, host, operation, resource_type, _EXAMPLE).is_allowed:
            return True
        patterns = self._patterns_of(principal, host, operation, resource_type)
        return not patterns.is_all_denied and patterns.is_any_allowed()

    def _patterns_of(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> _ClientPatterns:
        host = javas_text(host)
        by_principal = self._by_principal[resource_type]
        return _ClientPatterns(
            {
                (acl.permission_type, pattern_type, name)
                for who in _principals(principal)
                if who in by_principal
                for pattern_type, by_name in by_principal[who].by_name.items()
                for name, rules in by_name.items()
                for acl, rule in rules.items()
                if acl.operation in (operation, AclOperation.ALL) and rule.is_for(host)
            }
        )


class ZooKeeperAclRules(AclRules):
    """Those of AclAuthorizer, which Kafka 3.9 has in ZooKeeper mode: the same for a resource by its name, others for a
    right on any resource. The audit log does not name what decided.
    """

    AUDIT_LINE = (
        "Principal = {principal} is {verdict} Operation = {Operation} from host = {host} on resource = {resource} for "
        "request = {request} with resourceRefCount = {count}"
    )
    ANY_RESOURCE = "UNKNOWN:NONE"

    @staticmethod
    def _host_range(_host: str) -> None:
        return None

    def allows_somewhere(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the principal may do that on any resource of the type: authorizeByResourceType. No operation
        implies another. `allow.everyone.if.no.acl.found` allows it unless all names are denied.
        """
        if principal.is_local or principal in self._super_users:
            return True
        patterns = self._patterns_of(principal, host, operation, resource_type)
        return not patterns.is_all_denied and (self._allows_everyone_if_none or patterns.is_any_allowed())


class _ClientPatterns(NamedTuple):
    """The patterns of the ACLs that allow or deny an operation to a client."""

    patterns: set[tuple[AclPermissionType, PatternType, str]]

    @property
    def is_all_denied(self) -> bool:
        return (AclPermissionType.DENY, PatternType.LITERAL, ANY_NAME) in self.patterns

    def is_any_allowed(self) -> bool:
        """Returns whether a pattern is allowed, and neither denied itself nor below a prefix that is. Kafka does not
        look at what is denied if the pattern is `*`.
        """
        denied = {name for *kind, name in self.patterns if kind == [AclPermissionType.DENY, PatternType.PREFIXED]}
        for permission_type, pattern_type, name in self.patterns:
            if permission_type is not AclPermissionType.ALLOW:
                continue
            if pattern_type is PatternType.LITERAL:
                if name == ANY_NAME:
                    return True
                if (AclPermissionType.DENY, pattern_type, name) in self.patterns:
                    continue
            if not any(map(name.startswith, denied)):
                return True
        return False


def _principals(principal: Principal) -> tuple[str, ...]:
    who = f"{principal.type}:{principal.name}"
    return (who,) if who == _ANY_USER else (who, _ANY_USER)


def _operations(acl: Acl) -> int:
    if acl.operation is AclOperation.ALL:
        return -1
    if acl.permission_type is not AclPermissionType.ALLOW:  # one that a later Kafka may know denies, as in Kafka
        return 1 << acl.operation
    return sum(1 << operation for operation in AclOperation if acl.operation in ALLOWED_BY[operation])


def _sorted(acls: Iterable[Acl]) -> list[Acl]:
    """Sorts as StandardAcl.compareTo does: names in descending order, so that those that begin with others come before
    them.
    """
    found = sorted(
        acls, key=lambda acl: (acl.pattern_type, acl.operation, acl.principal, acl.host, acl.permission_type)
    )
    found.sort(key=lambda acl: acl.resource_name, reverse=True)
    found.sort(key=lambda acl: acl.resource_type)
    return found
