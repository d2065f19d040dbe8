"""Settings of brokers, groups, client metrics and loggers; what is expected is what Kafka 4.3.1 answered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.common.config_def import ConfigResourceType, ConfigSource
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.protocol.schema import configs as alter_configs
from core.protocol.schema.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribedConfig,
    ListConfigResourcesRequest,
)
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from tests.support.broker import SteeredNode, Timers, add_topic, ask, open_broker, produce
from tests.support.for_each import for_each
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.requests import changes_of

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG

Change = tuple[str, int, str | None]


def alter(broker: SteeredNode, type_: int, name: str, *changes: Change, validate_only: bool = False) -> tuple[int, str]:
    request = changes_of(type_, name, *changes, validate_only=validate_only)
    answer = ask(broker, INCREMENTAL_ALTER_CONFIGS, request)
    return answer.responses[0].error_code, answer.responses[0].error_message or ""


def replace(broker: SteeredNode, type_: int, name: str, **settings: str) -> int:
    configs = [alter_configs.AlterableConfig(key.replace("_", "."), value) for key, value in settings.items()]
    resource = alter_configs.AlterConfigsResource(type_, name, configs)
    return ask(broker, ALTER_CONFIGS, alter_configs.AlterConfigsRequest([resource])).responses[0].error_code


def describe(broker: SteeredNode, type_: int, name: str) -> dict[str, DescribedConfig]:
    request = DescribeConfigsRequest([DescribeConfigsResource(type_, name, None)], include_synonyms=True)
    (result,) = ask(broker, DESCRIBE_CONFIGS, request).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def found(config: DescribedConfig) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


REFUSED: list[tuple[int, str, list[Change], int, str]] = [
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "10")], INVALID_CONFIG,
     "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "100000")], INVALID_CONFIG,
     "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms"),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "x")], INVALID_CONFIG,
     "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT"),
    (GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "1")], INVALID_CONFIG,
     "consumer.heartbeat.interval.ms must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
    (GROUP, "g", [("consumer.heartbeat.interval.ms", SET, "20000")], INVALID_CONFIG,
     "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
    (GROUP, "g", [("nope", SET, "1" * 32768)], INVALID_CONFIG,
     "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."),
    (GROUP, "g", [("nope", SET, "1")], INVALID_CONFIG, "Unknown group config name: nope"),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], INVALID_REQUEST,
     "Default group resources are not allowed."),
    (METRICS, "m", [("interval.ms", SET, "1")], INVALID_REQUEST,
     "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
    (METRICS, "m", [("match", SET, "bad=1")], INVALID_CONFIG, "Illegal client matching pattern: bad=1"),
    (METRICS, "m", [("match", SET, "client_id")], INVALID_CONFIG, "Illegal client matching pattern: client_id"),
    (METRICS, "m", [("match", SET, "client_id=[")], INVALID_CONFIG, "Illegal client matching pattern: client_id=["),
    (METRICS, "m", [("nope", SET, "1")], INVALID_REQUEST, "Unknown client metrics configuration: nope"),
    (METRICS, "", [("interval.ms", SET, "1000")], INVALID_REQUEST, "Subscription name can't be empty"),
    (METRICS, "m", [("metrics", APPEND, "foo")], INVALID_CONFIG,
     "Can't APPEND to key metrics because its type is not LIST."),
    (BROKER, "", [("log.retention.hours", SET, "2")], INVALID_REQUEST,
     "Cannot update these configs dynamically: [log.retention.hours]"),
    (BROKER, "1", [("node.id", SET, "7")], INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
    (BROKER, "2", [("log.retention.ms", SET, "1000")], INVALID_REQUEST,
     "Unexpected broker id, expected 1, but received 2"),
    (BROKER, "abc", [("log.retention.ms", SET, "1000")], INVALID_REQUEST,
     "Node id must be an integer, but it is: abc"),
    (BROKER, "1", [("log.retention.ms", SET, "x")], INVALID_REQUEST,
     "Invalid value x for configuration log.retention.ms: Not a number of type LONG"),
    (BROKER, "1", [("log.segment.bytes", SET, "1")], INVALID_REQUEST,
     "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"),
    (BROKER, "1", [("log.retention.ms", SET, None)], INVALID_REQUEST,
     "Null value not supported for : log.retention.ms"),
    (BROKER, "1", [("log.retention.ms", 9, "1")], INVALID_REQUEST, "Unknown operations type 9"),
    (BROKER, "1", [("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2")], INVALID_REQUEST,
     "Error due to duplicate config keys"),
    (BROKER, "1", [("log.retention.ms", APPEND, "1")], INVALID_CONFIG,
     "Config value append is not allowed for config key: log.retention.ms"),
    (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:1h")], INVALID_CONFIG,
     ("Invalid value by_duration:1h for configuration share.auto.offset.reset: must be earliest, latest or "
      "by_duration:<duration>, as by_duration:PT1H")),
    (GROUP, "g", [("share.session.timeout.ms", SET, "44999")], INVALID_CONFIG,
     "Invalid value 44999 for configuration share.session.timeout.ms: Value must be at least 45000"),
    (BROKER, "1", [("log.cleaner.threads", SET, "3")], INVALID_REQUEST,
     ("Dynamic thread count update validation failed for log.cleaner.threads: 3 should be at least half and at most "
      "double the current value 1")),
    (BROKER, "", [("num.io.threads", SET, "3")], INVALID_REQUEST,
     ("Dynamic thread count update validation failed for num.io.threads: 3 should be at least half and at most double "
      "the current value 8")),
    (LOGGER, "1", [("nope.logger", SET, "INFO")], INVALID_CONFIG, "Logger nope.logger does not exist!"),
    (LOGGER, "1", [("root", DELETE, None)], INVALID_REQUEST,
     "Removing the log level of the root logger is not allowed"),
    (LOGGER, "2", [("root", SET, "INFO")], INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2"),
    (LOGGER, "", [("root", SET, "INFO")], INVALID_REQUEST, "Node id must be an integer, but it is: "),
    (GROUP, "g", [("share.assignment.interval.ms", SET, "15001")], INVALID_CONFIG,
     "Invalid value 15001 for configuration share.assignment.interval.ms: Value must be no more than 15000"),
    (TOPIC, "t", [("retention.ms", SET, "-2")], INVALID_CONFIG,
     "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    (TOPIC, "nope", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
     "The topic 'nope' does not exist."),
    (TOPIC, "", [("retention.ms", SET, "1")], INVALID_REQUEST, "Default topic resources are not allowed."),
    (99, "a", [("retention.ms", SET, "1")], INVALID_REQUEST, "Unknown resource type 99"),
]  # fmt: skip


@for_each("type_, name, changes, code, message", REFUSED)
def test_what_kafka_refuses_in_kafkas_words(
    broker: SteeredNode, type_: int, name: str, changes: list[Change], code: int, message: str
) -> None:
    before = dict(broker.services.image.configs)
    assert alter(broker, type_, name, *changes) == (code, message)
    assert broker.services.image.configs == before


# --- groups


def test_settings_of_share_and_streams_groups_are_kept(broker: SteeredNode) -> None:
    changes = [
        ("share.auto.offset.reset", SET, "by_duration:PT1H30M"),
        ("share.isolation.level", SET, "read_committed"),
        ("streams.num.standby.replicas", SET, "1"),
        ("consumer.assignment.interval.ms", SET, "0"),
    ]
    assert alter(broker, GROUP, "g", *changes) == (0, "")
    configs = describe(broker, GROUP, "g")
    assert {name: configs[name].value for name, _, _ in changes} == {name: value for name, _, value in changes}
    assert configs["share.session.timeout.ms"].value == "45000"


# --- brokers


def test_thread_counts_change_by_half_or_to_the_double(broker: SteeredNode) -> None:
    assert alter(broker, BROKER, "1", ("num.io.threads", SET, "16")) == (0, "")
    assert alter(broker, BROKER, "1", ("num.io.threads", SET, "32")) == (0, "")
    assert alter(broker, BROKER, "1", ("num.io.threads", SET, "15"))[0] == INVALID_REQUEST


def test_a_broker_says_what_it_runs_with(tmp_path: Path) -> None:
    """The command line and the data directory say it, where no server.properties does."""
    broker = open_broker(tmp_path)
    broker.begin_serving(Endpoint("127.0.0.1", 9999))
    configs = describe(broker, BROKER, "1")
    expected = {
        "broker.id": "1",
        "node.id": "1",
        "log.dir": str(broker.directory),
        "log.dirs": str(broker.directory),
        "listeners": "PLAINTEXT://127.0.0.1:9999",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9999",
    }
    assert {name: configs[name].value for name in expected} == expected
    assert {configs[name].config_source for name in expected} == {ConfigSource.STATIC_BROKER_CONFIG}


def test_what_the_properties_say_of_listeners_stays(tmp_path: Path) -> None:
    said = {
        "listeners": "EXTERNAL://127.0.0.1:9999,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "EXTERNAL://kafka.example:9999",
        "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }
    broker = open_broker(tmp_path, **{name.replace(".", "_"): value for name, value in said.items()})
    broker.begin_serving(Endpoint("127.0.0.1", 9999))
    assert {name: describe(broker, BROKER, "1")[name].value for name in said} == said
    broker.begin_serving(Endpoint("127.0.0.1", 7777))  # by --listen
    assert describe(broker, BROKER, "1")["listeners"].value == "EXTERNAL://127.0.0.1:7777"


def test_settings_of_brokers_change_while_they_run(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, log_retention_ms="5000")
    add_topic(broker)
    add_topic(broker, "own", retention_ms="77")
    log = broker.services.replicas.find("t", 0).log
    assert log.config.retention_ms == 5000
    assert alter(broker, BROKER, "", ("log.retention.ms", SET, "2000")) == (0, "")
    assert log.config.retention_ms == 2000
    assert alter(broker, BROKER, "1", ("log.retention.ms", SET, "1000"), ("max.connections", SET, "9")) == (0, "")
    assert (log.config.retention_ms, broker.services.config.max_connections) == (1000, 9)
    assert broker.services.replicas.find("own", 0).log.config.retention_ms == 77
    own = describe(broker, BROKER, "1")["log.retention.ms"]
    assert (own.value, own.config_source, own.read_only) == ("1000", 2, False)
    assert found(own) == [
        ("log.retention.ms", "1000", 2),
        ("log.retention.ms", "2000", 3),
        ("log.retention.ms", "5000", 4),
    ]
    of_topic = describe(broker, TOPIC, "t")["retention.ms"]
    assert (of_topic.value, of_topic.config_source, of_topic.read_only) == ("1000", 2, False)
    assert [(c.name, c.value, c.config_source) for c in describe(broker, BROKER, "").values()] == [
        ("log.retention.ms", "2000", 3)
    ]
    broker.close()
    broker = open_broker(tmp_path, log_retention_ms="5000")
    log = broker.services.replicas.find("t", 0).log
    assert (log.config.retention_ms, broker.services.config.max_connections) == (1000, 9)
    assert alter(broker, BROKER, "1", ("log.retention.ms", DELETE, None)) == (0, "")
    assert log.config.retention_ms == 2000
    assert replace(broker, BROKER, "") == 0
    assert log.config.retention_ms == 5000
    assert describe(broker, BROKER, "1")["max.connections"].value == "9"


def test_a_list_of_the_broker_grows_and_shrinks(broker: SteeredNode) -> None:
    assert alter(broker, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == (0, "")
    assert describe(broker, BROKER, "1")["log.cleanup.policy"].value == "delete,compact"
    assert alter(broker, BROKER, "1", ("log.cleanup.policy", SUBTRACT, "delete")) == (0, "")
    assert describe(broker, BROKER, "1")["log.cleanup.policy"].value == "compact"


def test_what_is_only_tried_changes_nothing(broker: SteeredNode) -> None:
    assert alter(broker, BROKER, "1", ("max.connections", SET, "9"), validate_only=True) == (0, "")
    assert describe(broker, BROKER, "1")["max.connections"].config_source == 5


def test_keys_that_plog_does_not_know_are_kept_and_not_shown(
    broker: SteeredNode, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka, which takes them for a plugin's, and what they hold for a secret."""
    assert alter(broker, BROKER, "1", ("num.io.threads", SET, "7")) == (0, "")
    assert "num.io.threads is not known to plog" in caplog.text
    kept = describe(broker, BROKER, "1")["num.io.threads"]
    assert (kept.value, kept.is_sensitive, kept.config_source) == (None, True, 2)
    assert broker.services.image.configs[ConfigResourceType.BROKER, "1"] == {"num.io.threads": "7"}


@for_each("name", ["", "1"])
@for_each(
    "key, value",
    [
        ("max.connection.creation.rate", "10"),
        ("max.connections.per.ip.overrides", "10.0.0.1:5"),
        ("listener.name.plaintext.max.connections", "5"),
        ("client.quota.callback.class", "a.Quotas"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
    ],
)
def test_guards_that_plog_can_not_obey_are_refused(broker: SteeredNode, name: str, key: str, value: str) -> None:
    """A broker that finds them among its settings does not start."""
    code, message = alter(broker, BROKER, name, (key, SET, value))
    assert (code, f"can't obey {key}" in message) == (INVALID_REQUEST, True)
    assert replace(broker, BROKER, name, **{key.replace(".", "_"): value}) == INVALID_REQUEST
    assert key not in describe(broker, BROKER, name)


def test_the_authorizer_is_no_dynamic_setting(broker: SteeredNode) -> None:
    found = alter(broker, BROKER, "1", ("authorizer.class.name", SET, "a.Authorizer"))
    assert found == (INVALID_REQUEST, "Cannot update these configs dynamically: [authorizer.class.name]")


def test_what_another_kafka_wrote_is_in_force_as_far_as_plog_knows_it(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    written = {"min.insync.replicas": "2", "listeners": "SSL://x:1", "log.retention.ms": "soon", "nope": "1"}
    broker.services.controller.set_configs(ConfigResourceType.BROKER, "", written)
    broker.close()
    broker = open_broker(tmp_path)
    add_topic(broker)
    config = broker.services.replicas.find("t", 0).log.config
    assert (config.min_insync_replicas, config.retention_ms) == (2, 7 * 24 * 3600 * 1000)
    assert not broker.services.config.served_listeners
    assert alter(broker, BROKER, "", ("log.retention.ms", SET, "5")) == (0, "")
    assert broker.services.replicas.find("t", 0).log.config.retention_ms == 5


# --- groups


def test_a_group_has_settings_of_its_own(broker: SteeredNode) -> None:
    broker.runtime.use(schedule=Timers())
    assert alter(broker, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")) == (0, "")
    add_topic(broker)

    def heartbeat(group: str) -> int:
        request = ConsumerGroupHeartbeatRequest(
            group, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        return ask(broker, CONSUMER_GROUP_HEARTBEAT, request).heartbeat_interval_ms

    assert (heartbeat("g"), heartbeat("other")) == (6000, 5000)
    configs = describe(broker, GROUP, "g")
    assert found(configs["consumer.heartbeat.interval.ms"]) == [
        ("consumer.heartbeat.interval.ms", "6000", 8),
        ("group.consumer.heartbeat.interval.ms", "5000", 5),
    ]
    assert configs["consumer.session.timeout.ms"].value == "45000"
    assert replace(broker, GROUP, "g", consumer_session_timeout_ms="50000") == 0
    assert broker.services.group_log.session_timeout_ms("g") == 50000
    assert heartbeat("g") == 5000


def test_settings_of_groups_that_another_kafka_wrote_are_left_alone(broker: SteeredNode) -> None:
    written = {"share.session.timeout.ms": "50000", "consumer.session.timeout.ms": "1"}
    broker.services.configs.set(GROUP, "g", written)
    assert alter(broker, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000")) == (0, "")
    assert broker.services.image.configs[GROUP, "g"] == {**written, "consumer.heartbeat.interval.ms": "6000"}
    assert alter(broker, GROUP, "g", ("share.session.timeout.ms", SET, "1"))[0] == INVALID_CONFIG


# --- client metrics


def test_subscriptions_of_client_metrics_are_kept(broker: SteeredNode) -> None:
    changes: list[Change] = [("interval.ms", SET, "1000"), ("match", SET, "client_id=a.*"), ("metrics", SET, "org.")]
    assert alter(broker, METRICS, "m", *changes) == (0, "")
    assert {c.name: (c.value, c.config_source) for c in describe(broker, METRICS, "m").values()} == {
        "interval.ms": ("1000", 7),
        "match": ("client_id=a.*", 7),
        "metrics": ("org.", 7),
    }
    assert {c.name: c.value for c in describe(broker, METRICS, "other").values()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }


# --- loggers


@pytest.fixture
def levels() -> Iterator[None]:
    names = [None, *(name for name in logging.root.manager.loggerDict if name.startswith("plog"))]
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("levels")
def test_levels_of_loggers(broker: SteeredNode) -> None:
    logger = logging.getLogger("plog.connection")
    assert alter(broker, LOGGER, "1", ("root", SET, "warn"), ("plog.connection", SET, "DEBUG")) == (0, "")
    assert (logging.getLogger().level, logger.level) == (logging.WARNING, logging.DEBUG)
    described = describe(broker, LOGGER, "1")
    assert (described["plog.connection"].value, described["plog.connection"].config_source) == ("DEBUG", 6)
    assert described["plog.broker"].value == "WARN"
    assert alter(broker, LOGGER, "1", ("plog.connection", DELETE, None)) == (0, "")
    assert logger.getEffectiveLevel() == logging.WARNING
    code, message = alter(broker, LOGGER, "1", ("root", SET, "LOUD"))
    assert (code, "LOUD" in message) == (INVALID_CONFIG, True)
    words = "APPEND operation is not allowed for the BROKER_LOGGER resource"
    assert alter(broker, LOGGER, "1", ("plog.connection", APPEND, "INFO")) == (INVALID_REQUEST, words)
    assert replace(broker, LOGGER, "1", root="INFO") == INVALID_REQUEST


@for_each(
    "name, message",
    [
        ("2", "Unexpected broker id, expected 1 but received 2"),
        ("x", "Broker id must be an integer, but it is: x"),
        ("", "Broker id must not be empty"),
    ],
)
def test_a_broker_tells_the_levels_of_its_own_loggers_alone(broker: SteeredNode, name: str, message: str) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(LOGGER, name, None)])
    (result,) = ask(broker, DESCRIBE_CONFIGS, request).results
    assert (result.error_code, result.error_message, result.configs) == (INVALID_REQUEST, message, [])


# --- all


def test_what_has_settings_is_listed(broker: SteeredNode) -> None:
    add_topic(broker)
    broker.services.configs.set(ConfigResourceType.GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"retention.ms": "1"})
    alter(broker, METRICS, "m", ("interval.ms", SET, "1000"))

    def listed(*types: int, version: int = 1) -> list[tuple[int, str]]:
        answer = ask(broker, LIST_CONFIG_RESOURCES, ListConfigResourcesRequest(list(types)), version)
        assert answer.error_code == 0
        return sorted((r.resource_type, r.resource_name) for r in answer.config_resources)

    everything = [(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
    assert listed() == listed(TOPIC, BROKER, LOGGER, METRICS, GROUP) == everything
    assert (listed(GROUP), listed(TOPIC)) == ([(GROUP, "g")], [(TOPIC, "t")])
    assert listed(version=0) == [(METRICS, "m")]
    alter(broker, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None))
    assert listed(GROUP) == []
    unknown = ask(broker, LIST_CONFIG_RESOURCES, ListConfigResourcesRequest([99]))
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_log_that_is_made_later_forgets_producers_as_it_is_set_then(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    broker = open_broker(tmp_path, clock)
    assert alter(broker, BROKER, "", ("producer.id.expiration.ms", SET, "1000000")) == (0, "")
    add_topic(broker, retention_ms="-1")
    assert produce(broker, make_batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)).error_code == 0
    producers = broker.services.replicas.find("t", 0).log.producers
    for _ in range(2):
        clock.advance(600_000)
        broker.housekeeping.step()
        assert producers.find(7) is not None
    clock.advance(600_000)
    broker.housekeeping.step()
    assert producers.find(7) is None
