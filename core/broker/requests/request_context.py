"""What a handler knows about a request besides its message."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from core.broker.requests.client_session import Session
from core.common.errors import KafkaError
from core.coordinator.coordinator_environment import ClientInfo
from core.security.acl import CLUSTER_NAME, DESCRIBE_TOPIC, Right

_MOST_SHOWN = 200
"""The most characters of a client id in a log line."""


class RequestContext(NamedTuple):
    """Part of a request: an answer that waits keeps the session that asked. `api_name` is for the audit log."""

    api_version: int
    client_id: str | None
    session: Session
    api_name: str = ""

    @property
    def client(self) -> ClientInfo:
        return ClientInfo(
            self.client_id or "", f"/{self.session.client_host}", partial(self.session.has, DESCRIBE_TOPIC)
        )

    @property
    def sender(self) -> str:
        """The client and its address, for log lines."""
        return f"client {(self.client_id or '')[:_MOST_SHOWN]!r} at {self.session.client_host or 'no address'}"

    def may(self, right: Right, name: str = CLUSTER_NAME, *, is_asked: bool = True, count: int = 1) -> bool:
        """See `Authorizer.authorize`."""
        session = self.session
        authorizer = session.authorizer
        return authorizer is None or authorizer.authorize(
            session, right, name, self.api_name, is_asked=is_asked, count=count
        )

    def ensure(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raises KafkaError with the refusal of the right, if the session lacks it."""
        if not self.may(right, name):
            raise KafkaError(right.refusal)
