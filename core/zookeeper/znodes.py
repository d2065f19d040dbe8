"""The nodes of Apache Kafka 3.9 in ZooKeeper: their paths, and the JSON in them, as values.

    /brokers/ids/N                        BrokerNode; ephemeral, its czxid is the broker epoch
    /controller                           ControllerNode; ephemeral
    /controller_epoch                     a number
    /brokers/topics/T                     TopicNode
    /brokers/topics/T/partitions/P/state  PartitionStateNode; the version of the node is the partition epoch
    /config/KIND/NAME                     the settings of a ConfigEntity
    /config/changes/config_change_SEQ     the ConfigEntity whose settings were changed
    /latest_producer_id_block             ProducerIdBlock; empty until a controller gives out the first
    /admin/delete_topics/T                nothing: asks to delete T
    /cluster/id                           the cluster's id
    /feature                              FeatureNode

A version that is not named here is refused. Unknown keys are ignored, as in Kafka. Encoded nodes have Kafka's keys and
types, without spaces; the order of the keys differs, as it does between two runs of Kafka's.

msgspec decodes a node by the fields of a class, with Kafka's names for them; its errors name the node's path and the
field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, unquote_plus

import msgspec
from msgspec import Meta, Struct
from msgspec import json as msgspec_json

from core.common.errors import MalformedMessageError
from core.common.topic_partition import parse_uuid, uuid_text

INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)
Int32 = Annotated[int, Meta(ge=INT32.start, lt=INT32.stop)]
_Number = Annotated[int, Meta(ge=0, lt=INT32.stop)]
"""Of a partition or a broker, as the name of a field."""
Replicas = dict[_Number, tuple[Int32, ...]]

T = TypeVar("T")


class Int64(int):
    """A number of 64 bits, which Kafka writes as a text."""


class Uuid(bytes):
    """An id, which Kafka writes as a text of 22 characters."""


class _Versioned(Struct):
    version: int | str = "none"


def malformed(path: str, problem: object) -> MalformedMessageError:
    return MalformedMessageError(f"ZooKeeper node {path}: {problem}")


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def decode_node(data: bytes, path: str, type_: type[T], *versions: int | str) -> T:
    """Decodes a node. Raises MalformedMessageError if it is no JSON object with these fields, or of a version not named
    here.
    """
    try:
        version = msgspec_json.decode(data, type=_Versioned).version
        if version not in versions:
            raise malformed(path, f"version {shown(version)}, expected {' or '.join(map(str, versions))}")
        return msgspec_json.decode(data, type=type_, dec_hook=_read_text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise malformed(path, error) from error


def encode_node(node: Struct, version: int) -> bytes:
    """Encodes the fields of a node that are not None, with a version."""
    values = msgspec.to_builtins(node, str_keys=True, enc_hook=_text_of)
    return msgspec_json.encode({"version": version, **{name: one for name, one in values.items() if one is not None}})


def _text_of(value: Any) -> str:
    return uuid_text(value) if isinstance(value, Uuid) else str(int(value))


def _read_text(type_: type, value: Any) -> Int64 | Uuid:
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got {shown(value)}")
    if type_ is Uuid:
        return Uuid(parse_uuid(value))
    if not re.fullmatch(r"-?[0-9]{1,19}", value) or int(value) not in _INT64:
        raise ValueError(f"Expected a number of 64 bits, got {shown(value)}")
    return Int64(value)


BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
DELETE_TOPICS = "/admin/delete_topics"
CLUSTER_ID = "/cluster/id"
FEATURE = "/feature"
_OLD_CONSUMERS = "/consumers"

CONFIG_KINDS = ("topics", "clients", "users", "brokers", "ips")
"""Kinds of entities that have settings, by the names of their folders."""

PERSISTENT_PATHS = (
    _OLD_CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_KINDS),
)
"""Nodes that each broker creates at its start, with their parents, if they are missing."""

NO_LEADER = -1
DEFAULT_ENTITY = "<default>"
"""The name of the settings that hold for every entity of a kind without its own."""

_SANITISED_KINDS = ("users", "clients")  # names of topics, brokers and addresses are legal as they are
LOGIN_SECRET = "/plog-login-secret"  # noqa: S105 - a name
"""plog's own: random bytes, of which salts are made up (core/security/sasl/server_steps.py)."""
_SENSITIVE_PATHS = ("/config/users", "/config/brokers", "/delegation_token", LOGIN_SECRET)


# --- values


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """One address of a broker, and its security protocol."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker. `features`: name -> (lowest, highest level) that it supports. Two keys are plog's own, which Kafka
    ignores. `first_epoch`: the broker epoch that this process had first, if its session has expired since.
    `previous_epoch`: the last one of the process before, if that stopped cleanly, else -1; None for Kafka's.
    """

    endpoints: tuple[BrokerEndpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    first_epoch: int | None = None
    previous_epoch: int | None = None

    def encode(self) -> bytes:
        """`host` and `port` are for clients older than listeners: the first listener without security."""
        plain = next((one for one in self.endpoints if one.security_protocol == "PLAINTEXT"), None)
        values: dict[str, Any] = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(one) for one in self.endpoints],
            "listener_security_protocol_map": {one.listener: one.security_protocol for one in self.endpoints},
            "features": {
                name: {"min_version": lowest, "max_version": highest}
                for name, (lowest, highest) in self.features.items()
            },
        }
        if self.rack is not None:
            values["rack"] = self.rack
        if self.first_epoch is not None:
            values["plog_first_epoch"] = str(self.first_epoch)
        if self.previous_epoch is not None:
            values["plog_previous_epoch"] = str(self.previous_epoch)
        return msgspec_json.encode(values)


class ControllerNode(Struct, frozen=True):
    """The controller. `kraft_controller_epoch` is -1 unless the cluster moves to KRaft."""

    broker_id: Int32 = msgspec.field(name="brokerid")
    timestamp_ms: Int64 = msgspec.field(default=Int64(-1), name="timestamp")
    kraft_controller_epoch: Int32 = msgspec.field(default=-1, name="kraftControllerEpoch")

    def encode(self) -> bytes:
        return encode_node(self, 2)


class TopicNode(Struct, frozen=True):
    """The replicas of each partition, the preferred leader first. There is no topic id if a broker older than 2.8
    created the topic. `adding` and `removing` are those of an ongoing reassignment.
    """

    partitions: Replicas
    topic_id: Uuid | None = None
    adding: Replicas = msgspec.field(default_factory=dict, name="adding_replicas")
    removing: Replicas = msgspec.field(default_factory=dict, name="removing_replicas")

    def encode(self) -> bytes:
        return encode_node(self, 2 if self.topic_id is None else 3)


class PartitionStateNode(Struct, frozen=True, omit_defaults=True):
    """The leader and ISR of a partition. `leader_recovery_state` is 1 from an unclean election until the leader reports
    that it has recovered. `holders` is a key of plog's own, which Kafka ignores: see `PartitionState.holders`. It is
    empty if Kafka wrote the node.
    """

    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    controller_epoch: Int32
    leader_recovery_state: Annotated[int, Meta(ge=0, le=1)] = 0
    holders: dict[_Number, int] = msgspec.field(default_factory=dict, name="plog_holders")

    def encode(self) -> bytes:
        return encode_node(self, 1)


class ProducerIdBlock(Struct, frozen=True):
    """The last allocated block of producer ids, and its broker."""

    broker_id: Int32 = msgspec.field(name="broker")
    first_producer_id: Int64 = msgspec.field(name="block_start")
    last_producer_id: Int64 = msgspec.field(name="block_end")

    def encode(self) -> bytes:
        return encode_node(self, 1)


@dataclass(frozen=True, slots=True)
class FeatureNode:
    """The finalized features of the cluster, with their levels."""

    features: Mapping[str, int]
    is_enabled: bool = True

    def encode(self) -> bytes:
        levels = {name: {"max_version_level": level} for name, level in self.features.items()}
        return msgspec_json.encode({"version": 2, "status": int(self.is_enabled), "features": levels})


class ConfigEntity(NamedTuple):
    """An entity with settings: ("topics", "t1"); ("users", "alice", "app1") for a user's client. Names are as people
    write them; the path has them sanitised. DEFAULT_ENTITY stands for all without their own.
    """

    kind: str
    name: str
    client: str | None = None

    @property
    def entity_path(self) -> str:
        """The path below /config, as a change names it: users/alice/clients/app1."""
        path = f"{self.kind}/{_sanitised(self.kind, self.name)}"
        return path if self.client is None else f"{path}/clients/{_sanitised('clients', self.client)}"

    @property
    def path(self) -> str:
        return f"{CONFIG}/{self.entity_path}"


# --- paths


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def parse_entity_path(entity_path: str, path: str) -> ConfigEntity:
    """Parses `users/alice/clients/app1`; `path` is that of its node. Raises MalformedMessageError for other text."""
    parts = entity_path.split("/")
    kind, name = parts[0], parts[1] if len(parts) > 1 else ""
    is_client_of_user = len(parts) == 4 and kind == "users" and parts[2] == "clients" and parts[3]
    if kind not in CONFIG_KINDS or not name or (len(parts) != 2 and not is_client_of_user):
        raise malformed(path, f"entity {entity_path!r}, expected KIND/NAME with a KIND of {', '.join(CONFIG_KINDS)}")
    client = _desanitised("clients", parts[3]) if is_client_of_user else None
    return ConfigEntity(kind, _desanitised(kind, name), client)


def parse_node_id(name: str, path: str) -> int:
    """Parses the number that names a node below `path`."""
    if not re.fullmatch(r"[0-9]{1,10}", name) or int(name) not in INT32:
        raise malformed(path, f"a child is named {name!r}, expected a number")
    return int(name)


class Acl(NamedTuple):
    """The rights of an identity: `permissions` is the sum of read 1, write 2, create 4, delete 8, admin 16."""

    permissions: int
    scheme: str
    id: str


def acls_of(path: str, *, is_secured: bool) -> list[Acl]:
    """Returns the rights of a new node. With `zookeeper.set.acl` only its creator may change it, and everybody may read
    it unless it holds secrets; old consumers write below /consumers all the same.
    """
    if not is_secured or path == _OLD_CONSUMERS:
        return [Acl(31, "world", "anyone")]
    is_sensitive = any(path == one or path.startswith(f"{one}/") for one in _SENSITIVE_PATHS)
    return [Acl(31, "auth", ""), *([] if is_sensitive else [Acl(1, "world", "anyone")])]


def _sanitised(kind: str, name: str) -> str:
    """Escapes as org.apache.kafka.common.utils.Sanitizer does: a space is %20, and * is %2A."""
    if kind not in _SANITISED_KINDS or name == DEFAULT_ENTITY:
        return name
    return quote(name, safe="").replace("~", "%7E")


def _desanitised(kind: str, name: str) -> str:
    return unquote_plus(name) if kind in _SANITISED_KINDS and name != DEFAULT_ENTITY else name


# --- decoding


class _FeatureRange(Struct):
    min_version: Int32
    max_version: Int32


class _Broker(Struct):
    endpoints: list[str]
    listener_security_protocol_map: dict[str, str]
    timestamp: Int64 = Int64(-1)
    rack: str | None = None
    jmx_port: Int32 = -1
    features: dict[str, _FeatureRange] = msgspec.field(default_factory=dict)
    plog_first_epoch: Int64 | None = None
    plog_previous_epoch: Int64 | None = None


def decode_broker(data: bytes, path: str) -> BrokerNode:
    found = decode_node(data, path, _Broker, 4, 5)
    protocols = found.listener_security_protocol_map
    return BrokerNode(
        endpoints=tuple(_parse_endpoint(text, protocols, path) for text in found.endpoints),
        timestamp_ms=found.timestamp,
        rack=found.rack,
        jmx_port=found.jmx_port,
        features={name: (one.min_version, one.max_version) for name, one in found.features.items()},
        first_epoch=found.plog_first_epoch,
        previous_epoch=found.plog_previous_epoch,
    )


def _parse_endpoint(text: str, protocols: Mapping[str, str], path: str) -> BrokerEndpoint:
    found = re.fullmatch(r"([^:/]+)://\[?([^\[\]]*?)\]?:(\d{1,5})", text)
    if not found:
        raise malformed(path, f"endpoint {text!r}, expected LISTENER://HOST:PORT")
    listener = found[1]
    if listener not in protocols:
        raise malformed(path, f"listener {listener!r} is missing in listener_security_protocol_map")
    return BrokerEndpoint(listener, found[2], int(found[3]), protocols[listener])


def decode_controller(data: bytes, path: str = CONTROLLER) -> ControllerNode:
    return decode_node(data, path, ControllerNode, 1, 2)


def decode_controller_epoch(data: bytes, path: str = CONTROLLER_EPOCH) -> int:
    if not re.fullmatch(rb"[0-9]{1,10}", data) or int(data) not in INT32:
        raise malformed(path, f"{shown(data)} is no epoch, expected a number of 32 bits")
    return int(data)


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_topic(data: bytes, path: str) -> TopicNode:
    return decode_node(data, path, TopicNode, 1, 2, 3)


def decode_partition_state(data: bytes, path: str) -> PartitionStateNode:
    return decode_node(data, path, PartitionStateNode, 1)


class _Config(Struct):
    config: dict[str, str]


def decode_config(data: bytes, path: str) -> dict[str, str]:
    return decode_node(data, path, _Config, 1).config


def encode_config(config: Mapping[str, str]) -> bytes:
    return msgspec_json.encode({"version": 1, "config": config})


class _ConfigChange(Struct):
    entity_path: str = ""
    entity_type: str = ""
    """Kafka before 0.10.1 wrote version 1, which has no clients of users."""
    entity_name: str = ""


def decode_config_change(data: bytes, path: str) -> ConfigEntity:
    found = decode_node(data, path, _ConfigChange, 1, 2)
    return parse_entity_path(found.entity_path or f"{found.entity_type}/{found.entity_name}", path)


def encode_config_change(entity: ConfigEntity) -> bytes:
    return msgspec_json.encode({"version": 2, "entity_path": entity.entity_path})


def encode_log_dir_event(broker_id: int) -> bytes:
    """Reports a failed disk of that broker: the controller asks it for the replicas on it (event 1)."""
    return msgspec_json.encode({"version": 1, "broker": broker_id, "event": 1})


class _LogDirEvent(Struct):
    broker: Int32


def decode_log_dir_event(data: bytes, path: str) -> int:
    """Returns the broker whose disk has failed."""
    return decode_node(data, path, _LogDirEvent, 1).broker


def decode_producer_id_block(data: bytes, path: str = PRODUCER_ID_BLOCK) -> ProducerIdBlock | None:
    """Returns None if no block was allocated yet."""
    return decode_node(data, path, ProducerIdBlock, 1) if data else None


class _ClusterId(Struct):
    id: str


def decode_cluster_id(data: bytes, path: str = CLUSTER_ID) -> str:
    return decode_node(data, path, _ClusterId, "1").id


def encode_cluster_id(cluster_id: str) -> bytes:
    return msgspec_json.encode({"version": "1", "id": cluster_id})


class _FeatureLevel(Struct):
    max_version_level: Int32


class _Feature(Struct):
    status: Literal[0, 1]
    features: dict[str, _FeatureLevel]


def decode_feature(data: bytes, path: str = FEATURE) -> FeatureNode:
    """Decodes a node; version 1, of Kafka 2.7 to 3.2, has ranges of levels, whose maximum is the finalized level."""
    found = decode_node(data, path, _Feature, 1, 2)
    return FeatureNode({name: one.max_version_level for name, one in found.features.items()}, bool(found.status))
