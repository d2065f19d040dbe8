"""Values of control records: transaction markers and KRaft's own (ControlRecordType)."""

from __future__ import annotations

from core.protocol.message import Message, Struct, array, int16, int32, int64, string, struct_of, uint16, uuid


class EndTxnMarker(Message, valid="0", flexible="none"):
    coordinator_epoch: int = int32()


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Message, valid="0-1", flexible="0+"):
    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, valid="0", flexible="0+"):
    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, valid="0", flexible="0+"):
    version: int = int16()


class KRaftVersionRecord(Message, valid="0", flexible="0+"):
    version: int = int16()
    k_raft_version: int = int16()


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = struct_of(KRaftVersionFeature)


class VotersRecord(Message, valid="0", flexible="0+"):
    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
