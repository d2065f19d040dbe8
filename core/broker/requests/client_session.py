"""A session: all connections of a principal from a host to a listener.

A session keeps what the broker remembers for its client: the bytes of usual Produce requests, and the decisions of the
authorizer. So no client gets an answer by the rights of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from core.broker.requests.authorizer import Asker, Authorizer
from core.security.acl import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType, Right
from core.security.principal import LOCAL, Principal


class Session(Asker):
    """Owned by the broker's task. `local_host` is this broker's address that the client reached, `client_host` the
    client's own, `listener` the name of the listener; all are empty without a socket.
    """

    def __init__(
        self,
        principal: Principal = LOCAL,
        listener: str = "",
        client_host: str = "",
        local_host: str = "",
        authorizer: Authorizer | None = None,
    ) -> None:
        """Without an `authorizer` the session may do everything."""
        super().__init__(principal, client_host)
        self.listener = listener
        self.local_host = local_host
        self.authorizer = authorizer
        self.produce_memory: Any = None
        """Usual Produce requests of this session by their bytes: the dispatcher's own."""

    def has(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        """As `RequestContext.may`, without a word in metrics and audit log."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.decide(self, right, name).is_allowed

    def may_somewhere(self, right: Right, request: str = "") -> bool:
        """See `Authorizer.authorize_somewhere`."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.authorize_somewhere(self, right, request)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Returns the operations that the session has on the resource, as a sum of `1 << operation`."""
        authorizer = self.authorizer
        operations: Sequence[AclOperation] = OPERATIONS[resource_type]
        if authorizer is not None:
            operations = authorizer.operations(self, resource_type, name)
        return sum(1 << operation for operation in operations)


class Sessions:
    """The sessions of the open connections; owned by the broker's task."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._open: WeakValueDictionary[tuple[Principal, str, str, str], Session] = WeakValueDictionary()

    def find(self, principal: Principal, listener: str, client_host: str, local_host: str) -> Session:
        """Returns the session, which lasts as long as somebody holds it."""
        key = principal, listener, client_host, local_host
        session = self._open.get(key)
        if session is None:
            session = self._open[key] = Session(*key, self._authorizer)
        return session
