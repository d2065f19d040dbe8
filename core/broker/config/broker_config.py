"""The broker's configuration: from `server.properties` and `--set`, and dynamic settings.

`BROKER_CONFIG` has the keys. Keys that plog does not know are kept and warned about: Kafka's server.properties can be
used as it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from core.broker.config.broker_settings import (
    BROKER_CONFIG,
    BrokerSettings,
    Setting,
    find_broker_key,
    listener_prefix,
    plain_name,
    split_listener,
)
from core.broker.serving.listener_endpoints import (
    PLAINTEXT,
    PROTOCOLS,
    Listener,
    ensure_addresses_differ,
    parse_client_listeners,
)
from core.common.config_def import ConfigType, Value
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, UsageError
from core.files.log_config import SERVER_KEYS, TOPIC_CONFIG

_log = logging.getLogger("plog.config")

_ENCRYPTED = re.compile(r"\bencryptedPassword:")
"""Of a password that Kafka's broker keeps in ZooKeeper (org.apache.kafka.security.EncryptingPasswordEncoder)."""

EPHEMERAL_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Settings that replace Kafka's defaults in brokers for tests: no wait for more members, and few folders."""


@dataclass(frozen=True)
class BrokerConfig(BrokerSettings):
    """Settings by Kafka's names: `settings` are the configured ones in force, `unknown` those that plog does not know.
    They come from the server's properties (`static`) and, while it runs, from settings of all brokers
    (`dynamic_defaults`) and of this one (`dynamic`); the last of these that has a key wins.
    """

    settings: Mapping[str, Value] = field(default_factory=dict, repr=False)  # all of them may hold secrets
    unknown: Mapping[str, str] = field(default_factory=dict, repr=False)
    static: Mapping[str, Value] = field(default_factory=dict, repr=False)
    dynamic_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, repr=False)
    ignores_security: bool = False
    """Whether the operator accepts that a configuration that asks for security is served without any."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Raises KafkaError(INVALID_CONFIG) for a value that its key does not allow."""
        known = {
            name: key.parse(text) for name, text in properties.items() if (key := find_broker_key(name)) is not None
        }
        unknown = {name: text for name, text in properties.items() if name not in known}
        config = cls(known, unknown, known)
        config._ensure_room_for_a_request()
        config._ensure_time_for_a_fetch()
        return config

    def _ensure_room_for_a_request(self) -> None:
        """Raises KafkaError(INVALID_CONFIG) unless the configured memory holds the largest request, as in Kafka."""
        most, largest = self.queued_max_request_bytes, self.socket_request_max_bytes
        if BrokerConfig.queued_max_request_bytes.is_given(self) and 0 < most < largest:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"queued.max.request.bytes is {most}: it must be at least socket.request.max.bytes, {largest}",
            )

    def _ensure_time_for_a_fetch(self) -> None:
        """Raises KafkaError(INVALID_CONFIG) unless the socket timeout covers the leader's wait for records."""
        timeout_ms, wait_ms = self.replica_socket_timeout_ms, self.replica_fetch_wait_max_ms
        if timeout_ms < wait_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"replica.socket.timeout.ms is {timeout_ms}: it must be at least replica.fetch.wait.max.ms, {wait_ms}",
            )

    def with_dynamic(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """Returns a copy with these dynamic settings in place of the previous ones. Settings that plog does not know or
        accept, written by another version of Kafka, are not in force.
        """
        settings = dict(self.static)
        for name, text in [*defaults.items(), *own.items()]:
            key = find_broker_key(name)
            if key is not None and key.type is ConfigType.PASSWORD and _ENCRYPTED.search(text):
                _log.warning("a setting of the broker is left out: %s is encrypted with password.encoder.secret", name)
            elif key is not None and key.is_dynamic:
                try:
                    settings[name] = key.parse(text)
                except KafkaError as error:
                    _log.warning("a setting of the broker is left out: %s", error)
        return replace(self, settings=settings, dynamic_defaults=dict(defaults), dynamic=dict(own))

    def __getitem__(self, name: str) -> Value:
        """Returns the value of a key that comes from outside; code reads other settings as attributes."""
        return self.settings.get(name, BROKER_CONFIG[plain_name(name)].default)

    @property
    def given_node_id(self) -> int | None:
        """The broker's id by `node.id`, or else by its older name; None if neither is set."""
        if BrokerConfig.node_id.is_given(self):
            return self.node_id
        return self.broker_id if self.broker_id >= 0 else None

    @property
    def data_directories(self) -> list[str]:
        """The folders of log.dirs, or else of log.dir; empty if neither is set."""
        return self.log_dirs or self.log_dir or []

    def authorizes(self, *, holds_acls: bool = False) -> bool:
        """Returns whether an authorizer is at work: it is configured, or a lone broker's metadata hold ACLs."""
        return not self.ignores_security and (bool(self.authorizer_class_name) or holds_acls)

    def client_listeners(self, setting: Setting[list[str] | None]) -> list[Listener]:
        """Returns those of `listeners` or `advertised.listeners` that are not for controllers."""
        controllers = self.controller_listener_names or []
        return parse_client_listeners(setting.of(self) or [], self.listener_security_protocol_map, controllers)

    @cached_property
    def served_listeners(self) -> list[Listener]:
        """The listeners for clients; in the clear, if security is ignored. Raises UsageError for one whose protocol is
        not known.
        """
        listeners = self.client_listeners(BrokerConfig.listeners)
        if self.ignores_security:
            return [replace(listener, protocol=PLAINTEXT) for listener in listeners]
        for listener in listeners:
            if listener.protocol not in PROTOCOLS:
                name = BrokerConfig.listener_security_protocol_map.key.name
                raise UsageError(
                    f"listeners has {listener}, whose protocol is {listener.protocol or f'not in {name}'}, expected "
                    f"{', '.join(PROTOCOLS)}",
                    hint=f"{name}={listener.name}:SASL_SSL,..",
                )
        return listeners

    @property
    def main_listener(self) -> str:
        """The name of the first listener."""
        served = self.served_listeners
        return served[0].name if served else PLAINTEXT

    def main_listener_at(self, address: Endpoint) -> Listener:
        """Returns the first listener, at that address in place of the configured one."""
        served = self.served_listeners
        return replace(served[0], address=str(address)) if served else Listener.plaintext_at(address)

    def listeners_or(self, address: Endpoint) -> list[Listener]:
        """Returns the configured listeners, or else a single one at that address. Raises UsageError if they contradict
        each other.
        """
        self.ensure_listeners_fit()
        if self.served_listeners:
            listeners = [replace(one, address=str(one.endpoint)) for one in self.served_listeners]
            ensure_addresses_differ(listeners)
            return listeners
        return [Listener.plaintext_at(address)]

    def protocol_of(self, name: str) -> str:
        """Returns the security protocol of the listener with that name."""
        return next((one.protocol for one in self.served_listeners if one.name == name and one.protocol), PLAINTEXT)

    def of_listener(self, name: str, mechanism: str = "") -> BrokerConfig:
        """Returns the configuration with the listener's own settings in place of all listeners', and the mechanism's in
        place of these.
        """
        own = dict(self.settings)
        for start in dict.fromkeys((listener_prefix(name), listener_prefix(name, mechanism))):
            own |= {key.removeprefix(start): value for key, value in self.settings.items() if key.startswith(start)}
        return replace(self, settings=own)

    def is_of_controllers(self, key: str) -> bool:
        """Returns whether the setting is for a listener of controllers, which plog does not open."""
        listener, _ = split_listener(key)
        return listener != "" and listener.upper() in (
            name.strip().upper() for name in self.controller_listener_names or ()
        )

    def find_advertised(self, name: str) -> Endpoint | None:
        """Returns the configured address for clients of that listener, or None. A single listener may have another name
        there: then it is the first one with its protocol.
        """
        listeners = self.client_listeners(BrokerConfig.advertised_listeners)
        found = [listener for listener in listeners if listener.name == name]
        if len(self.served_listeners) <= 1:
            found += [listener for listener in listeners if listener.protocol == self.protocol_of(name)]
        return found[0].endpoint if found else None

    @cached_property
    def inter_broker_listener(self) -> str:
        """The name of the listener at which other brokers reach this one: `inter.broker.listener.name`, or else the one
        with the name, or the protocol, that `security.inter.broker.protocol` says, or else the first.
        """
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.strip().upper()
        protocol = self.security_inter_broker_protocol.strip().upper()
        found = [one.name for one in self.served_listeners if protocol in (one.name, one.protocol)]
        return protocol if protocol in found else (found or [self.main_listener])[0]

    def ensure_listeners_fit(self) -> None:
        """Raises UsageError in three cases: an address is advertised for a listener that is not among several;
        `inter.broker.listener.name` names a missing listener; or no listener is configured, and the map of protocols
        has another one than PLAINTEXT for the listener that is served by default.
        """
        self._ensure_default_is_plaintext()
        known = {listener.name for listener in self.client_listeners(BrokerConfig.listeners)} or {PLAINTEXT}
        advertised = self.client_listeners(BrokerConfig.advertised_listeners)
        unknown = [listener for listener in advertised if listener.name not in known]
        if len(self.served_listeners) > 1 and unknown:
            raise UsageError(
                f"advertised.listeners has {unknown[0]}, and the listeners are {', '.join(sorted(known))}",
                hint="an advertised address has the name of the listener that is reached there",
            )
        name, protocol = BrokerConfig.inter_broker_listener_name, BrokerConfig.security_inter_broker_protocol
        between_brokers = name.of(self)
        if between_brokers is not None and protocol.is_given(self):
            raise UsageError(
                f"{name.key.name} and {protocol.key.name} are both set, expected one of them, as in Kafka",
                hint=f"leave {protocol.key.name} out: the listener's protocol is in listener.security.protocol.map",
            )
        if between_brokers is not None and between_brokers.strip().upper() not in known:
            raise UsageError(
                f"{name.key.name} is {between_brokers}, and the listeners are {', '.join(sorted(known))}",
                hint="name one of them, or leave it out",
            )

    def _ensure_default_is_plaintext(self) -> None:
        """Without listeners for clients plog serves one called PLAINTEXT; Kafka, whose default is the same, would obey
        the map.
        """
        listeners, protocols = BrokerConfig.listeners, BrokerConfig.listener_security_protocol_map
        if self.ignores_security or self.client_listeners(listeners):
            return
        (default,) = parse_client_listeners([f"{PLAINTEXT}://"], protocols.of(self), ())
        has_others = listeners.of(self)  # those of controllers; the map needs no name for clients then
        if not default.is_plaintext and (default.protocol is not None or not has_others):
            says = f"has {PLAINTEXT}:{default.protocol}" if default.protocol else f"has no {PLAINTEXT}"
            raise UsageError(
                f"{protocols.key.name} {says}, and listeners is not set",
                hint="listeners=NAME://HOST:PORT,.. has a name of the map for each address",
            )

    def topic_default(self, topic_key: str) -> Value:
        """Returns the default of a topic's key, from the broker's keys."""
        for name, factor in SERVER_KEYS.get(topic_key, ()):
            value = self.settings.get(name)
            if value is not None:
                return max(value * factor, -1) if factor != 1 and isinstance(value, int) else value
        return TOPIC_CONFIG[topic_key].default

    def topic_defaults(self) -> dict[str, Value]:
        return {key.name: self.topic_default(key.name) for key in TOPIC_CONFIG}
