"""What is wrong is said in one clear line, with the right exit code; nothing is lost that was acknowledged."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from core.files.directory_lock import DirectoryLock
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import Server, call_plog, run_plog

MAX_MESSAGE_BYTES = 1048588


@pytest.fixture
def where(where: list[str]) -> list[str]:
    """A log with the topic t, of one partition."""
    ok("topic", "create", "t", *where)
    return where


def refused(*arguments: str, code: int, stdin: bytes = b"") -> str:
    """What a command that must fail says; it says it in a line or two, and prints nothing else."""
    done = call_plog(*arguments, stdin=stdin)
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert done.stdout == b""
    assert "Traceback" not in message
    assert message.startswith("error: ")
    assert message.count("\n") <= 2
    return message


def values(where: list[str], topic: str = "t") -> list[bytes]:
    done = call_plog("consume", topic, *where)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# --- topics


@for_each(
    "command, code, problem",
    [
        (["consume", "nope"], 1, "UNKNOWN_TOPIC_OR_PARTITION: no topic 'nope'"),
        (["topic", "describe", "nope"], 1, "UNKNOWN_TOPIC_OR_PARTITION: no topic 'nope'"),
        (["topic", "delete", "nope"], 1, "UNKNOWN_TOPIC_OR_PARTITION: nope: "),
        (["topic", "create", "t"], 1, "TOPIC_ALREADY_EXISTS: Topic 't' already exists"),
        *((["topic", "create", name], 1, "INVALID_TOPIC_EXCEPTION") for name in ("a b", "..", "a/b", "x" * 250, "")),
        *((["topic", *name, "--set", "no.such=1"], 1, "INVALID_CONFIG") for name in (["create", "x"], ["alter", "t"])),
        (["topic", "create", "x", "--set", "retention.ms=soon"], 1, "INVALID_CONFIG"),
        (["topic", "alter", "t", "--set", "retention.ms=soon"], 1, "INVALID_CONFIG"),
        (["topic", "create", "x", "--set", "cleanup.policy=burn"], 1, "INVALID_CONFIG"),
        (["topic", "alter", "t", "--set", "cleanup.policy=burn"], 1, "INVALID_CONFIG"),
        (["produce", "t", "--partition", "7"], 2, "only partition 0, not 7"),
        (["consume", "t", "--partition", "7"], 2, "no partition 7"),
    ],
)
def test_topics_settings_and_partitions_that_are_none(
    where: list[str], command: list[str], code: int, problem: str
) -> None:
    assert problem in refused(*command, *where, code=code, stdin=b"a\n")
    assert call_plog("topic", "list", "--output", "csv", *where).stdout == b"topic,partitions\nt,1\n"


@for_each("count, there", [(1, "partition 0"), (2, "0 to 1"), (3, "0 to 2")])
def test_which_partitions_there_are(where: list[str], count: int, there: str) -> None:
    topic = f"of{count}"
    ok("topic", "create", topic, "--partitions", str(count), *where)
    told = refused("consume", topic, "--partition", "7", *where, code=2)
    assert told == f"error: topic {topic} has no partition 7, only {there}\n"


def test_a_topic_that_may_be_there_already(where: list[str]) -> None:
    assert call_plog("topic", "create", "t", "--if-not-exists", *where).returncode == 0


# --- records


def test_a_wrong_line_stops_what_comes_after_it_and_nothing_before_it(where: list[str]) -> None:
    written: list[bytes] = []
    for options, lines, problem, before in (
        (["--key-field", "k"], b'{"k": "a"}\n{"k": "b"}\n{"k": \n{"k": "d"}\n', "line 3: not JSON", 2),
        (["--key-field", "k"], b'{"k": null}\n{"k": "b"}\n{"other": 1}\n', "line 3: no field 'k'", 2),
        (["--timestamp-field", "at"], b'{"a": 1}\n', "line 1: no field 'at'", 0),
        (["--key-field", "a.b"], b'{"a": {"b": 1}}\n', ": only fields at the top of the line can be named", 0),
        (["--timestamp-field", "at"], b'{"at": true}\n', "line 1: field 'at' is true", 0),
    ):
        assert problem in refused("produce", "t", *options, *where, stdin=lines, code=1)
        written += lines.splitlines()[:before]
        assert values(where) == written
    assert "line 2: no key separator ':'" in refused(
        "produce", "t", "--key-separator", ":", *where, stdin=b"a:1\nb\n", code=1
    )
    assert "line 4: 1 cells" in refused("produce", "t", "--format", "csv", *where, stdin=b'a,b\n1,"2\n"\n3\n', code=1)
    assert values(where) == [*written, b"1", b'{"a": "1", "b": "2\\n"}']
    keys = call_plog("consume", "t", "--format", "%K %k\n", *where).stdout.splitlines()
    assert keys == [b"1 a", b"1 b", b"-1 ", b"1 b", b"1 a", b"-1 "], "null is a null key"


def test_a_compacted_topic_wants_keys(where: list[str]) -> None:
    ok("topic", "create", "compacted", "--set", "cleanup.policy=compact", *where)
    told = refused("produce", "compacted", *where, stdin=b"a\n", code=1)
    assert "hint: give each record a key: --key-separator S, " in told


def test_an_envelope_that_is_none(where: list[str]) -> None:
    for number, (line, problem) in enumerate((
        (b'{"value": "x", "colour": "red"}', "colour"),
        (b'{"value": 7}', "value"),
        (b'{"value": {"base64": "%%"}}', "base64"),
        (b'{"headers": [["a"]]}', "header"),
        (b'{"value": "x", "partition": 9}', "partition"),
        (b'"x"', "object"),
    )):  # fmt: skip
        done = call_plog("produce", "t", "--format", "envelope", *where, stdin=b'{"value": "good"}\n' + line + b"\n")
        assert done.returncode == 1
        assert done.stderr.startswith(b"error: line 2: ")
        assert problem in done.stderr.decode()
        assert b"; 1 record written to t before it, and none after it" in done.stderr
        assert values(where) == [b"good"] * (number + 1)


def test_a_record_over_max_message_bytes(where: list[str]) -> None:
    oversize = b"x" * (2 * MAX_MESSAGE_BYTES)
    message = refused("produce", "t", *where, stdin=b"before\n" + oversize + b"\n", code=1)
    assert "MESSAGE_TOO_LARGE: line 2: " in message
    assert f"max.message.bytes is {MAX_MESSAGE_BYTES}" in message
    assert values(where) == [b"before"]


def test_what_the_message_says_was_written_is_what_was_written(where: list[str]) -> None:
    oversize = b"x" * (2 * MAX_MESSAGE_BYTES)
    lines = [b"%d" % n for n in range(50)]
    message = refused("produce", "t", *where, stdin=b"\n".join([*lines[:25], oversize, *lines[25:]]), code=1)
    assert "line 26: " in message
    assert f"; {len(values(where))} records written to t; line" in message


def test_a_file_that_is_not_there(where: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.txt")
    there = tmp_path / "there.txt"
    there.write_text("a\n")
    assert f"could not read {missing}: no such file" in refused("produce", "t", str(there), missing, *where, code=3)
    assert "is a directory" in refused("produce", "u", str(tmp_path), *where, code=3)
    assert call_plog("consume", "t", *where).stdout == b"", "nothing is sent before all files are looked at"
    assert b"no topic 'u'" in call_plog("consume", "u", *where).stderr


def test_options_that_do_not_go_together(where: list[str]) -> None:
    for options in (
        ["--key-separator", ":", "--key-field", "k"],
        ["--format", "raw", "--key-field", "k"],
        ["--format", "csv", "--key-separator", ":"],
        ["--key-separator", ""],
        ["--header", "no-equals-sign"],
    ):
        refused("produce", "t", *options, *where, stdin=b"a\n", code=2)
    for options in (
        ["--follow", "--until", "5"],
        ["--from", "somewhere"],
        ["--format", "plain"],
        ["--format", "%q"],
        ["--format", "%s\\q"],
    ):
        refused("consume", "t", *options, *where, code=2)
    assert values(where) == []


# --- directories, files, ports


def test_a_directory_that_is_a_file_or_may_not_be_written(tmp_path: Path) -> None:
    """/proc refuses root, too."""
    file = tmp_path / "file"
    file.write_bytes(b"")
    refused("topic", "list", "--data-dir", str(file), code=3)
    for directory in (file, Path("/proc/plog")):
        refused("topic", "create", "t", "--data-dir", str(directory), code=3)
        refused("serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0", code=3)


@pytest.mark.longer
def test_a_process_ends_that_can_not_serve_its_directory(tmp_path: Path) -> None:
    """As those above, with the exit code of the process; it never says to be ready."""
    file = tmp_path / "file"
    file.write_bytes(b"")
    problems = {file: "file exists", Path("/proc/plog"): "no such file or directory"}
    for directory, problem in problems.items():
        said = refused_by_serve(directory, "--listen", "127.0.0.1:0")
        assert said.startswith(f"error: could not create {directory}: {problem}")


@for_each("command", ["dump-segment", "verify"])
def test_files_that_are_none(command: str, tmp_path: Path) -> None:
    """Not there, not of Kafka's, and with a log's name but no log."""
    notes, file = tmp_path / "notes.txt", tmp_path / "00000000000000000000.log"
    notes.write_text("hello\n")
    assert "notes.txt is no file that Kafka or plog writes" in refused(command, str(notes), code=3)
    assert f"no such file or directory: {file}" in refused(command, str(file), code=3)
    file.write_bytes(b"To whom it may concern, this is a letter and no log, however long it goes on like this\n" * 3)
    done = call_plog(command, str(file))
    assert done.returncode == 1
    assert b"00000000000000000000.log position 0" in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.longer
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        message = refused_by_serve(tmp_path / "data", "--listen", address)
    assert f"could not listen on {address}: address already in use" in message


@pytest.mark.longer
@for_each("listen", ["nonsense", "127.0.0.1:http", "127.0.0.1:99999", "host.invalid:0"])
def test_an_address_that_is_none(tmp_path: Path, listen: str) -> None:
    refused_by_serve(tmp_path / "data", "--listen", listen, codes=(2, 3))


def refused_by_serve(data_dir: Path, *arguments: str, codes: tuple[int, ...] = (3,)) -> str:
    done = run_plog("serve", "--data-dir", str(data_dir), *arguments)
    lines = [
        line for line in done.stderr.decode().splitlines() if not line[:4].isdigit()
    ]  # the log's begin with a year
    assert done.returncode in codes, done.stderr
    assert lines[0].startswith("error: ")
    assert b"ready" not in done.stdout
    return "\n".join(lines)


@pytest.mark.longer
def test_a_directory_that_another_plog_owns(server: Server, tmp_path: Path) -> None:
    message = refused_by_serve(tmp_path / "data", "--listen", "127.0.0.1:0", "--lock-timeout", "0")
    assert server.process is not None
    assert f"in use by process {server.process.pid}, listening on {server.address}" in message


def test_an_embedded_writer_waits_no_longer_than_it_is_told(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    message = refused("topic", "create", "t", "--data-dir", str(tmp_path), "--lock-timeout", "0.1", code=3)
    lock.release()
    assert "in use by process" in message


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
    message = refused("consume", "t", "--bootstrap-server", address, code=3)
    assert f"could not connect to {address}: connection refused" in message
    assert "hint: is a broker listening there?" in message


def test_a_name_that_is_unknown_here() -> None:
    message = refused("consume", "t", "--bootstrap-server", "kafka-0.invalid", code=3)
    assert "could not connect to kafka-0.invalid:9092: " in message
    assert message.endswith("from elsewhere: --resolve kafka-0.invalid=HOST:PORT\n")


def test_a_code_that_brings_no_advice_gets_some(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path)]
    call_plog("topic", "create", "t", "--partitions", "2", *where)
    message = refused("topic", "alter", "t", "--partitions", "1", *where, code=1)
    assert "error: INVALID_PARTITIONS: " in message
    assert "hint: a topic can get more partitions, and never fewer" in message


def test_inspecting_writes_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(GOLDEN / "c_torn_tail.corrupt", copy)
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in copy.rglob("*") if p.is_file()}
    for command in (["verify"], ["verify", "--deep"], ["dump-segment", "--print-data-log"], ["recover"], ["stats"]):
        assert call_plog(*command, str(copy)).returncode == 1
    call_plog("gaps", str(copy))
    call_plog("diff", str(copy), str(GOLDEN / "c_torn_tail"))
    assert call_plog("dump-segment", "--verify-index-only", str(copy)).returncode == 0
    for partition in copy.glob("*-0"):
        call_plog("consume", partition.name.removesuffix("-0"), "--data-dir", str(copy))
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in copy.rglob("*") if p.is_file()} == before
