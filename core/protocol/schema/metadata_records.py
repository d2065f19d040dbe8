"""KRaft metadata records: the values of the batches in __cluster_metadata and its .checkpoint snapshots.

A value is uvarint frame version (1), uvarint record type (api_key here), uvarint record version, then the flexible
message (org.apache.kafka.metadata.MetadataRecordSerde)."""

from __future__ import annotations

from core.protocol.message import (
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@message(api_key=2, valid="0", flexible="0+")
class TopicRecord:
    name: str = string()
    topic_id: bytes = uuid()


@message(api_key=3, valid="0-2", flexible="0+")
class PartitionRecord:
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


@message(api_key=5, valid="0-2", flexible="0+")
class PartitionChangeRecord:
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


@message(api_key=9, valid="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: bytes = uuid()


@message(api_key=4, valid="0", flexible="0+")
class ConfigRecord:
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


@message(api_key=12, valid="0", flexible="0+")
class FeatureLevelRecord:
    name: str = string()
    feature_level: int = int16()


@message(api_key=15, valid="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: int = int32()
    broker_epoch: int = int64("0+", -1)
    next_producer_id: int = int64()


@struct
class BrokerEndpoint:
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@struct
class BrokerFeature:
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@message(api_key=0, valid="0-4", flexible="0+")
class RegisterBrokerRecord:
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


@message(api_key=17, valid="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tagged="0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tagged="1+", tag=1)
    log_dirs: list[bytes] = array("uuid", "2+", tagged="2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array("uuid", "3+", null_default=True, nullable="3+", tagged="3+", tag=3)


@message(api_key=1, valid="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: int = int32()
    broker_epoch: int = int64()


@message(api_key=7, valid="0", flexible="0+")
class FenceBrokerRecord:
    id: int = int32()
    epoch: int = int64()


@message(api_key=8, valid="0", flexible="0+")
class UnfenceBrokerRecord:
    id: int = int32()
    epoch: int = int64()


@message(api_key=27, valid="0", flexible="0+")
class RegisterControllerRecord:
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)


@message(api_key=23, valid="0", flexible="0+")
class BeginTransactionRecord:
    name: str | None = string("0+", None, nullable="0+", tagged="0+", tag=0)


@message(api_key=24, valid="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(api_key=25, valid="0", flexible="0+")
class AbortTransactionRecord:
    reason: str | None = string("0+", None, nullable="0+", tagged="0+", tag=0)


@message(api_key=20, valid="0", flexible="0+")
class NoOpRecord:
    pass


@struct
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@message(api_key=14, valid="0", flexible="0+")
class ClientQuotaRecord:
    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message(api_key=18, valid="0", flexible="0+")
class AccessControlEntryRecord:
    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=19, valid="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: bytes = uuid()


@message(api_key=11, valid="0", flexible="0+")
class UserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


@message(api_key=22, valid="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: str = string()
    mechanism: int = int8()


@message(api_key=10, valid="0", flexible="0+")
class DelegationTokenRecord:
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array("string")
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@message(api_key=26, valid="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: str = string()


@message(api_key=21, valid="0", flexible="0+")
class ZkMigrationStateRecord:
    zk_migration_state: int = int8()


@message(api_key=28, valid="0", flexible="0+")
class ClearElrRecord:
    topic_name: str = string()


@message(api_key=29, valid="0", flexible="0+")
class UnregisterControllerRecord:
    controller_id: int = int32()
