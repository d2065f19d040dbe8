"""The authorizer: asks the rules of ACLs for a client, remembers and counts decisions, and writes the audit log.

A line of the audit log is Kafka's: denied at INFO, allowed at DEBUG, by the logger `plog.authorizer`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic  # noqa: TID251  how many lines a second has
from weakref import WeakSet

from core.security.acl import OPERATIONS, AclOperation, ResourceType, Right, javas_text
from core.security.acl_rules import AclRules, Decision
from core.security.principal import Principal

_log = logging.getLogger("plog.authorizer")

_MOST_REMEMBERED = 20_000
_LONGEST_REMEMBERED = 255
"""The most decisions of an asker that are remembered, and the longest name: a client chooses both."""

_MOST_REMEMBERED_OF_ALL = 200_000
"""The most decisions of all askers, some 80 MB: a client may come from many hosts."""

_MOST_LINES_A_SECOND = 5000
"""The most lines of the audit log: one request can name millions of topics."""

_MOST_LINES_OF_ONE = 500
"""The most of them for one asker, whose lines must not take the place of others', nor of the loop's other work: a line
takes some 40 microseconds.
"""

_LONGEST_SHOWN = 1000
"""The most characters of a name in the audit log: that of a group may have 32 KB, and escaped four times as much."""


class Asker:
    """A client that asks, its host, and what the rules of one generation decided for it; owned by the authorizer."""

    def __init__(self, principal: Principal, client_host: str) -> None:
        self.principal = principal
        self.client_host = client_host
        self.generation = -1
        self.decisions: dict[tuple[Right, str | None], Decision] = {}
        self.second = self.lines = 0
        """The lines of the audit log in that second."""


class Authorizer:
    """Owned by the broker's task."""

    def __init__(self, rules: AclRules) -> None:
        self.rules = rules
        self.allowed = 0
        """The requests for a resource that were allowed, since the start."""
        self.denied = 0
        """Those that were denied."""
        self._second = self._lines = self._left_out = 0
        self._remembered = 0
        self._remembering: WeakSet[Asker] = WeakSet()

    @property
    def logs_allowed(self) -> bool:
        """Whether the audit log has a line of each right that was allowed."""
        return _log.isEnabledFor(logging.DEBUG)

    def authorize(
        self, asker: Asker, right: Right, name: str, request: str, *, is_asked: bool = True, count: int = 1
    ) -> bool:
        """Returns whether the asker has the right on the resource of that name. For the audit log: the API's name, and
        how often the request names the resource. A refusal counts and is logged only if the client asked for that
        resource.
        """
        is_known = asker.generation == self.rules.generation  # the rest of `decide` takes longer
        decision = (is_known and asker.decisions.get((right, name))) or self.decide(asker, right, name)
        if decision.is_allowed:
            self.allowed += 1
            if _log.isEnabledFor(logging.DEBUG):
                self._log_decision(asker, right, f"LITERAL:{name}", decision, request=request, count=count)
        elif is_asked:
            self.denied += 1
            self._log_decision(asker, right, f"LITERAL:{name}", decision, request=request, count=count)
        return decision.is_allowed

    def _has_room(self, asker: Asker) -> bool:
        """Returns whether the audit log takes one more line of the asker in this second. The first call of the next
        second logs how many lines are missing.
        """
        second = int(monotonic())
        if second != self._second:
            if self._left_out:
                _log.warning("%d decisions of one second are left out here", self._left_out)
            self._second, self._lines, self._left_out = second, 0, 0
        if second != asker.second:
            asker.second, asker.lines = second, 0
        if asker.lines >= _MOST_LINES_OF_ONE or self._lines >= _MOST_LINES_A_SECOND:
            self._left_out += 1
            return False
        self._lines += 1
        asker.lines += 1
        return True

    def authorize_somewhere(self, asker: Asker, right: Right, request: str) -> bool:
        """Returns whether the asker has the right on any resource of the type (authorizeByResourceType of Kafka). The
        audit log has a line of it in ZooKeeper mode alone, as in Kafka.
        """
        decision = self.decide(asker, right, None)
        if decision.is_allowed:
            self.allowed += 1
        else:
            self.denied += 1
        if self.rules.ANY_RESOURCE and (self.logs_allowed or not decision.is_allowed):
            self._log_decision(asker, right, self.rules.ANY_RESOURCE, decision, request=request, count=0)
        return decision.is_allowed

    def operations(self, asker: Asker, resource_type: ResourceType, name: str) -> Sequence[AclOperation]:
        """Returns the operations that the asker has on the resource; the audit log has no line of it, as in Kafka."""
        return [
            operation
            for operation in OPERATIONS[resource_type]
            if self.decide(asker, Right.of(operation, resource_type), name).is_allowed
        ]

    def decide(self, asker: Asker, right: Right, name: str | None) -> Decision:
        """Returns what the rules say now; remembered with the asker as long as they stay. Without a name it is about
        any resource of the type.
        """
        if asker.generation != self.rules.generation or len(asker.decisions) >= _MOST_REMEMBERED:
            asker.decisions.clear()
            asker.generation = self.rules.generation
        known = asker.decisions.get((right, name))
        if known is None:
            question = asker.principal, asker.client_host, right.operation, right.resource_type
            if name is None:
                known = Decision(self.rules.allows_somewhere(*question))
            else:
                known = self.rules.decide(*question, name)
            if len(name or "") <= _LONGEST_REMEMBERED:
                self._make_room(asker)
                asker.decisions[right, name] = known
        return known

    def _make_room(self, asker: Asker) -> None:
        """Forgets the decisions of all askers if there are too many. Those of closed sessions count until then."""
        if self._remembered >= _MOST_REMEMBERED_OF_ALL:
            for one in self._remembering:
                one.decisions.clear()
            self._remembering.clear()
            self._remembered = 0
        if not asker.decisions:
            self._remembering.add(asker)
        self._remembered += 1

    def _log_decision(
        self, asker: Asker, right: Right, resource: str, decision: Decision, *, request: str, count: int
    ) -> None:
        level = logging.DEBUG if decision.is_allowed else logging.INFO
        if not (_log.isEnabledFor(level) and self._has_room(asker)):
            return
        line = self.rules.AUDIT_LINE.format(
            principal=_printable(str(asker.principal)),
            verdict="Allowed" if decision.is_allowed else "Denied",
            operation=right.operation.name,
            Operation=right.operation.camel_name,
            host=javas_text(asker.client_host),
            resource=f"{right.resource_type.camel_name}:{_printable(resource)}",
            request=request,
            count=count,
            rule=_printable(decision.rule_text),
        )
        _log.log(level, "%s", line)


def _printable(text: str) -> str:
    """Escapes what would break the line, and cuts what would fill the log: a client may choose the text."""
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[:_LONGEST_SHOWN]}.. ({len(text)} characters)"
    return text if text.isprintable() else ascii(text)[1:-1]
