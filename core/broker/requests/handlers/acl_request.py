"""What the requests about ACLs share: there is no authorizer, and so there are no ACLs."""

from __future__ import annotations

from core.common.errors import MalformedMessageError

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's message."""

_UNKNOWN = 0


def ensure_no_unknowns(*codes: int) -> None:
    """Raises MalformedMessageError if a resource type, a pattern, an operation or a permission is UNKNOWN."""
    if _UNKNOWN in codes:
        raise MalformedMessageError("an ACL has UNKNOWN elements")
