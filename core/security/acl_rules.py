"""The rules by which ACLs decide: Kafka's StandardAuthorizer, and AclAuthorizer of the ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.security.acl import (
    ANY_HOST,
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    ResourceType,
)
from core.security.principal import ANY_USER, Principal

_IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class Decision(NamedTuple):
    is_allowed: bool
    rule_text: str
    """What decided, as Kafka's audit log names it: `SuperUser`, `DefaultDeny`, `DefaultAllow`, or the ACL."""
    acl: Acl | None = None
    """The ACL that decided, or None."""


class AclRules:
    """The ACLs and settings of StandardAuthorizer; owned by the broker's task."""

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        *,
        super_users: Iterable[Principal] = (),
        allows_everyone_if_none: bool = False,
    ) -> None:
        """`allows_everyone_if_none` is `allow.everyone.if.no.acl.found`."""
        self.generation = 0
        """Changes with the ACLs."""
        self._acls = set(acls)
        self._super_users = frozenset(super_users)
        self._allows_everyone_if_none = allows_everyone_if_none

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, acl: Acl) -> None:
        self._acls.add(acl)
        self.generation += 1

    def remove(self, acl: Acl) -> None:
        self._acls.discard(acl)
        self.generation += 1

    def find(self, asked: AclFilter) -> list[Acl]:
        """Returns the ACLs that match the filter."""
        return [acl for acl in self._acls if asked.matches(acl)]

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Decides whether the principal may do that on that resource."""
        if principal.is_local or principal in self._super_users:
            return Decision(is_allowed=True, rule_text="SuperUser")
        about = [acl for acl in self._acls if acl.applies_to(resource_type, name)]
        who = (str(principal), str(ANY_USER))
        mine = [acl for acl in about if acl.principal in who and acl.host in (host, ANY_HOST)]
        for permission, operations in (
            (AclPermissionType.DENY, (operation,)),
            (AclPermissionType.ALLOW, (operation, *_IMPLIED_BY.get(operation, ()))),
        ):
            for acl in mine:
                if acl.permission_type is permission and acl.operation in (AclOperation.ALL, *operations):
                    return Decision(permission is AclPermissionType.ALLOW, f"MatchingAcl(acl={acl})", acl)
        if self._allows_everyone_if_none and not about:
            return Decision(is_allowed=True, rule_text="DefaultAllow")
        return Decision(is_allowed=False, rule_text="DefaultDeny")

    def allows_somewhere(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Returns whether the principal may do that on any resource of the type."""
        names = {acl.resource_name for acl in self._acls if acl.resource_type is resource_type}
        return any(self.decide(principal, host, operation, resource_type, name).is_allowed for name in names)
