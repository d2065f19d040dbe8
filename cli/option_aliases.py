"""Other names of options: those that Kafka's tools, kcat and rpk have for the same thing. Help shows the main names.
`SETTINGS` has those that are settings of Kafka's clients, as `-X acks=1` has them.

There are two kinds. `EVERYWHERE` and `OF_COMMAND` have the names that are taken as one of ours: a command that has the
option takes its other names too, unless it has an option of that name itself. `HINTS`, `COMMANDS_MEANT` and the rest
have those that are refused with a line that says what to type. `cli/plog_command.py` obeys both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

Targets = list[tuple[str, str]]
"""Which of our options (by its main name) or arguments (by its parameter's name) get which values."""

Convert = Callable[[str], Targets]

EVERYWHERE: Mapping[str, tuple[str, ...]] = {
    "--bootstrap-server": ("--bootstrap-servers", "--broker-list", "--brokers"),
    "--command-config": ("--consumer.config", "--producer.config"),
    "--command-property": ("--consumer-property", "--producer-property"),
    "--apply": ("--execute",),
    "--max-messages": ("-n", "--num", "--messages"),
    "--max-records": ("-n", "--max-messages"),
    "--num-records": ("-n", "--messages", "--max-messages"),
    "--partition": ("-p",),
    "--partitions": ("-p",),
    "--from": ("-o", "--offset"),
    "--offset": ("-o",),
    "--key": ("-k",),
    "--compression": ("-z", "--compression-codec"),
    "--acks": ("--request-required-acks",),
    "--isolation": ("--isolation-level",),
    "--report": ("--output",),
    "--commit-group": ("--group",),
}


def _to(target: str, split: Callable[[str], list[str]] = lambda value: [value]) -> Convert:
    """Gives what makes of a name's value the values of one of our options or arguments."""
    return lambda value: [(target, one) for one in split(value)]


def split_settings(text: str) -> list[str]:
    """Splits what `kafka-configs --add-config` takes into KEY=VALUE: `a=1,b=[x,y]` is `a=1` and `b=x,y`."""
    pieces, depth, start = [], 0, 0
    for position, letter in enumerate(f"{text},"):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            pieces.append(text[start:position].strip())
            start = position + 1
    return [_without_brackets(piece) for piece in pieces if piece]


def _without_brackets(setting: str) -> str:
    key, separator, value = setting.partition("=")
    return f"{key}{separator}{value[1:-1] if value.startswith('[') and value.endswith(']') else value}"


def _entity_type(text: str) -> list[str]:
    """Kafka writes `topics` where plog has `topic`; client-metrics has its s in both."""
    return [text if text == "client-metrics" else text.removesuffix("s")]


def _resource(kind: str) -> Convert:
    """Names one thing: `kafka-configs --topic t` means `--entity-type topics --entity-name t`."""
    return lambda name: [("kind", kind), ("name", name)]


_RESOURCE: Mapping[str, Convert] = {
    "--entity-type": _to("kind", _entity_type),
    "--entity-name": _to("name"),
    **{f"--{kind}": _resource(kind) for kind in ("topic", "broker", "broker-logger", "client-metrics", "group")},
}

OF_COMMAND: Mapping[str, Mapping[str, Convert]] = {
    "topic create": {
        "--topic": _to("name"), "-c": _to("--set"), "--topic-config": _to("--set"),
        "-r": _to("--replication-factor"), "--replicas": _to("--replication-factor"),
    },
    "topic describe": {"--topic": _to("names")},
    "topic alter": {
        "--topic": _to("name"), "--add-config": _to("--set", split_settings),
        "--delete-config": _to("--unset", lambda text: text.split(",")),
    },
    "topic delete": {"--topic": _to("names")},
    "topic delete-records": {"--topic": _to("name"), "--offset": _to("--before"), "-o": _to("--before")},
    "produce": {"--topic": _to("topic")},
    "consume": {"--topic": _to("topics"), "--output": _to("--format"), "-g": _to("--group")},
    "group describe": {"--group": _to("groups")},
    "group reset-offsets": {"--group": _to("group"), "--topics": _to("--topic", lambda text: text.split(","))},
    "group delete": {"--group": _to("groups")},
    "group delete-offsets": {"--group": _to("group")},
    "transaction list": {"--transactional-id-pattern": _to("--pattern")},
    "transaction describe": {"--transactional-id": _to("transactional_ids")},
    "transaction abort": {"--transactional-id": _to("transactional_id")},
    "config list": {"--entity-type": _to("kind", _entity_type)},
    "config describe": _RESOURCE,
    "config alter": {
        **_RESOURCE,
        "--add-config": _to("--set", split_settings),
        "--delete-config": _to("--unset", lambda text: text.split(",")),
    },
    "cluster elect": {"--topic": _to("names")},
    "cluster reassign": {"--reassignment-json-file": _to("--plan")},
    "perf produce": {"--topic": _to("topic")},
    "perf consume": {"--topic": _to("topic")},
    "perf latency": {"--topic": _to("topic")},
    "serve": {"--override": _to("--set")},
    "spark-replay": {"--topic": _to("topics")},
}  # fmt: skip

_FORMAT = r"--format is value, json, or a pattern: --format '%k %s\n'"
_KEYS = "lines with keys: --key-separator S, or --key-field F of JSON (plog help produce)"
_NAME_TOPIC = "plog consume TOPIC"
_LISTEN = "did you mean --listen HOST:PORT?"

HINTS: Mapping[str, Mapping[str, str]] = {
    "": {
        "-b": "did you mean --bootstrap-server?",
        "-F": "did you mean --command-config?",
        "--zookeeper": "did you mean --bootstrap-server?",
        "-C": _NAME_TOPIC,
        "-P": "plog produce TOPIC",
        "-L": "plog topic list, or plog cluster status",
        "-Q": "plog consume TOPIC --from TIME --max-messages 1 --format '%o\\n'",
        "-G": "plog consume TOPIC --group GROUP",
        "-e": "reading stops at the end anyway; --follow goes on",
        "-J": "did you mean --format json?",
        "--format": "did you mean --output?",
        "--json": "did you mean --output json?",
    },
    "topic": {"-t": "the topic is named without an option: plog topic describe TOPIC"},
    "topic describe": dict.fromkeys(
        ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"),
        "plog cluster topics counts them, plog cluster status names them",
    ),
    "cluster elect": {
        "--election-type": "did you mean --preferred, or --unclean?",
        "--all-topic-partitions": "without names all partitions of the cluster are meant",
        "--path-to-json-file": "the partitions are named without a file: plog cluster elect --preferred flights:0,2",
    },
    "cluster features": {
        "--feature": "did you mean --upgrade FEATURE=LEVEL, or --downgrade?",
        "--metadata": "did you mean --upgrade metadata.version=LEVEL?",
        "--release-version": "--upgrade all takes the highest levels that all brokers support",
    },
    "cluster start": {"--release-version": "did you mean --feature FEATURE=LEVEL, or --feature none?"},
    "cluster reassign": {
        "--list": "did you mean --status?",
        "--verify": "did you mean --status?",
        "--generate": "did you mean --dry-run?",
        "--topics-to-move-json-file": "did you mean --topics?",
        "--disable-rack-aware": "racks count before balance; --plan takes a plan of your own",
        "--replica-alter-log-dirs-throttle": "plog does not move replicas between the directories of a broker",
    },
    "topic list": {
        "--topic": "plog topic describe TOPIC",
        "--exclude-internal": "they are left out anyway; --internal lists them",
        "-i": "did you mean --internal?",
    },
    "topic delete-records": {"--offset-json-file": "plog topic delete-records TOPIC --before OFFSET --partition N"},
    "produce": {
        "-t": "the topic is named without an option: plog produce TOPIC",
        "-k": _KEYS,
        "--key": _KEYS,
        "--property": _KEYS,
        "--reader-property": _KEYS,
        "--line-reader": "--format lines, json, raw, csv, or --template PATTERN",
        "-l": "a file's lines are records: plog produce TOPIC FILE",
        "-Z": "did you mean --null-value ''?",
        "--tombstone": "did you mean --null-value ''?",
        "-f": "did you mean --template?",
        "--timeout": "did you mean --linger?",
        "--throughput": "did you mean --rate?",
        "--allow-auto-topic-creation": "the broker makes topics unless --no-create is given",
    },
    "consume": {
        "-t": f"the topic is named without an option: {_NAME_TOPIC}",
        **dict.fromkeys(("-c", "--count", "--limit", "--max-records"), "did you mean --max-messages (-n)?"),
        "-K": r"did you mean --format '%k:%s\n'?",
        "-D": "did you mean --format '%s;'?",
        "-O": r"did you mean --format '%o %s\n'?",
        "-Z": "did you mean --format json?",
        "-s": "did you mean --schema-registry?",
        "--use-schema-registry": "did you mean --schema-registry URL?",
        "--formatter": _FORMAT,
        "--formatter-property": _FORMAT,
        "--property": _FORMAT,
        "--pretty-print": _FORMAT,
        "--meta-only": r"did you mean --format '%t %p %o %k\n'?",
        "--key-deserializer": _FORMAT,
        "--value-deserializer": _FORMAT,
        "--include": "plog consume --regex REGEX",
        "--whitelist": "plog consume --regex REGEX",
        "--skip-message-on-error": "did you mean --no-exit-on-error?",
    },
    "group describe": {
        "--all-groups": "plog group list --output csv names them; plog group describe takes several",
        "--offsets": "offsets are what it shows; --members shows the members",
        "--state": "the line above the table says it",
        "--verbose": "did you mean --members?",
    },
    "group reset-offsets": {
        "--all-groups": "one group at a time: plog group reset-offsets GROUP",
        "--to": "did you mean --to-earliest, --to-latest, --to-offset or --to-datetime?",
        "--export": "did you mean --output csv?",
    },
    "transaction list": {"--duration-filter": "did you mean --longer-than SECONDS?"},
    "transaction find-hanging": {
        "--broker-id": "every broker is asked; --topic names topics",
        "--partition": "every partition is looked at; --topic names topics",
    },
    "config": {"--entity-default": "the defaults of all brokers: plog config describe broker, without a name"},
    "dump-segment": {
        "--key-decoder-class": "did you mean --key-format?",
        "--value-decoder-class": "did you mean --value-format?",
    },
    "perf": {
        "--producer-props": "plog's own options, or -X KEY=VALUE for how the cluster is reached",
        "--show-detailed-stats": "did you mean --output json?",
    },
    "serve": {
        "--bootstrap-server": _LISTEN,
        **dict.fromkeys(("--port", "-p", "--host", "--listeners", "--address"), _LISTEN),
        "--log-dirs": "did you mean --data-dir?",
    },
}
"""What to do instead of an option that does not exist: of a command, of the first word of it, of any."""

_OF_KAFKA: Mapping[str, str] = {
    "topics": "plog topic",
    "console-consumer": _NAME_TOPIC,
    "console-producer": "plog produce TOPIC",
    "consumer-groups": "plog group",
    "groups": "plog group list",
    "configs": "plog config",
    "dump-log": "plog dump-segment PATH",
    "get-offsets": "plog topic describe TOPIC",
    "delete-records": "plog topic delete-records TOPIC --before OFFSET",
    "transactions": "plog transaction",
    "producer-perf-test": "plog perf produce TOPIC",
    "consumer-perf-test": "plog perf consume TOPIC",
    "e2e-latency": "plog perf latency TOPIC",
    "metadata-quorum": "plog cluster status",
    "features": "plog cluster features",
    "broker-api-versions": "plog cluster status --api-versions",
    "log-dirs": "plog cluster brokers, or plog topic describe TOPIC",
    "replica-verification": "plog cluster describe TOPIC",
    "server-start": "plog serve",
}

COMMANDS_MEANT: Mapping[str, Mapping[str, str]] = {
    "": {
        **_OF_KAFKA,
        **{f"kafka-{name}{end}": meant for name, meant in _OF_KAFKA.items() for end in ("", ".sh")},
        "txn": "plog transaction",
        "metadata": "plog cluster status",
        "start": "plog serve",
        "version": "plog --version",
    },
    "topic": {
        "trim-prefix": "plog topic delete-records TOPIC --before OFFSET",
        "add-partitions": "plog topic alter TOPIC --partitions N",
        "alter-config": "plog topic alter TOPIC --set KEY=VALUE",
        "describe-storage": "plog topic describe TOPIC",
        "analyze": "plog stats PATH",
        "consume": _NAME_TOPIC,
        "produce": "plog produce TOPIC",
    },
    "group": {
        "seek": "plog group reset-offsets GROUP --to-earliest",
        "offset-delete": "plog group delete-offsets GROUP --topic TOPIC",
    },
    "transaction": {"describe-producers": "plog transaction find-hanging --all", "ls": "plog transaction list"},
    "config": {"get": "plog config describe TYPE NAME", "set": "plog config alter TYPE NAME --set KEY=VALUE"},
    "cluster": {
        **dict.fromkeys(("info", "health", "metadata", "ls"), "plog cluster status"),
        **dict.fromkeys(("partitions", "replicas"), "plog cluster describe TOPIC-N"),
        "logdirs": "plog cluster brokers",
        **dict.fromkeys(("upgrade", "downgrade"), "plog cluster features --upgrade, or --downgrade"),
    },
}
"""Names of commands of other tools, in the groups of ours where people look for them."""

FLAG = ""
"""What stands for the value of an option that takes none."""

_READING = ("consume", "perf consume", "perf latency", "spark-replay", "gaps")
_WRITING = ("produce", "perf produce", "perf latency", "spark-replay")


class Setting(NamedTuple):
    """A setting of Kafka's clients that changes which records are read or written."""

    commands: Collection[str]
    """Those that it means something to; to others it is one that changes nothing."""
    option: str = ""
    """The option that does it. A command without that option refuses the setting."""
    values: Mapping[str, str] | Callable[[str], str | None] | None = None
    """The option's value for each of the setting's; None if they are the same."""
    harmless: Collection[str] = ()
    """Values that ask for what happens anyway."""
    default: str = ""
    """The value that asks for what a command without the option does."""
    hint: str = ""
    only_tunes: bool = False
    """Whether a command without the option may do as if it were not there."""


def _ago(text: str) -> str | None:
    """Makes `-9000s` of Kafka's `by_duration:PT2H30M` (KIP-1106)."""
    found = _BY_DURATION.fullmatch(text)
    if found is None:
        return {"earliest": "beginning", "smallest": "beginning", "beginning": "beginning"}.get(
            text, "end" if text in ("latest", "largest", "end") else None
        )
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return f"-{days * 86400 + hours * 3600 + minutes * 60 + seconds:.3f}s"


_BY_DURATION = re.compile(r"by_duration:p(?:([\d.]+)d)?(?:t(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?)?", re.IGNORECASE)


def _number(text: str) -> str | None:
    return text if text.isdecimal() else None


def _by_class(**values: str) -> Callable[[str], str | None]:
    """Reads the name of a Java class, with or without its package, or such a value itself."""
    return lambda text: values.get(text.rpartition(".")[2], text if text in values.values() else None)


_ACKS = Setting(_WRITING, "--acks", {"0": "0", "1": "1", "all": "all", "-1": "all"}, default="all")
_CODEC = Setting(
    _WRITING, "--compression", {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}, default="none"
)
_START = Setting(_READING, "--from", _ago, default="beginning", hint="--from OFFSET, beginning, end or TIME")
_COMMITS = Setting(
    _READING, harmless=("true",), hint="without --group nothing is committed; --commit says when it is, with --group"
)
_BYTES = ("StringSerializer", "ByteArraySerializer", "StringDeserializer", "ByteArrayDeserializer")
_AS_BYTES = tuple(f"{package}{name}" for name in _BYTES for package in ("", "org.apache.kafka.common.serialization."))
_NUMBERS = {name: name.lower() for name in ("Long", "Double", "Float", "Short")} | {"Integer": "int", "UUID": "uuid"}


def _codec_of(side: str) -> dict[str, Setting]:
    """Gives what turns keys, or values, into bytes and back; options for both are those of the command's."""
    hint = f"bytes are taken as they are; --{side}-format, or --schema-registry URL, if the command has it"
    classes = {f"{kind}{end}": name for kind, name in _NUMBERS.items() for end in ("Serializer", "Deserializer")}
    return {
        f"{side}.{what}": Setting(commands, f"--{side}-format", _by_class(**classes), _AS_BYTES, hint=hint)
        for what, commands in (("deserializer", _READING), ("serializer", _WRITING))
    }


_NO_SHARE_GROUPS = Setting(_READING, hint="plog reads in consumer groups (--group), and has no share groups")
_INTERCEPTORS = Setting((*_READING, *_WRITING), hint="plog runs no interceptors: leave it out")

SETTINGS: Mapping[str, Setting] = {
    "acks": _ACKS,
    "request.required.acks": _ACKS,
    "enable.idempotence": Setting(_WRITING, "--acks", {"true": "all"}, ("false",)),
    "compression.type": _CODEC,
    "compression.codec": _CODEC,
    "transactional.id": Setting(_WRITING, "--transactional-id", hint="plog produce --transactional-id ID"),
    "transaction.timeout.ms": Setting(_WRITING, "--transaction-timeout-ms", _number, only_tunes=True),
    "transaction.two.phase.commit.enable": Setting(
        _WRITING, harmless=("false",), hint="a transaction of plog's ends with the command: --transactional-id ID"
    ),
    "batch.size": Setting(_WRITING, "--batch-size", _number, only_tunes=True),
    "linger.ms": Setting(_WRITING, "--linger", only_tunes=True),
    "queue.buffering.max.ms": Setting(_WRITING, "--linger", only_tunes=True),
    "partitioner": Setting(_WRITING, "--partitioner", hint="plog produce --partitioner NAME"),
    "partitioner.class": Setting(
        _WRITING,
        "--partitioner",
        _by_class(RoundRobinPartitioner="round_robin", DefaultPartitioner="murmur2", UniformStickyPartitioner="sticky"),
        hint="--partitioner NAME, or module:function in Python",
    ),
    "partitioner.ignore.keys": Setting(
        _WRITING, "--partitioner", {"true": "sticky"}, ("false",), hint="plog produce --partitioner sticky"
    ),
    "allow.auto.create.topics": Setting(
        _WRITING, "--no-create", {"false": FLAG}, ("true",), hint="plog produce --no-create"
    ),
    "queuing.strategy": Setting(_WRITING, harmless=("fifo",), hint="records are sent in the order of the input"),
    "group.id": Setting(_READING, "--group", hint="plog consume --group GROUP"),
    "group.instance.id": Setting(_READING, "--group-instance-id", hint="plog consume --group-instance-id ID"),
    "group.protocol": Setting(
        _READING, "--group-protocol", {"classic": "classic", "consumer": "consumer"}, hint="--group-protocol NAME"
    ),
    "group.remote.assignor": Setting(_READING, harmless=("uniform",), hint="the coordinator chooses: leave it out"),
    "partition.assignment.strategy": Setting(
        _READING,
        harmless=("range", "range,roundrobin", "org.apache.kafka.clients.consumer.RangeAssignor"),
        hint="members of plog's offer range and roundrobin: leave it out",
    ),
    "auto.offset.reset": _START,
    "isolation.level": Setting(
        _READING,
        "--isolation",
        {name: name for name in ("read_committed", "read_uncommitted")},
        default="read_uncommitted",
        hint="plog consume --isolation LEVEL",
    ),
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": Setting(_READING, harmless=("broker",), hint="--group keeps offsets on the brokers"),
    "offset.store.path": Setting(_READING, hint="--group keeps offsets on the brokers"),
    "check.crcs": Setting(_READING, harmless=("true",), hint="every batch is checked; --no-exit-on-error reads on"),
    "exclude.internal.topics": Setting(
        _READING, harmless=("true",), hint="name the topic: plog consume __consumer_offsets"
    ),
    "topic.blacklist": Setting(_READING, hint="name the topics, or use --regex with a pattern that leaves it out"),
    "share.acknowledgement.mode": _NO_SHARE_GROUPS,
    "share.acquire.mode": _NO_SHARE_GROUPS,
    "interceptor.classes": _INTERCEPTORS,
    "plugin.library.paths": _INTERCEPTORS,
    "bootstrap.controllers": Setting((), hint="brokers are asked: --bootstrap-server HOST:PORT"),
    "schema.registry.url": Setting(
        (*_READING, *_WRITING), "--schema-registry", hint="plog consume --schema-registry URL"
    ),
    **_codec_of("key"),
    **_codec_of("value"),
}
"""By their names. All others that Kafka's clients have only tune, or are of how the cluster is reached."""


def other_names(path: str, own: Collection[str]) -> dict[str, str | Convert]:
    """Gives the names that a command takes besides its own: the option that each is, or what becomes of its value."""
    found: dict[str, str | Convert] = {}
    for main, names in EVERYWHERE.items():
        if main in own:
            for name in names:
                if name not in own:
                    found.setdefault(name, main)
    return {**found, **OF_COMMAND.get(path, {})}


_OF_EVERY_SERVER = ("--bootstrap-server", "--command-config", "--command-property")
"""Names that every server's options have: they stand once in the documents, not with each command."""


def names_by_meaning(path: str, own: Collection[str]) -> dict[str, list[str]]:
    """Gives, for people, the other names by what they mean: an option's main name or an argument's parameter."""
    found: dict[str, list[str]] = {}
    for name, meant in other_names(path, own).items():
        targets = [meant] if isinstance(meant, str) else [target for target, _ in meant("x")]
        if targets[-1] not in _OF_EVERY_SERVER:
            found.setdefault(targets[-1], []).append(name)
    return found


def hint_of(path: str, option: str) -> str | None:
    """Finds what `HINTS` has of an option for the command."""
    for where in (path, path.split(" ")[0], ""):
        if option in HINTS.get(where, {}):
            return HINTS[where][option]
    return None
