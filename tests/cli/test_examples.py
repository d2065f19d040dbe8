"""Every command that the help pages and the README show, typed as it stands there, in a folder as they speak of.

test_tours.py types those of docs/tour.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from cli.help_pages import page, page_names
from tests.support.full_screen import FullScreen
from tests.support.server import PLOG, Server, call_plog

pytestmark = pytest.mark.longer

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*page_names(), "README"]

NEEDS_SPARK = "spark-replay"  # tests/interop/test_spark.py runs these
NEEDS_BROKERS = ("cluster reassign", "cluster drain", "cluster forget-replica")
"""tests/interop/test_cluster_commands.py and tests/cli/test_runbook.py run these."""
LACKS_BROKERS = (
    "plog topic create letters --partitions 3 --replication-factor 3 --set min.insync.replicas=2 "
    "--bootstrap-server 127.0.0.1:9092"
)
FINDS_SOMETHING = {
    "plog doctor sample-data/damaged",
    "plog doctor kafka",
    "plog recover sample-data/damaged",
    "plog recover sample-data/damaged --fix-bits",
    "plog recover /var/lib/kafka/data --salvage-records records.ndjson",
    "cp -r sample-data/damaged disk && plog verify --deep disk",
    "plog gaps disk --lost --certificate before.json",
    "plog consume c_bitflip_middle --no-exit-on-error --format envelope --data-dir disk --out saved.ndjson",
    "plog recover disk",
    "plog recover disk --fix-bits",
    "plog recover disk --salvage-records salvaged.ndjson",
    "plog gaps sample-data/damaged",
    "plog gaps sample-data/damaged --lost",
    "plog verify kafka --deep --output ndjson",
    "plog diff replica-1/flights-0 replica-2/flights-0",
    "plog transaction abort --topic orders --partition 3 --start-offset 81721",
    LACKS_BROKERS,
    "plog config diff topic flights flights-copy",
    "plog group remove-members flights-etl --instance worker-3 --bootstrap-server 127.0.0.1:9092",
}
"""These end with exit code 1: there is damage, a difference, no transaction, no member, or one broker, not three."""

ENDLESS = re.compile(
    r"plog serve|plog zookeeper|plog cluster start|consume .*--bootstrap-server|(consume|produce) .*--zookeeper"
)
PREPARED = """
plog topic create flights --partitions 4 --set retention.ms=-1
zcat sample-data/flights-2013-01.ndjson.gz | plog produce flights --key-field tailnum --timestamp-field time
plog topic create state --set cleanup.policy=compact --set retention.ms=-1
printf 'a:1\\nb:2\\na:3\\n' | plog produce state --key-separator :
plog topic create flights-copy --partitions 4
plog topic create orders --partitions 4
plog consume flights --group etl --max-messages 10
plog consume flights --group flights-etl --max-messages 10
echo one | plog produce orders --transactional-id copier-1
echo two | plog produce orders.DLT --header kafka_dlt-original-topic=orders
plog produce counts --format raw count
plog produce events --header id=7 --format raw count
"""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sample-data, a data directory, and copies of it: a dead broker's, and two replicas."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "sample-data").symlink_to(ROOT / "sample-data")
    (folder / "count").write_bytes(struct.pack(">q", 42))
    (folder / "config.toml").write_text('[profile.prod.default]\nbootstrap-server = "127.0.0.1:1"\n')
    for command in PREPARED.strip().split("\n"):
        done = run(command, folder)
        assert done.returncode == 0, (command, done.stderr)
    shutil.copytree(folder / "data", folder / "kafka")
    for number in (1, 2):
        shutil.copytree(folder / "data" / "flights-0", folder / f"replica-{number}" / "flights-0")
    for damaged in (folder / "kafka", folder / "replica-2"):
        log = damaged / "flights-0" / "00000000000000000000.log"
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 8
        log.write_bytes(content)
    for name in ("alice", "bob"):
        (folder / f"{name}.password").write_text("secret\n")
    (folder / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    (folder / "order.proto").write_text('syntax = "proto3"; message Line { int32 n = 1; }')
    return folder


@pytest.fixture(scope="session")
def server(prepared: Path) -> Iterator[str]:
    shutil.copytree(prepared / "data", prepared / "served")
    settings = ["--set", "group.initial.rebalance.delay.ms=0", "--set", "log.retention.check.interval.ms=86400000"]
    with Server(prepared / "served", *settings) as server:
        yield server.address


def run(command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """By a shell, or in this process if a shell would do no more than call plog."""
    unquoted = re.sub(r"""'[^']*'|"[^"$`\\]*\"""", "", command)
    if command.startswith("plog ") and not re.search(r"""[]|&;<>$`*?~(){}[\\#!"']""", unquoted):
        with contextlib.chdir(folder), mock.patch.dict(os.environ, environment_of(folder)):
            return call_plog(*shlex.split(command)[1:])
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True, check=False, cwd=folder, env=environment_of(folder), stdin=subprocess.DEVNULL,
    )  # fmt: skip


def environment_of(folder: Path) -> dict[str, str]:
    config = folder / "config.toml"
    return {
        **os.environ,
        "PATH": f"{PLOG.parent}:{os.environ['PATH']}",
        "PLOG_DATA_DIR": "data",
        "PLOG_CONFIG": str(config) if config.exists() else "",
    }


def looks_at(command: str, folder: Path) -> int:
    """Runs what draws on a terminal, or in a browser, until it has drawn, and ends it; the exit code."""
    terminal = FullScreen(["bash", "-c", f"exec {command}"], environment=environment_of(folder), cwd=folder)
    if "--web" in command:
        assert b"ready http" in terminal.read_until(lambda output: b"/?token=" in output)
        terminal.write(b"\x03")
        return terminal.end()  # as plog serve ends
    assert b"Help" in terminal.read_until(lambda output: b"Help" in output)
    terminal.write(b"q")
    return terminal.end()


def begins(command: str, folder: Path) -> tuple[int, bytes]:
    """Runs what does not end until it does what it is for, and presses Ctrl-C; the exit code, and what it printed."""
    terminal = FullScreen(["bash", "-c", f"exec {command}"], environment=environment_of(folder), cwd=folder)
    printed = re.compile(
        rb"\n" if re.search("(consume|produce) ", command) else rb"ready |waiting for it|the logs are in"
    )
    terminal.read_until(lambda output: printed.search(output) is not None)
    terminal.write(b"\x03")
    return terminal.end(), terminal.output


def commands_of(name: str) -> list[str]:
    text = (ROOT / "README.md").read_text() if name == "README" else page(name)
    joined = re.sub(r"\|\n +", "| ", text)
    found = re.findall(r"^    (.*\bplog .*)", joined, re.MULTILINE)
    return [line for line in found if not line.startswith(("scripts/", "def "))]


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_works(name: str, prepared: Path, server: str, tmp_path: Path) -> None:
    commands = [
        command for command in commands_of(name) if not any(words in command for words in (NEEDS_SPARK, *NEEDS_BROKERS))
    ]
    folder = tmp_path / "folder"
    if commands:
        shutil.copytree(prepared, folder, symlinks=True, ignore=shutil.ignore_patterns("served"))
    if name in ("README", "topic"):
        shutil.rmtree(folder / "data")  # they begin at the beginning
    for shown in commands:
        command = (
            shown.replace("/var/lib/kafka/data", "kafka")
            .replace("/mnt/dead-broker/kafka-logs", "sample-data/partition")
            .replace("127.0.0.1:9099", "127.0.0.1:0")
            .replace("--listen 127.0.0.1:9092", "--listen 127.0.0.1:0")
            .replace("://0.0.0.0:29092", "://127.0.0.1:0")
            .replace("://0.0.0.0:9092", "://127.0.0.1:0")
            .replace("--listen 127.0.0.1:2181", "--listen 127.0.0.1:0")
            .replace("--zookeeper 127.0.0.1:2181", "--zookeeper 127.0.0.1:1")
            .replace("127.0.0.1:9092", server)
            .removesuffix(" &")
        )
        if command.startswith("plog inspect"):
            assert looks_at(command, folder) == 0, shown
            continue
        if ENDLESS.search(command):
            code, said = begins(command, folder)
            assert code in (0, 130), (shown, said)
            assert b"error" not in said
            continue
        done = run(command, folder)
        expected = 1 if FINDS_SOMETHING & {command, shown} else 0
        assert done.returncode == expected, (shown, done.stdout[-500:], done.stderr)


def test_the_examples_do_what_they_say(prepared: Path) -> None:
    """A few of them, by another road: the sample's own lines."""
    lines = [
        json.loads(line) for line in run("zcat sample-data/flights-2013-01.ndjson.gz", prepared).stdout.splitlines()
    ]
    grep = run("""plog consume flights --grep '"dest":"SFO"'""", prepared).stdout.splitlines()
    assert len(grep) == sum(line["dest"] == "SFO" for line in lines)
    late = run("""plog consume flights --filter 'value.dest == "SFO" and value.dep_delay > 200'""", prepared).stdout
    assert len(late.splitlines()) == sum(line["dest"] == "SFO" and (line["dep_delay"] or 0) > 200 for line in lines)
    no_key = run("plog consume flights --filter 'key is null'", prepared).stdout
    assert len(no_key.splitlines()) == sum(line["tailnum"] is None for line in lines) == 155


def test_the_night_of_3am_ends_well(prepared: Path, tmp_path: Path) -> None:
    """What its steps say, beside their exit codes: 8 records at stake in 120, 2 of them lost in the end."""
    (tmp_path / "sample-data").symlink_to(prepared / "sample-data")
    told = {}
    for command in commands_of("3am"):
        if not ENDLESS.search(command):
            done = run(command, tmp_path)
            told[command] = done.stdout.decode() + done.stderr.decode()
    assert told["cp -r sample-data/damaged disk && plog verify --deep disk"].count(" at stake)") == 3
    assert (
        "112 records, 8 offsets without one, 8 of them lost" in told["plog gaps disk --lost --certificate before.json"]
    )
    assert "9 steps, 8 records lost" in told["plog recover disk"]
    assert "9 steps, 2 records lost" in told["plog recover disk --fix-bits"]
    assert "clean; 2 records lost" in told["plog recover disk --fix-bits --apply"]
    assert "118 records, 0 offsets without one" in told["plog gaps disk --lost"]
    assert "11 files put back" in told["plog recover disk --undo"]
    saved = [json.loads(line)["offset"] for line in (tmp_path / "saved.ndjson").read_text().splitlines()]
    assert saved == [*range(21), *range(23, 40)]
