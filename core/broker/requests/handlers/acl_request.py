"""What the requests about ACLs have in common: there is no authorizer that would keep any."""

from __future__ import annotations

from core.common.errors import MalformedMessageError

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's words."""

_UNKNOWN = 0


def ensure_no_unknowns(*codes: int) -> None:
    """Raises MalformedMessageError for a kind, a pattern, an operation or a permission that is UNKNOWN."""
    if _UNKNOWN in codes:
        raise MalformedMessageError("an ACL has UNKNOWN elements")
