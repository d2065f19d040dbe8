"""Kafka's kafka-acls and kafka-configs on a broker of plog's with an authorizer, and plog's commands on a Kafka."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ok
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import Server, call_plog
from tests.support.ways_in import plog_options

pytestmark = [requires_kafka, pytest.mark.java]

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICE = "User:CN=alice,OU=a b"


@pytest.fixture(scope="module")
def plogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = [f"authorizer.class.name={STANDARD}", "super.users=User:ANONYMOUS;User:root"]
    options = [word for setting in settings for word in ("--set", setting)]
    with Server(tmp_path_factory.mktemp("plogs") / "data", *options) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(
        tmp_path_factory.mktemp("kafkas") / "data",
        authorizer_class_name=STANDARD,
        super_users="User:ANONYMOUS;User:root",
    )
    server.format()
    with server:
        yield server


def tool(name: str, address: str, *options: str) -> str:
    done = run_tool(name, *plog_options(address), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.decode()


def acls_tool(address: str, *options: str) -> str:
    return tool("org.apache.kafka.tools.AclCommand", address, *options)


def exported(*where: str) -> list[str]:
    return ok("acl", "export", *where).decode().splitlines()


def test_kafkas_tools_on_plog(plogs: Server, tmp_path: Path) -> None:
    where = plog_options(plogs.address)
    producer = ["--producer", "--idempotent", "--topic", "app-", "--transactional-id", "tx-"]
    prefixed = ["--resource-pattern-type", "prefixed"]
    acls_tool(plogs.address, "--add", "--allow-principal", ALICE, *producer, *prefixed)
    by_kafka = exported(*where)
    ok("acl", "remove", "--principal", ALICE, "--yes", *where)
    assert exported(*where) == []
    ok("acl", "add", "--allow-principal", ALICE, *producer, *prefixed, *where)
    assert exported(*where) == by_kafka

    consumer = ["--consumer", "--topic", "t", "--group", "g", "--allow-host", "10.0.0.1"]
    ok("acl", "add", "--allow-principal", "User:bob", *consumer, *where)
    listed = acls_tool(plogs.address, "--list")
    other = ["--data-dir", str(tmp_path / "other")]
    ok("topic", "create", "t", *other)
    ok("acl", "import", "-", *other, stdin=listed.encode())
    assert exported(*other) == exported(*where) == exported("--data-dir", str(plogs.data_dir))
    acls_tool(plogs.address, "--remove", "--force", "--allow-principal", "User:bob", *consumer)
    assert exported(*where) == by_kafka


def test_kafkas_tool_on_plogs_users(plogs: Server) -> None:
    configs = "org.apache.kafka.tools.ConfigCommand"
    where = ["--bootstrap-server", plogs.address]
    tool(configs, plogs.address, "--alter", "--entity-type", "users", "--entity-name", "carol",
         "--add-config", "SCRAM-SHA-256=[iterations=5000,password=secret]")  # fmt: skip
    ok("user", "create", "dave", "--mechanism", "SCRAM-SHA-512", "--password-stdin", *where, stdin=b"secret")
    rows = json.loads(ok("user", "list", "--output", "json", *where))
    assert [tuple(row.values()) for row in rows] == [("carol", "SCRAM-SHA-256", 5000), ("dave", "SCRAM-SHA-512", 8192)]
    described = tool(configs, plogs.address, "--describe", "--entity-type", "users")
    assert "carol' are SCRAM-SHA-256=iterations=5000" in described
    assert "dave' are SCRAM-SHA-512=iterations=8192" in described


def test_plogs_commands_on_kafka_and_on_its_dead_directory(kafka: KafkaServer, tmp_path: Path) -> None:
    where = ["--bootstrap-server", kafka.address]
    ok("acl", "add", "--allow-principal", ALICE, "--consumer", "--topic", "t", "--group", 'a, "b"', *where)
    ok("acl", "add", "--deny-principal", "User:*", "--deny-host", "10.0.0.0/8", "--topic", "ap",
       "--resource-pattern-type", "prefixed", *where)  # fmt: skip
    ok("user", "create", "alice", "--password-stdin", *where, stdin="pässword".encode())
    lines = exported(*where)
    assert len(lines) == 4
    found = set(map(tuple, (json.loads(line).values() for line in lines)))
    listed = acls_tool(kafka.address, "--list")
    for principal, permission, operation, _, _, _, host in found:
        part = f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"
        assert part in listed

    question = ["--principal", "User:bob", "--operation", "Write", "--topic", "app", "--host", "10.1.2.3"]
    done = call_plog("acl", "explain", *question, "--output", "json", *where)
    assert (done.returncode, json.loads(done.stdout)[0]["host"]) == (1, "10.0.0.0/8")
    assert b"not known, and it may allow it: super.users" in done.stderr
    assert call_plog("acl", "explain", *question[:-1], "11.1.2.3", *where).returncode == 1
    properties = tmp_path / "server.properties"
    properties.write_text("super.users=User:ANONYMOUS;User:bob\n")
    assert call_plog("acl", "explain", *question, "--config", str(properties), *where).returncode == 0

    users: Any = ok("user", "list", "--output", "csv", *where)
    dead = tmp_path / "dead"
    shutil.copytree(kafka.data_dir, dead)
    assert exported("--data-dir", str(dead)) == lines
    assert ok("user", "list", "--output", "csv", "--data-dir", str(dead)) == users
    other = ["--data-dir", str(tmp_path / "plogs")]
    ok("topic", "create", "t", *other)
    ok("acl", "import", "-", *other, stdin="\n".join(lines).encode())
    assert exported(*other) == lines
    ok("acl", "remove", "--resource-pattern-type", "match", "--topic", "app", "--yes", *where)
    assert exported(*where) == [line for line in lines if '"ap"' not in line]
    ok("user", "delete", "alice", "--yes", *where)
