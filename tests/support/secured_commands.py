"""A line for each command that reaches a cluster, in the order of a topic's life; none can be forgotten, because a test
compares them with what the command line itself has.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.support.all_commands import all_commands
from tests.support.server import call_plog


class Line(NamedTuple):
    """`code` is what it exits with, `shows` what stdout has then."""

    path: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    stdin: bytes = b""
    code: int = 0
    shows: bytes = b""


DRAWS = "inspect"
"""It prints nothing: tests/cli/test_secured_commands.py looks at its screen."""


def commands_with_a_server() -> set[tuple[str, ...]]:
    """The commands that take --command-config, as the command line has them."""
    found = set()
    for path, command in all_commands().items():
        options = {option for parameter in command.params for option in parameter.opts}
        has_server = "--bootstrap-server" in options or path == "cert show"
        assert has_server is ("--command-config" in options) is ("-X" in options), path
        found |= {tuple(path.split())} if has_server and path != DRAWS else set()
    return found


def lines(topic: str, server: str, folder: Path, *, has_tls: bool, replays: bool = False) -> list[Line]:
    """Of a topic that is not there yet and is gone afterwards. `replays`: Spark does so, instead of planning it."""
    name = topic.encode()
    found = [
        Line(("topic", "create"), (topic, "--partitions", "1")),
        Line(("topic", "alter"), (topic, "--partitions", "2")),
        Line(("topic", "list"), shows=name),
        Line(("topic", "describe"), (topic,), shows=name),
        Line(("produce",), (topic,), b"a\nb\nc\n"),
        Line(("produce",), (topic, "--transactional-id", topic), b"d\n"),
        Line(("redrive",), (topic,), code=1, shows=b"no header names a topic"),
        Line(("group", "delete"), (f"plog-redrive.{topic}",)),
        Line(("stats",), (topic,), shows=name),
        Line(("gaps",), (topic,), shows=b"control record"),
        Line(("trace",), (f"{topic}@1",), shows=name),
        Line(("transaction", "list"), shows=name),
        Line(("transaction", "describe"), (topic,), shows=name),
        Line(("transaction", "find-hanging"), ("--topic", topic)),
        Line(("transaction", "abort"), (topic, "--dry-run")),
    ]
    for protocol in ("classic", "consumer"):
        group = f"{topic}-{protocol}"
        options = ("--group", group, "--group-protocol", protocol, "--from", "earliest", "--max-messages", "4")
        found += [
            Line(("consume",), (topic, *options), shows=b"a\n"),
            Line(("group", "list"), shows=group.encode()),
            Line(("group", "describe"), (group,), shows=name),
            Line(("group", "reset-offsets"), (group, "--topic", topic, "--to-earliest", "--execute"), shows=name),
            Line(("group", "remove-members"), (group, "--all", "--yes")),
            Line(("group", "delete-offsets"), (group, "--topic", topic)),
            Line(("group", "delete"), (group,)),
        ]
    replayed = (topic, "--to", f"parquet:{folder / topic}") + (() if replays else ("--dry-run",))
    found += [
        Line(("consume",), (topic,), shows=b"b\n"),
        Line(("config", "list"), ("topic",)),
        Line(("config", "alter"), ("topic", topic, "--set", "retention.ms=-1")),
        Line(("config", "describe"), ("topic", topic), shows=b"retention.ms"),
        Line(("config", "diff"), ("topic", topic, topic)),
        Line(("acl", "list"), code=1),
        Line(("acl", "export"), code=1),
        Line(("acl", "add"), ("--allow-principal", "User:x", "--topic", topic), code=1),
        Line(("acl", "import"), ("-",), code=1),
        Line(("acl", "remove"), ("--topic", topic), code=1),
        Line(("acl", "explain"), ("--principal", "User:x", "--operation", "Read", "--topic", topic)),
        Line(("user", "list"), shows=b"user"),
        Line(("user", "create"), (topic, "--password-stdin", "--mechanism", "SCRAM-SHA-512"), b"secret\n"),
        Line(("user", "delete"), (topic, "--dry-run"), shows=name),
        Line(("cluster", "status"), shows=b"reachable"),
        Line(("cluster", "brokers"), shows=b"leaders"),
        Line(("cluster", "topics"), shows=name),
        Line(("cluster", "describe"), (f"{topic}-0",), shows=b"leader"),
        Line(("cluster", "controller"), shows=b"controller"),
        Line(("cluster", "features"), shows=b"group.version"),
        Line(("cluster", "elect"), ("--preferred", topic), shows=b"not needed"),
        Line(("cluster", "forget-replica"), ("1", "--dry-run"), code=1),
        Line(("cluster", "reassign"), ("--status", "--dry-run")),
        Line(("cluster", "drain"), ("1", "--dry-run"), code=2),
        Line(("cluster", "check"), (topic,), shows=b"one replica"),
        Line(("perf", "produce"), (topic, "--num-records", "10", "--record-size", "10")),
        Line(("perf", "consume"), (topic, "--messages", "10")),
        Line(("perf", "latency"), (topic, "--num-records", "5")),
        Line(("spark-replay",), replayed),
        Line(("topic", "delete-records"), (topic, "--before", "0")),
        Line(("topic", "delete"), (topic,)),
        Line(("cert", "show"), (server,), code=0 if has_tls else 3, shows=b"CN" if has_tls else b""),
    ]
    return found


def plog(*arguments: str | Path, stdin: bytes = b"", code: int = 0) -> tuple[bytes, str]:
    """What it writes to stdout and stderr. No secret may be there; those of the tests have `marked` in them."""
    done = call_plog(*map(str, arguments), stdin=stdin)
    told = done.stderr.decode()
    assert done.returncode == code, told
    assert b"marked" not in done.stdout
    assert "marked" not in told
    assert "Traceback" not in told
    return done.stdout, told
