"""Settings of Kafka's clients on the command line of one command: they act as an option does, are refused by name, or
are named in a note. In a file they are passed over.

librdkafka's list is of the library that confluent-kafka has; Java's, and older names, are plog's own.
"""

from __future__ import annotations

import ctypes
import functools
import re
from contextvars import copy_context
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import typer

from cli.main import _load, app
from core.client.net.client_config_files import read_settings_file
from core.common.errors import UsageError
from core.security.client_settings import OTHER_SETTINGS, ensure_known, is_heeded, parse_client_settings
from tests.support.for_each import for_each
from tests.support.server import call_plog

IN_CODE_ALONE = re.compile(r".*_cb|interceptors|opaque|enabled_events|default_topic_conf|ssl_\w+")
"""What only a program can set."""
COMMANDS = (
    "produce t",
    "consume t",
    "perf produce t",
    "perf consume t",
    "perf latency t",
    "spark-replay t",
    "topic list",
)
GIVEN = {
    "acks": "1",
    "compression.type": "zstd",
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "latest",
    "group.protocol": "classic",
    "linger.ms": "5",
    "enable.idempotence": "true",
    "allow.auto.create.topics": "false",
}
"""Values that the settings may have; those of the others are `1`, or whatever."""
ACTING = {
    ("produce t", "acks", "1"): {"acks": "1"},
    ("produce t", "acks", "-1"): {"acks": "all"},
    ("produce t", "request.required.acks", "0"): {"acks": "0"},
    ("produce t", "topic.request.required.acks", "0"): {"acks": "0"},
    ("produce t", "compression.type", "zstd"): {"compression": "zstd"},
    ("produce t", "compression.codec", "lz4"): {"compression": "lz4"},
    ("produce t", "transactional.id", "tx"): {"transactional_id": "tx"},
    ("produce t", "transaction.timeout.ms", "5000"): {"transaction_timeout_ms": 5000},
    ("produce t", "batch.size", "16384"): {"batch_size": 16384},
    ("produce t", "linger.ms", "5"): {"linger": 5.0},
    ("produce t", "partitioner", "murmur2_random"): {"partitioner": "murmur2_random"},
    ("produce t", "partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner"): {
        "partitioner": "round_robin"
    },
    ("produce t", "partitioner.ignore.keys", "true"): {"partitioner": "sticky"},
    ("produce t", "allow.auto.create.topics", "false"): {"no_create": True},
    ("produce t", "schema.registry.url", "http://127.0.0.1:1"): {"schema_registry": "http://127.0.0.1:1"},
    ("perf produce t", "compression.type", "gzip"): {"compression": "gzip"},
    ("consume t", "group.id", "g"): {"group": "g"},
    ("consume t", "group.instance.id", "a"): {"group_instance_id": "a"},
    ("consume t", "group.protocol", "classic"): {"group_protocol": "classic"},
    ("consume t", "auto.offset.reset", "latest"): {"from_": "end"},
    ("consume t", "auto.offset.reset", "smallest"): {"from_": "beginning"},
    ("consume t", "auto.offset.reset", "by_duration:PT2H30M"): {"from_": "-9000.000s"},
    ("consume t", "isolation.level", "read_uncommitted"): {"isolation": "read_uncommitted"},
    ("spark-replay t", "isolation.level", "read_uncommitted"): {"isolation": "read_uncommitted"},
}


def names_of_librdkafka(folder: Path) -> set[str]:
    """Those in the table that the library prints."""
    (library,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    c, rdkafka = ctypes.CDLL(None), ctypes.CDLL(str(library))
    c.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(c.fopen(str(folder / "settings").encode(), b"w"))
    rdkafka.rd_kafka_conf_properties_show(file)
    c.fclose(file)
    found = re.findall(r"^([a-z][\w.]+) +\|", (folder / "settings").read_text(), re.MULTILINE)
    return {name for name in found if not IN_CODE_ALONE.fullmatch(name)}


plog = functools.cache(lambda: typer.main.get_command(app))
loaded = functools.cache(_load)


def parse(command: str, *settings: str) -> dict[str, Any]:
    """The parameters with which the command would run; what it keeps for itself is gone afterwards, as in `run`."""
    return copy_context().run(_parse, command, *settings)


def _parse(command: str, *settings: str) -> dict[str, Any]:
    name, *words = command.split()
    context = plog().make_context("plog", [name])
    one = loaded(name)
    while hasattr(one, "commands"):
        context = one.make_context(name, list(words), parent=context)
        name, *words = words
        one = one.commands[name]
    options = [word for setting in settings for word in ("-X", setting)]
    made = one.make_context(name, [*words, *options], parent=context)
    return {name: getattr(value, "value", value) for name, value in made.params.items()}


def test_every_setting_acts_or_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = names_of_librdkafka(tmp_path)
    assert len(names) > 150
    silent = []
    for command in COMMANDS:
        before = parse(command)
        for name in sorted(names | OTHER_SETTINGS):
            if is_heeded(name):
                continue
            try:
                ensure_known({name: "1"})
                acts = parse(command, f"{name}={GIVEN.get(name, '1')}") != before
                said = capsys.readouterr().err
            except UsageError as error:
                acts, said = False, error.message
            silent += (
                [(command, name)] if not acts and not re.search(rf"(note: |, |^){name}\b", said, re.MULTILINE) else []
            )
    assert not silent


@for_each("given, expected", list(ACTING.items()))
def test_what_changes_records_acts_as_its_option(given: tuple[str, str, str], expected: dict[str, Any]) -> None:
    command, name, value = given
    before = parse(command)
    found = parse(command, f"{name}={value}")
    assert {key: one for key, one in found.items() if one != before[key]} == {
        key: one for key, one in expected.items() if one != before[key]
    }
    assert expected.items() <= found.items()


@for_each(
    "command, setting, problem, hint",
    [
        ("produce t", "acks=7", "acks=7: plog does not support that", "one of 0, 1, all, -1"),
        ("produce t", "compression.type=brotli", "compression.type=brotli: plog does not support", "one of none, gzip"),
        (
            "produce t",
            "interceptor.classes=a.B",
            "interceptor.classes=a.B: plog produce has no option",
            "no interceptors",
        ),
        ("perf produce t", "transactional.id=a", "transactional.id=a: plog perf produce has", "--transactional-id"),
        ("consume t", "auto.offset.reset=none", "auto.offset.reset=none: plog does not support that", "--from"),
        ("consume t", "enable.auto.commit=false", "enable.auto.commit=false: plog consume has", "--commit"),
        (
            "consume t",
            "partition.assignment.strategy=cooperative-sticky",
            "partition.assignment.strategy=coop",
            "range",
        ),
        ("consume t", "exclude.internal.topics=false", "exclude.internal.topics=false", "__consumer_offsets"),
        ("perf consume t", "group.id=g", "group.id=g: plog perf consume has no option for it", "plog consume --group"),
    ],
)
def test_what_it_can_not_do_is_refused_by_name(command: str, setting: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse(command, setting)
    assert problem in failure.value.message
    assert hint in str(failure.value.hint)


def test_a_setting_without_a_value(tmp_path: Path) -> None:
    done = call_plog("consume", "t", "-X", "group.id", "--data-dir", str(tmp_path))
    assert (done.returncode, done.stderr) == (2, b"error: -X group.id: expected KEY=VALUE\n")


def test_an_option_that_says_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("--acks all", "-X request.required.acks=all"):
        with pytest.raises(UsageError, match="--acks all and acks=1 are both set, and differ"):
            parse(f"produce t {words}", "acks=1")
    with pytest.raises(UsageError, match=r"--acks 1 and enable\.idempotence=true are both set"):
        parse("produce t --acks 1", "enable.idempotence=true")
    assert parse("produce t --acks 1", "acks=1")["acks"] == "1"
    capsys.readouterr()


def test_one_note_names_all_that_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP", "of-the-environment")
    names = ["fetch.min.bytes", "client.id", "acks"]
    options = [word for name in names for word in ("--consumer-property", f"{name}=1")]
    group = ("--consumer-property", "group.id=${env:GROUP}")
    assert call_plog("produce", "t", "--data-dir", str(tmp_path), stdin=b"a\n").returncode == 0
    done = call_plog("consume", "t", *options, *group, "--data-dir", str(tmp_path))
    assert done.stdout == b"a\n"
    notes = [line for line in done.stderr.decode().splitlines() if line.startswith("note: ")]
    assert "note: fetch.min.bytes, client.id, acks change nothing here" in notes
    assert "note: group.id is --group of-the-environment" in notes
    assert b"of-the-environment" in call_plog("group", "list", "--data-dir", str(tmp_path)).stdout


def test_in_a_file_they_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}=1\n" for name in sorted(OTHER_SETTINGS)))
    settings, warnings = read_settings_file(file)
    assert (len(settings), warnings, parse_client_settings(settings).warnings) == (len(OTHER_SETTINGS), [], ())
