from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.common.config_def import ConfigSource
from core.protocol.schema.configs import DescribedConfig
from core.view.figures.config_diff import diff_configs
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.logs import fingerprint
from tests.support.server import Server, call_plog


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("config") / "data") as server:
        call_plog("topic", "create", "t", "--set", "retention.ms=-1", "--bootstrap-server", server.address)
        yield server


@pytest.fixture(params=["server", "directory"])
def where(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> list[str]:
    """The same on a server and with none."""
    if request.param == "server":
        return ["--bootstrap-server", server.address]
    call_plog("topic", "create", "t", "--set", "retention.ms=-1", "--data-dir", str(tmp_path))
    return ["--data-dir", str(tmp_path)]


def described(where: list[str], *options: str) -> dict[str, tuple[Any, str]]:
    rows = json.loads(call_plog("config", "describe", *options, "--output", "json", *where).stdout)
    return {row["key"]: (row["value"], row["source"]) for row in rows}


def test_a_topic(where: list[str]) -> None:
    assert described(where, "topic", "t") == {"retention.ms": ("-1", "topic_config")}
    done = call_plog(
        "config", "alter", "topic", "t", "--set", "segment.bytes=2000000", "--append", "cleanup.policy=compact",
        "--unset", "retention.ms", *where,
    )  # fmt: skip
    assert done.stderr.startswith(b"altered topic t ")
    assert described(where, "topic", "t") == {
        "cleanup.policy": ("delete,compact", "topic_config"),
        "segment.bytes": ("2000000", "topic_config"),
    }
    every = described(where, "topic", "t", "--all")
    assert every["retention.ms"] == ("604800000", "default_config")
    assert described(where, "topic", "t", "--key", "min.insync.replicas") == {
        "min.insync.replicas": ("1", "default_config")
    }
    call_plog("config", "alter", "topic", "t", "--unset", "segment.bytes", "--unset", "cleanup.policy",
              "--set", "retention.ms=-1", *where)  # fmt: skip


def test_a_broker_and_all_of_them(where: list[str]) -> None:
    call_plog("config", "alter", "broker", "--set", "log.segment.bytes=3000000", *where)
    call_plog("config", "alter", "broker", "1", "--set", "max.connections=100", *where)
    shown = described(where, "broker", "1")
    runs_with = {"node.id", "broker.id", "log.dirs", "log.dir", "listeners", "advertised.listeners"}
    assert {key: value for key, value in shown.items() if key not in runs_with} == {
        "log.segment.bytes": ("3000000", "dynamic_default_broker_config"),
        "max.connections": ("100", "dynamic_broker_config"),
    }
    assert shown["node.id"] == ("1", "static_broker_config")
    assert described(where, "broker") == {"log.segment.bytes": ("3000000", "dynamic_default_broker_config")}
    assert described(where, "topic", "t", "--key", "segment.bytes") == {
        "segment.bytes": ("3000000", "dynamic_default_broker_config")
    }
    call_plog("config", "alter", "broker", "--unset", "log.segment.bytes", *where)
    call_plog("config", "alter", "broker", "1", "--unset", "max.connections", *where)


def test_a_group_and_client_metrics(where: list[str]) -> None:
    call_plog("config", "alter", "group", "g", "--set", "consumer.session.timeout.ms=50000", *where)
    call_plog("config", "alter", "client-metrics", "m", "--set", "interval.ms=1000", *where)
    assert described(where, "group", "g") == {"consumer.session.timeout.ms": ("50000", "group_config")}
    rows = json.loads(call_plog("config", "list", "--output", "json", *where).stdout)
    assert {"type": "group", "name": "g"} in rows
    assert {"type": "client-metrics", "name": "m"} in rows
    assert {"type": "topic", "name": "t"} in rows
    assert json.loads(call_plog("config", "list", "group", "--output", "json", *where).stdout) == [
        {"type": "group", "name": "g"}
    ]
    call_plog("config", "alter", "group", "g", "--unset", "consumer.session.timeout.ms", *where)


def test_loggers_of_a_server(server: Server) -> None:
    where = ["--bootstrap-server", server.address]
    call_plog("config", "alter", "broker-logger", "1", "--set", "plog.connection=debug", *where)
    assert described(where, "broker-logger", "1")["plog.connection"][0] == "DEBUG"


def test_loggers_need_a_broker_that_runs(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path)]
    call_plog("topic", "create", "t", *where)
    done = call_plog("config", "alter", "broker-logger", "1", "--set", "plog.request=DEBUG", *where)
    assert (done.returncode, b"no broker runs on" in done.stderr) == (2, True)


def test_a_dry_run_changes_nothing(where: list[str]) -> None:
    done = call_plog("config", "alter", "topic", "t", "--set", "retention.ms=5", "--dry-run", *where)
    assert done.stderr.startswith(b"would alter topic t ")
    assert described(where, "topic", "t") == {"retention.ms": ("-1", "topic_config")}


def test_what_people_read(where: list[str]) -> None:
    table = call_plog("config", "describe", "topic", "t", "--key", "retention.ms", "--docs", *where).stdout.decode()
    header, line = table.splitlines()
    assert header.split() == ["key", "value", "source", "doc"]
    assert line.split()[:3] == ["retention.ms", "-1", "topic_config"]
    assert b"has its defaults" in call_plog("config", "describe", "group", "other", *where).stderr
    warned = call_plog("config", "alter", "broker", "1", "--set", "num.io.threads=4", *where).stderr
    assert b"the broker does not know num.io.threads" in warned
    assert described(where, "broker", "1")["num.io.threads"][0] == "(hidden)"
    call_plog("config", "alter", "broker", "1", "--unset", "num.io.threads", *where)


@for_each(
    "arguments, code, message",
    [
        (["alter", "topic", "t"], 2, b"nothing to change"),
        (["alter", "topic", "t", "--set", "retention.ms"], 2, b"expected KEY=VALUE"),
        (["alter", "topic", "t", "--set", "retention.mss=1"], 1, b"Unknown topic config name: retention.mss"),
        (["alter", "topic", "nope", "--set", "retention.ms=1"], 1, b"The topic 'nope' does not exist."),
        (["alter", "broker", "1", "--set", "node.id=2"], 1, b"Cannot update these configs dynamically: [node.id]"),
        (["describe", "topic", "t", "--key", "nope"], 2, b"topic t has no setting nope"),
        (["describe", "group"], 1, b"Group name must not be empty"),
        (["describe", "planet", "mars"], 2, b"planet"),
    ],
)
def test_bad_input(where: list[str], arguments: list[str], code: int, message: bytes) -> None:
    done = call_plog("config", *arguments, *where)
    assert (done.returncode, message in done.stderr, b"Traceback" in done.stderr) == (code, True, False), done.stderr


@for_each(
    "verb, kind", product(["describe", "alter --set a=1", "alter --unset a --dry-run"], ["broker", "broker-logger"])
)
def test_a_broker_that_is_not_there(where: list[str], verb: str, kind: str) -> None:
    name, *options = verb.split()
    done = call_plog("config", name, kind, "99", *options, *where)
    assert done.returncode == 2
    assert (
        done.stderr == b"error: broker 99 is not in the cluster; the live brokers are 1\nhint: plog cluster brokers\n"
    )


def test_looking_does_not_write(tmp_path: Path) -> None:
    call_plog("topic", "create", "t", "--data-dir", str(tmp_path))
    before = fingerprint(tmp_path)
    for command in (["config", "describe", "topic", "t"], ["config", "list"], ["group", "list"]):
        call_plog(*command, "--data-dir", str(tmp_path))
    assert fingerprint(tmp_path) == before


def test_what_changes_nothing_is_noted(where: list[str]) -> None:
    note = b"note: preallocate changes nothing: plog keeps this setting and does not act on it\n"
    for command in (
        ("topic", "create", "kept", "--set", "preallocate=true", "--set", "retention.ms=-1"),
        ("topic", "alter", "kept", "--set", "preallocate=false"),
        ("config", "alter", "topic", "kept", "--set", "preallocate=true", "--dry-run"),
        ("topic", "create", "kept-too", "--like", "kept"),
    ):
        assert call_plog(*command, *where).stderr.startswith(note), command
    assert b"note" not in call_plog("topic", "alter", "kept", "--unset", "preallocate", *where).stderr
    noted = call_plog("config", "alter", "broker", "--set", "log.preallocate=true", *where)
    assert noted.stderr.startswith(b"note: log.preallocate changes nothing")
    call_plog("config", "alter", "broker", "--unset", "log.preallocate", *where)
    for topic in ("kept", "kept-too"):
        call_plog("topic", "delete", topic, *where)


def test_settings_are_compared(where: list[str], tmp_path: Path) -> None:
    """Two topics, and those of two places."""
    ok("topic", "create", "u", "--set", "retention.ms=1000", "--if-not-exists", *where)
    ok("topic", "create", "v", "--set", "retention.ms=1000", "--if-not-exists", *where)

    def compared(*words: str) -> tuple[int, list[tuple[str, ...]], bytes]:
        done = call_plog("config", "diff", *words, "--output", "json", *where)
        rows = json.loads(done.stdout) if done.stdout else []
        return done.returncode, [(r["name"], r["key"], r["a"], r["b"]) for r in rows], done.stderr

    assert compared("topic", "t", "u")[:2] == (1, [("t, u", "retention.ms", "-1", "1000")])
    assert compared("topic", "u", "v") == (0, [], b"no setting of 1 topic differs\n")
    other = tmp_path / "other"
    ok("topic", "create", "t", "--set", "retention.ms=-1", "--data-dir", str(other))
    ok("topic", "create", "u", "--set", "segment.bytes=2000000", "--data-dir", str(other))
    away = ["--with", str(other)]
    assert compared("topic", "t", *away)[:2] == (0, [])
    assert compared("topic", "v", "t", *away)[:2] == (1, [("v, t", "retention.ms", "1000", "-1")])
    _, rows, _ = compared("topic", *away)
    assert rows == [
        ("u", "retention.ms", "1000", "604800000"),
        ("u", "segment.bytes", "1073741824", "2000000"),
        ("v", None, "there", "missing"),
    ]
    code, rows, told = compared("broker", "1", *away)
    assert (code, rows) == (0, []), "log.dirs has to differ"
    assert b"differences are expected: --all shows them" in told
    assert "log.dirs" in {key for _, key, _, _ in compared("broker", "1", "--all", *away)[1]}
    for words, expected, message in (
        (["topic", "t"], 2, b"expected two names"),
        (["group", *away], 2, b"expected the name of a group"),
        (["topic", "t", "nosuch"], 1, b"UNKNOWN_TOPIC_OR_PARTITION: topic nosuch "),
        (["topic", "t", "--with", str(tmp_path / "none")], 3, b"there is no data directory"),
        (["topic", "t", *away, "--with-config", str(tmp_path / "none")], 2, b"is about a server"),
        (["topic", "t", "--with-config", str(tmp_path / "none")], 2, b"could not read"),
    ):
        code, rows, told = compared(*words)
        assert (code, rows, message in told) == (expected, [], True), (words, told)


def test_secrets_and_lone_defaults_are_not_compared() -> None:
    static, default = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG

    def value(name: str, text: str | None, source: int, *, is_sensitive: bool = False) -> DescribedConfig:
        return DescribedConfig(name, text, config_source=source, is_sensitive=is_sensitive)

    first = [
        value("broker.id", "1", static),
        value("new.default", "x", default),
        value("old.setting", "x", static),
        value("same", "5", static),
        value("ssl.key.password", None, static, is_sensitive=True),
        value("unset.password", None, default, is_sensitive=True),
    ]
    second = [value("broker.id", "2", static), value("same", "5", default)]
    found = diff_configs(first, second, with_expected=False)
    assert [one.key for one in found.differences] == ["old.setting"]
    assert [one.key for one in found.expected] == ["broker.id", "new.default"]
    assert found.secrets == ["ssl.key.password"]
    found = diff_configs(first, second, with_expected=True)
    assert [one.key for one in found.differences] == ["broker.id", "new.default", "old.setting"]


def test_a_password_is_taken_from_elsewhere_and_never_shown(
    where: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLOG_TESTS_SECRET", "s3cret")
    key = "listener.name.tls.ssl.keystore.password"
    told = call_plog("config", "alter", "broker", "1", "--set", f"{key}=s3cret", *where)
    assert (told.returncode, b"other users can see a secret on the command line" in told.stderr) == (2, True)
    assert b"s3cret" not in told.stdout + told.stderr
    location = f"listener.name.tls.ssl.keystore.location={tmp_path}/k.p12"
    told = call_plog(
        *("config", "alter", "broker", "1", "--set", f"{key}=${{env:PLOG_TESTS_SECRET}}", "--set", location), *where
    )
    assert told.returncode == 0, told.stderr
    assert b"the broker does not know" not in told.stderr
    found = described(where, "broker", "1")
    assert found[key] == ("(hidden)", "dynamic_broker_config")
    assert found[location.partition("=")[0]] == (f"{tmp_path}/k.p12", "dynamic_broker_config")
    if where[0] == "--data-dir":
        told = call_plog(
            "dump-segment", *(f"{path}" for path in tmp_path.glob("__cluster_metadata-0/*.log")), "--print-data-log"
        )
        assert b"s3cret" not in told.stdout
        assert b"[hidden]" in told.stdout
