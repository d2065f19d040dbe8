"""Every listing of every command on narrow terminals: no line is wider than they are, no number or word is broken."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.cli.conftest import ok
from tests.support.all_commands import all_commands
from tests.support.certificates import make_ca
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.pseudo_terminal import call_at_terminal
from tests.support.server import Server, call_plog

WIDTHS = (200, 120, 80, 60, 40)
LONG = "orders.of-all-customers.in-the-western-region.enriched.v2"  # 57 characters
LONGEST = "t" * 249
GROUP = "a group that reads 注文 and 🙂, with a name of several words"

SECURED = GOLDEN.parent / "secured"
USER = "a-service.of-the-western-region"
ACL = [
    "--allow-principal", f"User:CN={USER},OU=sales and more,O=plog", "--topic", LONG,
    "--resource-pattern-type", "prefixed", "--allow-host", "192.168.100.200", "--operation", "DescribeConfigs",
]  # fmt: skip


@dataclass(frozen=True)
class World:
    """Something to list."""

    where: list[str]
    directory: Path
    partition: Path
    topic: str
    transactional_id: str = "none"
    certificate: Path = Path()
    scratch: Path = field(default_factory=Path)
    secured: Sequence[str] = ("--data-dir", str(SECURED))
    """Of a directory with ACLs and users, which nobody serves."""


LISTINGS: dict[str, Callable[[World], Sequence[str | Path]]] = {
    "topic list": lambda w: ["--internal", *w.where],
    "topic describe": lambda w: [w.topic, *w.where],
    "produce": lambda w: [LONG, os.devnull, "--report", "table", *w.where],
    "group list": lambda w: w.where,
    "group describe": lambda w: [GROUP, *w.where],
    "group reset-offsets": lambda w: [GROUP, "--all-topics", "--to-earliest", *w.where],
    "group remove-members": lambda w: [GROUP, "--all", "--dry-run", *w.where],
    "redrive": lambda w: [w.topic, "--dry-run", *w.where],
    "transaction list": lambda w: w.where,
    "transaction describe": lambda w: [w.transactional_id, *w.where],
    "transaction find-hanging": lambda w: ["--all", *w.where],
    "config list": lambda w: w.where,
    "config diff": lambda w: ["topic", w.topic, w.topic, *w.where],
    "config describe": lambda w: ["topic", w.topic, "--all", "--docs", *w.where],
    "acl list": lambda w: w.secured,
    "acl add": lambda w: [*ACL, "--dry-run", *w.secured],
    "acl remove": lambda w: ["--principal", ACL[1], "--dry-run", *w.secured],
    "acl import": lambda w: [GOLDEN.parent / "security" / "no_acls.txt", "--remove-others", "--dry-run", *w.secured],
    "acl explain": lambda w: ["--principal", ACL[1], "--operation", "Read", *ACL[2:4], *w.secured],
    "user list": lambda w: w.secured,
    "user delete": lambda w: ["--dry-run", *w.secured, "sam" if w.secured[1] == str(SECURED) else USER],
    "dump-segment": lambda w: [w.directory, "--print-data-log", "--max-records", "20", "--format", "table"],
    "doctor": lambda w: [w.directory],
    "verify": lambda w: [w.directory],
    "compact": lambda w: [w.directory, "--set", "cleanup.policy=compact"],
    "recover": lambda w: [w.directory],
    "diff": lambda w: [w.partition, SAMPLE_DATA / "textbook" / "textbook-0"],
    "stats": lambda w: [w.directory],
    "gaps": lambda w: [w.directory],
    "trace": lambda w: [f"{w.topic}@3", "--data-dir", w.directory],
    "cluster status": lambda w: w.where,
    "cluster brokers": lambda w: w.where,
    "cluster topics": lambda w: w.where,
    "cluster describe": lambda w: [w.topic, *w.where],
    "cluster controller": lambda w: w.where,
    "cluster features": lambda w: w.where,
    "cluster elect": lambda w: ["--preferred", w.topic, *w.where],
    "cluster reassign": lambda w: ["--topics", w.topic, "--to", "1", *w.where],
    "cluster check": lambda w: [w.topic, *w.where],
    "cert show": lambda w: [w.certificate],
    "perf produce": lambda w: ["perf", "--num-records", "10", *w.where],
    "perf consume": lambda w: [LONG, *w.where],
    "perf latency": lambda w: ["perf", "--num-records", "2", *w.where],
    "spark-replay": lambda w: [w.topic, "--to", f"json:{w.scratch}", "--dry-run", "--data-dir", w.directory],
}
"""Each command that lists, and what it is asked; its output is chosen by the test."""

WRITING = {"produce", "group reset-offsets", "group describe", "transaction describe", "perf produce", "perf consume",
           "perf latency", "cluster elect", "cluster reassign", "cluster check",
           "group remove-members"}  # fmt: skip
"""Commands that sample data have nothing for."""

OF_SEVERAL_BROKERS = {"cluster drain", "cluster forget-replica"}
"""tests/interop/test_cluster_commands.py looks at these."""


def test_no_listing_is_forgotten() -> None:
    assert set(LISTINGS) | OF_SEVERAL_BROKERS == set(listing_commands())


def listing_commands() -> Iterator[str]:
    for path, command in all_commands().items():
        choices = [getattr(parameter.type, "choices", None) or () for parameter in command.params]
        if any("table" in map(str, some) for some in choices):
            yield path


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("long") / "a folder with a long name 長い名前のフォルダー"
    root.mkdir()
    certificate = root / "ca.pem"
    certificate.write_text(make_ca("An authority 証明書 of an organization with a long name").pem)
    with Server(root / "data") as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", LONG, "--partitions", "3", "--set", "retention.ms=-1", *where)
        ok("topic", "create", LONGEST, *where)
        ok("topic", "create", "perf", *where)
        lines = "".join(f"鍵{n}🙂\x1b[31m=a value of several words 値 {n * 10**9}\n" for n in range(30))
        ok("produce", LONG, "--key-separator", "=", "--partition", "0", *where, stdin=lines.encode())
        ok("produce", LONG, "--transactional-id", "a-transactional-id.of.a-copier-1", *where, stdin=b"x\n")
        ok("consume", LONG, "--group", GROUP, "--max-messages", "5", *where)
        secured = ["--data-dir", str(root / "secured")]
        ok("topic", "create", LONG, *secured)
        ok("acl", "add", *ACL, *secured)
        ok("user", "create", USER, "--password-stdin", *secured, stdin=b"secret\n")
        yield World(
            where, root / "data", root / "data" / f"{LONG}-0", LONG, "a-transactional-id.of.a-copier-1", certificate,
            root / "out", secured,
        )  # fmt: skip


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> World:
    certificate = tmp_path_factory.mktemp("c") / "ca.pem"
    certificate.write_text(make_ca().pem)
    return World(
        ["--data-dir", str(SAMPLE_DATA / "open-transaction")], SAMPLE_DATA / "partition",
        SAMPLE_DATA / "partition" / "txn_multisegment-0", "txn_multisegment", certificate=certificate,
        scratch=certificate.parent / "out",
    )  # fmt: skip


@for_each("name", LISTINGS, first=9)
def test_long_names(name: str, long_names: World) -> None:
    ensure_it_fits(name, LISTINGS[name](long_names), WIDTHS)


@for_each("name", sorted(set(LISTINGS) - WRITING), first=6)
def test_sample_data(name: str, samples: World) -> None:
    ensure_it_fits(name, LISTINGS[name](samples), WIDTHS[2:4])


def ensure_it_fits(name: str, arguments: Sequence[str | Path], widths: Sequence[int]) -> None:
    rows = as_json(name, arguments)
    if name == "dump-segment":  # whose table has nested values as JSON
        rows = [{column: value for column, value in row.items() if not isinstance(value, dict | list)} for row in rows]
    for columns in widths:
        printed, code = call_at_terminal(*name.split(), *arguments, columns=columns)
        assert code in (0, 1), printed
        printed = re.sub(r"\r\x1b\[K[^\r\n]*(?=\r\x1b)|\r\x1b\[K", "", printed)  # how far it has come
        assert "\x1b" not in printed, "the terminal is driven"
        lines = printed.splitlines()
        for line in lines:
            words = re.sub("'[^']*'", "", line.strip(" \\"))  # a quoted word is one for the shell, too
            is_one_word = " " not in words  # which can be wider than any terminal, and is not broken
            assert cell_len(line) <= columns or is_one_word, f"{cell_len(line)} of {columns}: {line}"
        assert not rows or subject_of(name, rows) not in left_out(printed), f"what is a row about?\n{printed}"
        for word in words_of(rows, printed):
            assert any(word in line for line in lines), f"{word!r} is broken at {columns}:\n{printed}"


def as_json(name: str, arguments: Sequence[str | Path]) -> list[dict[str, Any]]:
    option = {"produce": "--report", "dump-segment": "--format"}.get(name, "--output")
    given = [*map(str, arguments)]
    if option in given:
        at = given.index(option)
        given = given[:at] + given[at + 2 :]
    done = call_plog(*name.split(), *given, option, "ndjson")
    assert done.returncode in (0, 1), done.stderr.decode()
    found = [json.loads(line) for line in done.stdout.decode().splitlines()]
    return [row for row in found if isinstance(row, dict)]


def subject_of(name: str, rows: list[dict[str, Any]]) -> str | None:
    """The column that says what a row is about, which a table leaves out last: the first, if no line above it says the
    same of all rows.
    """
    others = {
        "gaps": "partition", "group describe": "topic", "group reset-offsets": "topic", "redrive": "dead_letter",
    }  # fmt: skip
    return others.get(name, next(iter(rows[0])))


def left_out(printed: str) -> list[str]:
    """The columns that notes name, of whichever table: a note goes on in the next line."""
    noted = " ".join(re.findall(r"note: too narrow for ([^;]*);", printed))
    return noted.replace(",", " ").split()


CHANGING = ("timestamp", "lag_ms", "open_seconds", "days_left", "ms", "mb_per_s", "records_per_s", "seconds")
"""Columns that a table writes otherwise, or that are others each time."""


def words_of(rows: list[dict[str, Any]], printed: str) -> Iterator[str]:
    """The words of all values whose columns are shown; a row that is no flat one is a report of its own."""
    missing = left_out(printed)
    shown = printed.replace(":", " ").split()
    for row in rows:
        if "timestamp" in str(row.get("what")):
            continue
        for column, value in row.items():
            is_changing = any(column == end or column.endswith(f"_{end}") for end in CHANGING)
            is_shown = column in shown and column not in missing
            if value is None or isinstance(value, bool) or is_changing or not is_shown:
                continue
            for text in _texts(value):
                yield from text.replace("\x1b", "\\x1b").split()


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{key}={item}" for key, item in value.items())
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))
    else:
        yield str(value)
