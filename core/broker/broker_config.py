"""The broker's configuration: Kafka's keys, from `server.properties` and `--set`, with Kafka's defaults.

The table holds the keys that plog acts on. Keys that it does not know are kept and warned about: a server.properties of
Kafka's can be used as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.broker.listener import DEFAULT_PROTOCOL_MAP, Listener, parse_client_listeners
from core.common.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Value,
    at_least,
    between,
    one_of,
    value_text,
)
from core.common.endpoint import Endpoint, parse_endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.log.log_config import SERVER_KEYS, TOPIC_CONFIG

_log = logging.getLogger("plog.config")

_T = ConfigType
_INT_MAX = 0x7FFFFFFF

EPHEMERAL_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""What a broker for tests has instead of Kafka's defaults: nobody waits for more members, and few folders are made."""


def _topic_default_keys() -> list[ConfigKey]:
    """The broker's keys that give topics their defaults; where there are several, only the last has one."""
    keys = []
    for topic_key in TOPIC_CONFIG:
        server_keys = SERVER_KEYS.get(topic_key.name, ())
        for name, factor in server_keys:
            default = topic_key.default
            if name.endswith(".hours") and isinstance(default, int):
                default = default // factor
            elif len(server_keys) > 1:
                default = None
            elif name == "log.flush.scheduler.interval.ms":
                default = topic_key.default
            keys.append(
                ConfigKey(
                    name,
                    topic_key.type if factor == 1 else _T.INT,
                    default,
                    f"Default of {topic_key.name} for topics: {topic_key.doc}",
                    None if default is None else topic_key.validator,
                    is_dynamic=factor == 1 and name != "log.flush.scheduler.interval.ms",
                )
            )
    return keys


BROKER_CONFIG = ConfigDef(
    "broker",
    [
        ConfigKey("node.id", _T.INT, 1, "This broker's id.", at_least(0)),
        ConfigKey("broker.id", _T.INT, -1, "Older name of node.id."),
        ConfigKey("broker.rack", _T.STRING, None, "The rack that this broker is in."),
        ConfigKey("log.dirs", _T.LIST, None, "The data directory."),
        ConfigKey("log.dir", _T.LIST, None, "The data directory, where log.dirs is not set."),
        ConfigKey("listeners", _T.LIST, None, "Where the broker listens: PLAINTEXT://HOST:PORT."),
        ConfigKey("advertised.listeners", _T.LIST, None, "What clients are told to connect to."),
        ConfigKey(
            "listener.security.protocol.map",
            _T.STRING,
            DEFAULT_PROTOCOL_MAP,
            "What is spoken at each listener, by its name; only PLAINTEXT is served.",
        ),
        ConfigKey(
            "controller.listener.names", _T.LIST, None, "Listeners that are not for clients; they are not opened."
        ),
        ConfigKey(
            "auto.create.topics.enable",
            _T.BOOLEAN,
            True,
            "Whether a topic is made when a client asks for its metadata.",
        ),
        ConfigKey("delete.topic.enable", _T.BOOLEAN, True, "Whether topics may be deleted."),
        ConfigKey("num.partitions", _T.INT, 1, "Partitions of a topic that does not say.", at_least(1)),
        ConfigKey("default.replication.factor", _T.INT, 1, "Replicas of a topic that does not say.", at_least(1)),
        ConfigKey("socket.request.max.bytes", _T.INT, 104857600, "The largest request, bytes.", at_least(1)),
        ConfigKey(
            "queued.max.request.bytes",
            _T.LONG,
            268435456,
            "The most memory that connections may hold together, for requests that came in part and answers that are "
            "not sent, bytes; -1 is no limit.",
        ),
        ConfigKey(
            "socket.send.buffer.bytes", _T.INT, 102400, "SO_SNDBUF of connections; -1 is the system's.", at_least(-1)
        ),
        ConfigKey(
            "socket.receive.buffer.bytes", _T.INT, 102400, "SO_RCVBUF of connections; -1 is the system's.", at_least(-1)
        ),
        ConfigKey("socket.listen.backlog.size", _T.INT, 50, "Connections that may wait to be accepted.", at_least(1)),
        ConfigKey(
            "connections.max.idle.ms", _T.LONG, 600000, "After how long an idle connection is closed, ms; -1 is never."
        ),
        ConfigKey(
            "max.connections",
            _T.INT,
            _INT_MAX,
            "Connections that may be open at once; more of them wait.",
            at_least(0),
            is_dynamic=True,
        ),
        ConfigKey(
            "max.connections.per.ip",
            _T.INT,
            _INT_MAX,
            "Connections that may be open at once from one address; more of them are closed.",
            at_least(0),
            is_dynamic=True,
        ),
        ConfigKey(
            "fetch.max.bytes",
            _T.INT,
            57671680,
            "The most bytes of records that a fetch is answered with.",
            at_least(1024),
        ),
        ConfigKey(
            "max.incremental.fetch.session.cache.slots",
            _T.INT,
            1000,
            "Fetch sessions (KIP-227) that are kept at most.",
            at_least(0),
        ),
        ConfigKey(
            "producer.id.expiration.ms",
            _T.INT,
            86400000,
            "After how long an idle producer's sequences are forgotten, ms.",
            at_least(1),
            is_dynamic=True,
        ),
        ConfigKey(
            "log.flush.offset.checkpoint.interval.ms",
            _T.INT,
            60000,
            "How often recovery points are written down, ms.",
            at_least(0),
        ),
        ConfigKey(
            "log.flush.start.offset.checkpoint.interval.ms",
            _T.INT,
            60000,
            "How often log start offsets are written down, ms.",
            at_least(0),
        ),
        ConfigKey(
            "log.cleaner.enable", _T.BOOLEAN, True, "Whether compacted topics are cleaned while the broker runs."
        ),
        ConfigKey(
            "log.cleaner.threads",
            _T.INT,
            1,
            "How many logs are cleaned at once, each by a process of its own.",
            at_least(0),
            is_dynamic=True,
        ),
        ConfigKey(
            "log.cleaner.dedupe.buffer.size",
            _T.LONG,
            128 * 1024 * 1024,
            "Memory for the keys of logs that are being cleaned, all of them together, bytes.",
            at_least(1),
            is_dynamic=True,
        ),
        ConfigKey(
            "log.cleaner.io.buffer.load.factor",
            _T.DOUBLE,
            0.9,
            "How full the table of keys may get, as a share of it.",
            between(0, 1),
            is_dynamic=True,
        ),
        ConfigKey(
            "log.cleaner.io.max.bytes.per.second",
            _T.DOUBLE,
            1.7976931348623157e308,
            "How much cleaning may read and write each second, bytes.",
            at_least(1),
            is_dynamic=True,
        ),
        ConfigKey(
            "log.cleaner.backoff.ms",
            _T.LONG,
            15000,
            "How long to wait when no log needs cleaning, ms.",
            at_least(0),
            is_dynamic=True,
        ),
        ConfigKey(
            "plog.scrub.bytes.per.second",
            _T.LONG,
            4 * 1024 * 1024,
            "How much of the logs is read again each second, to find damage before it is needed; 0 is nothing.",
            at_least(0),
        ),
        ConfigKey(
            "plog.scrub.interval.ms",
            _T.LONG,
            86400000,
            "How often all logs are read again, ms.",
            at_least(1),
        ),
        ConfigKey(
            "group.min.session.timeout.ms", _T.INT, 6000, "The shortest session timeout that a member may ask for, ms."
        ),
        ConfigKey("group.max.session.timeout.ms", _T.INT, 1800000, "The longest one, ms."),
        ConfigKey(
            "group.initial.rebalance.delay.ms",
            _T.INT,
            3000,
            "How long an empty group waits for more members after the last one that came, ms.",
            at_least(0),
        ),
        ConfigKey(
            "group.consumer.session.timeout.ms",
            _T.INT,
            45000,
            "How long a member of a consumer group (KIP-848) may be silent, ms.",
            at_least(1),
        ),
        ConfigKey(
            "group.consumer.heartbeat.interval.ms",
            _T.INT,
            5000,
            "How often such members are told to speak, ms.",
            at_least(1),
        ),
        ConfigKey(
            "group.consumer.min.session.timeout.ms",
            _T.INT,
            45000,
            "The shortest consumer.session.timeout.ms that a group may be given, ms.",
            at_least(1),
        ),
        ConfigKey("group.consumer.max.session.timeout.ms", _T.INT, 60000, "The longest one, ms.", at_least(1)),
        ConfigKey(
            "group.consumer.min.heartbeat.interval.ms",
            _T.INT,
            5000,
            "The shortest consumer.heartbeat.interval.ms that a group may be given, ms.",
            at_least(1),
        ),
        ConfigKey("group.consumer.max.heartbeat.interval.ms", _T.INT, 15000, "The longest one, ms.", at_least(1)),
        ConfigKey(
            "group.consumer.migration.policy",
            _T.STRING,
            "bidirectional",
            "Whether groups with members change their protocol: upgrade to the consumer protocol when the first of its "
            "members joins, downgrade to the classic one when the last of them leaves.",
            lambda value: one_of("bidirectional", "upgrade", "downgrade", "disabled")(str(value).lower()),
        ),
        ConfigKey("group.consumer.max.size", _T.INT, _INT_MAX, "The most members of such a group.", at_least(1)),
        ConfigKey("group.max.size", _T.INT, _INT_MAX, "The most members that a group may have.", at_least(1)),
        ConfigKey(
            "offset.metadata.max.bytes", _T.INT, 4096, "The longest metadata that may be committed with an offset."
        ),
        ConfigKey(
            "offsets.retention.minutes",
            _T.INT,
            10080,
            "How long offsets are kept that no member of their group needs.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.retention.check.interval.ms",
            _T.LONG,
            600000,
            "How often such offsets are looked for, ms.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.commit.timeout.ms",
            _T.INT,
            5000,
            "How long the commit of offsets may wait for the disk, ms.",
            at_least(1),
        ),
        ConfigKey("offsets.topic.num.partitions", _T.INT, 50, "Partitions of __consumer_offsets.", at_least(1)),
        ConfigKey("offsets.topic.replication.factor", _T.SHORT, 3, "Its replicas, at most one a broker.", at_least(1)),
        ConfigKey("offsets.topic.segment.bytes", _T.INT, 104857600, "Its segment.bytes.", at_least(1)),
        ConfigKey(
            "transaction.max.timeout.ms",
            _T.INT,
            900000,
            "The longest timeout that a transactional producer may ask for, ms.",
            at_least(1),
        ),
        ConfigKey(
            "transactional.id.expiration.ms",
            _T.INT,
            604800000,
            "After how long a transactional id that is not used is forgotten, ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            _T.INT,
            10000,
            "How often transactions that are open for too long are looked for, to be aborted, ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            _T.INT,
            3600000,
            "How often transactional ids that expired are looked for, ms.",
            at_least(1),
        ),
        ConfigKey(
            "transaction.partition.verification.enable",
            _T.BOOLEAN,
            True,
            "Whether a transaction's records are taken only for partitions that were added to it.",
            is_dynamic=True,
        ),
        ConfigKey(
            "transaction.state.log.num.partitions", _T.INT, 50, "Partitions of __transaction_state.", at_least(1)
        ),
        ConfigKey(
            "transaction.state.log.replication.factor",
            _T.SHORT,
            3,
            "Its replicas, at most one a broker.",
            at_least(1),
        ),
        ConfigKey("transaction.state.log.min.isr", _T.INT, 2, "Its min.insync.replicas, at most one.", at_least(1)),
        ConfigKey("transaction.state.log.segment.bytes", _T.INT, 104857600, "Its segment.bytes.", at_least(1)),
        ConfigKey(
            "log.retention.check.interval.ms",
            _T.LONG,
            300000,
            "How often segments that are too old or too much are looked for, ms.",
            at_least(1),
        ),
        ConfigKey(
            "replica.high.watermark.checkpoint.interval.ms",
            _T.LONG,
            5000,
            "How often high watermarks are written down, ms.",
        ),
        *_topic_default_keys(),
    ],
)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings by Kafka's names: `settings` those in force that somebody gave, `unknown` what plog does not know.

    They come from the server's properties (`static`) and, while it runs, from what is set of all brokers
    (`dynamic_defaults`) and of this one (`dynamic`); the last that says something goes first.
    """

    settings: Mapping[str, Value] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    static: Mapping[str, Value] = field(default_factory=dict)
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    ignores_security: bool = False
    """Whether somebody said that what asks for security is to be served without any."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """KafkaError(INVALID_CONFIG) for a value that its key does not allow."""
        known = {name: BROKER_CONFIG[name].parse(text) for name, text in properties.items() if name in BROKER_CONFIG}
        unknown = {name: text for name, text in properties.items() if name not in BROKER_CONFIG}
        config = cls(known, unknown, known)
        config._ensure_room_for_a_request()
        return config

    def _ensure_room_for_a_request(self) -> None:
        """KafkaError(INVALID_CONFIG) unless the memory that was asked for holds the largest request, as Kafka wants."""
        most, largest = self.settings.get("queued.max.request.bytes"), self.integer("socket.request.max.bytes")
        if isinstance(most, int) and 0 < most < largest:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"queued.max.request.bytes is {most}: it must be at least socket.request.max.bytes, {largest}",
            )

    def with_dynamic(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """With these instead of what was set so far while it runs. Of what another version of Kafka wrote only what
        plog knows and accepts is in force.
        """
        settings = dict(self.static)
        for name, text in [*defaults.items(), *own.items()]:
            if name in BROKER_CONFIG and BROKER_CONFIG[name].is_dynamic:
                try:
                    settings[name] = BROKER_CONFIG[name].parse(text)
                except KafkaError as error:
                    _log.warning("a setting of the broker is left out: %s", error)
        return replace(self, settings=settings, dynamic_defaults=dict(defaults), dynamic=dict(own))

    def __getitem__(self, name: str) -> Value:
        return self.settings.get(name, BROKER_CONFIG[name].default)

    def number(self, name: str) -> float:
        value = self[name]
        assert isinstance(value, int | float)
        return value

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int)
        return value

    @property
    def node_id(self) -> int:
        older = self.integer("broker.id")
        return self.integer("node.id") if "node.id" in self.settings or older < 0 else older

    @property
    def is_node_id_given(self) -> bool:
        return "node.id" in self.settings or self.integer("broker.id") >= 0

    @property
    def rack(self) -> str | None:
        return value_text(self["broker.rack"])

    @property
    def data_directories(self) -> list[str]:
        """What log.dirs, or else log.dir, says; empty where neither is set."""
        value = self["log.dirs"] or self["log.dir"] or []
        assert isinstance(value, list)
        return value

    def client_listeners(self, key: str) -> list[Listener]:
        """Those of `listeners` or `advertised.listeners` that are not for controllers."""
        texts, controllers = self[key] or [], self["controller.listener.names"] or []
        assert isinstance(texts, list)
        assert isinstance(controllers, list)
        return parse_client_listeners(texts, value_text(self["listener.security.protocol.map"]) or "", controllers)

    @property
    def served_listener(self) -> Listener | None:
        """The first PLAINTEXT listener for clients; None where none is configured. UsageError where others are."""
        listeners = self.client_listeners("listeners")
        plaintext = [listener for listener in listeners if listener.is_plaintext]
        if self.ignores_security and not plaintext:
            plaintext = listeners
        if listeners and not plaintext:
            raise UsageError(
                f"listeners = {','.join(map(str, listeners))} has no PLAINTEXT listener",
                hint="for example PLAINTEXT://127.0.0.1:9092",
            )
        return plaintext[0] if plaintext else None

    @property
    def listener(self) -> Endpoint | None:
        """Where the broker listens; None where that is not configured."""
        served = self.served_listener
        return parse_endpoint(served.address) if served is not None else None

    @property
    def advertised_listener(self) -> Endpoint | None:
        """What clients are told to connect to: of the listener that is served, else of the first PLAINTEXT one."""
        served = self.served_listener
        listeners = self.client_listeners("advertised.listeners")
        own = [listener for listener in listeners if served is not None and listener.name == served.name]
        found = next(iter([*own, *(listener for listener in listeners if listener.is_plaintext)]), None)
        return parse_endpoint(found.address) if found is not None else None

    def topic_default(self, topic_key: str) -> Value:
        """The default of a topic's key, as the broker's keys give it."""
        for name, factor in SERVER_KEYS.get(topic_key, ()):
            value = self.settings.get(name)
            if value is not None:
                return max(value * factor, -1) if factor != 1 and isinstance(value, int) else value
        return TOPIC_CONFIG[topic_key].default

    def topic_defaults(self) -> dict[str, Value]:
        return {key.name: self.topic_default(key.name) for key in TOPIC_CONFIG}
