"""The leader in an answer of another broker than it, and where it is reached (KIP-951)."""

from __future__ import annotations

from core.protocol.message import Struct, int32, string


class LeaderIdAndEpoch(Struct):
    """Both are -1 for an unknown partition; the leader is -1 if the partition has no leader."""

    leader_id: int = int32("0+", -1)
    leader_epoch: int = int32("0+", -1)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("0+", None, nullable="0+")
