"""Why a principal may do something, or may not: the ACL that decides, and those that nearly do.

The rules are asked about each ACL alone, also as it would be with another host or operation, so that they stand in one
place: in the class of the authorizer.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import NamedTuple

from core.security.acl import ANY_HOST, Acl, AclOperation, AclPermissionType, PatternType, ResourceType, javas_text
from core.security.acl_rules import AclRules, Decision
from core.security.principal import Principal

DECIDES, _MATCHES, _OVERRULED = "decides", "matches too", "overruled"
_WAYS: tuple[tuple[str, Callable[[Acl, Question], Acl]], ...] = (
    (_MATCHES, lambda acl, _: acl),
    ("other host", lambda acl, _: acl._replace(host=ANY_HOST)),
    ("other operation", lambda acl, _: acl._replace(operation=AclOperation.ALL)),
    ("other operation and host", lambda acl, _: acl._replace(operation=AclOperation.ALL, host=ANY_HOST)),
    ("other spelling of the principal", lambda acl, question: _spelled(acl, question)),
)
"""What an ACL lacks: what would make it apply to the question; the first that does is said."""


class Question(NamedTuple):
    principal: Principal
    host: str
    """An IP address, or * for a client whose address no ACL names."""
    operation: AclOperation
    resource_type: ResourceType
    name: str


class Reason(NamedTuple):
    why: str
    acl: Acl


def find_reasons(
    question: Question, decision: Decision, acls: Iterable[Acl], rules: type[AclRules] = AclRules
) -> list[Reason]:
    """Returns the ACL that decided first; then those that match, too, and those of them that it overrules; then those
    about the resource that miss the question by one thing: the host, the operation, or the spelling of the principal.
    """
    found = []
    for acl in acls:
        why = DECIDES if acl == decision.acl else _why(question, acl, rules)
        if why == _MATCHES and decision.acl is not None and acl.permission_type is not decision.acl.permission_type:
            why = _OVERRULED
        if why is not None:
            found.append(Reason(why, acl))
    order = [DECIDES, _MATCHES, _OVERRULED, *(why for why, _ in _WAYS[1:])]
    return sorted(found, key=lambda reason: order.index(reason.why))


def _why(question: Question, acl: Acl, rules: type[AclRules]) -> str | None:
    if not acl.applies_to(question.resource_type, question.name):
        return None
    return next((why for why, change in _WAYS if rules((change(acl, question),)).decide(*question).acl), None)


def _spelled(acl: Acl, question: Question) -> Acl:
    """Returns the ACL with the principal of the question if only case and blanks differ."""
    mine = str(question.principal)
    is_same = _plain(acl.principal) == _plain(mine)
    return acl._replace(principal=mine, operation=AclOperation.ALL, host=ANY_HOST) if is_same else acl


def _plain(principal: str) -> str:
    return "".join(principal.split()).lower()


def find_ways_out(question: Question, decision: Decision, reasons: Iterable[Reason]) -> list[str]:
    """Returns the commands, without the place, that would allow what the decision denies: to remove each ACL that
    denies it, or to add one that allows it.
    """
    denying = [
        reason.acl
        for reason in reasons
        if reason.why in (DECIDES, _MATCHES) and reason.acl.permission_type is AclPermissionType.DENY
    ]
    if decision.acl is not None:
        return [f"plog acl remove {options_of(acl)}" for acl in denying]
    wanted = Acl(
        resource_type=question.resource_type,
        resource_name=question.name,
        pattern_type=PatternType.LITERAL,
        principal=str(question.principal),
        host=javas_text(question.host),
        operation=question.operation,
        permission_type=AclPermissionType.ALLOW,
    )
    return [f"plog acl add {options_of(wanted)}"]


_RESOURCES = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}


def options_of(acl: Acl) -> str:
    """Returns the options of `plog acl add` and `plog acl remove` that name this ACL alone."""
    kind = acl.permission_type.name.lower()
    words = [f"--{kind}-principal", acl.principal]
    words += [] if acl.host == ANY_HOST else [f"--{kind}-host", acl.host]
    words += ["--operation", acl.operation.name]
    words += [_RESOURCES[acl.resource_type], acl.resource_name] if acl.resource_type in _RESOURCES else ["--cluster"]
    words += ["--resource-pattern-type", "prefixed"] if acl.pattern_type is PatternType.PREFIXED else []
    return shlex.join(words)
