"""Whatever a user types, or has in the environment or in a schema's file: the exit code is 0 to 3, never 4.

Words are drawn from those that Python's libraries stumble over: bytes that are no UTF-8, deep nesting, numbers of
thousands of digits, patterns that are none.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ok
from tests.support.all_commands import all_commands
from tests.support.for_each import for_each
from tests.support.golden import SAMPLE_DATA
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.server import call_plog, run_plog

PATTERNS = [
    r"%s\n", "%", "%{", "\\", r"\x4", "%T{strftime[%F %T %z %Z %Ez %Q %%Z]}", "%T{strftime[%é]}", "%T{strftime[]}",
    "%k{unpack[é]}", "%s{unpack[>q", "%s{unpack[" + "9" * 30 + "i]}", "%h{%h}", "%h{" * 500 + "}" * 500, "%a{x}",
]  # fmt: skip
FILTERS = [
    "value.a == 1", "(" * 3000, "not " * 3000 + "offset == 1", "value" + "[0]" * 3000 + " == 1", "value is", "'",
    "offset == 0" + " or offset == 9" * 3000, 'value ~ "("', 'value ~ "' + "(" * 2000, "offset == 1e999", 'x"0g"',
    "offset == " + "9" * 6000, 'timestamp > "zz"', 'header["', r'value == "\ud800"', "value contains null",
]  # fmt: skip
WORDS = [
    "", "-", "--", "0", "-1", "1e9", "9" * 20, "9" * 5000, "\udcff", "a\udcffb=\udcff", "é", "\u202e", "\x1b[2J", "\n",
    "t", "^(", "^" + "(" * 3000, "t:0", "t@1", "t:" + "9" * 20, "t@" + "9" * 30, "..", "a/b", "x" * 300, "true", "=",
    "a=b",
    "2099-01-01T00:00:00Z", "-2h", "-" + "9" * 14 + "w", "@1", "0=1", "no.such:function", "os:nothing", "${env:NOPE}",
    "file:///", "http://[", "/dev/null", "/proc/self/mem", "client.id=\udcff", "group.id=\udcff", "acks=" + "9" * 5000,
]  # fmt: skip
ENVIRONMENT = {
    "COLUMNS": ["1", "0", "-1", "9" * 30, "x", "٣", "40"],
    "LC_ALL": ["C", "POSIX", "tlh_QO", "\udcff"],
    "PLOG_MAX_EXPANSION": ["", "x", "1G", "9" * 5000, "-1", "\udcff"],
    "PLOG_PROFILE": ["", "nope", "\udcff"],
    "PLOG_DATA_DIR": ["", "/dev/null", "\udcff", "x" * 5000],
    "SCHEMA_REGISTRY_URL": ["", "http://[", "\udcff", "nope"],
    "PLOG_CONFIG": ["", "/dev/null", "/nope/config.toml", "\udcff"],
    "NO_COLOR": ["", "1"],
    "TZ": ["UTC", "nope/nope"],
}
NEVER = {"serve", "inspect", "zookeeper start", "cluster start", "spark-replay"}
"""They go on until they are stopped, or start Spark."""
NEVER_OPTIONS = {"--bootstrap-server", "--zookeeper", "--follow", "--watch", "--interval", "--out", "--html",
                 "--certificate", "--lock-timeout", "--timeout", "--throughput", "--num-records", "--warmup-records",
                 "--rate", "--salvage-records", "--claim-check", "--undo"}  # fmt: skip
"""They wait, or write files wherever the word says."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with one record."""
    directory = str(tmp_path_factory.mktemp("data"))
    ok("produce", "t", "--data-dir", directory, stdin=b'{"a": 1}\n')
    return directory


@cache
def commands() -> list[tuple[str, Any]]:
    return [(path, command) for path, command in all_commands().items() if path not in NEVER]


def draw(rng: random.Random, data: Path) -> list[str]:
    path, command = rng.choice(commands())
    line = path.split()
    for parameter in command.params:
        if parameter.param_type_name == "argument" and (parameter.required or rng.random() < 0.5):
            line.append(rng.choice(WORDS) if rng.random() < 0.6 else "t")
    options = [one for one in command.params if one.param_type_name == "option" and not NEVER_OPTIONS & {*one.opts}]
    for option in rng.sample(options, min(len(options), rng.choice([0, 1, 1, 2, 3]))):
        line.append(rng.choice(option.opts))
        if not getattr(option, "is_flag", False):
            choices = [str(getattr(one, "value", one)) for one in getattr(option.type, "choices", None) or ()]
            special = {"--format": PATTERNS, "--template": PATTERNS, "--filter": FILTERS}.get(option.opts[0], choices)
            line.append(rng.choice(special) if special and rng.random() < 0.8 else rng.choice(WORDS))
    has_place = any("--data-dir" in one.opts for one in options)
    return [*line, *(["--data-dir", str(data)] if has_place and "--data-dir" not in line else [])]


@for_each("seed", range(200), first=5)
def test_words_and_environments(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    line = draw(rng, tmp_path / "data")
    monkeypatch.chdir(tmp_path)  # a relative name is of a file here
    ok("produce", "t", "--data-dir", "data", stdin=b'{"a": {"b": [1, "x"]}}\nplain\n\n')
    monkeypatch.setenv("PLOG_CONFIG", "")
    for name in rng.sample(list(ENVIRONMENT), rng.choice([0, 0, 1, 2])):
        monkeypatch.setenv(name, rng.choice(ENVIRONMENT[name]))
    done = call_plog(*line, stdin=b'{"a": 1}\n')
    assert done.returncode in range(4), (line, done.stderr[-500:])


HARD = {"--format": PATTERNS, "--filter": FILTERS, "--grep": WORDS, "--from": WORDS}


@for_each("option, word", [(option, word) for option, words in HARD.items() for word in words], first=8)
def test_patterns_filters_and_places(option: str, word: str, data: str) -> None:
    done = call_plog("consume", "t", option, word, "--data-dir", data)
    assert done.returncode in range(4), (word[:50], done.stderr[-300:])


def test_the_letters_of_a_zone(data: str) -> None:
    assert ok("consume", "t", "--format", "%T{strftime[%z %Z %%]}", "--data-dir", data) == b"+0000 UTC %"


@for_each("words", [["topic", "create"], ["consume"], ["produce"], ["group", "describe"], ["transaction", "describe"]])
def test_what_is_no_utf_8_is_named(words: list[str], tmp_path: Path) -> None:
    done = call_plog(*words, "a\udcff", "--data-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"it is no UTF-8" in done.stderr


@pytest.mark.longer
@for_each("encoding", ["ascii", "latin-1"])
def test_terminals_of_other_encodings(encoding: str) -> None:
    environment = {"PYTHONIOENCODING": encoding}
    stats = run_plog("stats", str(SAMPLE_DATA / "partition"), environment=environment)
    assert (stats.returncode, stats.stdout.isascii()) == (0, True)
    assert b" none ####" in stats.stdout
    for words in (["trace", "txn_multisegment@3", "--data-dir", str(SAMPLE_DATA / "partition")],):
        assert run_plog(*words, environment=environment).returncode == 0


SCHEMAS = {
    ".avsc": ['{"type":', "[]", "5", '"nope"', '{"type":"record"}', '{"type":"record","name":"R","fields":5}',
              '{"type":"record","name":"R","fields":[{"name":"o","type":"com.x.Shared"}]}', '{"type":"map"}',
              '{"type":"fixed","name":"E","size":"x"}', "[" * 5000, "\udcff"],
    ".json": ['{"type": 5}', "nope", "[]", '{"$ref":"other.json"}', '{"pattern":"("}', '{"$ref":"#/nope"}', "{" * 5000],
    ".proto": ["nope", "", 'syntax = "proto3";',
               'syntax = "proto3"; import "other.proto"; message A { other.B b = 1; }',
               'syntax = "proto2"; message Q { required string a = 1; optional int32 b = 2; }',
               'syntax = "proto3"; message A { int32 b = 0; }'],
    ".txt": ["{}"],
}  # fmt: skip


@for_each("suffix, text", [(suffix, text) for suffix, texts in SCHEMAS.items() for text in texts], first=3)
def test_schema_files(suffix: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"schema{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with SchemaRegistryServer() as registry:
        options = ["--schema-registry", registry.url, "--value-schema", str(path), "--data-dir", str(tmp_path / "d")]
        done = call_plog("produce", "t", *options, stdin=b'{"b": 2}\n')
    assert done.returncode in (1, 2), done.stderr[-500:]
