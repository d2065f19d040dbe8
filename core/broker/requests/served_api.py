"""A handler's declaration: the API that it serves, the rights that it needs, and the kinds of clusters that have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from core.broker.requests.client_session import Session
from core.broker.requests.request_context import RequestContext
from core.broker.requests.services import Services
from core.cluster.image.feature_levels import Feature, is_finalized
from core.common.pending import Pending
from core.common.task import Task
from core.protocol.message import Api, VersionRange
from core.security.acl import CLUSTER_NAME, ResourceType, Right

Req = TypeVar("Req")
Res = TypeVar("Res")


Finalized = Mapping[str, int]
"""The finalized features of a cluster, by level; where None is allowed, it means a lone broker."""


Handler = Callable[
    [Services, Req, RequestContext],
    Res | Pending[Res] | Task[Res] | Task[Res | Pending[Res]] | Task[Res | Pending[Res | None] | None],
]
"""Returns the answer, now or later, or the task that makes it; None if there is none, as for a Produce with acks=0."""


def serves(api: Api[Req, Res], *rights: Right, **traits: Any) -> Callable[[Handler[Req, Res]], ServedApi[Req, Res]]:
    """Declares the handler of an API that needs any of these rights; `traits` are the other fields of `ServedApi`."""
    return lambda handle: ServedApi(api, handle, rights, **traits)


@dataclass(frozen=True, slots=True)
class ServedApi(Generic[Req, Res]):
    """A row of the dispatcher's table; immutable."""

    api: Api[Req, Res]
    handle: Handler[Req, Res]
    rights: tuple[Right, ...]
    """The rights that it needs, in Kafka's order; without any, everybody may use it."""
    is_whole: bool = False
    """Whether a request without any of them is refused before the handler is called, else the handler asks for each
    name.
    """
    name_of: Callable[[Req], str] = lambda _: CLUSTER_NAME
    """Finds the resource on which the whole request needs the right."""
    is_owed: bool = False
    """Whether its task completes a change already begun: it is done even if the client disconnects."""

    is_between_brokers: bool = False
    """Whether only brokers of a cluster send it, to each other; a lone broker does not serve it."""
    needs_quorum: bool = False
    """Whether Kafka has it only in KRaft clusters. A member of a ZooKeeper-mode cluster does not serve it either: a
    client that learned of it from one broker would be refused by the next.
    """
    needs_feature: Feature | None = None
    """A feature that such a cluster must have finalized, because each of its brokers has to support it. Without it,
    members still know the API, and refuse it; they do not advertise it. No version of an API depends on a feature, as
    in Kafka 4: a client keeps the versions of its connection's start, and learns of a feature with its next connection
    to any broker.
    """
    is_for_controllers: bool = False
    """Whether it is about a cluster: a lone broker does not serve it, and members advertise it. Mostly the controller
    alone answers it, which any member may be.
    """
    first_of_members: int | None = None
    """The first version in ZooKeeper-mode clusters, if earlier ones lack a field that these need."""
    last_of_members: int | None = None
    """The last version in ZooKeeper-mode clusters, if later ones ask for more than these can do."""

    def __call__(self, services: Services, request: Req, context: RequestContext) -> Any:
        return self.handle(services, request, context)

    def find_refusal(self, request: Req, context: RequestContext) -> Res | None:
        """Returns the answer to a request that lacks what it needs as a whole, or None."""
        if not self.is_whole:
            return None
        name = self.name_of(request)
        if any(context.may(right, name) for right in self.rights):
            return None
        code = self.rights[0].refusal
        answer = cast(Any, self.api.response)(error_code=code)
        if hasattr(answer, "error_message"):
            answer.error_message = code.text
        return cast(Res, answer)

    def may_touch(self, session: Session, topic: str) -> bool:
        """Returns whether the session has any of the rights that requests for the topic need."""
        return session.authorizer is None or any(
            session.has(right, topic if right.resource_type is ResourceType.TOPIC else CLUSTER_NAME)
            for right in self.rights
            if right.resource_type in (ResourceType.TOPIC, ResourceType.CLUSTER)
        )

    def is_known(self, finalized: Finalized | None) -> bool:
        """Returns whether the broker serves it."""
        is_alone = finalized is None
        return not (self.is_between_brokers or self.is_for_controllers) if is_alone else not self.needs_quorum

    def is_advertised(self, finalized: Finalized | None) -> bool:
        """Returns whether ApiVersions lists it."""
        return not (self.is_between_brokers or self._lacks_feature(finalized)) and self.is_known(finalized)

    def versions(self, finalized: Finalized | None) -> VersionRange:
        """Returns the served versions, both ends included."""
        versions = self.api.versions
        if finalized is None:
            return versions
        first = versions.first if self.first_of_members is None else self.first_of_members
        return VersionRange(first, versions.last if self.last_of_members is None else self.last_of_members)

    def _lacks_feature(self, finalized: Finalized | None) -> bool:
        needed = self.needs_feature
        return needed is not None and finalized is not None and not is_finalized(finalized, needed)
