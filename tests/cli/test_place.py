"""Which place counts if several are named, what is said of it, and what config.toml may hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from core.files.directory_lock import LockHolder, find_lock_holder
from core.pipeline import session
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog, run_plog

FLAG, VARIABLE = "the command line", "the environment"
PROFILE_COMMAND, PROFILE = "profile.p.topic.list", "profile.p.default"
COMMAND, DEFAULT = "topic.list", "default"
LEVELS = [FLAG, VARIABLE, PROFILE_COMMAND, PROFILE, COMMAND, DEFAULT]
"""Nearest first, as docs/words.md says."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("served") / "data") as server:
        ok("topic", "create", "of-the-server", "--bootstrap-server", server.address)
        yield server


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    ok("topic", "create", "of-the-directory", "--data-dir", str(tmp_path / "data"))
    return tmp_path / "data"


def list_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, str], directory: tuple[str, Path]
) -> tuple[int, str]:
    """With the server named at one level, and the directory at another: the exit code, and what was printed."""
    typed, sections = [], dict[str, list[str]]()
    for option, (level, value) in (("bootstrap-server", server), ("data-dir", directory)):
        if level == FLAG:
            typed += [f"--{option}", str(value)]
        elif level == VARIABLE:
            monkeypatch.setenv("PLOG_DATA_DIR", str(value))
        else:
            sections.setdefault(level, []).append(f"{option} = {json.dumps(str(value))}")
    config = tmp_path / "config.toml"
    config.write_text(
        "[profile.p]\n" + "".join(f"[{name}]\n{chr(10).join(lines)}\n" for name, lines in sections.items())
    )
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    done = call_plog("--profile", "p", "topic", "list", *typed)
    return done.returncode, (done.stdout + done.stderr).decode()


@for_each("server_level, directory_level", product([level for level in LEVELS if level != VARIABLE], LEVELS))
def test_the_nearest_place_counts(
    server_level: str, directory_level: str, served: Server, directory: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    code, said = list_topics(tmp_path, monkeypatch, (server_level, served.address), (directory_level, directory))
    if server_level == directory_level:
        assert code == 2
        assert "names two places, --bootstrap-server and --data-dir" in said
        assert f"[{server_level}] of config.toml" in said or server_level == FLAG
    else:
        assert code == 0
        is_server = LEVELS.index(server_level) < LEVELS.index(directory_level)
        assert ("of-the-server" in said, "of-the-directory" in said) == (is_server, not is_server)


@for_each("directory_level", LEVELS)
def test_a_server_in_client_properties_counts_as_near_as_the_option_that_names_the_file(
    directory_level: str, served: Server, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one level the directory counts: such a file says how a cluster is reached, not that it is to be."""
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers={served.address}\n")
    typed = ["--data-dir", str(directory)] if directory_level == FLAG else []
    if directory_level == VARIABLE:
        monkeypatch.setenv("PLOG_DATA_DIR", str(directory))
    section = f'[{directory_level}]\ndata-dir = "{directory}"\n' if directory_level not in (FLAG, VARIABLE) else ""
    mine = f'command-config = "{properties}"\n'
    config = tmp_path / "config.toml"
    config.write_text(section + mine if directory_level == PROFILE else f"[profile.p.default]\n{mine}{section}")
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    said = ok("--profile", "p", "topic", "list", *typed).decode()
    is_directory = LEVELS.index(directory_level) <= LEVELS.index(PROFILE)
    assert ("of-the-directory" in said, "of-the-server" in said) == (is_directory, not is_directory)


@for_each(
    "text, problem",
    [
        ("[consum]\nformat = 'x'\n", "[consum]: there is no such command\nhint: did you mean consume?"),
        ("[topic.crate]\npartitions = 1\n", "[topic] crate: there is no plog topic crate\nhint: did you mean create?"),
        ("[topic]\ncreate = 1\n", "[topic.create]: expected a section, found 1"),
        ("[default]\nbootstap-server = 'x'\n", "[default] bootstap-server: no command has --bootstap-server"),
        ("default = 1\n", "default: it is in no section, expected [default]"),
        ("[profile.p.consum]\nformat = 'x'\n", "[profile.p.consum]: there is no such command"),
        ("[consume]\nformt = 'x'\n", "[consume] formt: plog consume has no --formt\nhint: did you mean format?"),
        ("[consume\n", "is no TOML"),
        ("[default]\nboostrap-server = 'a:1'\n", "--boostrap-server\nhint: did you mean bootstrap-server?"),
        ("bootstrap-server = 'a:1'\n", "bootstrap-server: it is in no section, expected [default]"),
        ("[profile.p]\nbootstrap-server = 'a:1'\n", "it is in no section, expected [profile.p.default]"),
        ("[profile.p.topics]\npartitions = 3\n", "[profile.p.topics]: there is no such command"),
        ("[profile]\np = 3\n", "profile.p is no section, expected [profile.p.default]"),
        ("[profile.unused.consume]\nformt = 'x'\n", "[profile.unused.consume] formt: plog consume has no --formt"),
        ("[profile.unused]\nformat = 'x'\n", "[profile.unused] format: it is in no section"),
        ("[profile]\nunused = 3\n", "profile.unused is no section, expected [profile.unused.default]"),
        ("profile = 3\n", "profile: expected sections, as [profile.NAME.default]"),
    ],
)
def test_nothing_in_the_file_is_passed_over(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    monkeypatch.setenv("PLOG_CONFIG", str(path))
    profile = ["--profile", "p"] if re.match(r"\[profile(\.|\]\n)p\b", text) else []
    done = call_plog(*profile, "verify", str(tmp_path))
    assert done.returncode == 2
    said = done.stderr.decode()
    assert str(path) in said
    assert problem in said


def test_a_file_that_is_not_there_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOG_CONFIG", str(tmp_path / "none.toml"))
    done = call_plog("topic", "list", "--data-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"PLOG_CONFIG: there is no {tmp_path}/none.toml".encode() in done.stderr
    monkeypatch.setenv("PLOG_CONFIG", "")
    ok("topic", "list", "--data-dir", str(tmp_path))


# --- who changes something says where


def test_what_changes_says_where(where: list[str]) -> None:
    place = f"on {where[1]}" if where[0] == "--bootstrap-server" else f"in {where[1]}"
    for words, said in (
        (["topic", "create", "t"], "created topic t {}"),
        (["topic", "alter", "t", "--set", "retention.ms=-1"], "altered topic t {}"),
        (["config", "alter", "topic", "t", "--set", "retention.ms=1"], "altered topic t {}"),
        (["topic", "delete-records", "t", "--before", "end"], "t-0 starts at offset 0 {}"),
        (["topic", "delete", "t", "--dry-run"], "would delete topic t {}: "),
        (["topic", "delete", "t"], "deleted topic t {}"),
    ):
        assert said.format(place) in call_plog(*words, *where).stderr.decode()


# --- topics that are made by the way


def test_produce_says_that_it_made_a_topic(where: list[str]) -> None:
    ok("topic", "create", "other", *where)
    refused = call_plog("produce", "t", "--no-create", *where, stdin=b"a\n")
    assert refused.returncode == 1
    assert b"no topic 't'" in refused.stderr
    said = call_plog("produce", "t", *where, stdin=b"a\n").stderr.decode()
    assert said.startswith("created topic t ")
    assert said.splitlines()[0].endswith(": 1 partition, kept 7d")
    assert "created" not in call_plog("produce", "t", *where, stdin=b"b\n").stderr.decode()
    assert ok("consume", "t", *where) == b"a\nb\n"


def test_a_copy_of_old_records_does_not_vanish(where: list[str]) -> None:
    """Into a topic that keeps 7 days they would go, and be deleted minutes later."""
    ok("topic", "create", "a", "--partitions", "3", "--set", "retention.ms=-1", *where)
    line = b'{"value": "x", "timestamp": 1000}\n'
    ok("produce", "a", "--format", "envelope", "--partition", "0", *where, stdin=line)
    envelopes = ok("consume", "a", "--format", "envelope", *where)
    refused = call_plog("produce", "b", "--format", "envelope", *where, stdin=envelopes)
    assert refused.returncode == 1
    assert b"nothing was sent" in refused.stderr
    assert b"--like" in refused.stderr
    ok("topic", "create", "c", "--like", "a", *where)
    ok("produce", "c", "--format", "envelope", *where, stdin=envelopes)
    described = call_plog("topic", "describe", "c", *where)
    assert b"3 partitions, settings: retention.ms=-1" in described.stderr
    assert ok("consume", "b", *where) == b""
    assert ok("consume", "c", *where) == b"x\n"


def test_old_records_after_others_are_told_of(where: list[str]) -> None:
    """What came before them is sent, so nothing is refused; `--rate` sends each by itself."""
    ok("topic", "create", "a", "--set", "retention.ms=-1", *where)
    ok("produce", "a", *where, stdin=b"new\n")
    ok("produce", "a", "--format", "envelope", *where, stdin=b'{"value": "old", "timestamp": 1000}\n')
    envelopes = ok("consume", "a", "--format", "envelope", *where)
    done = call_plog("produce", "b", "--format", "envelope", "--rate", "10", *where, stdin=envelopes)
    assert done.returncode == 0
    assert b"warning: line 2 is of 1970-01-01" in done.stderr
    assert b"2 records written to b" in done.stderr


@for_each(
    "command",
    [
        "topic list", "topic describe t", "topic delete t", "topic alter t --set retention.ms=1",
        "topic delete-records t --before end", "config describe topic t", "config alter topic t --set retention.ms=1",
        "consume t", "consume t --group g", "produce t --no-create", "produce t --dry-run", "group list",
        "group describe g", "group delete g", "group reset-offsets g --topic t --to-earliest --execute",
        "transaction list", "trace t@0", "perf consume t", "cluster status",
    ],
)  # fmt: skip
def test_a_mistyped_directory_is_not_made(command: str, tmp_path: Path) -> None:
    done = call_plog(*command.split(), "--data-dir", str(tmp_path / "typo"), stdin=b"a\n")
    assert (done.returncode, done.stdout) == (3, b""), done.stderr
    assert f"error: there is no data directory {tmp_path / 'typo'}\n".encode() in done.stderr
    assert b"hint: name a data directory with --data-dir, or a server with --bootstrap-server" in done.stderr
    assert list(tmp_path.iterdir()) == []


@for_each(
    "arguments",
    [("topic", "create", "t", "--data-dir", ""), ("verify", ""), ("serve", "--data-dir", ""), ("diff", "", ".")],
)
def test_an_empty_path_is_not_the_current_folder(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it for that: `--data-dir "$DIR"` with an unset variable wrote there."""
    monkeypatch.chdir(tmp_path)
    done = call_plog(*arguments)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert b"is an empty path" in done.stderr


def test_a_partition_is_not_made_a_data_directory(directory: Path) -> None:
    partition = directory / "of-the-directory-0"
    before = sorted(partition.iterdir())
    done = call_plog("topic", "create", "t", "--data-dir", str(partition))
    said = " ".join(done.stderr.decode().split())
    assert (done.returncode, sorted(partition.iterdir())) == (3, before)
    assert said == (f"error: {partition} is a partition's folder, not a data directory hint: --data-dir {directory}")


def test_a_hint_with_a_command_that_changes_something_names_the_place(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path / "my data"))
    done = call_plog("produce", "t", "--timestamp-field", "t", *place, stdin=b'{"t": 1356998400000}\n')
    said = " ".join(done.stderr.decode().split())
    assert f"hint: plog topic alter t --set retention.ms=-1 --data-dir '{tmp_path / 'my data'}'" in said


@pytest.mark.longer
def test_commands_typed_while_a_server_starts_find_it(tmp_path: Path) -> None:
    """As in `plog serve & plog topic create`: whichever of the two is first has the directory, and both succeed."""
    server = Server(tmp_path / "data")
    process, ready = server.start_without_waiting()
    try:
        assert run_plog("topic", "create", "t", "--data-dir", str(tmp_path / "data")).returncode == 0
        while not ready.exists():
            assert process.poll() is None, server.log.read_text()
        assert b"t" in ok("topic", "list", "--bootstrap-server", ready.read_text().strip())
    finally:
        server.stop()


def test_a_server_that_takes_the_directory_first_is_asked(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command looked just before the server had it."""
    looks = iter([None])

    def look(directory: Path) -> LockHolder | None:
        return next(looks, find_lock_holder(directory))

    monkeypatch.setattr(session, "find_lock_holder", look)
    done = call_plog("topic", "alter", "of-the-server", "--set", "retention.ms=-1", "--data-dir", str(served.data_dir))
    assert (done.returncode, next(looks, "looked")) == (0, "looked"), done.stderr
