"""An API of Kafka's: its key, its request and response and, through their schemas, its versions.

Each one stands with its schema (core/protocol/schema), so that a client imports no more than it speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from core.protocol.message import VersionRange, schema_of

Req = TypeVar("Req")
Res = TypeVar("Res")

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True, eq=False)
class Api(Generic[Req, Res]):
    key: int
    name: str
    request: type[Req]
    response: type[Res]

    @property
    def versions(self) -> VersionRange:
        """Gives the versions that are served; both ends are in."""
        return schema_of(self.request).valid

    def request_header_version(self, version: int) -> int:
        return 2 if version in schema_of(self.request).flexible else 1

    def response_header_version(self, version: int) -> int:
        """Gives it: 0 for every version of ApiVersions, as a client can't know yet what the broker speaks."""
        if self.key == API_VERSIONS_KEY:
            return 0
        return 1 if version in schema_of(self.response).flexible else 0
