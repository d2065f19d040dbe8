"""KRaft metadata records: the values of the batches in __cluster_metadata and its .checkpoint snapshots.

A value is uvarint frame version (1), uvarint record type (api_key here), uvarint record version, then the flexible
message (org.apache.kafka.metadata.MetadataRecordSerde)."""

from __future__ import annotations

from core.protocol.message import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class TopicRecord(Message, api_key=2, valid="0", flexible="0+"):
    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Message, api_key=3, valid="0-2", flexible="0+"):
    partition_id: int = int32("0+", -1)
    topic_id: bytes = uuid()
    replicas: list[int] = array("int32")
    isr: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    leader: int = int32("0+", -1)
    leader_recovery_state: int = int8(tagged="0+", tag=0)
    leader_epoch: int = int32("0+", -1)
    partition_epoch: int = int32("0+", -1)
    directories: list[bytes] = array("uuid", "1+")
    eligible_leader_replicas: list[int] | None = array(
        "int32", "2+", null_default=True, nullable="2+", tagged="2+", tag=1
    )
    last_known_elr: list[int] | None = array("int32", "2+", null_default=True, nullable="2+", tagged="2+", tag=2)


class PartitionChangeRecord(Message, api_key=5, valid="0-2", flexible="0+"):
    partition_id: int = int32("0+", -1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array("int32", null_default=True, nullable="0+", tagged="0+", tag=0)
    leader: int = int32("0+", -2, tagged="0+", tag=1)
    replicas: list[int] | None = array("int32", null_default=True, nullable="0+", tagged="0+", tag=2)
    removing_replicas: list[int] | None = array("int32", null_default=True, nullable="0+", tagged="0+", tag=3)
    adding_replicas: list[int] | None = array("int32", null_default=True, nullable="0+", tagged="0+", tag=4)
    leader_recovery_state: int = int8("0+", -1, tagged="0+", tag=5)
    directories: list[bytes] | None = array("uuid", "1+", null_default=True, nullable="1+", tagged="1+", tag=8)
    eligible_leader_replicas: list[int] | None = array(
        "int32", "2+", null_default=True, nullable="2+", tagged="2+", tag=6
    )
    last_known_elr: list[int] | None = array("int32", "2+", null_default=True, nullable="2+", tagged="2+", tag=7)


class RemoveTopicRecord(Message, api_key=9, valid="0", flexible="0+"):
    topic_id: bytes = uuid()


class ConfigRecord(Message, api_key=4, valid="0", flexible="0+"):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class FeatureLevelRecord(Message, api_key=12, valid="0", flexible="0+"):
    name: str = string()
    feature_level: int = int16()


class ProducerIdsRecord(Message, api_key=15, valid="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64("0+", -1)
    next_producer_id: int = int64()


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, api_key=0, valid="0-4", flexible="0+"):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean("0+", True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array("uuid", "3+", tagged="3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array("uuid", "4+", null_default=True, nullable="4+", tagged="4+", tag=1)


class BrokerRegistrationChangeRecord(Message, api_key=17, valid="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tagged="0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tagged="1+", tag=1)
    log_dirs: list[bytes] = array("uuid", "2+", tagged="2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array("uuid", "3+", null_default=True, nullable="3+", tagged="3+", tag=3)


class UnregisterBrokerRecord(Message, api_key=1, valid="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()


class FenceBrokerRecord(Message, api_key=7, valid="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, api_key=8, valid="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class RegisterControllerRecord(Message, api_key=27, valid="0", flexible="0+"):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)


class BeginTransactionRecord(Message, api_key=23, valid="0", flexible="0+"):
    name: str | None = string("0+", None, nullable="0+", tagged="0+", tag=0)


class EndTransactionRecord(Message, api_key=24, valid="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, api_key=25, valid="0", flexible="0+"):
    reason: str | None = string("0+", None, nullable="0+", tagged="0+", tag=0)


class NoOpRecord(Message, api_key=20, valid="0", flexible="0+"):
    pass


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ClientQuotaRecord(Message, api_key=14, valid="0", flexible="0+"):
    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AccessControlEntryRecord(Message, api_key=18, valid="0", flexible="0+"):
    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, api_key=19, valid="0", flexible="0+"):
    id: bytes = uuid()


class UserScramCredentialRecord(Message, api_key=11, valid="0", flexible="0+"):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Message, api_key=22, valid="0", flexible="0+"):
    name: str = string()
    mechanism: int = int8()


class DelegationTokenRecord(Message, api_key=10, valid="0", flexible="0+"):
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(Message, api_key=26, valid="0", flexible="0+"):
    token_id: str = string()


class ZkMigrationStateRecord(Message, api_key=21, valid="0", flexible="0+"):
    zk_migration_state: int = int8()


class ClearElrRecord(Message, api_key=28, valid="0", flexible="0+"):
    topic_name: str = string()


class UnregisterControllerRecord(Message, api_key=29, valid="0", flexible="0+"):
    controller_id: int = int32()
