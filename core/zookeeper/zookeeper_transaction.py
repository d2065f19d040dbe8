"""Changes of ZooKeeper that are made together or not at all, and the reasons for its refusals."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from core.common.errors import AccessError

ANY_VERSION = -1


class NodeStat(NamedTuple):
    """ZooKeeper's facts about a node. `czxid` is the number of the change that created it, and differs for every other
    node, and for this one created again. `ephemeral_owner` is its session, 0 if it outlives sessions.
    """

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    created_ms: int
    modified_ms: int


class Node(NamedTuple):
    """A node's data, b"" if it has none, and its stat."""

    data: bytes
    stat: NodeStat


class Create(NamedTuple):
    """Creates a node, which must not exist; `is_sequential` adds ten digits to the name. Its answer is the path."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False


class SetData(NamedTuple):
    """Replaces a node's data. Its answer is the NodeStat after that."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Deletes a node, which must have no children. Its answer is None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Lets the transaction fail unless the node has that version. Its answer is None."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
Answer = str | NodeStat | None


class Refusal(Enum):
    """The reason for which ZooKeeper refused; the value is a message about a path."""

    NO_NODE = "{path} does not exist"
    NODE_EXISTS = "{path} exists already"
    BAD_VERSION = "{path} was changed by somebody else"
    NOT_EMPTY = "{path} has nodes below it"
    NO_AUTH = "our login may not read or change {path}"
    INVALID_ACL = "rights for {path} need a login"
    CONNECTION_LOST = "the connection was lost, and it is not known whether {path} was changed"
    SESSION_EXPIRED = "the session has expired, {path} was not changed"
    AUTH_FAILED = "the login was refused"
    CLOSED = "the session is closed"
    OTHER = "{path}: an error that plog has no name for"


_HINTS = {
    Refusal.NO_AUTH: "the node was made with zookeeper.set.acl: use the login of the broker that made it, or a "
    "certificate with the same distinguished name",
    Refusal.AUTH_FAILED: "check the user and the password for ZooKeeper",
}


class ZooKeeperError(AccessError):
    """ZooKeeper refused a request. `operation` is the one of a transaction that failed; None for a read, and if no
    single one failed.
    """

    def __init__(self, refusal: Refusal, path: str, *, operation: Operation | None = None, detail: str = "") -> None:
        text = refusal.value.format(path=path)
        if isinstance(operation, Check | SetData | Delete) and refusal is Refusal.BAD_VERSION:
            text += f", it no longer has version {operation.version}"
        super().__init__(f"ZooKeeper: {text}{f' ({detail})' if detail else ''}", where=path, hint=_HINTS.get(refusal))
        self.refusal = refusal
        self.operation = operation

    @property
    def is_lost(self) -> bool:
        """Returns whether the connection or the session is to blame, not the request."""
        return self.refusal in (Refusal.CONNECTION_LOST, Refusal.SESSION_EXPIRED)
