"""What a handler's module declares: which API it serves, how, and who knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import Feature, is_finalized
from core.common.pending import Pending
from core.protocol.message import Api, VersionRange

Req = TypeVar("Req")
Res = TypeVar("Res")


Finalized = Mapping[str, int]
"""The features that a cluster has finalized, by level; where None may stand for it, the broker is in no cluster."""


@dataclass(frozen=True, slots=True)
class ServedApi(Generic[Req, Res]):
    """A row of the dispatcher's table; immutable."""

    api: Api[Req, Res]
    handle: Callable[[Services, Req, RequestContext], Res | Pending[Res] | Pending[Res | None] | None]
    """Gives the answer, now or later; None if there is none, as to a Produce with acks=0."""

    is_between_brokers: bool = False
    """Whether only brokers of a cluster send it, to each other; a lone broker does not know it then."""
    needs_quorum: bool = False
    """Whether Kafka knows it only in clusters whose metadata a quorum keeps. A member of one that ZooKeeper keeps does
    not know it, either: clients that have it from one broker would be refused by the next.
    """
    needs_feature: Feature | None = None
    """A feature that such a cluster must have finalized, as each of its brokers has to do what is meant. Members still
    know the API without it, and refuse it; they do not advertise it. Versions of an API are never for a feature, as in
    Kafka 4: a client keeps what it was told when it connected, and hears of a feature with its next connection to any
    broker.
    """
    is_for_controllers: bool = False
    """Whether it is about a cluster: a lone broker does not know it, and members advertise it. Most is answered by the
    controller alone, which any of them may be.
    """
    first_of_members: int | None = None
    """The first version of such clusters, if earlier ones lack what they need."""
    last_of_members: int | None = None
    """The last version of such clusters, if later ones mean what those can't do."""

    def is_known(self, finalized: Finalized | None) -> bool:
        """Says whether the broker knows it."""
        is_alone = finalized is None
        return not (self.is_between_brokers or self.is_for_controllers) if is_alone else not self.needs_quorum

    def is_advertised(self, finalized: Finalized | None) -> bool:
        """Says whether clients hear of it."""
        return not (self.is_between_brokers or self._lacks_feature(finalized)) and self.is_known(finalized)

    def versions(self, finalized: Finalized | None) -> VersionRange:
        """Gives those that are served; both ends are in."""
        versions = self.api.versions
        if finalized is None:
            return versions
        first = versions.first if self.first_of_members is None else self.first_of_members
        return VersionRange(first, versions.last if self.last_of_members is None else self.last_of_members)

    def _lacks_feature(self, finalized: Finalized | None) -> bool:
        """Says whether it needs a level of a feature that the broker's cluster has not finalized."""
        needed = self.needs_feature
        return needed is not None and finalized is not None and not is_finalized(finalized, needed)
