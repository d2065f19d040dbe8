"""What to type instead of an option, a command, or a whole line of another tool, which plog refuses: hints.

`HINTS` and `COMMANDS_MEANT` are about single words, and have their texts from other_tools.toml; a line of kcat's or of
one of Kafka's tools is translated whole. A line that uses what plog has no option for has no translation; then its
first word has a hint. The options are those of kcat's `usage()` (kcat.c, 1.7), and of the `--help` of Kafka's tools.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from getopt import GetoptError, gnu_getopt
from pathlib import Path

_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _by_name(advice: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: text for text, names in advice.items() for name in names}


HINTS: Mapping[str, Mapping[str, str]] = {path: _by_name(advice) for path, advice in _TEXTS["option"].items()}
"""Advice for an option that does not exist: of a command, of its first word, of any."""

OF_KAFKA: Mapping[str, str] = _by_name(_TEXTS["tool"]["kafka"])
"""Kafka's tools by their names without `kafka-` and `.sh` -> what plog has for them, if the line says no more."""

COMMANDS_MEANT: Mapping[str, dict[str, str]] = {path: _by_name(advice) for path, advice in _TEXTS["command"].items()}
"""Names of commands of other tools, in the groups of ours where people look for them."""

COMMANDS_MEANT[""].update(
    {name: meant for name, meant in OF_KAFKA.items() if name != "cluster"}
    | {f"kafka-{name}{end}": meant for name, meant in OF_KAFKA.items() for end in ("", ".sh")}
    | {f"{name}{end}": meant for name, meant in _by_name(_TEXTS["tool"]["other"]).items() for end in ("", ".sh")}
)


def hint_of(path: str, option: str) -> str | None:
    """Returns the hint of `HINTS` for an option of the command, or None."""
    for where in (path, path.split(" ")[0], ""):
        if option in HINTS.get(where, {}):
            return HINTS[where][option]
    return None


# --- kcat

_KCAT_OPTIONS = "PCG:LQM:t:p:b:z:o:eED:K:k:H:Od:qvF:X:c:Tuf:ZlVhs:r:Jm:U"
_KCAT_LONG = ["list-modules", "version", "help"]
_NEEDLESS = set("CPLQGeqvudmU")
"""kcat's options that say what plog does anyway, that choose the command, or that are about talk and waiting."""
_PACKED = {"s": None, "i": "int", "q": "long", "h": "short", ">i": "int", ">q": "long", ">h": "short"}
"""Kcat's packing of one number -> the format of a key or a value; None for bytes as they are."""


class _UntranslatableError(Exception):
    """Plog has no option for a part of the line."""


def kcat_line(words: Sequence[str]) -> str | None:
    """Returns the command of plog for kcat's options, or None if plog has no option for one of them."""
    try:
        given, others = gnu_getopt(list(words), _KCAT_OPTIONS, _KCAT_LONG)
        head, line = _KcatLine(given, others).translate()
        return f"{head}plog {line}"
    except (GetoptError, _UntranslatableError):
        return None


class _KcatLine:
    def __init__(self, given: list[tuple[str, str]], others: list[str]) -> None:
        self._given = [(name[1:], value) for name, value in given if len(name) == 2]
        self._names = {name for name, _ in self._given}
        self._others = others

    def translate(self) -> tuple[str, str]:
        """Returns what stands before plog's command, and the command."""
        is_consumer = "C" in self._names or ("P" not in self._names and sys.stdin.isatty())
        if self._names & set("VMLQG"):
            return "", self._other()
        return ("", self._consume()) if is_consumer else self._produce()

    def _other(self) -> str:
        if "V" in self._names:
            return "--version"
        if "M" in self._names:
            return f"cluster start --brokers {self._last('M')}"
        if "L" in self._names:
            wanted = ["topic", "describe", self._last("t")] if "t" in self._names else ["topic", "list"]
            return shlex.join([*wanted, *self._options("tJ"), *(["--output", "json"] if "J" in self._names else [])])
        if "Q" in self._names:
            topic, partition, time = ("", *self._last("t").rsplit(":", 2))[-3:]
            if not topic:
                raise _UntranslatableError
            time = {"-1": "end", "-2": "beginning"}.get(time, time)
            at = ["--partition", partition, "--from", time, "--max-messages", "1", "--format", r"%o\n"]
            return shlex.join(["consume", topic, *self._options("t"), *at])
        return shlex.join(["consume", *self._others, *self._options(""), "--group", self._last("G")])

    def _consume(self) -> str:
        if "t" not in self._names or self._others:
            raise _UntranslatableError
        key, end = self._last("K"), self._last("D")
        format_ = []
        if "f" in self._names:
            format_ = ["--format", self._last("f")]
        elif "J" in self._names:
            format_ = ["--format", "json"]
        elif self._names & set("KDO"):
            offset = "%o " if "O" in self._names else ""
            format_ = ["--format", f"{offset}{f'%k{key}' if key else ''}%s{end or chr(92) + 'n'}"]
        return shlex.join(["consume", self._last("t"), *self._options("tfJKDO"), *format_])

    def _produce(self) -> tuple[str, str]:
        if "t" not in self._names:
            raise _UntranslatableError
        files, head = self._others, ""
        if "c" in self._names:
            head, files = f"{shlex.join(['head', '-n', self._last('c'), *files])} | ", []
        raw = ["--format", "raw"] if files and "l" not in self._names else []  # to kcat each file is a record
        return head, shlex.join(["produce", self._last("t"), *files, *raw, *self._options("tcl", is_producer=True)])

    def _last(self, letter: str) -> str:
        return next((value for name, value in reversed(self._given) if name == letter), "")

    def _options(self, done: str, *, is_producer: bool = False) -> list[str]:
        """Returns plog's options for all that are not `done`. Raises _UntranslatableError for one that plog lacks."""
        found: list[str] = []
        for name, value in self._given:
            if name not in done and name not in _NEEDLESS:
                found += self._producers(name, value) if is_producer else self._consumers(name, value)
        return found

    def _common(self, name: str, value: str) -> list[str]:
        options = {"b": "--bootstrap-server", "X": "-X", "F": "--command-config", "p": "--partition"}
        if name not in options or (name == "X" and "=" not in value):
            raise _UntranslatableError
        return [options[name], value] if (name, value) != ("p", "-1") else []

    def _consumers(self, name: str, value: str) -> list[str]:
        simple = {"E": ["--no-exit-on-error"], "c": ["--max-messages", value], "r": ["--schema-registry", value]}
        if name in simple:
            return simple[name]
        if name == "o":
            edge = {"s@": "--from", "e@": "--until"}.get(value[:2])
            if value == "stored":
                raise _UntranslatableError
            return ["--from", value] if edge is None else [edge, f"@{value[2:]}"]
        if name == "s":
            side, _, packed = value.rpartition("=")
            if packed != "avro" and packed not in _PACKED:
                raise _UntranslatableError
            kind = _PACKED.get(packed)
            return [
                word for one in ([side] if side else ["key", "value"]) if kind for word in (f"--{one}-format", kind)
            ]
        return self._common(name, value)

    def _producers(self, name: str, value: str) -> list[str]:
        flags = {"T": ["--tee"], "Z": ["--null-value", ""]}
        options = {"K": "-K", "k": "--key", "D": "-D", "H": "--header", "z": "--compression"}
        return flags.get(name) or ([options[name], value] if name in options else self._common(name, value))


# --- where they are asked for


def line_of_tool(words: Sequence[str], commands: Sequence[str]) -> str | None:
    """Returns plog's command for `plog TOOL ..`, a line of another tool; None without one."""
    tool, *rest = words
    name = tool.removesuffix(".sh").removeprefix("kafka-")
    if name == "run-class" and rest:
        name, *rest = _CLASSES.get(rest[0].rpartition(".")[2], name), *rest[1:]
    if tool in ("kcat", "kafkacat"):
        return kcat_line(rest)
    if tool == "rpk" and rest[:1] and rest[0] in commands:
        is_of_records = rest[0] == "topic" and rest[1:2] in (["consume"], ["produce"])
        return f"plog {shlex.join(rest[is_of_records:])}"
    return kafka_line(name, rest)


def line_of_command(path: str, words: Sequence[str]) -> str | None:
    """Returns the command that is meant by `plog PATH WORDS`, which has an option of another tool; None without one."""
    if not path:
        return kcat_line(words)
    change = {"consume": with_format, "produce": with_key_separator}.get(path)
    found = None if change is None else change(words)
    return None if found is None else f"plog {path} {shlex.join(found)}"


# --- Kafka's tools

_ACTIONS = {"topics": "topic", "consumer-groups": "group", "configs": "config", "acls": "acl"}
_CLASSES = {
    "GetOffsetShell": "get-offsets",
    "DumpLogSegments": "dump-log",
    "TopicCommand": "topics",
    "ConsumerGroupCommand": "consumer-groups",
    "ConfigCommand": "configs",
    "AclCommand": "acls",
}
"""Classes that people start by kafka-run-class, without their packages -> the tools."""
_PROPERTIES = ("--property", "--formatter-property", "--reader-property")
_NEEDLESS_FLAGS = ("--new-consumer", "--all-topic-partitions")


def kafka_line(tool: str, words: Sequence[str]) -> str | None:
    """Returns plog's command for a line of one of Kafka's tools (`topics` is kafka-topics.sh), or None without one."""
    if not words:
        return None
    rest = [word for word in words if word not in _NEEDLESS_FLAGS]
    if tool != "console-consumer" and _take(rest, "--zookeeper") is not None:  # before Kafka 3.0 the tools asked it
        rest += ["--bootstrap-server", "HOST:PORT"]
    try:
        if tool in _ACTIONS:
            action = next(word for word in rest if re.fullmatch(r"--[a-z-]+", word) and word in _ACTION_NAMES)
            rest.remove(action)
            return f"plog {shlex.join([_ACTIONS[tool], action[2:], *rest])}"
        if tool in _TOOLS:
            return f"plog {shlex.join(_TOOLS[tool](rest))}"
    except (StopIteration, ValueError, IndexError, _UntranslatableError):
        pass
    return None


_ACTION_NAMES = (
    "--list", "--create", "--describe", "--alter", "--delete", "--reset-offsets", "--delete-offsets", "--add",
    "--remove",
)  # fmt: skip


def _take(rest: list[str], name: str) -> str | None:
    """Takes the option and its value out of the words; returns the value, or None if the option is not there."""
    for number, word in enumerate(rest):
        if word == name and number + 1 < len(rest):
            del rest[number]
            return rest.pop(number)
        if word.startswith(f"{name}="):
            return rest.pop(number).partition("=")[2]
    return None


def _take_properties(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    rest, given = list(words), {}
    for option in _PROPERTIES:
        while (text := _take(rest, option)) is not None:
            name, _, value = text.partition("=")
            given[name] = value
    return rest, given


def with_format(words: Sequence[str]) -> list[str] | None:
    """Replaces `--property print.key=true` and similar properties by --format. Returns None if no property is given, or
    one that --format can't express.
    """
    rest, given = _take_properties(words)
    known = {f"print.{what}" for what in ("timestamp", "partition", "offset", "headers", "key", "value")}
    if not given or given.keys() - known - {"key.separator", "line.separator"}:
        return None
    fields = [
        ("timestamp", "CreateTime:%T"), ("partition", "Partition:%p"), ("offset", "Offset:%o"), ("headers", "%h"),
        ("key", "%k"), ("value", "%s"),
    ]  # fmt: skip
    shown = [token for name, token in fields if given.get(f"print.{name}", str(name == "value")).lower() == "true"]
    return [*rest, "--format", given.get("key.separator", r"\t").join(shown) + given.get("line.separator", r"\n")]


def with_key_separator(words: Sequence[str]) -> list[str] | None:
    """Replaces `--property parse.key=true --property key.separator=:` by -K. Returns None if neither is given, or
    another property.
    """
    rest, given = _take_properties(words)
    options = {"null.marker": "--null-value"}
    if given.pop("parse.key", "false") == "true":
        options["key.separator"] = "-K"
        given.setdefault("key.separator", r"\t")
    if given.keys() - options.keys() or not given:
        return None
    return [*rest, *(word for name, value in given.items() for word in (options[name], value))]


def _translated(rest: list[str], change: Callable[[Sequence[str]], list[str] | None]) -> list[str]:
    if not any(word.partition("=")[0] in _PROPERTIES for word in rest):
        return rest
    found = change(rest)
    if found is None:
        raise _UntranslatableError
    return found


def _dump(rest: list[str]) -> list[str]:
    files = _take(rest, "--files")
    if files is None:
        raise _UntranslatableError
    return ["dump-segment", *files.split(","), *rest]


def _get_offsets(rest: list[str]) -> list[str]:
    topic, time = _take(rest, "--topic"), _take(rest, "--time")
    if topic is None or time not in (None, "-1", "-2", "latest", "earliest"):
        raise _UntranslatableError
    return ["topic", "describe", topic, *rest]


def _transactions(rest: list[str]) -> list[str]:
    action = next(word for word in rest if word in ("list", "describe", "abort", "find-hanging"))
    rest.remove(action)
    return ["transaction", action, *rest]


def _perf_produce(rest: list[str]) -> list[str]:
    for option in ("--producer-props", "--command-property"):
        if option in rest:
            start = rest.index(option)
            end = start + 1
            while end < len(rest) and not rest[end].startswith("-"):
                end += 1
            rest[start:end] = [word for prop in rest[start + 1 : end] for word in _property(prop)]
    return ["perf", "produce", *rest]


def _property(text: str) -> list[str]:
    name, _, value = text.partition("=")
    return ["--bootstrap-server", value] if name == "bootstrap.servers" else ["-X", text]


def _perf_latency(rest: list[str]) -> list[str]:
    server, topic, count, acks, size = rest[:5]
    options = ["--num-records", count, "--acks", acks, "--record-size", size, "--bootstrap-server", server]
    return ["perf", "latency", topic, *options]


def _without(command: list[str], *actions: str) -> Callable[[list[str]], list[str]]:
    """Returns a function that puts the command before a line without these words."""
    return lambda rest: [*command, *(word for word in rest if word not in actions)]


def _serve(rest: list[str]) -> list[str]:
    file = next(word for word in rest if not word.startswith("-"))
    return ["serve", "--config", *rest[rest.index(file) :]]


def _elect(rest: list[str]) -> list[str]:
    kind, topic, partition = (_take(rest, name) for name in ("--election-type", "--topic", "--partition"))
    if kind is None or kind.lower() not in ("preferred", "unclean"):
        raise _UntranslatableError
    named = [] if topic is None else [topic if partition is None else f"{topic}:{partition}"]
    return ["cluster", "elect", f"--{kind.lower()}", *named, *rest]


def _reassign(rest: list[str]) -> list[str]:
    if "--verify" in rest or "--list" in rest:
        _take(rest, "--reassignment-json-file")
        return ["cluster", "reassign", "--status", *(word for word in rest if word not in ("--verify", "--list"))]
    return ["cluster", "reassign", *("--apply" if word == "--execute" else word for word in rest)]


_TOOLS: dict[str, Callable[[list[str]], list[str]]] = {
    "console-consumer": lambda rest: ["consume", *_translated(rest, with_format)],
    "console-producer": lambda rest: ["produce", *_translated(rest, with_key_separator)],
    "dump-log": _dump,
    "get-offsets": _get_offsets,
    "transactions": _transactions,
    "producer-perf-test": _perf_produce,
    "consumer-perf-test": _without(["perf", "consume"]),
    "e2e-latency": _perf_latency,
    "metadata-quorum": _without(["cluster", "status"], "describe", "--status", "--replication"),
    "features": _without(["cluster", "features"], "describe"),
    "broker-api-versions": _without(["cluster", "status", "--api-versions"]),
    "server-start": _serve,
    "leader-election": _elect,
    "reassign-partitions": _reassign,
    "groups": _without(["group", "list"], "--list"),
    "cluster": _without(["cluster", "status"], "cluster-id"),
}
