"""Values of control records: transaction markers and KRaft's own (ControlRecordType)."""

from __future__ import annotations

from core.protocol.message import array, int16, int32, int64, message, string, struct, struct_of, uint16, uuid


@message(valid="0", flexible="none")
class EndTxnMarker:
    coordinator_epoch: int = int32()


@struct
class Voter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid("1+")


@message(valid="0-1", flexible="0+")
class LeaderChangeMessage:
    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


@message(valid="0", flexible="0+")
class SnapshotHeaderRecord:
    version: int = int16()
    last_contained_log_timestamp: int = int64()


@message(valid="0", flexible="0+")
class SnapshotFooterRecord:
    version: int = int16()


@message(valid="0", flexible="0+")
class KRaftVersionRecord:
    version: int = int16()
    k_raft_version: int = int16()


@struct
class Endpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class KRaftVersionFeature:
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@struct
class VotersRecordVoter:
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    k_raft_version_feature: KRaftVersionFeature = struct_of(KRaftVersionFeature)


@message(valid="0", flexible="0+")
class VotersRecord:
    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
