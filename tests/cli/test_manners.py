"""How plog behaves at a terminal: words explained, what was meant, completion, defaults of one's own, dry runs, a quick
start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main
from cli.help_pages import findings, page, page_names
from cli.main import COMMANDS
from core.inspector.check.findings import Code
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import PLOG, Server, call_plog, run_plog

ROOT = Path(__file__).resolve().parents[2]


# --- help


def test_every_command_has_a_page_of_help() -> None:
    assert set(COMMANDS) <= set(page_names())
    listed = ok("help").decode()
    assert all(re.search(rf"^  {name} ", listed, re.MULTILINE) for name in page_names())
    assert all(len(line) <= 80 for line in listed.splitlines())


@for_each("name", page_names())
def test_a_page_shows_a_command_and_leads_on(name: str) -> None:
    text = page(name)
    assert re.search(r"^    .*\bplog ", text, re.MULTILINE)
    last = text.rstrip("\n").split("\n\n")[-1]
    assert last.startswith("See also: ")
    assert name not in re.findall(r"plog help ([\w-]+)", last)
    assert set(re.findall(r"`plog help ([a-z0-9-]+)`", text)) - {"crc-mismatch"} <= set(page_names())


@for_each(
    "words, name",
    [
        ("offset", "offset"),
        ("consumer group", "consumer-group"),
        ("High Watermark", "high-watermark"),
        ("leader epoch", "leader-epoch"),
        ("exit code", "exit-codes"),
        ("last stable offset", "lso"),
        ("offsets", "offset"),
        ("group describe", "group"),
    ],
)
def test_words_are_found_as_people_type_them(words: str, name: str) -> None:
    done = call_plog("help", *words.split())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().split("\n")[0] == page(name).split("\n")[0]


def test_the_code_of_a_finding_is_explained() -> None:
    assert set(findings()) == {code.value for code in Code}
    told = ok("help", "torn-tail").decode()
    assert "the file ends within a batch" in told
    assert "recover --apply" in told


@for_each(
    "words, hint",
    [
        ("ofset", "did you mean offset?"),
        ("watermark", "did you mean high-watermark?"),
        ("crc-mismach", "did you mean crc-mismatch?"),
        ("hyphen", "these pages use the word: help"),
        ("zzz", "plog help lists all pages"),
    ],
)
def test_a_word_without_a_page(words: str, hint: str) -> None:
    done = call_plog("help", words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"error: there is no page about {words!r}\nhint: {hint}\n"


# --- what was meant


def test_topics_and_groups_that_were_meant(where: list[str]) -> None:
    ok("produce", "flights", *where, stdin=b"a\n")
    ok("consume", "flights", "--group", "nightly", "--max-messages", "1", *where)
    for command in (["consume", "flihgts"], ["topic", "describe", "Flight"]):
        done = call_plog(*command, *where)
        assert done.returncode == 1
        assert b"did you mean flights?" in done.stderr, command
    assert b"did you mean nightly?" in call_plog("group", "describe", "nigthly", *where).stderr


# --- completion


def completed(words: str, where: list[str], shell: str = "bash") -> list[str]:
    line = f"plog {words.replace('WHERE', ' '.join(where))}"
    environment = {
        **os.environ,
        "_PLOG_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run([PLOG], env=environment, capture_output=True, check=False)
    assert done.stderr == b""
    return done.stdout.decode().split()


@pytest.mark.longer
def test_commands_options_and_names_are_completed(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        where = ["--bootstrap-server", server.address]
        for topic in ("flights", "flies", "orders"):
            ok("topic", "create", topic, *where)
        ok("consume", "flights", "--group", "nightly", "--timeout-ms", "0", *where)
        assert set(completed("con", where)) == {"config", "consume"}
        assert "--partitioner" in completed("produce --part", where)
        assert completed("consume WHERE fli", where) == ["flies", "flights"]
        assert completed("topic describe WHERE ", where) == ["flies", "flights", "orders"]
        assert completed("group describe WHERE n", where) == ["nightly"]
        assert completed("help off", where) == ["offset"]
        assert "flights" in " ".join(completed("consume WHERE fli", where, "zsh"))
        assert completed("consume WHERE fli", where, "fish")
    assert completed("consume --bootstrap-server 127.0.0.1:1 fli", []) == []
    assert completed("consume --data-dir " + str(tmp_path / "nowhere") + " fli", []) == []


@pytest.mark.longer
@for_each("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str) -> None:
    done = subprocess.run(
        [PLOG], env={**os.environ, "_PLOG_COMPLETE": f"source_{shell}"}, capture_output=True, check=False
    )
    assert b"_PLOG_COMPLETE" in done.stdout


# --- defaults of one's own


def test_a_command_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes typer 15 ms to make one of a function with many options."""
    made: list[str] = []
    load = main._load
    monkeypatch.setattr(main, "_load", lambda name: (made.append(name), load(name))[1])
    assert main.run(["topic", "list", "--help"]) == 0
    assert made == ["topic"]


def test_a_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("PLOG_CONFIG", str(path))
    where = ["--data-dir", str(tmp_path / "data")]
    path.write_text(
        f"""
        [default]
        data-dir = "{tmp_path / "data"}"
        [topic.create]
        partitions = 3
        set = ["retention.ms=-1", "cleanup.policy=compact"]
        [consume]
        format = "%k %s;"
        [profile.other.default]
        data-dir = "{tmp_path / "other"}"
        [profile.other.consume]
        format = '%s\\n'
        """
    )
    call_plog("topic", "create", "t")
    [topic] = json.loads(ok("topic", "list", "--output", "json", *where))
    assert topic == {"topic": "t", "partitions": 3}
    settings = call_plog("topic", "describe", "t").stderr
    assert b"cleanup.policy=compact retention.ms=-1" in settings
    ok("produce", "t", "--key-separator", "=", stdin=b"a=1\n")
    assert ok("consume", "t") == b"a 1;"
    assert ok("consume", "t", "--format", "%s") == b"1"
    ok("--profile", "other", "produce", "t", stdin=b"elsewhere\n")
    assert ok("--profile", "other", "consume", "t") == b"elsewhere\n"
    assert b"%k %s;" in b" ".join(ok("consume", "--help").split())  # whose lines may be broken there
    wrong = call_plog("--profile", "othr", "topic", "list")
    assert wrong.returncode == 2
    assert b"did you mean other?" in wrong.stderr


def test_defaults_of_other_commands_may_have_names_like_ones_of_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`partitions` is of `topic create`, `partition` of `consume`, `max-expansion` of all."""
    path = tmp_path / "config.toml"
    path.write_text(f"[default]\npartitions = 3\nmax-expansion = '1G'\ndata-dir = '{tmp_path}/data'\n")
    monkeypatch.setenv("PLOG_CONFIG", str(path))
    ok("topic", "create", "t")
    assert ok("consume", "t") == b""


# --- dry runs


def test_dry_runs_change_nothing(where: list[str]) -> None:
    ok("topic", "create", "t", "--partitions", "2", *where)
    ok("produce", "t", "--partition", "0", *where, stdin=b"a\nb\nc\n")
    ok("consume", "t", "--group", "g", "--max-messages", "2", *where)
    ok("produce", "t", "--partition", "0", "--transactional-id", "id", *where, stdin=b"d\n")
    before, seen = state(where), quick_look(where)
    place = f"on {where[1]}" if where[0] == "--bootstrap-server" else f"in {where[1]}"
    for command, said in (
        (["topic", "create", "u", "--partitions", "7"], "would create topic u {}"),
        (["topic", "alter", "t", "--partitions", "5", "--set", "retention.ms=1"], "would alter topic t {}"),
        (["topic", "delete-records", "t", "--before", "2", "--partition", "0"], "t-0 would start at offset 2 {}"),
        (["topic", "delete", "t"], "would delete topic t {}: 5 offsets, "),
        (["group", "delete", "g"], "would delete group g {}, and its offsets of 1 partitions"),
        (["group", "delete-offsets", "g", "--topic", "t"], "group g {} would forget its offsets of 1 partitions"),
        (["transaction", "abort", "id"], "id {}: would be fenced, and what it has open on 0 partitions aborted"),
    ):
        done = call_plog(*command, "--dry-run", *where)
        assert done.returncode == 0, done.stderr
        assert said.format(place) in done.stderr.decode(), command
        assert quick_look(where) == seen, command
    assert state(where) == before
    refused = call_plog("topic", "alter", "t", "--partitions", "1", "--dry-run", *where)
    assert refused.returncode == 1
    assert call_plog("topic", "create", "t", "--dry-run", *where).returncode == 1


def state(where: list[str]) -> list[object]:
    return [
        ok("topic", "describe", "t", "--output", "json", *where),
        call_plog("topic", "describe", "t", *where).stderr,
        ok("topic", "list", *where),
        ok("group", "describe", "g", "--output", "csv", *where).split(b",")[:6],
        ok("transaction", "describe", "id", "--output", "json", *where),
    ]


def quick_look(where: list[str]) -> object:
    """What there is. A server is asked. Of a directory, which each question would open again, these are the files of
    its partitions; only of the metadata, in which each opening leaves a trace, it is what they say of the topic.
    Snapshots of producers come and go with each opening, too.
    """
    if where[0] == "--bootstrap-server":
        return state(where)
    topic = call_plog("topic", "describe", "t", "--output", "json", *where)
    files = [path for path in Path(where[1]).glob("*-*/*") if path.parent.name != "__cluster_metadata-0"]
    kept = [path for path in files if path.suffix != ".snapshot"]
    return topic.stdout, topic.stderr, {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept}


# --- a quick start

HEAVY = {
    "numpy", "pyarrow", "asyncio", "pyspark", "confluent_kafka", "fastavro", "google", "jsonschema", "msgspec",
    "core.broker", "core.spark", "lz4", "snappy", "backports", "http", "tomllib",
}  # fmt: skip


@for_each("command", [["--help"], ["--version"], ["topic", "--help"], ["consume", "--help"], ["help"]])
def test_nothing_heavy_is_imported_to_say_what_there_is(command: list[str]) -> None:
    """The time it takes is that of its imports."""
    imported = imported_by(command)
    assert not {name for name in imported if name in HEAVY or name.split(".")[0] in HEAVY}
    assert len(imported) < 420, "plog itself, typer, and what they stand on"


@pytest.mark.longer
def test_a_listing_over_the_wire_needs_no_columns(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        imported = imported_by(["topic", "list", "--bootstrap-server", server.address])
    assert not imported & {"pyarrow", "asyncio", "core.broker.broker_server", "pyspark", "rich"}


@pytest.mark.longer
def test_plain_lines_are_written_with_what_lines_need(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        ok("topic", "create", "t", "--bootstrap-server", server.address)
        imported = imported_by(["produce", "t", "--bootstrap-server", server.address], stdin=b"a line\n")
        assert run_plog("consume", "t", "--bootstrap-server", server.address).stdout == b"a line\n"
    assert not imported & {
        "pyarrow", "numpy.ma", "asyncio", "rich", "hashlib", "core.client.admin.admin", "core.records.columns",
        "core.pipeline.input_template", "core.pipeline.large_values", "core.pipeline.key_value_text",
    }  # fmt: skip


PARTITION = ROOT / "sample-data" / "partition" / "txn_multisegment-0"

TO_TALK = {"core.client.net.kafka_client", "core.client.admin.admin", "core.protocol.message"}
"""What is needed to talk to a server."""

FOR_DAMAGE = {
    "core.forensics.log_map",
    "core.forensics.batch_order",
    "core.forensics.transaction_resolution",
}


def test_the_values_of_a_sound_directory_are_read_with_what_they_need() -> None:
    imported = imported_by(["consume", "txn_multisegment", "--data-dir", str(PARTITION)])
    assert "core.forensics.partition_reader" in imported
    assert not imported & {*TO_TALK, *FOR_DAMAGE, "pyarrow", "hashlib", "asyncio", "rich"}


def test_a_sound_directory_is_verified_with_what_that_needs() -> None:
    imported = imported_by(["verify", str(PARTITION)])
    assert not imported & {*TO_TALK, *FOR_DAMAGE, "core.forensics.partition_reader", "numpy", "pyarrow", "rich"}


@pytest.mark.longer
def test_spark_reads_files_without_what_talks_to_servers() -> None:
    reading = (
        "from core.spark.offset_range import OffsetRange, read_range;"
        f"print(sum(map(len, read_range(OffsetRange('t', 0, 0, 1 << 40, 0, directory={str(PARTITION)!r}), ['key']))))"
    )
    imported = imported_by(["-c", reading], program=())
    assert "core.forensics.partition_reader" in imported
    assert not imported & {*TO_TALK, *FOR_DAMAGE, "pyspark", "hashlib", "core.compaction.compacted_view"}


def imported_by(command: list[str], stdin: bytes = b"", *, program: tuple[str, ...] = ("-m", "plog")) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *program, *command],
        input=stdin, capture_output=True, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-300:]
    return {
        line.rsplit("|", 1)[1].strip() for line in done.stderr.decode().splitlines() if line.startswith("import time:")
    }


def test_the_documents_are_made_of_the_help() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_docs.py", "--check"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_colour_and_no_progress_in_a_pipe(tmp_path: Path) -> None:
    done = run_plog("produce", "t", "--data-dir", str(tmp_path), stdin=b"x\n" * 10)
    assert b"\x1b" not in done.stderr + run_plog("help", "offset").stdout
