"""A topic's configuration: Kafka's keys, defaults and checks (org.apache.kafka.storage.internals.log.LogConfig).

A value comes from the topic's own overrides, else from the broker's key of the same meaning (`SERVER_KEYS`), else from
the default here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

from core.common.config_def import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Validator,
    Value,
    at_least,
    between,
    each_of,
    kept,
    one_of,
    throttled_replicas,
)
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.java_limits import LONG_MAX
from core.records.compression import CompressionType

_log = logging.getLogger("plog.config")

_DAY_MS = 24 * 3600 * 1000
_MIN_SEGMENT_BYTES = 1024 * 1024
MOST_DECOMPRESSED_BYTES = 2**31 - 9
"""The largest array that Java allocates: as a limit on the records of compressed batches, it means no limit."""

_T = ConfigType

ALL_REPLICAS = "*"
"""Stands in place of a list of throttled replicas."""


def _key(type_: ConfigType, default: Any, doc: str, validator: Validator | None = None) -> Any:
    """Makes the field of a key that the log acts on: its name is the key's, `.` for `_`."""
    parsed = sorted(default) if isinstance(default, frozenset) else default
    return field(default=default, metadata={"key": ConfigKey("", type_, parsed, doc, validator)})


_boolean, _text, _words = partial(_key, _T.BOOLEAN), partial(_key, _T.STRING), partial(_key, _T.LIST)
_integer, _long, _double = partial(_key, _T.INT), partial(_key, _T.LONG), partial(_key, _T.DOUBLE)


def _plain_replica(text: str) -> str:
    """Returns `partition:broker` without the zeros that numbers may begin with."""
    return text if text == ALL_REPLICAS else ":".join(str(int(number)) for number in text.split(":"))


@dataclass(frozen=True)
class LogConfig:
    """The values that the log works by; times in ms, sizes in bytes. Immutable; replaced whole when a topic's
    changes.
    """

    cleanup_policy: frozenset[str] = _words(
        frozenset({"delete"}),
        "What happens to old segments: delete, compact, or both; an empty value keeps them as they are.",
        each_of("compact", "delete"),
    )
    compression_gzip_level: int = _integer(
        -1,
        "Level when compression.type is gzip, 1 to 9; -1 is the codec's default.",
        lambda v: None if v == -1 else between(1, 9)(v),
    )
    compression_lz4_level: int = _integer(9, "Level when compression.type is lz4, 1 to 17.", between(1, 17))
    compression_type: str = _text(
        "producer",
        "The codec of the stored batches; producer keeps what the producer chose.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_zstd_level: int = _integer(
        3, "Level when compression.type is zstd, -131072 to 22.", between(-131072, 22)
    )
    delete_retention_ms: int = _long(_DAY_MS, "How long tombstones of a compacted topic are kept, ms.", at_least(0))
    file_delete_delay_ms: int = _long(60000, "How long a deleted segment's files stay on the disk, ms.", at_least(0))
    follower_replication_throttled_replicas: frozenset[str] = _words(
        frozenset(),
        "Replicas that fetch no faster than their broker's follower.replication.throttled.rate: partition:broker, ... "
        "or * for all.",
        throttled_replicas,
    )
    flush_messages: int = _long(
        LONG_MAX, "The most records that are appended before the log is synced to the disk.", at_least(1)
    )
    flush_ms: int = _long(LONG_MAX, "The longest a record waits until the log is synced to the disk, ms.", at_least(0))
    index_interval_bytes: int = _integer(4096, "Bytes of log between two entries of the offset index.", at_least(0))
    leader_replication_throttled_replicas: frozenset[str] = _words(
        frozenset(),
        "Replicas that, as leaders, send no faster to followers than their broker's "
        "leader.replication.throttled.rate: partition:broker, ... or * for all.",
        throttled_replicas,
    )
    max_compaction_lag_ms: int = _long(
        LONG_MAX, "The longest a record of a compacted topic stays uncompacted, ms.", at_least(1)
    )
    max_message_bytes: int = _integer(1048588, "The largest record batch, after compression, bytes.", at_least(0))
    max_decompressed_message_bytes: int = _integer(
        MOST_DECOMPRESSED_BYTES,
        "The largest record in a compressed batch, by its size once decompressed, bytes.",
        between(1, MOST_DECOMPRESSED_BYTES),
    )
    message_timestamp_after_max_ms: int = _long(
        3600000, "How far a CreateTime may lie ahead of the broker's clock, ms.", at_least(0)
    )
    message_timestamp_before_max_ms: int = _long(
        LONG_MAX, "How far a CreateTime may lie behind the broker's clock, ms.", at_least(0)
    )
    message_timestamp_type: str = _text(
        "CreateTime",
        "Whose clock stamps the records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = _double(
        0.5, "Share of a compacted log that must be uncleaned before it is cleaned.", between(0, 1)
    )
    min_compaction_lag_ms: int = _long(
        0, "The shortest a record of a compacted topic stays uncompacted, ms.", at_least(0)
    )
    min_insync_replicas: int = _integer(1, "Replicas that must have a record for acks=all.", at_least(1))
    plog_validate_records: bool = _boolean(
        False,
        "Whether each record of a batch is checked before it is appended: it must decode and have the next offset.",
    )
    plog_visible_after_flush: bool = _boolean(
        False,
        "Whether consumers see a record only once it is on the disk. If true, and neither flush.messages nor flush.ms "
        "is set, the log is synced after each append.",
    )
    retention_bytes: int = _long(-1, "Bytes of log kept per partition; -1 is no limit.", at_least(-2))
    retention_ms: int = _long(7 * _DAY_MS, "How long records are kept, ms; -1 is for ever.", at_least(-1))
    segment_bytes: int = _integer(1 << 30, "The largest segment file, bytes.", at_least(_MIN_SEGMENT_BYTES))
    segment_index_bytes: int = _integer(10 * 1024 * 1024, "The largest index file, bytes.", at_least(4))
    segment_jitter_ms: int = _long(
        0, "The most that is taken off segment.ms at random, so that segments don't all roll at once, ms.", at_least(0)
    )
    segment_ms: int = _long(7 * _DAY_MS, "How long a segment takes appends before a new one begins, ms.", at_least(1))
    unclean_leader_election_enable: bool = _boolean(
        False, "Whether a replica that is not in sync may become leader if no replica in sync is alive."
    )

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> LogConfig:
        """Makes a config from parsed values by Kafka's names; absent ones take their defaults."""
        keys = {name: name.replace("_", ".") for name in cls.__dataclass_fields__}
        fields: dict[str, Any] = {name: values[key] for name, key in keys.items() if key in values}  # by TOPIC_CONFIG
        if "cleanup_policy" in fields:
            fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
        for name in ("follower_replication_throttled_replicas", "leader_replication_throttled_replicas"):
            if name in fields:
                fields[name] = frozenset(map(_plain_replica, fields[name]))
        if values.get("internal.segment.bytes") is not None:
            fields["segment_bytes"] = values["internal.segment.bytes"]
        return cls(**fields)

    @cached_property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @cached_property
    def max_segment_ms(self) -> int:
        """How long a segment takes appends: a compacted one must be sealed before `max.compaction.lag.ms`."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @cached_property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def opens_records(self) -> bool:
        """Whether an append may have to look into the batches."""
        return (
            self.is_compacted
            or self.compression_type != "producer"
            or self.message_timestamp_before_max_ms != LONG_MAX
            or self.plog_validate_records
        )

    @cached_property
    def is_flushed_while_appending(self) -> bool:
        """Whether an append may ask for a flush."""
        return self.plog_visible_after_flush or self.flush_messages != LONG_MAX or self.flush_ms != LONG_MAX

    @property
    def target_compression(self) -> CompressionType | None:
        """The codec that stored batches must have; None if the producer's is kept."""
        if self.compression_type == "producer":
            return None
        if self.compression_type == "uncompressed":
            return CompressionType.NONE
        return CompressionType.parse(self.compression_type)

    def compression_level(self, codec: CompressionType) -> int | None:
        """The codec's configured level; None for its own default."""
        match codec:
            case CompressionType.GZIP:
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case CompressionType.LZ4:
                return None if self.compression_lz4_level == 9 else self.compression_lz4_level
            case CompressionType.ZSTD:
                return self.compression_zstd_level
        return None


_ACTED_ON: list[ConfigKey] = [
    replace(each.metadata["key"], name=each.name.replace("_", ".")) for each in fields(LogConfig)
]


def _tiered(name: str, type_: ConfigType, default: Value, doc: str, validator: Validator | None = None) -> ConfigKey:
    return kept(name, type_, default, f"With tiered storage, {doc}", validator)


_KEPT_ONLY = [
    kept(
        "errors.deadletterqueue.group.enable",
        _T.BOOLEAN,
        False,
        "Whether share groups may use the topic as their dead-letter queue.",
    ),
    _tiered(
        "local.retention.bytes", _T.LONG, -2, "bytes of log kept on local disks; -2 is retention.bytes.", at_least(-2)
    ),
    _tiered(
        "local.retention.ms",
        _T.LONG,
        -2,
        "how long records are kept on local disks, ms; -2 is retention.ms.",
        at_least(-2),
    ),
    kept("preallocate", _T.BOOLEAN, False, "Whether a new segment's file is allocated at full size."),
    _tiered(
        "remote.copy.lag.bytes",
        _T.LONG,
        -1,
        "how many bytes of the newest segments are left out of copying.",
        at_least(-1),
    ),
    _tiered("remote.copy.lag.ms", _T.LONG, 0, "how long a new segment waits before it is copied, ms.", at_least(-1)),
    _tiered("remote.log.copy.disable", _T.BOOLEAN, False, "whether copying is stopped."),
    _tiered("remote.log.delete.on.disable", _T.BOOLEAN, False, "whether disabling it deletes the remote data."),
    kept("remote.storage.enable", _T.BOOLEAN, False, "Whether the topic is tiered; true is refused."),
]

TOPIC_CONFIG = ConfigDef(
    "topic",
    [
        *sorted([*_ACTED_ON, *_KEPT_ONLY], key=lambda key: key.name),
        ConfigKey(
            "internal.segment.bytes", _T.INT, None, "segment.bytes without its minimum; for tests.", at_least(14)
        ),
    ],
)

INTERNAL_KEYS = frozenset({"internal.segment.bytes"})
"""Accepted, but not listed by DescribeConfigs."""

_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000

SERVER_KEYS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "plog.validate.records": (("plog.validate.records", 1),),
    "plog.visible.after.flush": (("plog.visible.after.flush", 1),),
    "preallocate": (("log.preallocate", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""The broker keys that give a topic key its default, first one set wins, each with the factor to the topic's unit."""


_OLD_LEAST_SEGMENT_BYTES = 14
"""The minimum of Kafka before 4.0 (KIP-1030)."""


def parse_topic_configs(overrides: Mapping[str, str | None], *, is_kafka_3: bool = False) -> dict[str, Value]:
    """Parses them; raises KafkaError(INVALID_CONFIG) for an unknown name, a bad value, or values that contradict. With
    `is_kafka_3` segments may be as small as they might before Kafka 4: the brokers beside this one allow it.
    """
    values = {
        name: int(text)  # it is digits alone
        if is_kafka_3 and text is not None and _is_old_segment_size(name, text)
        else TOPIC_CONFIG[name].parse(text)
        for name, text in overrides.items()
    }
    if values.get("remote.storage.enable"):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    minimum, maximum = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", LONG_MAX)
    if isinstance(minimum, int) and isinstance(maximum, int) and minimum > maximum:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({minimum}) > max.compaction.lag.ms ({maximum})",
        )
    return values


def _is_old_segment_size(name: str, text: str) -> bool:
    return name == "segment.bytes" and text.isdecimal() and _OLD_LEAST_SEGMENT_BYTES <= int(text) < 1 << 31


def stored_topic_values(overrides: Mapping[str, str]) -> dict[str, Value]:
    """Parses overrides of an existing topic: those of another version of Kafka that plog does not know or would not
    accept are left out. Segments may be smaller than is allowed today: the topic's other replicas have such segments,
    and refuse batches that do not fit into them.
    """
    values = {}
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_CONFIG[name].parse(text)
        except KafkaError as error:
            if _is_old_segment_size(name, text):
                values[name] = int(text)
            else:
                _log.warning("a topic's setting is left out: %s", error)
    return values
