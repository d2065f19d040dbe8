"""The tables of `plog help kcat` and `plog help kafka-tools`, of which docs/from-*.md are made: each line of theirs is
typed, and its hint is the line of plog beside it; then that is typed, and does it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.help_pages import page
from cli.main import run
from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from plog.testing import running_broker
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.schema_registry import SchemaRegistryServer
from tests.support.server import call_plog

ROOT = Path(__file__).resolve().parents[2]
SERVER, REGISTRY = "127.0.0.1:9092", "http://127.0.0.1:8081"
STAYS = ("plog cluster start", "plog serve", "plog zookeeper start")
"""These are tried in tests of their own."""


def lines_of(name: str) -> list[tuple[str, str]]:
    rows = re.findall(r"^\| `(.*)` \| `(.*)` \|$", page(name), re.MULTILINE)
    return [(theirs, ours.replace(r"\|", "|")) for theirs, ours in rows]


PAGES = {name: lines_of(name) for name in ("kcat", "kafka-tools")}


@for_each("theirs, ours", [row for rows in PAGES.values() for row in rows])
def test_a_line_of_another_tool_is_refused_with_that_of_plog(
    theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(theirs)
    typed = [words, [words[0] + ".sh", *words[1:]]] if words[0] != "kcat" else [words, words[1:]]
    for line in typed:
        if len(line) > 1:
            assert run(line) == 2
            assert capsys.readouterr().err.split("hint: ")[1] == f"{ours}\n"


def test_the_tables_are_read() -> None:
    assert len(PAGES["kcat"]) > 20
    assert len(PAGES["kafka-tools"]) > 30


@pytest.mark.longer
@pytest.mark.parametrize("name", PAGES)
def test_the_line_of_plog_does_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample-data").symlink_to(ROOT / "sample-data")
    for file in ("file1", "file2", "lines.txt"):
        (tmp_path / file).write_text("k:a\nk:b\nk:c\nk:d\n")
    rights = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with running_broker(group_initial_rebalance_delay_ms="0", **rights) as broker, SchemaRegistryServer() as registry:
        where = ["--bootstrap-server", broker.bootstrap_servers]
        (tmp_path / "kcat.conf").write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
        for topic in ("orders", "payments", "numbers", "ledger", "filedrop"):
            ok("topic", "create", topic, *where)
        ok("produce", "orders", "-K", ":", *where, stdin=b"k:v\n")
        ok("produce", "numbers", "--value-format", "int", *where, stdin=b"42\n")
        for _, ours in PAGES[name]:
            line = ours.replace(SERVER, broker.bootstrap_servers).replace(REGISTRY, registry.url)
            if line.startswith(STAYS):
                ok(*shlex.split(line)[1:], "--help")
                continue
            head, _, line = line.rpartition(" | ")
            more = ["--timeout-ms", "500"] if "--group mygroup" in line and "consume" in line else []
            stdin = b"k:a\nk:b\nk:c\n" if head or "produce" in line else b""
            done = call_plog(*shlex.split(line)[1:], *more, stdin=stdin)
            assert done.returncode == 0, (line, done.stderr.decode())
        read = ok("consume", "filedrop", "--format", r"%S\n", *where)
        assert read == (b"16\n16\n" if name == "kcat" else b"")
