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

Errors in a node's JSON name the node's path and the field. A `read_` function takes a JSON value, and raises ValueError
with the expected type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus

from msgspec import DecodeError
from msgspec import json as msgspec_json

from core.common.errors import MalformedMessageError
from core.common.topic_partition import parse_uuid, uuid_text

INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def malformed(path: str, problem: str) -> MalformedMessageError:
    return MalformedMessageError(f"ZooKeeper node {path}: {problem}")


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_NEEDED = object()


class Fields:
    """The fields of a node's JSON object, each with its type; `prefix` names the object around them."""

    def __init__(self, values: Mapping[str, Any], path: str, prefix: str = "") -> None:
        self.path = path
        self._values = values
        self._prefix = prefix
        self.version: int | str = values.get("version", "none")

    @staticmethod
    def of(data: bytes, path: str, *versions: int | str) -> Fields:
        """Decodes a node; raises MalformedMessageError if it is no JSON object, or of a version not named here."""
        try:
            values = msgspec_json.decode(data)
        except (DecodeError, RecursionError) as error:
            raise malformed(path, f"{shown(data)} is no JSON: {error}") from error
        if not isinstance(values, dict):
            raise malformed(path, f"{shown(data)} is no JSON object")
        fields = Fields(values, path)
        if isinstance(fields.version, bool) or fields.version not in versions:
            raise malformed(path, f"version {shown(fields.version)}, expected {' or '.join(map(str, versions))}")
        return fields

    def get(self, name: str, read: Callable[[Any], Any], *, default: Any = _NEEDED) -> Any:
        """Raises MalformedMessageError if the field is missing and has no default, or if `read` refuses it."""
        value = self._values.get(name)
        if value is None:
            if default is _NEEDED:
                raise malformed(self.path, f"{self._prefix}{name} is missing")
            return default
        try:
            return read(value)
        except ValueError as error:
            raise malformed(self.path, f"{self._prefix}{name} is {shown(value)}, expected {error}") from None

    def mapping(self, name: str, read: Callable[[Any], Any], *, default: Any = _NEEDED) -> dict[str, Any]:
        values = self.get(name, read_object, default=default)
        below = Fields(values, self.path, f"{self._prefix}{name}.")
        return {key: below.get(key, read) for key in values}


def read_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in INT32:
        raise ValueError("a number of 32 bits")
    return value


def read_recovery_state(value: Any) -> int:
    if isinstance(value, bool) or value not in (0, 1):
        raise ValueError("0 (recovered) or 1 (recovering)")
    return int(value)


def read_decimal(value: Any) -> int:
    """A number of 64 bits, which Kafka writes as a text."""
    if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,19}", value) or int(value) not in _INT64:
        raise ValueError("a number of 64 bits in quotes")
    return int(value)


def read_epochs(value: Any) -> dict[int, int]:
    """Parses numbers by numbers: a new controller reads one such object for each partition."""
    epochs = read_object(value)
    if not all(one.isdecimal() for one in epochs) or not {*map(type, epochs.values())} <= {int}:
        raise ValueError("an object of numbers by the numbers of brokers")
    return {int(one): epoch for one, epoch in epochs.items()}


def read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def read_uuid(value: Any) -> bytes:
    try:
        return parse_uuid(read_text(value))
    except ValueError:
        raise ValueError("an id of 22 characters") from None


def read_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object")
    return value


def read_texts(value: Any) -> Sequence[str]:
    if not isinstance(value, list):
        raise ValueError("a list of texts")
    return [read_text(one) for one in value]


def read_numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of numbers")
    return tuple(read_number(one) for one in value)


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


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """The controller. `kraft_controller_epoch` is -1 unless the cluster moves to KRaft."""

    broker_id: int
    timestamp_ms: int
    kraft_controller_epoch: int = -1

    def encode(self) -> bytes:
        return msgspec_json.encode(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_controller_epoch,
            }
        )


@dataclass(frozen=True, slots=True)
class TopicNode:
    """The replicas of each partition, the preferred leader first. There is no topic id if a broker older than 2.8
    created the topic. `adding` and `removing` are those of an ongoing reassignment.
    """

    partitions: Mapping[int, tuple[int, ...]]
    topic_id: bytes | None
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        values: dict[str, Any] = {
            "version": 2 if self.topic_id is None else 3,
            "partitions": self.partitions,
            "adding_replicas": self.adding,
            "removing_replicas": self.removing,
        }
        if self.topic_id is not None:
            values["topic_id"] = uuid_text(self.topic_id)
        return msgspec_json.encode(values)


@dataclass(frozen=True, slots=True)
class PartitionStateNode:
    """The leader and ISR of a partition. `leader_recovery_state` is 1 from an unclean election until the leader reports
    that it has recovered. `holders` is a key of plog's own, which Kafka ignores: see `PartitionState.holders`. It is
    empty if Kafka wrote the node.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = 0
    holders: Mapping[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        values: dict[str, Any] = {
            "version": 1,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
            "controller_epoch": self.controller_epoch,
        }
        if self.leader_recovery_state:
            values["leader_recovery_state"] = self.leader_recovery_state
        if self.holders:
            values["plog_holders"] = self.holders
        return msgspec_json.encode(values)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The last allocated block of producer ids, and its broker."""

    broker_id: int
    first_producer_id: int
    last_producer_id: int

    def encode(self) -> bytes:
        return msgspec_json.encode(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first_producer_id),
                "block_end": str(self.last_producer_id),
            }
        )


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


def decode_broker(data: bytes, path: str) -> BrokerNode:
    fields = Fields.of(data, path, 4, 5)
    protocols = fields.mapping("listener_security_protocol_map", read_text)
    features = {}
    for name, levels in fields.mapping("features", read_object, default={}).items():
        level = Fields(levels, path, f"features.{name}.")
        features[name] = level.get("min_version", read_number), level.get("max_version", read_number)
    return BrokerNode(
        endpoints=tuple(_parse_endpoint(text, protocols, path) for text in fields.get("endpoints", read_texts)),
        timestamp_ms=fields.get("timestamp", read_decimal, default=-1),
        rack=fields.get("rack", read_text, default=None),
        jmx_port=fields.get("jmx_port", read_number, default=-1),
        features=features,
        first_epoch=fields.get("plog_first_epoch", read_decimal, default=None),
        previous_epoch=fields.get("plog_previous_epoch", read_decimal, default=None),
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
    fields = Fields.of(data, path, 1, 2)
    return ControllerNode(
        broker_id=fields.get("brokerid", read_number),
        timestamp_ms=fields.get("timestamp", read_decimal, default=-1),
        kraft_controller_epoch=fields.get("kraftControllerEpoch", read_number, default=-1),
    )


def decode_controller_epoch(data: bytes, path: str = CONTROLLER_EPOCH) -> int:
    if not re.fullmatch(rb"[0-9]{1,10}", data) or int(data) not in INT32:
        raise malformed(path, f"{shown(data)} is no epoch, expected a number of 32 bits")
    return int(data)


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_topic(data: bytes, path: str) -> TopicNode:
    fields = Fields.of(data, path, 1, 2, 3)
    return TopicNode(
        partitions=_by_partition(fields, "partitions"),
        topic_id=fields.get("topic_id", read_uuid, default=None),
        adding=_by_partition(fields, "adding_replicas", default={}),
        removing=_by_partition(fields, "removing_replicas", default={}),
    )


def _by_partition(fields: Fields, name: str, **default: Any) -> dict[int, tuple[int, ...]]:
    found = fields.mapping(name, read_numbers, **default)
    return {parse_node_id(number, f"{fields.path}: {name}"): replicas for number, replicas in found.items()}


def decode_partition_state(data: bytes, path: str) -> PartitionStateNode:
    fields = Fields.of(data, path, 1)
    return PartitionStateNode(
        leader=fields.get("leader", read_number),
        leader_epoch=fields.get("leader_epoch", read_number),
        isr=fields.get("isr", read_numbers),
        controller_epoch=fields.get("controller_epoch", read_number),
        leader_recovery_state=fields.get("leader_recovery_state", read_recovery_state, default=0),
        holders=fields.get("plog_holders", read_epochs, default={}),
    )


def decode_config(data: bytes, path: str) -> dict[str, str]:
    fields = Fields.of(data, path, 1)
    return dict(fields.mapping("config", read_text))


def encode_config(config: Mapping[str, str]) -> bytes:
    return msgspec_json.encode({"version": 1, "config": config})


def decode_config_change(data: bytes, path: str) -> ConfigEntity:
    """Kafka before 0.10.1 wrote version 1, which has no clients of users."""
    fields = Fields.of(data, path, 1, 2)
    if fields.version == 1:
        return parse_entity_path(f"{fields.get('entity_type', read_text)}/{fields.get('entity_name', read_text)}", path)
    return parse_entity_path(fields.get("entity_path", read_text), path)


def encode_config_change(entity: ConfigEntity) -> bytes:
    return msgspec_json.encode({"version": 2, "entity_path": entity.entity_path})


def encode_log_dir_event(broker_id: int) -> bytes:
    """Reports a failed disk of that broker: the controller asks it for the replicas on it (event 1)."""
    return msgspec_json.encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes, path: str) -> int:
    """Returns the broker whose disk has failed."""
    fields = Fields.of(data, path, 1)
    return fields.get("broker", read_number)  # type: ignore[no-any-return]


def decode_producer_id_block(data: bytes, path: str = PRODUCER_ID_BLOCK) -> ProducerIdBlock | None:
    """Returns None if no block was allocated yet."""
    if not data:
        return None
    fields = Fields.of(data, path, 1)
    return ProducerIdBlock(
        broker_id=fields.get("broker", read_number),
        first_producer_id=fields.get("block_start", read_decimal),
        last_producer_id=fields.get("block_end", read_decimal),
    )


def decode_cluster_id(data: bytes, path: str = CLUSTER_ID) -> str:
    fields = Fields.of(data, path, "1")
    return str(fields.get("id", read_text))


def encode_cluster_id(cluster_id: str) -> bytes:
    return msgspec_json.encode({"version": "1", "id": cluster_id})


def decode_feature(data: bytes, path: str = FEATURE) -> FeatureNode:
    """Decodes a node; version 1, of Kafka 2.7 to 3.2, has ranges of levels, whose maximum is the finalized level."""
    fields = Fields.of(data, path, 1, 2)
    status = fields.get("status", read_number)
    if status not in (0, 1):
        raise malformed(path, f"status {status}, expected 0 (disabled) or 1 (enabled)")
    ranges = fields.mapping("features", read_object)
    levels = {
        name: Fields(one, path, f"features.{name}.").get("max_version_level", read_number)
        for name, one in ranges.items()
    }
    return FeatureNode(levels, bool(status))
