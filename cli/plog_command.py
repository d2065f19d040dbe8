"""The class of every command and of every group of them: it knows other names of options, and the user's own defaults.

Other names are those that Kafka's tools, kcat and rpk have for the same thing; help shows the main names. `EVERYWHERE`
and `OF_COMMAND` have the names that stand for one of ours: a command that has the option takes its other names too,
unless it has an option of that name itself. `FLAGS` has such names without a value, and `IDLE` those that change
nothing. `SETTINGS` has those that are settings of Kafka's clients, as `-X acks=1` has them. `cli/other_tools.py` has
names that are refused, with what to type instead.

Defaults stand in `config.toml` in the platform's folder for settings, `plog/` (or `PLOG_CONFIG`):

    [default]                           # of every command that has the option
    bootstrap-server = "broker:9092"

    [profile.prod.consume]              # of one command, with plog --profile prod

The command line, and environment variables, win. The file is checked as a whole, so that nothing in it is passed over:
UsageError names a section or an option that no command has.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial, wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from cli.security_options import level_of
from cli.terminal import say
from cli.typer_internals import NoSuchOption, OptionParser, ParsingState
from core.common.errors import UsageError
from core.common.printable import did_you_mean

Targets = list[tuple[str, str]]
"""Which of our options (by its main name) or arguments (by its parameter's name) get which values."""

Convert = Callable[[str], Targets]

EVERYWHERE: Mapping[str, tuple[str, ...]] = {
    "--bootstrap-server": ("--bootstrap-servers", "--broker-list", "--brokers", "-b"),
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
    "--instance": ("--group-instance-id",),
}


def _to(target: str, split: Callable[[str], list[str]] = lambda value: [value]) -> Convert:
    """Returns a function that turns a name's value into the values of one of our options or arguments."""
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


def _place(text: str) -> Targets:
    """Reads kcat's -o, which may be a time to begin or to end at: s@MS and e@MS."""
    if text == "stored":
        raise UsageError("-o stored: a group's offsets are where it goes on", hint="plog consume TOPIC --group GROUP")
    if text in ("json", "yaml", "table"):
        raise UsageError(f"-o {text}: -o is --from", hint="did you mean --format json?")
    edge = {"s@": "--from", "e@": "--until"}.get(text[:2])
    return [("--from", text) if edge is None else (edge, f"@{text[2:]}")]


def _without_brackets(setting: str) -> str:
    key, separator, value = setting.partition("=")
    return f"{key}{separator}{value[1:-1] if value.startswith('[') and value.endswith(']') else value}"


def _entity_type(text: str) -> list[str]:
    """Kafka writes `topics`, and plog `topic`; client-metrics has its s in both."""
    return [text if text == "client-metrics" else text.removesuffix("s")]


def _resource(kind: str) -> Convert:
    """Returns a function that reads `--topic t` of `kafka-configs` as `--entity-type topics --entity-name t`."""
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
    "produce": {
        "--topic": _to("topic"), "-t": _to("topic"),
    },
    "consume": {
        "--topic": _to("topics"), "-t": _to("topics"), "--output": _to("--format"), "-g": _to("--group"),
        "-c": _to("--max-messages"), "-o": _place, "--tail": _to("--last"),
        **{name: lambda text: [("topics", text), ("--regex", FLAG)] for name in ("--include", "--whitelist")},
    },
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

AT_THE_END = "-e"
FLAGS: Mapping[str, Mapping[str, Targets]] = {
    "consume": {"-J": [("--format", "json")], **{name: [] for name in ("-C", AT_THE_END, "-q", "-u")}},
    "produce": {"-Z": [("--null-value", "")], **{name: [] for name in ("-P", "-l", "--sync")}},
    "group describe": {"--offsets": []},
    "acl remove": {"--force": [("--yes", "")]},
}
"""Names without a value, and what they stand for; nothing if plog does so anyway."""

IDLE: Mapping[str, tuple[str, ...]] = {
    "produce": (
        "--request-timeout-ms", "--max-block-ms", "--message-send-max-retries", "--retry-backoff-ms",
        "--metadata-expiry-ms", "--max-memory-bytes", "--max-partition-memory-bytes", "--socket-buffer-size",
    ),
}  # fmt: skip
"""Names with a value that tune another client, and change nothing here; a note says so."""

FLAG = ""
"""The value of an option that takes none."""

_READING = ("consume", "perf consume", "perf latency", "spark-replay", "gaps")
_WRITING = ("produce", "perf produce", "perf latency", "spark-replay")


class Setting(NamedTuple):
    """A setting of Kafka's clients that affects which records are read or written."""

    commands: Collection[str]
    """The commands on which it has an effect."""
    option: str = ""
    """The equivalent option. A command without that option refuses the setting."""
    values: Mapping[str, str] | Callable[[str], str | None] | None = None
    """The option's value for each of the setting's; None if they are the same."""
    harmless: Collection[str] = ()
    """Values that ask for the default behaviour."""
    default: str = ""
    """The value that asks for the behaviour of a command without the option."""
    hint: str = ""
    only_tunes: bool = False
    """Whether a command without the option may ignore the setting."""


def _ago(text: str) -> str | None:
    """Converts Kafka's `by_duration:PT2H30M` to `-9000s` (KIP-1106)."""
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
    """Returns the settings that turn keys, or values, into bytes and back; the command has options for both."""
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
"""By their names. All other settings of Kafka's clients only tune, or are about connections."""


def other_names(path: str, own: Collection[str]) -> dict[str, str | Convert]:
    """Returns the names that a command accepts besides its own: for each, the option, or the function for its value."""
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
    """Returns, for people, the other names by their meaning: an option's main name or an argument's parameter."""
    found: dict[str, list[str]] = {}
    for name, meant in other_names(path, own).items():
        targets = [meant] if isinstance(meant, str) else [target for target, _ in meant("x")]
        if targets[-1] not in _OF_EVERY_SERVER:
            found.setdefault(targets[-1], []).append(name)
    for name, fixed in FLAGS.get(path, {}).items():
        found.setdefault(" ".join(f"{option} {value or repr(value)}" for option, value in fixed), []).append(name)
    return found


_WIDTH = 76
_IS_APPLIED = "plog.is_applied"
_FLAG = "plog.flag."


class PlogCommand(TyperCommand):
    def make_parser(self, ctx: Any) -> OptionParser:
        parser = _Parser(ctx)
        for parameter in self.get_params(ctx):
            parameter.add_to_parser(parser, ctx)
        parser.add_other_names(_path(ctx))
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except NoSuchOption as error:
            raise _no_such_option(ctx, error.option_name, words) from error
        _ensure_text(ctx)
        _choose_end(ctx)
        _choose_apply(ctx)
        return rest


class PlogGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
            _ensure_text(ctx)
            return rest
        except NoSuchOption as error:
            meant = next((word for word in words if word.startswith("--") and word[2:] in self.commands), None)
            if meant is None:
                raise _no_such_option(ctx, error.option_name, words) from error
            words.remove(meant)
            hint = f"{ctx.command_path} {shlex.join([meant[2:], *words])}"
            raise UsageError(f"{ctx.command_path} has no {error.option_name}", hint=hint) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            name = args[0]
            from cli.other_tools import COMMANDS_MEANT, line_of_tool

            line = None if _path(ctx) else line_of_tool(args, known)
            hint = line or COMMANDS_MEANT.get(_path(ctx), {}).get(name) or did_you_mean(name, known)
            raise UsageError(f"no such command {name!r}", hint=hint or f"{ctx.command_path} --help lists the commands")
        return super().resolve_command(ctx, args)


def _ensure_text(ctx: Any) -> None:
    """Raises UsageError for a word that is not UTF-8: only paths, and keys, may be any bytes."""
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name)
        if parameter.name == "key" or str(parameter.metavar or "").startswith(("PATH", "FILE")):
            continue
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not text.isascii() and _SURROGATE.search(text):
                is_option = parameter.param_type_name == "option"
                name = parameter.opts[0] if is_option else argument_title(parameter)
                raise UsageError(
                    f"{name} {text!r}: it is no UTF-8", hint="LC_ALL=C.UTF-8, in a terminal that is set to it"
                )


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Python's characters for bytes of the command line that are not UTF-8."""


def _no_such_option(ctx: Any, name: str, words: Sequence[str]) -> UsageError:
    from cli.other_tools import line_of_command

    return UsageError(f"{ctx.command_path} has no {name}", hint=line_of_command(_path(ctx), words) or _hint(ctx, name))


def _hint(ctx: Any, name: str) -> str:
    from cli.other_tools import hint_of

    known = set(_long_names(ctx))
    hint = hint_of(_path(ctx), name)
    meant = _MEANT_OPTION.match(hint or "")
    if meant is not None and meant[1] not in known:  # which other commands have
        hint = None
    if hint is None and name.startswith("--"):
        hint = did_you_mean(name[2:], (option[2:] for option in known))
        hint = hint and hint.replace("mean ", "mean --", 1)
    return hint or f"{ctx.command_path} --help"


_MEANT_OPTION = re.compile(r"did you mean (--[a-z-]+)")


def _long_names(ctx: Any) -> Iterator[str]:
    own = option_names(ctx.command)
    return (name for name in (*own, *other_names(_path(ctx), own)) if name.startswith("--"))


def leaf_commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields a command by its words, or, if it is a group, each command below it."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, one in below.items():
        yield from leaf_commands(one, f"{path} {name}")


def option_names(command: Any) -> set[str]:
    options = (parameter for parameter in command.params if parameter.param_type_name == "option")
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def argument_title(argument: Any) -> str:
    """Returns the argument's name as help shows it, without brackets and dots."""
    return str(argument.metavar or argument.name.upper()).strip("[].")


def other_names_text(command: Any, path: str) -> str | None:
    """Returns the line of a command's help about other names, with their meanings, or None."""
    arguments = {p.name: argument_title(p) for p in command.params if p.param_type_name == "argument"}
    pieces = [
        f"{' '.join(names)} ({arguments.get(meant, meant or 'plog does so anyway')})"
        for meant, names in names_by_meaning(path, option_names(command)).items()
    ]
    text = textwrap.fill(f"Other names: {', '.join(pieces)}", _WIDTH, break_on_hyphens=False)
    return f"\b\n{text}" if pieces else None


def _path(ctx: Any) -> str:
    return " ".join(ctx.command_path.split(" ")[1:])


# --- the names that are taken


class _Parser(OptionParser):
    """Accepts the other names. Values for arguments go to their usual place; owned by one task."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self._named: list[tuple[int, str]] = []
        """Values for arguments by name: (number of the argument, its value)."""
        self._settings = _TypedSettings(_path(ctx))

    def add_other_names(self, path: str) -> None:
        if "-X" in self._short_opt:
            self._settings.option = self._short_opt["-X"]
            self._short_opt["-X"] = self._long_opt["--command-property"] = self._settings  # type: ignore[assignment]
        own = {**self._short_opt, **self._long_opt}
        for name, meant in other_names(path, own).items():
            self._add(name, own[meant] if isinstance(meant, str) else _OtherName(partial(self._give, meant)))
        for name, fixed in FLAGS.get(path, {}).items():
            self._add(name, _OtherName(partial(self._note_flag, name, fixed), takes_value=False))
        for name in IDLE.get(path, ()):
            self._add(name, _OtherName(partial(_say_idle, name)))
        if "--dry-run" in own and "--apply" not in own:
            for name in ("--apply", "--execute"):  # the command's default
                self._add(name, _OtherName(self._note_applied, takes_value=False))

    def _give(self, convert: Convert, value: str, state: ParsingState) -> None:
        """Passes the value to the options, and to the arguments by their parameters' names, that it stands for."""
        for target, one in convert(value):
            if target.startswith("-"):
                option = self._long_opt[target]
                option.process(one if option.takes_value else None, state)
            else:
                number = next(n for n, argument in enumerate(self._args) if argument.dest == target)
                self._named.append((number, one))

    def _note_flag(self, name: str, fixed: Targets, _value: None, state: ParsingState) -> None:
        assert self.ctx is not None
        self.ctx.meta[f"{_FLAG}{name}"] = True
        if name == "-J":
            say("note: -J is --format json, whose fields have plog's names (plog help kcat)")
        self._give(lambda _: fixed, "", state)

    def _note_applied(self, _value: None, _state: ParsingState) -> None:
        assert self.ctx is not None
        self.ctx.meta[_IS_APPLIED] = True

    def _add(self, name: str, option: Any) -> None:
        (self._long_opt if name.startswith("--") else self._short_opt)[name] = option

    def _process_args_for_args(self, state: ParsingState) -> None:
        if self.ctx is None or not self.ctx.resilient_parsing:
            self._settings.act(self._long_opt, state)
        named: set[int] = set()
        for number, value in sorted(self._named, key=lambda one: one[0]):
            takes_all = self._args[number].nargs == -1
            if number in named and not takes_all:  # or one of them would be taken for the argument after it
                title = argument_title(self._args[number].obj)
                raise UsageError(f"{title} is given more than once", hint="give it once")
            named.add(number)
            state.largs.insert(len(state.largs) if takes_all else number, value)
        super()._process_args_for_args(state)


class _OtherName(NamedTuple):
    """One of the other names, in the place of an option; `process` gets its value, None without one."""

    process: Callable[[Any, ParsingState], None]
    takes_value: bool = True

    @property
    def nargs(self) -> int:
        return int(self.takes_value)


def _say_idle(name: str, _value: str, _state: ParsingState) -> None:
    say(f"note: {name} changes nothing here")


class _TypedSettings:
    """`-X KEY=VALUE` on the command line of one command, where `SETTINGS` act. In a file, which other tools share, they
    are ignored. Owned by one task.
    """

    takes_value = True
    nargs = 1

    def __init__(self, path: str) -> None:
        self.option: Any = None  # the option -X itself, which keeps all that is of the connection
        self._path = path
        self._typed: list[str] = []

    def process(self, value: str, state: ParsingState) -> None:
        self._typed.append(value)
        self.option.process(value, state)

    def act(self, options: Mapping[str, Any], state: ParsingState) -> None:
        """Passes the values to the equivalent options, and reports these, and settings without effect. Raises
        UsageError for a setting that the command does not support, and for one that contradicts an option.
        """
        if not self._typed:
            return
        from core.security.client_settings import canonical_name, is_passed_over

        idle, taken = [], []
        for text in self._typed:
            given, separator, value = text.partition("=")
            if not separator:
                continue  # the reader of the settings refuses it
            name = canonical_name(given.strip())
            setting = SETTINGS.get(name)
            if setting is None or (setting.commands and self._path not in setting.commands):
                if is_passed_over(name):
                    idle.append(given.strip())
                continue
            option = options.get(setting.option)
            value = _resolved(given, value.strip())
            is_default = option is None and value.lower() == setting.default
            if is_default or value in setting.harmless or value.lower() in setting.harmless:
                idle.append(given.strip())
            elif option is not None:
                found = _value_of(setting, given.strip(), value)
                self._give(f"{given.strip()}={value}", found, setting, option, state)
                taken.append(f"{given.strip()} is {setting.option} {found}".strip())
            elif setting.only_tunes:
                idle.append(given.strip())
            else:
                raise UsageError(f"{given.strip()}={value}: plog {self._path} has no option for it", hint=setting.hint)
        if taken:
            say(f"note: {', '.join(taken)}")
        if idle:
            say(f"note: {', '.join(dict.fromkeys(idle))} {'change' if len(idle) > 1 else 'changes'} nothing here")

    def _give(self, text: str, value: str, setting: Setting, option: Any, state: ParsingState) -> None:
        there = state.opts.get(option.dest)
        if there is None:
            option.process(None if value == FLAG else value, state)
        elif value != FLAG and there != value:
            raise UsageError(f"{setting.option} {there} and {text} are both set, and differ", hint="say one of them")


def _resolved(name: str, value: str) -> str:
    """Replaces references in the value, as ${env:NAME}."""
    if "${" not in value:
        return value
    from core.client.net.client_config_files import replace_references

    return replace_references({name: value}, "-X")[name]


def _value_of(setting: Setting, name: str, value: str) -> str:
    """Returns the option's value for that value of the setting. Raises UsageError if there is no such value."""
    values = setting.values
    if values is None:
        found: str | None = value
    else:
        found = values(value) if callable(values) else values.get(value.lower())
    if found is None or not value:
        one_of = None if values is None or callable(values) else f"one of {', '.join((*values, *setting.harmless))}"
        raise UsageError(f"{name}={value}: plog does not support that", hint=setting.hint or one_of)
    return found


def _choose_end(ctx: Any) -> None:
    """Lets a typed -e win over --follow of config.toml. Raises UsageError if it contradicts what was typed."""
    if not ctx.meta.get(f"{_FLAG}{AT_THE_END}", False):
        return
    if ctx.params.get("follow") and level_of(ctx, "follow") > 0:
        ctx.params["follow"] = False
    for name in ("follow", "group"):
        if ctx.params.get(name):
            raise UsageError(
                f"{AT_THE_END} stops at the end, and --{name} goes on there",
                hint="--timeout-ms MS stops when no record has come for this time",
            )


def _choose_apply(ctx: Any) -> None:
    """Chooses the one of --apply and --dry-run that is nearer to the command. Raises UsageError if both are as near."""
    is_applied = ctx.meta.get(_IS_APPLIED, False)
    if not (is_applied or ctx.params.get("apply")) or not ctx.params.get("dry_run"):
        return
    of_apply, of_dry_run = 0 if is_applied else level_of(ctx, "apply"), level_of(ctx, "dry_run")
    if of_apply == of_dry_run:
        raise UsageError("--apply and --dry-run contradict each other", hint="say one of them")
    ctx.params["dry_run" if of_apply < of_dry_run else "apply"] = False


Function = Callable[..., None]


def new_app(text: str | None = None, example: str = "") -> typer.Typer:
    """Returns an app for one command, or, with a text about them, for a group of commands."""
    help_ = _with_examples(text, example) if text else None
    return typer.Typer(
        cls=PlogGroup, rich_markup_mode=None, add_completion=False, no_args_is_help=text is not None, help=help_
    )


def _with_examples(text: str, *examples: str) -> str:
    return "\n".join([cleandoc(text), "", "\b", "Example:", *(f"  {example}" for example in examples)])


def command(app: typer.Typer, *examples: str, name: str | None = None) -> Callable[[Function], Function]:
    """Makes the function a command of the app, with the options that its parameters declare
    (`core/common/command_option.py`). Its help is the docstring, and the examples.

    A parameter whose type is a dataclass stands for those of its fields that are options, and is given the dataclass;
    `Annotated[type, names]` leaves the fields of these names out.
    """

    def register(function: Function) -> Function:
        hints = get_type_hints(function, include_extras=True)
        parameters: list[Parameter] = []
        groups: dict[str, tuple[Any, list[Parameter]]] = {}
        for one, given in signature(function).parameters.items():
            type_, more = get_args(hints[one]) if get_origin(hints[one]) is Annotated else (hints[one], ())
            own = _fields(type_, more)
            if own is not None:
                groups[one] = type_, own
            parameters += [_parameter(one, hints[one], given.default)] if own is None else own

        def call(**values: Any) -> None:
            for one, (type_, fields_) in groups.items():
                given = {field.name: values.pop(field.name) for field in fields_}
                values[one] = type_(**{name: value for name, value in given.items() if value is not None})
            function(**values)

        made: Any = wraps(function)(call) if groups else function
        made.__signature__ = Signature(parameters)
        made.__annotations__ = {one.name: one.annotation for one in parameters}
        help_ = _with_examples(function.__doc__ or "", *examples) if examples else None
        app.command(name, cls=PlogCommand, help=help_)(made)
        return function

    return register


@cache
def _fields(group: Any, left_out: tuple[str, ...]) -> list[Parameter] | None:
    """Returns the fields of a dataclass that are options, each as typer takes it; None if it is no dataclass."""
    if not is_dataclass(group):
        return None
    hints = get_type_hints(group, include_extras=True)
    return [
        _parameter(field.name, hints[field.name], field)
        for field in fields(group)
        if field.name not in left_out and field.metadata
    ]


def _parameter(name: str, type_: Any, declared: Field[Any]) -> Parameter:
    from cli.data_location import PLACES, choose_place  # which plog --help does not need

    option, default = declared.metadata["option"], declared.default
    more = {"callback": choose_place, **option.more} if name in PLACES else dict(option.more)
    if "completes" in more:
        from cli import completion

        more["autocompletion"] = getattr(completion, f"complete_{more.pop('completes')}")
    if get_origin(type_) is Sequence:
        type_ = list[get_args(type_)[0]]  # type: ignore[misc]
    value = ... if default is MISSING else None if default == () else default
    names = option.names
    if not any(one.startswith("--") for one in names):
        names = (f"--{name.strip('_').replace('_', '-')}", *names)
    if option.is_argument:
        made = typer.Argument(value, help=option.text, **more)
    else:
        made = typer.Option(value, *names, help=option.text, **more)
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=type_, default=made)


PLOG_CONFIG = "PLOG_CONFIG"
_BEFORE_THE_COMMAND = frozenset({"max-expansion"})
"""Options of `plog` itself that `[default]` may have."""


def config_path() -> Path | None:
    """Returns None if `PLOG_CONFIG` is empty. Raises UsageError if it names a missing file."""
    if PLOG_CONFIG in os.environ:
        name = os.environ[PLOG_CONFIG]
        if name and not Path(name).exists():
            raise UsageError(f"{PLOG_CONFIG}: there is no {name}", hint=f"{PLOG_CONFIG}= (empty) goes without")
        return Path(name) if name else None
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "plog" / "config.toml"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "plog" / "config.toml"


@cache
def _load(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error


def apply_config(command: Any, name: str, profile: str | None) -> None:
    """Replaces the defaults of the command and those below it by the file's values."""
    tables = _tables(config_path(), profile)
    for path, one in leaf_commands(command, name):
        options = _options(one)
        for title, table in tables:
            _set(options, table.get("default", {}), f"{title}default")
            found: Any = table
            for word in path.split():
                found = found.get(word, {})
            _set(options, found, f"{title}{path.replace(' ', '.')}")


def ensure_config(commands: Iterable[str], load: Callable[[str], Any]) -> None:
    """Raises UsageError for names that no command has, in any section. `load` returns a command by its name."""
    for title, table in _all_tables(config_path()):
        for name, values in table.items():
            section = f"[{title}{name}]"
            if not isinstance(values, dict):
                where = f"{config_path()}: {f'[{title[:-1]}] ' if title else ''}{name}"
                raise UsageError(f"{where}: it is in no section, expected [{title}default] or a command's above it")
            if name == "default":
                unknown, known = set(values) - _BEFORE_THE_COMMAND, set(_BEFORE_THE_COMMAND)
                for command in commands:
                    if unknown:  # or that command need not be imported
                        known |= {name for _, one in leaf_commands(load(command), "") for name in _options(one)}
                        unknown -= known
                if unknown:
                    what, hint = min(unknown), did_you_mean(min(unknown), known)
                    raise UsageError(f"{config_path()}: {section} {what}: no command has --{what}", hint=hint)
            elif name in commands:
                _ensure_section(load(name), [name], values, title)
            elif title or name != "profile":
                hint = did_you_mean(name, [*commands, "default"])
                raise UsageError(f"{config_path()}: {section}: there is no such command", hint=hint)


def _ensure_section(command: Any, path: list[str], values: Any, title: str) -> None:
    section, words = f"[{title}{'.'.join(path)}]", " ".join(path)
    below = getattr(command, "commands", None)
    for name in _keys(values, section):
        if below is None and name not in _options(command):
            hint = did_you_mean(name, _options(command))
            raise UsageError(f"{config_path()}: {section} {name}: plog {words} has no --{name}", hint=hint)
        if below is not None and name not in below:
            hint = did_you_mean(name, below)
            raise UsageError(f"{config_path()}: {section} {name}: there is no plog {words} {name}", hint=hint)
        if below is not None:
            _ensure_section(below[name], [*path, name], values[name], title)


def _keys(values: Any, section: str) -> set[str]:
    if not isinstance(values, dict):
        raise UsageError(f"{config_path()}: {section}: expected a section, found {values!r}")
    return set(values)


def find_default(name: str, profile: str | None) -> str | None:
    """Returns the default in `[default]` of an option that stands before the command, as text, or None."""
    values = [table.get("default", {}).get(name) for _, table in _tables(config_path(), profile)]
    return next((str(value) for value in reversed(values) if value is not None), None)


def _tables(file: Path | None, profile: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Returns the file's tables, and the profile's, which win, each with the prefix of its sections' names; [] without
    a file. Raises UsageError for an unknown profile.
    """
    if file is None or not file.exists():
        if profile is not None:
            raise UsageError(f"--profile {profile}: there is no {file or 'file, PLOG_CONFIG is empty'}")
        return []
    tables = [("", _load(file))]
    if profile is not None:
        profiles = tables[0][1].get("profile", {})
        if profile not in profiles:
            hint = did_you_mean(profile, profiles) or f"{file} has {', '.join(profiles) or 'none'}"
            raise UsageError(f"--profile {profile}: there is none", hint=hint)
        if not isinstance(profiles[profile], dict):
            raise UsageError(f"{file}: profile.{profile} is no section, expected [profile.{profile}.default]")
        tables.append((f"profile.{profile}.", profiles[profile]))
    return tables


def _all_tables(file: Path | None) -> list[tuple[str, dict[str, Any]]]:
    """Returns the file's tables as `_tables` does, with those of every profile."""
    tables = _tables(file, None)
    profiles = tables[0][1].get("profile", {}) if tables else {}
    if not isinstance(profiles, dict):
        raise UsageError(f"{file}: profile: expected sections, as [profile.NAME.default]")
    return tables + [table for name in profiles for table in _tables(file, name)[1:]]


def _options(command: Any) -> dict[str, Any]:
    options = {}
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("--"):
                options[name.removeprefix("--")] = parameter
    return options


def _set(options: Mapping[str, Any], values: Mapping[str, Any], section: str) -> None:
    for name, value in values.items():
        parameter = options.get(name)
        if parameter is not None:
            if name == "command-config" and isinstance(value, str):
                value = _beside_the_file(value)
            parameter.default = _as_default(value, parameter)
            parameter.config_section = section


def _beside_the_file(name: str) -> str:
    """Makes a relative path relative to config.toml's folder, wherever the command runs."""
    file = config_path()
    assert file is not None
    return str(file.absolute().parent / Path(name).expanduser())


def _as_default(value: Any, parameter: Any) -> Any:
    if parameter.multiple:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else str(value)
