"""Who a client is: Kafka's principals (org.apache.kafka.common.security.auth.KafkaPrincipal)."""

from __future__ import annotations

import re
from typing import NamedTuple

from core.common.errors import UsageError

USER_TYPE = "User"
"""The type of the principals that clients have."""

_LOCAL_TYPE = "Local"


class Principal(NamedTuple):
    """A type and a name, as `User:alice`. Names are compared as they are: case counts."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether it is the owner of the data directory, who may do everything. No listener gives this type to a client
        that comes by the network, so no name of a user can become it.
        """
        return self.type == _LOCAL_TYPE

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Reads `User:alice`, as Kafka's SecurityUtils.parseKafkaPrincipal does. Raises UsageError without a type, or
        without a name.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise UsageError(f"{text!r} is no principal", hint="a type and a name are expected, as User:alice")
        return cls(kind, name)


def parse_principals(text: str) -> list[Principal]:
    """Reads `User:alice;User:bob`, as Kafka reads `super.users`: a name may hold commas. Raises UsageError as
    `Principal.parse`, and for `User:alice,User:bob`, which Kafka takes for one user whom no client can be.
    """
    found = [Principal.parse(part) for part in map(str.strip, text.split(";")) if part]
    for one in found:
        if re.search(rf",\s*{USER_TYPE}:", one.name):
            raise UsageError(f"{str(one)!r} is one principal", hint="a semicolon separates two, as User:alice;User:bob")
    return found


ANONYMOUS = Principal(USER_TYPE, "ANONYMOUS")
"""A client that did not say who it is."""

LOCAL = Principal(_LOCAL_TYPE, "owner")
"""Whoever can write the files of the data directory: a command that works on it without a server, or that reaches the
server by the socket in it.
"""

ANY_USER = Principal(USER_TYPE, "*")
"""In an ACL: everybody."""
