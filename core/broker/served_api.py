"""What a handler's module declares: which API it serves, how, and what a request needs to be allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from core.broker.request_context import RequestContext
from core.broker.services import Services
from core.common.pending import Pending
from core.protocol.api import Api
from core.protocol.message import VersionRange

Req = TypeVar("Req")
Res = TypeVar("Res")


class Needs(Enum):
    """What an authorizer has to grant before a request is handled. There is no authorizer yet."""

    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class ServedApi(Generic[Req, Res]):
    """A row of the dispatcher's table; immutable."""

    api: Api[Req, Res]
    handle: Callable[[Services, Req, RequestContext], Res | Pending[Res] | Pending[Res | None] | None]
    """Gives the answer, now or later; None if there is none, as to a Produce with acks=0."""

    needs: Needs
    is_between_brokers: bool = False
    """Whether only brokers of a cluster send it, to each other; a lone broker does not know it then."""
    needs_quorum: bool = False
    """Whether Kafka knows it only in clusters whose metadata a quorum keeps. A member of one that ZooKeeper keeps does
    not know it, either: clients that have it from one broker would be refused by the next.
    """
    is_refused_by_members: bool = False
    """Whether such a member answers that it can't do it, and does not advertise it."""
    is_for_controllers: bool = False
    """Whether it is about a cluster: a lone broker does not know it, and members advertise it. Most is answered by the
    controller alone, which any of them may be.
    """
    first_of_members: int | None = None
    """The first version of such clusters, if earlier ones lack what they need."""
    last_of_members: int | None = None
    """The last version of such clusters, if later ones mean what those can't do."""

    def is_known(self, *, is_member: bool) -> bool:
        """Says whether the broker knows it; `is_member`: of a cluster."""
        return not self.needs_quorum if is_member else not (self.is_between_brokers or self.is_for_controllers)

    def is_advertised(self, *, is_member: bool) -> bool:
        """Says whether clients hear of it."""
        is_for_clients = not (self.is_between_brokers or (is_member and self.is_refused_by_members))
        return is_for_clients and self.is_known(is_member=is_member)

    def versions(self, *, is_member: bool) -> VersionRange:
        """Gives those that are served; both ends are in."""
        versions = self.api.versions
        if not is_member:
            return versions
        first, last = self.first_of_members, self.last_of_members
        return VersionRange(
            versions.first if first is None else first, versions.last if last is None else min(versions.last, last)
        )
