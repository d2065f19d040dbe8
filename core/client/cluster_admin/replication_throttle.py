"""Limits how fast replicas are copied, as kafka-reassign-partitions.sh does.

A broker has two rates in bytes per second, as leader and as follower, which apply to the replicas that a topic lists,
PARTITION:BROKER each: sources and targets of copies. Other replicas are not slowed down.

A file notes the settings, so that exactly these are removed afterwards, also by another run: a rate that a broker has
already, and replicas that a topic lists already, are somebody else's, and stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from core.client.admin.admin import Admin, AlterOperation
from core.cluster.assignment.planned_move import PlannedMove
from core.common.config_def import ConfigResourceType, ConfigSource
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, BrokerAwayError, KafkaError, PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.protocol.schema.configs import ChangedConfig

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"
_ALL = "*"

_OWN_SOURCES = {
    ConfigResourceType.TOPIC: ConfigSource.TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}


@dataclass(slots=True)
class _Note:
    """The settings made: `topics` key by key the added entries, `brokers` key by key the value."""

    topics: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    brokers: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def partitions(self) -> set[TopicPartition]:
        return {
            TopicPartition(topic, int(entry.partition(":")[0]))
            for topic, keys in self.topics.items()
            for entries in keys.values()
            for entry in entries
        }

    @property
    def is_empty(self) -> bool:
        return not self.topics and not self.brokers


class ReplicationThrottle:
    """Owned by one task."""

    def __init__(self, admin: Admin, file: Path, say: Callable[[str], None]) -> None:
        """`file` holds the note, in a folder that may have to be created; `say` is called with a message about each
        setting that is left as it is.
        """
        self._admin = admin
        self._file = file
        self._say = say

    def set(self, moves: Iterable[PlannedMove], bytes_per_second: int, living: Collection[int]) -> dict[int, int]:
        """Sets the rate for the copies that the moves need, on the brokers that are `living`: others accept no
        settings. Returns the brokers that had another rate from here, with that rate: earlier moves get the new rate,
        too. Raises KafkaError if it may not, AccessError if the note can't be written.
        """
        copying = [move for move in moves if move.adding]
        note = self._read()
        entries: dict[str, dict[str, list[str]]] = {}
        for move in copying:
            topic, number = move.partition
            keys = entries.setdefault(topic, {_LEADERS: [], _FOLLOWERS: []})
            keys[_LEADERS] += [f"{number}:{broker}" for broker in move.replicas]
            keys[_FOLLOWERS] += [f"{number}:{broker}" for broker in move.adding]
        replaced: dict[int, int] = {}
        for broker in sorted({broker for move in copying for broker in (*move.replicas, *move.adding)}):
            if broker in living:
                before = dict(note.brokers.get(str(broker), {}))
                self._set_rates(note, str(broker), str(bytes_per_second))
                for key, rate in before.items():
                    if note.brokers[str(broker)][key] != rate:
                        replaced[broker] = int(rate)
            else:
                self._say(f"note: broker {broker} is away, and gets no throttle")
        for topic, keys in sorted(entries.items()):
            for key, wanted in keys.items():
                self._list_replicas(note, topic, key, wanted)
        return replaced

    def _set_rates(self, note: _Note, broker: str, rate: str) -> None:
        held = self._own_values(ConfigResourceType.BROKER, broker)
        ours = note.brokers.get(broker, {})
        changes = []
        for key in _RATES:
            if key in held and held[key] not in (None, ours.get(key)):
                self._say(f"note: broker {broker} has {key}={held[key]} already, which stays")
                continue
            note.brokers.setdefault(broker, {})[key] = rate
            changes.append(ChangedConfig(key, AlterOperation.SET, rate))
        if changes:
            self._write(note)
            self._admin.alter_configs(ConfigResourceType.BROKER, broker, changes)
            held = self._own_values(ConfigResourceType.BROKER, broker)
            if any(key in held and held[key] is None for key in _RATES):  # the values of unknown keys are not told
                self._say(f"warning: broker {broker} does not know {_RATES[0]}: its copying is not limited")

    def _list_replicas(self, note: _Note, topic: str, key: str, wanted: list[str]) -> None:
        held = _entries(self._own_values(ConfigResourceType.TOPIC, topic).get(key))
        new = [entry for entry in wanted if entry not in held]
        if _ALL in held or not new:
            return
        noted = note.topics.setdefault(topic, {}).setdefault(key, [])
        noted += [entry for entry in new if entry not in noted]
        self._write(note)
        operation = AlterOperation.APPEND if held else AlterOperation.SET
        self._admin.alter_configs(ConfigResourceType.TOPIC, topic, [ChangedConfig(key, operation, ",".join(new))])

    # --- afterwards

    @property
    def is_set(self) -> bool:
        return not self._read().is_empty

    def remove(self, in_flight: Collection[TopicPartition]) -> bool:
        """Removes the settings, if none of their partitions is `in_flight` any more. Returns whether all are gone; the
        others stay noted.
        """
        note = self._read()
        if note.is_empty or note.partitions & set(in_flight):
            return note.is_empty
        for topic, keys in list(note.topics.items()):
            if self._try(f"topic {topic}", lambda t=topic, k=keys: self._unlist(t, k)):  # type: ignore[misc]
                del note.topics[topic]
        for broker, rates in list(note.brokers.items()):
            if self._try(f"broker {broker}", lambda b=broker, r=rates: self._unset_rates(b, r)):  # type: ignore[misc]
                del note.brokers[broker]
        self._write(note)
        return note.is_empty

    def _try(self, what: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except BrokerAwayError:
            self._say(
                f"warning: {what} is away, and keeps its throttle; plog cluster reassign --status removes it once it "
                "is back"
            )
            return False
        except PlogError as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return True  # it was deleted, and its settings with it
            self._say(
                f"warning: the throttle of {what} could not be removed: {error.message}; plog cluster reassign "
                "--status tries it again"
            )
            return False
        return True

    def _unlist(self, topic: str, keys: dict[str, list[str]]) -> None:
        values = self._own_values(ConfigResourceType.TOPIC, topic)
        changes = []
        for key, noted in keys.items():
            held = _entries(values.get(key))
            ours = [entry for entry in held if entry in noted]
            if ours and len(ours) == len(held):
                changes.append(ChangedConfig(key, AlterOperation.DELETE, None))
            elif ours:
                changes.append(ChangedConfig(key, AlterOperation.SUBTRACT, ",".join(ours)))
        if changes:
            self._admin.alter_configs(ConfigResourceType.TOPIC, topic, changes)

    def _unset_rates(self, broker: str, rates: dict[str, str]) -> None:
        held = self._own_values(ConfigResourceType.BROKER, broker)
        changes = [
            ChangedConfig(key, AlterOperation.DELETE, None)
            for key, rate in rates.items()
            if key in held and held[key] in (None, rate)
        ]
        for key, rate in rates.items():
            if key in held and held[key] not in (None, rate):
                self._say(f"note: broker {broker} has {key}={held[key]}, which somebody changed; it stays")
        if changes:
            self._admin.alter_configs(ConfigResourceType.BROKER, broker, changes)

    def _own_values(self, type_: ConfigResourceType, name: str) -> dict[str, str | None]:
        """Returns the settings of that very resource; None for a value that the broker hides."""
        keys = (*_RATES, _LEADERS, _FOLLOWERS)
        values = self._admin.describe_configs(type_, name)
        return {v.name: v.value for v in values if v.name in keys and v.config_source == _OWN_SOURCES[type_]}

    # --- the note

    def _read(self) -> _Note:
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            return _Note()
        except OSError as error:
            raise access_error(error, self._file, "read") from error
        try:
            content = json.loads(text)
            note = _Note(dict(content["topics"]), dict(content["brokers"]))
            note.partitions  # noqa: B018 - reads all of its entries
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise AccessError(
                f"{self._file} does not say which throttles were set: {error}",
                where=str(self._file),
                hint="delete it, and look for throttles with plog config describe",
            ) from None
        return note

    def _write(self, note: _Note) -> None:
        try:
            if note.is_empty:
                self._file.unlink(missing_ok=True)
                return
            self._file.parent.mkdir(parents=True, exist_ok=True)
            content = {"topics": note.topics, "brokers": note.brokers}
            FileSystem().write_atomic(self._file, json.dumps(content, indent=1).encode())
        except OSError as error:
            raise AccessError(
                f"could not note the throttle in {self._file}: {error.strerror}",
                where=str(self._file),
                hint="without the note nobody would know what to remove: XDG_STATE_HOME names another place",
            ) from None


def _entries(value: str | None) -> list[str]:
    return [entry.strip() for entry in (value or "").split(",") if entry.strip()]
