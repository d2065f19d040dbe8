"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, and the configs of CreateTopics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.answers.asked_broker import AskedBroker
from tests.support.answers.message_codec import Fields
from tests.support.answers.scenarios.registry import scenario
from tests.support.answers.scenarios.topics import SET_ON_THE_TOPIC, create, new_topic

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

TOPIC_CONFIGS = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "internal.segment.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
    "message.format.version",
    "message.downconversion.enable",
    "message.timestamp.difference.max.ms",
    "Retention.ms",
]
VALUES = (
    "", "-1", "0", "1", "-2", "abc", "true", "TRUE", " 1 ", "1.5", "0.5", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "delete", "compact", "compact,delete", "delete,compact,delete",
    " compact , delete ", "none", "*", "0:1", "producer", "gzip", "zstd", "CreateTime", "LogAppendTime", "createtime",
    "4.3", "3.0-IV1", "1000000", "14", "1048576", "[]", None,
)  # fmt: skip


@scenario
def values_of_topic_configs(broker: AskedBroker) -> None:
    """Each value for each key: the error, and what is then set."""
    for key in TOPIC_CONFIGS:
        broker.keep(key, {str(value): _created_with(broker, key, value) for value in VALUES}, "CreateTopics", 7)


def _created_with(broker: AskedBroker, key: str, value: str | None) -> Any:
    asked = new_topic("config-values", configs=[(key, value)])
    topic = broker.query("CreateTopics", Topics=[asked], validateOnly=True, timeoutMs=5000)["Topics"][0]
    if topic["ErrorCode"]:
        return topic["ErrorCode"]
    return [config["Value"] for config in topic["Configs"] if config["ConfigSource"] == SET_ON_THE_TOPIC]


@scenario
def pairs_of_topic_configs(broker: AskedBroker) -> None:
    for step, configs in {
        "a key twice": [("retention.ms", "1"), ("retention.ms", "2")],
        "a key twice, the same value": [("retention.ms", "1"), ("retention.ms", "1")],
        "an unknown key": [("nope", "1")],
        "an unknown key, null": [("nope", None)],
        "an empty key": [("", "1")],
        "local time more than the whole": [("local.retention.ms", "100"), ("retention.ms", "50")],
        "local bytes more than the whole": [("local.retention.bytes", "100"), ("retention.bytes", "50")],
        "local bytes less than the whole": [("local.retention.bytes", "10"), ("retention.bytes", "50")],
        "remote and compacted": [("remote.storage.enable", "true"), ("cleanup.policy", "compact")],
        "least lag more than most": [("min.compaction.lag.ms", "100"), ("max.compaction.lag.ms", "50")],
        "jitter more than the time": [("segment.ms", "10"), ("segment.jitter.ms", "50")],
        "two replicas in sync": [("min.insync.replicas", "2")],
    }.items():
        create(broker, step, new_topic("config-pairs", configs=configs), versions=(2, 5, 7), validate=True)


@scenario
def describe_topic_configs(broker: AskedBroker) -> None:
    topic = broker.create_topic("described", retention_ms="5000", cleanup_policy="compact,delete").name

    def ask(step: str, keys: list[str] | None, versions: Iterable[int] = (1, 4), **fields: Any) -> None:
        resources = [{"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": keys}]
        broker.ask_each(step, "DescribeConfigs", versions, Resources=resources, **fields)

    ask("all", None, (1, 2, 3, 4))
    ask("all with synonyms and documentation", None, IncludeSynonyms=True, IncludeDocumentation=True)
    ask("some", ["retention.ms", "nope", "segment.bytes"], IncludeSynonyms=True)
    ask("a key twice", ["retention.ms", "retention.ms"])
    ask("unknown", ["nope"])
    ask("empty", [""])
    every = [{"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": []}]
    broker.ask("no keys", "DescribeConfigs", Resources=every, pick=_kafkas_names)
    for name in ("", "no-such-topic", "a b", ".."):
        unknown = [{"ResourceType": TOPIC, "ResourceName": name, "ConfigurationKeys": None}]
        broker.ask_each(f"topic {name!r}", "DescribeConfigs", (1, 4), Resources=unknown)
    for name in ("__consumer_offsets", "__transaction_state"):
        keys = ["cleanup.policy", "compression.type", "segment.bytes", "min.insync.replicas"]
        internal = [{"ResourceType": TOPIC, "ResourceName": name, "ConfigurationKeys": keys}]
        broker.ask(f"topic {name}", "DescribeConfigs", Resources=internal, IncludeSynonyms=True)
    twice = [{"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": ["retention.ms"]}] * 2
    broker.ask("a topic twice", "DescribeConfigs", Resources=twice)
    broker.ask_each("none", "DescribeConfigs", Resources=[])
    for kind in (0, 1, 3, 5, LOGGER, CLIENT_METRICS, 64, -1):
        odd = [{"ResourceType": kind, "ResourceName": "x", "ConfigurationKeys": ["a"]}]
        broker.ask(f"type {kind}", "DescribeConfigs", Resources=odd)


def _kafkas_names(answer: Fields) -> list[str]:
    names = [config["Name"] for config in answer["Results"][0]["Configs"]]
    return [name for name in names if not name.startswith("plog.")]


@scenario
def describe_broker_configs(broker: AskedBroker) -> None:
    me = str(broker.id)
    keys = [
        "num.partitions",
        "log.retention.hours",
        "message.max.bytes",
        "auto.create.topics.enable",
        "compression.type",
        "log.cleaner.threads",
        "nope",
        "group.initial.rebalance.delay.ms",
        "offsets.retention.minutes",
        "log.segment.bytes",
        "transaction.max.timeout.ms",
        "num.io.threads",
        "broker.id",
        "node.id",
        "log.dir",
        "log.dirs",
    ]

    def nameless(answer: Fields) -> Any:
        return [{**result, "ResourceName": "", "Configs": _pathless(result["Configs"])} for result in answer["Results"]]

    for name in (me, "", "99", "abc", "-1"):
        resources = [{"ResourceType": BROKER, "ResourceName": name, "ConfigurationKeys": keys}]
        step = "itself" if name == me else f"broker {name!r}"
        broker.ask(step, "DescribeConfigs", Resources=resources, IncludeSynonyms=True, pick=nameless)
    for name in ("group", ""):
        resources = [{"ResourceType": GROUP, "ResourceName": name, "ConfigurationKeys": None}]
        step = f"group {name!r}"
        broker.ask_each(step, "DescribeConfigs", (1, 4), Resources=resources, IncludeSynonyms=True, pick=_as_started)


def _as_started(answer: Fields) -> Fields:
    """Without the key that Kafka is started with, so that nobody has to wait (`brokers.py`)."""
    (result,) = answer["Results"]
    return {
        **result,
        "Configs": [each for each in result["Configs"] if each["Name"] != "consumer.assignment.interval.ms"],
    }


def _pathless(configs: list[Fields]) -> list[Fields]:
    """Where each broker has its directory is not compared."""
    return [{**config, "Value": "<path>", "Synonyms": []} if "dir" in config["Name"] else config for config in configs]


def change(
    broker: AskedBroker,
    step: str,
    kind: int,
    name: str,
    *operations: tuple[str, int, str | None],
    version: int = 1,
    validate: bool = True,
) -> None:
    configs = [{"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in operations]
    resources = [{"ResourceType": kind, "ResourceName": name, "Configs": configs}]

    def error(answer: Fields) -> Fields:
        return {**answer["Responses"][0], "ResourceName": ""}

    broker.ask(step, "IncrementalAlterConfigs", version, Resources=resources, ValidateOnly=validate, pick=error)


def show_set(broker: AskedBroker, step: str, topic: str) -> None:
    """The configs that are set on a topic."""

    def is_set(answer: Fields) -> Any:
        configs = answer["Results"][0]["Configs"]
        return {config["Name"]: config["Value"] for config in configs if config["ConfigSource"] == SET_ON_THE_TOPIC}

    broker.wait_until_applied()
    resources = [{"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": None}]
    broker.ask(step, "DescribeConfigs", Resources=resources, pick=is_set)


LISTENER_CONFIGS = {
    "ssl.keystore.location": "/x",
    "ssl.key.password": "x",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "ssl.protocol": "TLSv1.2",
    "ssl.principal.mapping.rules": "DEFAULT",
    "ssl.allow.dn.changes": "true",
    "sasl.jaas.config": "x",
    "sasl.server.max.receive.size": "5",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "security.inter.broker.protocol": "SSL",
    "connections.max.reauth.ms": "5",
    "connection.failed.authentication.delay.ms": "5",
    "listener.name.nope.ssl.keystore.location": "/x",
    "listener.name.NOPE.ssl.key.password": "x",
    "listener.name.nope.ssl.client.auth": "none",
    "listener.name.nope.ssl.enabled.protocols": "TLSv1.2",
    "listener.name.nope.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.nope.plain.sasl.jaas.config": "x",
    "listener.name.nope.plain.connections.max.reauth.ms": "5",
    "listener.name.nope.connections.max.reauth.ms": "x",
    "listener.name.nope.ssl.allow.dn.changes": "maybe",
}


@scenario
def change_listener_configs(broker: AskedBroker) -> None:
    """What a listener asks of its clients, and is no listener of these brokers."""
    me = str(broker.id)
    for key, value in LISTENER_CONFIGS.items():
        for name in (me, ""):
            change(broker, f"{'its own' if name else 'of all'}, {key}={value}", BROKER, name, (key, SET, value))
    kept = [(key, SET, value) for key, value in LISTENER_CONFIGS.items() if "nope.ssl" in key or ".jaas" in key]
    kept = [each for each in kept if each[0].startswith("listener.") and each[2] != "maybe"]
    change(broker, "keep some", BROKER, me, *kept, validate=False)
    broker.wait_until_applied()
    keys = [*(key for key, _, _ in kept), *(key for key in LISTENER_CONFIGS if not key.startswith("listener."))]
    resources = [{"ResourceType": BROKER, "ResourceName": me, "ConfigurationKeys": keys}]

    def nameless(answer: Fields) -> Any:
        return [{**result, "ResourceName": ""} for result in answer["Results"]]

    broker.ask("then", "DescribeConfigs", Resources=resources, IncludeSynonyms=True, pick=nameless)
    change(broker, "forget them", BROKER, me, *((key, DELETE, None) for key, _, _ in kept), validate=False)


@scenario
def change_topic_configs(broker: AskedBroker) -> None:
    topic = broker.create_topic("changed").name
    keys = ("cleanup.policy", "retention.ms", "nope", "compression.type", "min.insync.replicas")
    for operation in (SET, DELETE, APPEND, SUBTRACT):
        for key in (*keys, "leader.replication.throttled.replicas"):
            for value in ("compact", "delete", "", None, "100", "0:1", "compact,delete", "a,b"):
                change(broker, f"operation {operation}, {key}={value}", TOPIC, topic, (key, operation, value))
    for operation in (4, -1):
        change(broker, f"operation {operation}", TOPIC, topic, ("retention.ms", operation, "100"))
    throttled = "leader.replication.throttled.replicas"
    policy, time = "cleanup.policy", "retention.ms"
    for step, operations in {
        "set": [(time, SET, "100"), (policy, SET, "compact")],
        "append": [(policy, APPEND, "delete")],
        "append what is there": [(policy, APPEND, "delete")],
        "subtract": [(policy, SUBTRACT, "compact")],
        "subtract what is not there": [(policy, SUBTRACT, "compact")],
        "subtract the last": [(policy, SUBTRACT, "delete")],
        "delete": [(time, DELETE, None)],
        "delete what is not set": [("segment.ms", DELETE, None)],
        "append null": [(policy, APPEND, None)],
        "a key twice": [(time, SET, "1"), (time, SET, "2")],
        "set and delete": [(time, SET, "1"), (time, DELETE, None)],
        "good and bad": [(time, SET, "33"), ("segment.bytes", SET, "x")],
        "nothing": [],
        "append replicas": [(throttled, APPEND, "0:1,1:1")],
        "append other replicas": [(throttled, APPEND, "0:1,2:1")],
        "set to nothing": [(policy, SET, "")],
    }.items():
        for version in (0, 1):
            change(broker, step, TOPIC, topic, *operations, version=version, validate=False)
        show_set(broker, f"{step}: then", topic)
    one = {"ResourceType": TOPIC, "ResourceName": topic}
    same = {**one, "Configs": [{"Name": time, "ConfigOperation": SET, "Value": "9"}]}
    broker.ask("a topic twice", "IncrementalAlterConfigs", Resources=[same, same])
    show_set(broker, "a topic twice: then", topic)
    for operation, value in ((SET, "x"), (APPEND, "1")):
        change(broker, f"an unknown topic, operation {operation}", TOPIC, "no-such-topic", (time, operation, value))
    change(broker, "not appended to, and null", TOPIC, topic, (time, APPEND, "1"), (policy, SET, None))
    for kind, name in (
        (TOPIC, ""), (TOPIC, "no-such-topic"), (TOPIC, "a b"), (TOPIC, "__consumer_offsets"), (0, "x"), (1, "x"),
        (3, "x"), (64, "x"), (LOGGER, "x"), (BROKER, "abc"), (BROKER, "99"), (BROKER, "-1"), (GROUP, ""),
        (GROUP, "group"), (CLIENT_METRICS, ""), (CLIENT_METRICS, "m1"),
    ):  # fmt: skip
        change(broker, f"type {kind}, name {name!r}", kind, name, (time, SET, "100"))
        change(broker, f"type {kind}, name {name!r}, nothing", kind, name)


@scenario
def replace_topic_configs(broker: AskedBroker) -> None:
    topic = broker.create_topic("replaced").name

    def ask(step: str, kind: int, name: str, configs: list[tuple[str, str | None]], *, validate: bool) -> None:
        settings = [{"Name": key, "Value": value} for key, value in configs]
        resources = [{"ResourceType": kind, "ResourceName": name, "Configs": settings}]
        broker.ask_each(step, "AlterConfigs", (0, 2), Resources=resources, ValidateOnly=validate)

    for step, configs in {
        "set": [("retention.ms", "100"), ("cleanup.policy", "compact")],
        "replace": [("segment.ms", "100")],
        "null": [("retention.ms", None)],
        "clear": [],
        "unknown": [("nope", "1")],
        "bad": [("retention.ms", "x")],
        "a key twice": [("retention.ms", "1"), ("retention.ms", "2")],
        "empty": [("cleanup.policy", "")],
    }.items():
        ask(f"{step}, to validate", TOPIC, topic, configs, validate=True)
        ask(step, TOPIC, topic, configs, validate=False)
        show_set(broker, f"{step}: then", topic)
    for kind, name in (
        (TOPIC, ""), (TOPIC, "no-such-topic"), (TOPIC, "a b"), (0, "x"), (1, "x"), (3, "x"), (64, "x"), (LOGGER, "x"),
        (BROKER, "abc"), (BROKER, "99"), (GROUP, ""), (GROUP, "group"), (CLIENT_METRICS, ""),
    ):  # fmt: skip
        ask(f"type {kind}, name {name!r}", kind, name, [("retention.ms", "1")], validate=True)
    ask("a null value of an invalid topic", TOPIC, "a b", [("retention.ms", None)], validate=True)
    ask("a bad value of an unknown topic", TOPIC, "no-such-topic", [("retention.ms", "x")], validate=True)


@scenario
def change_broker_configs(broker: AskedBroker) -> None:
    me = str(broker.id)
    for whose, name in (("its own", me), ("the default", "")):
        for setting in (
            "log.retention.ms=100000", "log.retention.ms=-2", "log.retention.ms=x", "log.retention.hours=5",
            "num.partitions=7", "message.max.bytes=2000000", "message.max.bytes=-1", "log.cleaner.threads=2",
            "log.cleaner.threads=9", "compression.type=zstd", "compression.type=nope", "nope=1", "node.id=3",
            "log.dirs=/x", "advertised.listeners=PLAINTEXT://x:1", "group.consumer.session.timeout.ms=50000",
            "min.insync.replicas=1", "log.cleanup.policy=compact", "unclean.leader.election.enable=true",
            "auto.create.topics.enable=false", "max.connections=5", "retention.ms=5", "background.threads=4",
            "num.io.threads=2", "message.timestamp.type=x", "log.message.timestamp.type=LogAppendTime",
        ):  # fmt: skip
            key, _, value = setting.partition("=")
            for operation in (SET, DELETE, APPEND):
                step = f"{whose}, operation {operation}, {setting}"
                change(broker, step, BROKER, name, (key, operation, value))
    topic = broker.create_topic("of-the-broker").name
    asked = [{"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": ["segment.bytes"]}]
    for step, name, operation, value in (
        ("a default is set", "", SET, "123456789"),
        ("its own is set", me, SET, "223456789"),
        ("the default is deleted", "", DELETE, None),
        ("its own is deleted", me, DELETE, None),
    ):
        change(broker, step, BROKER, name, ("log.segment.bytes", operation, value), validate=False)
        broker.wait_until_applied()
        broker.ask(f"{step}: a topic has", "DescribeConfigs", Resources=asked, IncludeSynonyms=True)


@scenario
def group_configs(broker: AskedBroker) -> None:
    group = "with-configs"
    for key in (
        "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "share.session.timeout.ms",
        "share.auto.offset.reset", "streams.num.standby.replicas", "consumer.assignment.interval.ms", "nope",
    ):  # fmt: skip
        for value in ("", "-1", "0", "1", "abc", "5000", "45000", "100000", "60000", "6000", "latest", "15000"):
            change(broker, f"{key}={value}", GROUP, group, (key, SET, value))
    setting = "consumer.session.timeout.ms"
    change(broker, "is set", GROUP, group, (setting, SET, "50000"), validate=False)
    broker.wait_until_applied()
    keys = [setting, "consumer.heartbeat.interval.ms"]
    resources = [{"ResourceType": GROUP, "ResourceName": group, "ConfigurationKeys": keys}]
    broker.ask("is described", "DescribeConfigs", Resources=resources, IncludeSynonyms=True)

    def topicless(answer: Fields) -> Fields:
        found = answer["ConfigResources"]
        return {**answer, "ConfigResources": [each for each in found if each.get("ResourceType") != TOPIC]}

    for kinds in ([], [TOPIC], [BROKER], [GROUP], [CLIENT_METRICS], [LOGGER], [TOPIC, BROKER], [99], [1], [0]):
        broker.ask(f"resources of types {kinds}", "ListConfigResources", ResourceTypes=kinds, pick=topicless)
    broker.ask("resources", "ListConfigResources", 0)
    change(broker, "is deleted", GROUP, group, (setting, DELETE, None), validate=False)
    broker.wait_until_applied()
    broker.ask("no group has any", "ListConfigResources", ResourceTypes=[GROUP])
