"""The broker's settings: Kafka's keys, each with its type, default, check and line of documentation, in one place.

A setting is read by attribute: `config.num_partitions` is the value of `num.partitions` in force. The table holds the
keys that plog acts on, and some that it only keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Generic, Protocol, Self, TypeVar, overload

from core.broker.serving.listener_endpoints import DEFAULT_PROTOCOL_MAP, PROTOCOLS
from core.common.config_def import ConfigDef, ConfigKey, ConfigType, Validator, Value, at_least, between, one_of
from core.common.errors import UsageError
from core.common.java_limits import INT_MAX, LONG_MAX
from core.files.log_config import SERVER_KEYS, TOPIC_CONFIG
from core.security.principal import ANY_USER, USER_TYPE, parse_principals

_T = ConfigType
_PYTHON_TYPES: Mapping[ConfigType, type] = {
    _T.BOOLEAN: bool,
    _T.STRING: str,
    _T.INT: int,
    _T.SHORT: int,
    _T.LONG: int,
    _T.DOUBLE: float,
    _T.LIST: list,
    _T.PASSWORD: str,
}

T = TypeVar("T", bound=Value)

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The authorizer of a lone broker, by Kafka's name: its ACLs are in the metadata log."""
ZOOKEEPER_AUTHORIZERS = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""The authorizer of a member of a ZooKeeper cluster, by its present name and its older one."""


class _HasSettings(Protocol):
    @property
    def settings(self) -> Mapping[str, Value]:
        """The configured values in force, parsed, by Kafka's names."""
        ...


class Setting(Generic[T]):
    """An attribute of `BrokerSettings`: the value in force on an instance, the setting itself on the class.

    Kafka's name of it is the attribute's, with `.` for `_`. An instance, which never changes, caches a value as its own
    attribute, so that the next read does not come here.
    """

    __slots__ = ("_attribute", "_default", "_name", "key")

    def __init__(
        self,
        type_: ConfigType,
        default: T,
        doc: str,
        validator: Validator | None = None,
        *,
        is_dynamic: bool = False,
        is_kept_only: bool = False,
    ) -> None:
        assert default is None or type(default) is _PYTHON_TYPES[type_], doc
        self._default = default
        self._attribute = self._name = ""
        self.key = ConfigKey(
            name="",
            type=type_,
            default=default,
            doc=doc,
            validator=validator,
            is_dynamic=is_dynamic,
            is_kept_only=is_kept_only,
        )

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute, self._name = name, name.replace("_", ".")
        self.key = replace(self.key, name=self._name)

    @overload
    def __get__(self, config: None, owner: type) -> Self: ...

    @overload
    def __get__(self, config: _HasSettings, owner: type) -> T: ...

    def __get__(self, config: _HasSettings | None, owner: type) -> Self | T:
        if config is None:
            return self
        value = vars(config)[self._attribute] = config.settings.get(self._name, self._default)
        return value  # type: ignore[return-value]  # parsed by the key's type

    def of(self, config: _HasSettings) -> T:
        """Reads the attribute of the configuration, for code that does not know the setting's name."""
        return self.__get__(config, type(config))

    def is_given(self, config: _HasSettings) -> bool:
        """Returns whether the value in force is configured; otherwise it is the default."""
        return self._name in config.settings


_boolean = partial(Setting[bool], _T.BOOLEAN)
_integer = partial(Setting[int], _T.INT)
_short = partial(Setting[int], _T.SHORT)
_long = partial(Setting[int], _T.LONG)
_double = partial(Setting[float], _T.DOUBLE)
_text = partial(Setting[str], _T.STRING)
_text_or_none = partial(Setting[str | None], _T.STRING, None)
_texts = partial(Setting[list[str]], _T.LIST)
_texts_or_none = partial(Setting[list[str] | None], _T.LIST, None)
_secret = partial(Setting[str | None], _T.PASSWORD, None)


def _check_principals(value: Value) -> str | None:
    try:
        for principal in parse_principals(str(value)):
            if principal.type != USER_TYPE or principal == ANY_USER:
                return f"no client is {principal}: the type is {USER_TYPE}, and each super user has a name"
    except UsageError as error:
        return f"{error.message}: {error.hint}"
    return None


class BrokerSettings:
    """The settings of a broker. `node_id` is the key `node.id` alone; see `BrokerConfig.given_node_id`."""

    __slots__ = ()

    node_id = _integer(1, "This broker's id.", at_least(0))
    broker_id = _integer(-1, "Older name of node.id.")
    broker_rack = _text_or_none("The rack that this broker is in.")
    log_dirs = _texts_or_none("The data directory.")
    log_dir = _texts_or_none("The data directory, if log.dirs is not set.")
    listeners = _texts_or_none("The addresses that the broker listens on: NAME://HOST:PORT,...")
    advertised_listeners = _texts_or_none("The addresses that clients connect to.")
    listener_security_protocol_map = _text(
        DEFAULT_PROTOCOL_MAP,
        "The security protocol of each listener: NAME:PROTOCOL,...; PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    authorizer_class_name = _text(
        "",
        "Kafka's class that lets clients do what ACLs allow: the StandardAuthorizer for a lone broker, the "
        "AclAuthorizer for a member of a ZooKeeper cluster; empty for none.",
    )
    super_users = _text(
        "", "Principals that the authorizer lets do everything: User:NAME;User:NAME;...", _check_principals
    )
    allow_everyone_if_no_acl_found = _boolean(
        False, "Whether the authorizer lets everybody use a resource that no ACL is about."
    )
    inter_broker_listener_name = _text_or_none("The listener at which the brokers of a cluster connect to each other.")
    security_inter_broker_protocol = _text(
        "PLAINTEXT",
        "The security protocol between brokers, if inter.broker.listener.name is not set: their listener has its name.",
        lambda value: one_of(*PROTOCOLS)(str(value).upper()),
    )
    controller_listener_names = _texts_or_none("The listeners of Kafka's controllers; plog does not open them.")
    sasl_enabled_mechanisms = _texts(
        ["GSSAPI"],
        "The mechanisms by which clients log in at SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. plog does not "
        "speak Kafka's default.",
        is_dynamic=True,
    )
    sasl_jaas_config = _secret(
        "A login module, with the users of PLAIN (user_NAME=..), and this broker's own login at other brokers "
        "(username, password). It is obeyed as listener.name.NAME.MECHANISM.sasl.jaas.config alone.",
        is_dynamic=True,
    )
    sasl_mechanism_inter_broker_protocol = _text(
        "GSSAPI", "The mechanism by which brokers log in at each other.", is_dynamic=True
    )
    sasl_server_max_receive_size = _integer(
        524288, "The largest request of a client that has not logged in yet, bytes."
    )
    connections_max_reauth_ms = _long(
        0,
        "How long a login is good for; the broker closes a connection that does not log in again until then, ms; 0 is "
        "for ever.",
    )
    connection_failed_authentication_delay_ms = _integer(
        100, "How long a refused login waits for its answer, ms.", at_least(0)
    )
    ssl_client_auth = _text(
        "none",
        "Whether clients show a certificate: required, requested or none. It is obeyed at SSL listeners; at SASL_SSL "
        "listeners only if the listener itself has it.",
        lambda value: one_of("required", "requested", "none")(str(value).lower()),
        is_dynamic=True,
    )
    ssl_principal_mapping_rules = _text(
        "DEFAULT",
        "How the names of clients are made of their certificates: RULE:PATTERN/REPLACEMENT/[LU],.. or DEFAULT.",
    )
    ssl_enabled_protocols = _texts(
        ["TLSv1.2", "TLSv1.3"], "The versions of TLS that clients may speak.", is_dynamic=True
    )
    ssl_protocol = _text(
        "TLSv1.3",
        "Java's context of TLS; ssl.enabled.protocols has the versions that clients may speak.",
        is_dynamic=True,
        is_kept_only=True,
    )
    ssl_cipher_suites = _texts(
        [], "The cipher suites of TLS 1.2 that clients may choose; empty for OpenSSL's.", is_dynamic=True
    )
    ssl_keystore_type = _text("JKS", "The type of ssl.keystore.location: JKS, PKCS12 or PEM.", is_dynamic=True)
    ssl_keystore_location = _text_or_none("The file with the broker's certificate and its key.", is_dynamic=True)
    ssl_keystore_password = _secret("The password of ssl.keystore.location.", is_dynamic=True)
    ssl_key_password = _secret("The password of the broker's key.", is_dynamic=True)
    ssl_keystore_key = _secret("The broker's key itself, as PEM.", is_dynamic=True)
    ssl_keystore_certificate_chain = _secret(
        "The broker's certificate itself and those above it, as PEM.", is_dynamic=True
    )
    ssl_certificate_location = _text_or_none(
        "plog's own: a PEM file with the broker's certificate and those above it, in place of ssl.keystore.location; "
        "its key is in ssl.key.location.",
        is_dynamic=True,
    )
    ssl_key_location = _text_or_none(
        "plog's own: a PEM file with the key of ssl.certificate.location.", is_dynamic=True
    )
    ssl_truststore_type = _text("JKS", "The type of ssl.truststore.location: JKS, PKCS12 or PEM.", is_dynamic=True)
    ssl_truststore_location = _text_or_none(
        "The file with the authorities that may sign certificates of clients.", is_dynamic=True
    )
    ssl_truststore_password = _secret("The password of ssl.truststore.location.", is_dynamic=True)
    ssl_truststore_certificates = _secret("The certificates of those authorities themselves, as PEM.", is_dynamic=True)
    ssl_endpoint_identification_algorithm = _text(
        "https",
        "Whether another broker's certificate must name the host that this broker connects to: https, or empty.",
        is_dynamic=True,
    )
    ssl_allow_dn_changes = _boolean(
        False, "Whether a running broker takes a certificate of another distinguished name."
    )
    ssl_allow_san_changes = _boolean(
        False, "Whether a running broker takes a certificate that lacks names of the present one."
    )
    ssl_provider = _text_or_none("Java's provider of TLS.", is_dynamic=True, is_kept_only=True)
    ssl_keymanager_algorithm = _text("SunX509", "Java's algorithm for keys.", is_dynamic=True, is_kept_only=True)
    ssl_trustmanager_algorithm = _text("PKIX", "Java's algorithm for trust.", is_dynamic=True, is_kept_only=True)
    ssl_secure_random_implementation = _text_or_none(
        "Java's source of random numbers.", is_dynamic=True, is_kept_only=True
    )
    auto_create_topics_enable = _boolean(
        True, "Whether the broker creates a topic when a client asks for its metadata."
    )
    delete_topic_enable = _boolean(True, "Whether topics may be deleted.")
    num_partitions = _integer(1, "Partitions of a topic that is created without a number of them.", at_least(1))
    default_replication_factor = _integer(
        1, "Replicas of a topic that is created without a number of them.", at_least(1)
    )
    socket_request_max_bytes = _integer(104857600, "The largest request, bytes.", at_least(1))
    queued_max_request_bytes = _long(
        268435456,
        "The most memory that all connections together may hold for requests that have arrived in part and "
        "responses that are not sent yet, bytes; -1 is no limit.",
    )
    socket_send_buffer_bytes = _integer(102400, "SO_SNDBUF of connections; -1 is the system's.", at_least(-1))
    socket_receive_buffer_bytes = _integer(102400, "SO_RCVBUF of connections; -1 is the system's.", at_least(-1))
    socket_listen_backlog_size = _integer(50, "Connections that may wait to be accepted.", at_least(1))
    connections_max_idle_ms = _long(
        600000, "The broker closes a connection that was idle for so long, ms; -1 is never."
    )
    max_connections = _integer(
        INT_MAX, "The most connections open at once; further clients wait.", at_least(0), is_dynamic=True
    )
    max_connections_per_ip = _integer(
        INT_MAX,
        "The most connections open at once from one address; the broker closes further ones.",
        at_least(0),
        is_dynamic=True,
    )
    fetch_max_bytes = _integer(57671680, "The most bytes of records in the response to a fetch.", at_least(1024))
    max_incremental_fetch_session_cache_slots = _integer(
        1000, "The most fetch sessions (KIP-227) that the broker keeps.", at_least(0)
    )
    producer_id_expiration_ms = _integer(
        86400000,
        "How long the broker remembers the sequence numbers of an idle producer, ms.",
        at_least(1),
        is_dynamic=True,
    )
    log_flush_offset_checkpoint_interval_ms = _integer(
        60000, "How often recovery points are written to their checkpoint, ms.", at_least(0)
    )
    log_flush_start_offset_checkpoint_interval_ms = _integer(
        60000, "How often log start offsets are written to their checkpoint, ms.", at_least(0)
    )
    log_cleaner_enable = _boolean(True, "Whether compacted topics are cleaned while the broker runs.")
    log_cleaner_threads = _integer(
        1, "How many logs are cleaned at once, each by a process of its own.", at_least(0), is_dynamic=True
    )
    log_cleaner_dedupe_buffer_size = _long(
        128 * 1024 * 1024,
        "Memory for the keys of all logs that are being cleaned, bytes.",
        at_least(1),
        is_dynamic=True,
    )
    log_cleaner_io_buffer_load_factor = _double(
        0.9, "How full the cleaner's table of keys may get, 0 to 1.", between(0, 1), is_dynamic=True
    )
    log_cleaner_io_max_bytes_per_second = _double(
        1.7976931348623157e308, "How much cleaning may read and write each second, bytes.", at_least(1), is_dynamic=True
    )
    log_cleaner_backoff_ms = _long(
        15000, "How long the cleaner waits when no log needs cleaning, ms.", at_least(0), is_dynamic=True
    )
    group_min_session_timeout_ms = _integer(6000, "The shortest session timeout that a member may ask for, ms.")
    group_max_session_timeout_ms = _integer(1800000, "The longest session timeout that a member may ask for, ms.")
    group_initial_rebalance_delay_ms = _integer(
        3000,
        "How long an empty group waits for more members after one joins, ms; again if one joined meanwhile.",
        at_least(0),
    )
    group_consumer_session_timeout_ms = _integer(
        45000, "How long a member of a consumer group (KIP-848) may send no heartbeat, ms.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms = _integer(
        5000, "How often members of consumer groups (KIP-848) send heartbeats, ms.", at_least(1)
    )
    group_consumer_min_session_timeout_ms = _integer(
        45000, "The shortest consumer.session.timeout.ms that a group may be given, ms.", at_least(1)
    )
    group_consumer_max_session_timeout_ms = _integer(
        60000, "The longest consumer.session.timeout.ms that a group may be given, ms.", at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms = _integer(
        5000, "The shortest consumer.heartbeat.interval.ms that a group may be given, ms.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms = _integer(
        15000, "The longest consumer.heartbeat.interval.ms that a group may be given, ms.", at_least(1)
    )
    group_consumer_migration_policy = _text(
        "bidirectional",
        "Whether groups with members change their protocol: upgrade to the consumer protocol when the first consumer "
        "that uses it joins, downgrade to the classic protocol when the last one leaves.",
        lambda value: one_of("bidirectional", "upgrade", "downgrade", "disabled")(str(value).lower()),
    )
    group_consumer_max_size = _integer(
        INT_MAX, "The most members that a consumer group (KIP-848) may have.", at_least(1)
    )
    group_max_size = _integer(INT_MAX, "The most members that a classic group may have.", at_least(1))
    offset_metadata_max_bytes = _integer(4096, "The longest metadata that may be committed with an offset.")
    offsets_retention_minutes = _integer(
        10080, "How long a group's committed offsets are kept while no member uses them, minutes.", at_least(1)
    )
    offsets_retention_check_interval_ms = _long(
        600000, "How often the coordinator looks for committed offsets to delete, ms.", at_least(1)
    )
    offsets_commit_timeout_ms = _integer(5000, "How long the commit of offsets may wait for the disk, ms.", at_least(1))
    offsets_topic_num_partitions = _integer(50, "Partitions of __consumer_offsets.", at_least(1))
    offsets_topic_replication_factor = _short(
        3, "Replicas of __consumer_offsets in a cluster; a lone broker's has one.", at_least(1)
    )
    offsets_topic_segment_bytes = _integer(104857600, "The segment.bytes of __consumer_offsets.", at_least(1))
    transaction_max_timeout_ms = _integer(
        900000, "The longest timeout that a transactional producer may ask for, ms.", at_least(1)
    )
    transactional_id_expiration_ms = _integer(
        604800000, "How long the coordinator remembers a transactional id that is not used, ms.", at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = _integer(
        10000,
        "How often the coordinator looks for transactions that are past their timeout, to abort them, ms.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = _integer(
        3600000, "How often the coordinator looks for expired transactional ids, ms.", at_least(1)
    )
    transaction_partition_verification_enable = _boolean(
        True,
        "Whether the broker refuses transactional records for a partition that was not added to the transaction.",
        is_dynamic=True,
    )
    transaction_state_log_num_partitions = _integer(50, "Partitions of __transaction_state.", at_least(1))
    transaction_state_log_replication_factor = _short(
        3, "Replicas of __transaction_state in a cluster; a lone broker's has one.", at_least(1)
    )
    transaction_state_log_min_isr = _integer(
        2, "The min.insync.replicas of __transaction_state in a cluster; 1 on a lone broker.", at_least(1)
    )
    transaction_state_log_segment_bytes = _integer(104857600, "The segment.bytes of __transaction_state.", at_least(1))
    log_retention_check_interval_ms = _long(
        300000, "How often the broker looks for segments past retention.ms or retention.bytes, ms.", at_least(1)
    )
    replica_high_watermark_checkpoint_interval_ms = _long(
        5000, "How often high watermarks are written to their checkpoint, ms."
    )
    zookeeper_session_timeout_ms = _integer(
        18000, "How long ZooKeeper keeps a broker in the cluster without hearing from it, ms.", at_least(1)
    )
    zookeeper_connection_timeout_ms = Setting[int | None](
        _T.INT,
        None,
        "How long Kafka's brokers wait for ZooKeeper at a start; plog waits until it is there.",
        is_kept_only=True,
    )
    zookeeper_set_acl = _boolean(
        False, "Whether a znode that this broker creates can be changed only by a client with its login."
    )
    zookeeper_ssl_client_enable = _boolean(False, "Whether the broker connects to ZooKeeper by TLS.")
    zookeeper_clientCnxnSocket = Setting[str | None](  # noqa: N815 - so Kafka's name has it
        _T.STRING, None, "Java's class for connections to ZooKeeper; Kafka needs the one of Netty for TLS."
    )
    zookeeper_ssl_truststore_location = _text_or_none(
        "A file with the certificates of authorities that may sign ZooKeeper's."
    )
    zookeeper_ssl_truststore_type = _text_or_none("The type of zookeeper.ssl.truststore.location: JKS, PKCS12 or PEM.")
    zookeeper_ssl_truststore_password = _secret("The password of zookeeper.ssl.truststore.location.")
    zookeeper_ssl_keystore_location = _text_or_none("A file with this broker's certificate and key, for ZooKeeper.")
    zookeeper_ssl_keystore_type = _text_or_none("The type of zookeeper.ssl.keystore.location: JKS, PKCS12 or PEM.")
    zookeeper_ssl_keystore_password = _secret("The password of zookeeper.ssl.keystore.location, and of the key in it.")
    zookeeper_ssl_enabled_protocols = _texts_or_none("The versions of TLS that this broker speaks with ZooKeeper.")
    zookeeper_ssl_protocol = _text(
        "TLSv1.2", "The version of TLS that Java's context for ZooKeeper is made for.", is_kept_only=True
    )
    zookeeper_ssl_cipher_suites = _texts_or_none("The cipher suites of TLS 1.2 with ZooKeeper; OpenSSL's without it.")
    zookeeper_ssl_endpoint_identification_algorithm = _text(
        "HTTPS", "Whether ZooKeeper's certificate must name its host: HTTPS, or empty."
    )
    plog_zookeeper_login = _text("none", "How this broker logs in to ZooKeeper.", one_of("none", "sasl", "digest"))
    plog_zookeeper_user = _text_or_none("The user name that this broker logs in to ZooKeeper with.")
    plog_zookeeper_password_file = _text_or_none(
        "The file with the password that this broker logs in to ZooKeeper with."
    )
    plog_leader_recovery_wait_ms = Setting[int | None](
        _T.LONG,
        None,
        "After a crash: how long a partition without a leader waits for an absent replica that may hold committed "
        "records which the present replicas have lost, ms; -1 is for ever. Unset, it is for ever if "
        "min.insync.replicas is 2 or more, and five minutes if it is 1.",
        at_least(-1),
        is_dynamic=True,
    )
    replica_lag_time_max_ms = _long(
        30000, "How long a replica may be behind its leader and count as in sync, ms.", at_least(1)
    )
    replica_selector_class = _text_or_none(
        "The replica that a leader sends consumers to: with RackAwareReplicaSelector, one in sync in the consumer's "
        "rack (its client.rack, the broker's broker.rack); without, the leader itself.",
        one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    leader_replication_throttled_rate = _long(
        LONG_MAX,
        "The most that this broker, as a leader, sends to replicas that are not in sync, for partitions that "
        "leader.replication.throttled.replicas names, bytes per second.",
        at_least(0),
        is_dynamic=True,
    )
    follower_replication_throttled_rate = _long(
        LONG_MAX,
        "The most that this broker fetches, as a follower that is not in sync, for partitions that "
        "follower.replication.throttled.replicas names, bytes per second.",
        at_least(0),
        is_dynamic=True,
    )
    replication_quota_window_num = _integer(
        11, "The number of samples that replication rates are measured over, with the present one.", at_least(1)
    )
    replication_quota_window_size_seconds = _integer(
        1, "How long each sample of a replication rate is, s.", at_least(1)
    )
    socket_connection_setup_timeout_ms = _long(
        10000, "How long connecting to another broker may take, ms.", at_least(1)
    )
    controller_socket_timeout_ms = _integer(
        30000, "How long this broker waits for the controller, and as controller for a broker, ms.", at_least(1)
    )
    plog_controller_enable = _boolean(
        True, "Whether this broker may become the controller of its cluster, which elects leaders."
    )
    auto_leader_rebalance_enable = _boolean(
        True, "Whether the controller moves leadership back to preferred leaders by itself."
    )
    leader_imbalance_check_interval_seconds = _long(
        300, "How often the controller compares leaders with preferred leaders, s.", at_least(1)
    )
    leader_imbalance_per_broker_percentage = _integer(
        10,
        "Percentage of the partitions that prefer a broker; if others lead more, the controller moves them back.",
        at_least(0),
    )
    controlled_shutdown_enable = _boolean(
        True, "Whether a broker that stops first has the controller move its leaderships to other brokers."
    )
    controlled_shutdown_max_retries = _integer(
        3, "How many times a stopping broker asks the controller to move its leaderships.", at_least(1)
    )
    controlled_shutdown_retry_backoff_ms = _long(
        5000, "How long a stopping broker waits before it asks the controller again, ms.", at_least(1)
    )
    replica_fetch_wait_max_ms = _integer(
        500, "How long a leader may wait for records before it answers this broker's fetch, ms.", at_least(0)
    )
    replica_fetch_min_bytes = _integer(
        1, "The bytes of records that a leader waits for before it answers this broker's fetch.", at_least(0)
    )
    replica_fetch_max_bytes = _integer(
        1048576,
        "The most bytes of one partition in the response to this broker's fetch, or one whole batch if that is larger.",
        at_least(0),
    )
    replica_fetch_response_max_bytes = _integer(
        10485760,
        "The most bytes in the response to this broker's fetch, or one whole batch if that is larger.",
        at_least(0),
    )
    replica_fetch_backoff_ms = _integer(
        1000, "How long this broker waits before it repeats a failed fetch from a leader, ms.", at_least(0)
    )
    replica_socket_timeout_ms = _integer(
        30000, "How long this broker waits for a leader's response to its fetch, ms.", at_least(0)
    )
    num_replica_fetchers = _integer(
        1,
        "How many connections fetch from each other broker; plog uses one.",
        at_least(0),
        is_dynamic=True,
        is_kept_only=True,
    )


def _topic_default_keys() -> list[ConfigKey]:
    """Returns the broker's keys for topics' defaults; if a topic's key has several, only the last has a default."""
    keys = []
    for topic_key in TOPIC_CONFIG:
        server_keys = SERVER_KEYS.get(topic_key.name, ())
        for name, factor in server_keys:
            default = topic_key.default
            if name != server_keys[-1][0]:
                default = None
            elif factor > 1 and isinstance(default, int):
                default = default // factor
            keys.append(
                ConfigKey(
                    name,
                    topic_key.type if factor == 1 else _T.INT,
                    default,
                    f"Default of {topic_key.name} for topics: {topic_key.doc}",
                    None if default is None else topic_key.validator,
                    is_dynamic=factor == 1 and name != "log.flush.scheduler.interval.ms",
                    is_kept_only=topic_key.is_kept_only,
                )
            )
    return keys


BROKER_CONFIG = ConfigDef(
    "broker",
    [
        *(setting.key for setting in vars(BrokerSettings).values() if isinstance(setting, Setting)),
        *_topic_default_keys(),
    ],
)

LISTENER_PREFIX = "listener.name."
"""What the names of settings of one listener begin with; the listener's name follows."""

_OF_ONE_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)")
_OF_LISTENERS = {key.name for key in BROKER_CONFIG if key.name.startswith("ssl.")} | {
    BrokerSettings.sasl_enabled_mechanisms.key.name,
    BrokerSettings.sasl_server_max_receive_size.key.name,
    BrokerSettings.connections_max_reauth_ms.key.name,
}
_OF_MECHANISMS = {BrokerSettings.sasl_jaas_config.key.name, BrokerSettings.connections_max_reauth_ms.key.name}


def listener_prefix(name: str, mechanism: str = "") -> str:
    """Returns what the names of settings of that listener, or of one of its mechanisms, begin with."""
    return f"{LISTENER_PREFIX}{name.lower()}." + (f"{mechanism.lower()}." if mechanism else "")


def split_listener(name: str) -> tuple[str, str]:
    """Returns the listener that a setting is for, or "", and the rest of its name, which may begin with a mechanism."""
    found = _OF_ONE_LISTENER.fullmatch(name)
    return ("", name) if found is None else (found[1], found[2])


def plain_name(name: str) -> str:
    """Returns the setting's name without the listener, and the mechanism, that it is for."""
    listener, rest = split_listener(name)
    of_any = rest.partition(".")[2]
    return of_any if listener and of_any in _OF_MECHANISMS else rest


def find_broker_key(name: str) -> ConfigKey | None:
    """Returns the key of a setting, also of a single listener: `listener.name.NAME.KEY`, and
    `listener.name.NAME.MECHANISM.KEY`. None if a broker has no such setting.
    """
    plain = plain_name(name)
    if plain == name:
        return BROKER_CONFIG.find(name)
    is_of_mechanism = name.count(".", 0, -len(plain)) > LISTENER_PREFIX.count(".") + 1
    if plain not in (_OF_MECHANISMS if is_of_mechanism else _OF_LISTENERS):
        return None
    return replace(BROKER_CONFIG[plain], name=name, is_dynamic=True)
