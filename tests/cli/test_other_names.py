"""One word for one thing: the main names of options, and those of other tools that are taken or hinted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import COMMANDS, run
from cli.other_tools import COMMANDS_MEANT, HINTS
from cli.plog_command import (
    EVERYWHERE,
    FLAGS,
    IDLE,
    OF_COMMAND,
    option_names,
    other_names,
    split_settings,
)
from tests.cli.conftest import ok
from tests.support.all_commands import all_commands
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog

ALL = all_commands()

WITHOUT_LISTING = {
    "serve", "help", "cert dev", "topic create", "topic alter", "topic delete-records", "topic delete", "group delete",
    "group delete-offsets", "transaction abort", "config alter", "zookeeper start", "cluster start",
    "inspect", "acl export", "user create",
}  # fmt: skip
"""They print a line of what they did."""


def arguments_of(command: Any) -> list[str]:
    """Something for each argument, and for each option that must be given."""
    arguments = ["topic" if one.name == "kind" else "x" for one in command.params if one.param_type_name == "argument"]
    needed = (one for one in command.params if one.param_type_name == "option" and one.required)
    return arguments + [word for one in needed for word in (one.opts[0], "1")]


# --- the main names


@for_each("path", ALL)
def test_listings_have_output_and_records_have_format(path: str) -> None:
    command = ALL[path]
    options = option_names(command) | set(other_names(path, option_names(command)))
    assert ("--output" in options) is (path not in WITHOUT_LISTING)
    if path not in ("consume", "produce", "dump-segment"):
        assert "--format" not in options
    output = next((one for one in command.params if {"--output", "--report"} & set(one.opts)), None)
    if output is not None:
        assert {"table", "json", "ndjson", "csv"} <= set(output.type.choices)


WITH_A_PLAN = [path for path, command in ALL.items() if {"--apply", "--dry-run"} & option_names(command)]


@for_each("path", WITH_A_PLAN)
def test_apply_execute_and_dry_run_are_taken_by_each_and_not_at_once(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*path.split(), *arguments_of(ALL[path])]
    for name in ("--apply", "--execute"):
        assert run([*words, name, "--dry-run"]) == 2
        assert "--apply and --dry-run contradict each other" in capsys.readouterr().err


def test_what_plans_first_does_it_with_apply_and_what_acts_at_once_takes_it(where: list[str]) -> None:
    assert {"compact", "recover", "group reset-offsets"} <= set(WITH_A_PLAN)
    ok("produce", "t", *where, stdin=b"a\nb\n")
    ok("consume", "t", "--group", "g", "--max-messages", "1", *where)
    reset = ["group", "reset-offsets", "g", "--topic", "t", "--to-latest", "--output", "csv", *where]
    for option in ([], ["--dry-run"], ["--apply"], ["--execute"]):
        assert ok(*reset, *option).splitlines()[1].split(b",")[3] == (b"2" if option == ["--execute"] else b"1")
    ok("topic", "delete", "t", "--apply", *where)
    assert ok("topic", "list", "--output", "json", *where) == b"[]\n"


def test_of_apply_and_dry_run_the_one_that_is_said_nearer_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[default]\ndry-run = true\n[group.reset-offsets]\nexecute = true\n")
    where = ["--data-dir", str(tmp_path / "data")]
    ok("topic", "create", "t", *where)
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    assert b"would delete" in call_plog("topic", "delete", "t", *where).stderr
    assert b"deleted" in call_plog("topic", "delete", "t", "--apply", *where).stderr
    reset = ["group", "reset-offsets", "g", "--topic", "t", "--to-latest", *where]
    ok("topic", "create", "t", "--apply", *where)
    assert b"were reset" in call_plog(*reset).stderr  # the command's section is nearer than [default]
    assert b"nothing was changed" in call_plog(*reset, "--dry-run").stderr


# --- names that are taken


def test_the_tables_name_what_there_is() -> None:
    for path, names in OF_COMMAND.items():
        command = ALL[path]
        arguments = {one.name for one in command.params if one.param_type_name == "argument"}
        for name, convert in names.items():
            assert name not in option_names(command), (path, name)
            assert {target for target, _ in convert("x")} <= option_names(command) | arguments, (path, name)
    for path, flags in FLAGS.items():
        taken = option_names(ALL[path]) | set(other_names(path, option_names(ALL[path])))
        assert not taken & {*flags, *IDLE.get(path, ())}, path
        assert {target for fixed in flags.values() for target, _ in fixed} <= taken, path
    everything = set().union(*map(option_names, ALL.values()))
    assert set(EVERYWHERE) <= everything
    for path, hints in HINTS.items():
        assert path == "" or any(one == path or one.startswith(f"{path} ") for one in ALL), path
        for name in hints if path in ALL else ():
            assert name not in {*FLAGS.get(path, ()), *IDLE.get(path, ())}, (path, name)
            assert name not in option_names(ALL[path]) | set(other_names(path, option_names(ALL[path]))), (path, name)
    for path, names in COMMANDS_MEANT.items():
        below = {one.split()[1] for one in ALL if one.startswith(f"{path} ")} if path else set(COMMANDS)
        assert not names.keys() & below


def test_kafkas_names_do_what_ours_do(where: list[str]) -> None:
    ok("topic", "create", "--topic", "t", "-p", "2", "-c", "retention.ms=-1", *where)
    ok("topic", "create", "files", *where)
    ok("produce", "--topic", "t", "-p", "1", *where, stdin=b"a\nb\nc\n")
    assert ok("consume", "--topic", "t", "-n", "2", "-o", "1", "-p", "1", *where) == b"b\nc\n"
    assert ok("consume", *where, "--topic", "files", "--topic", "t", "-g", "g", "-n", "1") == b"a\n"
    assert b"retention.ms=-1" in call_plog("topic", "describe", "--topic", "t", *where).stderr
    described = ok("group", "describe", "--group", "g", "--output", "csv", *where)
    assert described.splitlines()[1].startswith(b"g,t,1,1,3,2,")
    ok("topic", "delete-records", "--topic", "t", "--offset", "1", "-p", "1", *where)
    ok("group", "delete", "--group", "g", *where)
    ok("topic", "delete", "--topic", "t", *where)


def test_kafka_configs_names(where: list[str]) -> None:
    ok("topic", "create", "t", *where)
    entity = ["--entity-name", "t", "--entity-type", "topics"]
    ok("config", "alter", *entity, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]", *where)
    printed = [ok("config", "describe", *by, *where) for by in (entity, ["--topic", "t"], ["topic", "t"])]
    assert printed[0].split()[3:] == b"cleanup.policy compact,delete topic_config retention.ms 5 topic_config".split()
    assert printed[1] == printed[2] == printed[0]
    ok("config", "alter", "--topic", "t", "--delete-config", "retention.ms,cleanup.policy", *where)
    assert b"has its defaults" in call_plog("config", "describe", "topic", "t", *where).stderr
    assert b"t\n" in ok("config", "list", "--entity-type", "topics", "--output", "csv", *where)


def test_kcats_letters_are_taken(where: list[str]) -> None:
    ok("produce", "-P", "-t", "t", "-K", ":", "-k", "x", "-Z", "-l", *where, stdin=b"a\n\nb:c\n")
    ok("produce", "t", "--key", "y", "--sync", *where, stdin=b"d:e\n")
    pattern = ["-C", "-e", "-q", "-u", "--format", r"%o %k %S %s\n", *where]
    assert ok("consume", "-t", "t", *pattern) == b"0 x 1 a\n1 x -1 \n2 b 1 c\n3 y 3 d:e\n"
    assert ok("consume", "t", "-c", "1", *pattern) == b"0 x 1 a\n"
    assert ok("consume", "t", "-o", "s@0", "-o", "e@4102444800000", *pattern).count(b"\n") == 4
    assert ok("consume", "t", "-o", "e@0", *pattern) == b""
    assert ok("consume", "t", "-J", *where) == ok("consume", "t", "--format", "json", *where)
    assert ok("consume", "--include", "t.*", "--timeout-ms", "0", *where) == b"a\n\nc\nd:e\n"
    noted = call_plog("produce", "t", "--max-block-ms", "5", *where)
    assert noted.stderr.startswith(b"note: --max-block-ms changes nothing here\n")


def test_follow_of_a_file_gives_way_to_a_typed_end(
    where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("produce", "t", *where, stdin=b"a\n")
    config = tmp_path / "config.toml"
    config.write_text("[consume]\nfollow = true\n")
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    assert ok("consume", "t", "-e", *where) == b"a\n"


@for_each(
    "text, settings",
    [
        ("a=1", ["a=1"]),
        ("a=1,b=2", ["a=1", "b=2"]),
        ("a=[x,y],b=z", ["a=x,y", "b=z"]),
        ("a=[[x,y]]", ["a=[x,y]"]),
        ("a=", ["a="]),
        ("a", ["a"]),
        ("", []),
    ],
)
def test_settings_as_kafka_configs_takes_them(text: str, settings: list[str]) -> None:
    assert split_settings(text) == settings


def test_json_is_a_name_of_the_envelope(where: list[str]) -> None:
    ok("produce", "t", *where, stdin=b"a\n")
    envelope = ok("consume", "t", "--format", "envelope", *where)
    for option in (["--format", "json"], ["--format", "ndjson"], ["--output", "json"]):
        assert ok("consume", "t", *option, *where) == envelope
    for name in ("json", "ndjson"):
        ok("produce", f"of-{name}", "--format", name, "--report", "json", *where, stdin=envelope)
        assert json.loads(ok("consume", f"of-{name}", "--format", "json", *where))["value"] == "a"
    assert json.loads(ok("produce", "t", "--output", "json", *where, stdin=b"b\n"))[0]["records"] == 1
    refused = call_plog("consume", "t", "--output", "table", *where)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"expected value, envelope (or json, ndjson)" in refused.stderr


def test_a_dump_is_one_list_of_json() -> None:
    path = "sample-data/partition/txn_multisegment-0"
    rows = json.loads(ok("dump-segment", path, "--output", "json"))
    lines = ok("dump-segment", path, "--format", "ndjson").splitlines()
    assert rows == [json.loads(line) for line in lines]
    assert rows


# --- names that are not


@for_each(
    "line, problem, hint",
    [
        ("produce --topic t --topic u", "TOPIC is given more than once", "give it once"),
        ("consume t --topik x", "plog consume has no --topik", "did you mean --topic?"),
        ("dump-segment --topic x", "plog dump-segment has no --topic", "plog dump-segment --help"),
        ("verify -b h:1", "plog verify has no -b", "plog verify --help"),
        ("consume t -P", "plog consume has no -P", "plog produce TOPIC"),
        ("produce t -C", "plog produce has no -C", "plog consume TOPIC"),
        ("produce t -c 5", "plog produce has no -c", "head -n N FILE | plog produce TOPIC"),
        ("consume t -E", "plog consume has no -E", "--no-exit-on-error"),
        ("topic list -E", "plog topic list has no -E", "plog topic list --help"),
        ("consume t -d broker", "plog consume has no -d", "plog --debug"),
        ("consume t -s avro", "plog consume has no -s", "--schema-registry URL"),
        ("consume t -o stored", "-o stored", "--group GROUP"),
        ("consume t -o json", "-o json: -o is --from", "--format json"),
        ("consume t -e --follow", "-e stops at the end, and --follow goes on", "--timeout-ms"),
        ("consume t -e --group g", "-e stops at the end, and --group goes on", "--timeout-ms"),
        ("topic list --bootstrap-server -e", "--bootstrap-server got no value, and -e comes", "is a variable unset?"),
        ("consume t -b  -e", "--bootstrap-server got an empty value", "is a variable unset?"),
        ("consume t -K :", "plog consume has no -K", r"did you mean --format '%k:%s\n'?"),
        ("consume t --count 5", "plog consume has no --count", "--max-messages"),
        ("consume d/t-0", "d/t-0 is a path", "plog consume t --data-dir d/t-0\n"),
        ("consume d/t", "d/t is a path", "plog consume TOPIC --data-dir d/t\n"),
        ("consume f*", "'f*' is no name of a topic", "--regex takes patterns"),
        ("consume t:0", "'t:0' is no name of a topic", "--partition and --from say where to begin"),
        ("config describe", "Missing argument 'TYPE'. Choose from: topic, broker, ", "plog config describe --help"),
        ("consume t --formatter x", "plog consume has no --formatter", "--format"),
        ("consume t -f %k", "-f is --follow", "--format"),
        ("produce t --property parse.key=true", "plog produce has no --property", r"plog produce t -K '\t'"),
        ("produce t --property a=b", "plog produce has no --property", "--key-separator"),
        ("consume t --property print.key=true", "has no --property", r"plog consume t --format '%k\t%s\n'"),
        ("consume t --property a=b", "plog consume has no --property", "--format"),
        ("-C -b h:1 -t t", "plog has no -C", "plog consume t --bootstrap-server h:1\n"),
        ("-L", "plog has no -L", "plog topic list\n"),
        ("-C -t t -o stored", "plog has no -C", "plog consume TOPIC\n"),
        ("-E", "plog has no -E", "plog --help"),
        ("kcat -U", "no such command 'kcat'", "plog help kcat"),
        ("kafka-acls", "no such command 'kafka-acls'", "plog acl"),
        ("kafka-acls --bootstrap-server h:1 --add --allow-principal User:a --topic t", "no such command 'kafka-acls'",
         "plog acl add --bootstrap-server h:1 --allow-principal User:a --topic t"),
        ("kafka-acls.sh --remove --force --topic t", "no such command", "plog acl remove --force --topic t"),
        ("acl add --principal User:a", "plog acl add has no --principal", "--allow-principal, or --deny-principal?"),
        ("user create a --password x", "plog user create has no --password", "--password-stdin"),
        ("kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list h:1 --topic t --time -1",
         "no such command 'kafka-run-class.sh'", "plog topic describe t --broker-list h:1\n"),
        ("kafka-topics --zookeeper h:1/k --list", "no such command", "plog topic list --bootstrap-server HOST:PORT\n"),
        ("kafka-console-consumer --zookeeper h:1 --topic t", "no such", "plog consume --zookeeper h:1 --topic t\n"),
        ("kafka-run-class.sh x", "no such command 'kafka-run-class.sh'", "plog dump-segment"),
        ("zookeeper-shell h:1", "no such command 'zookeeper-shell'", "--zookeeper HOST:PORT"),
        ("connect-standalone.sh a", "no such command 'connect-standalone.sh'", "plog runs no connectors"),
        ("rpk topic list", "no such command 'rpk'", "plog topic list\n"),
        ("rpk topic consume t -n 1", "no such command 'rpk'", "plog consume t -n 1\n"),
        ("rpk container start", "no such command 'rpk'", "plog cluster"),
        ("topic list --format json", "plog topic list has no --format", "did you mean --output?"),
        ("topic --create --topic t --partitions 3", "has no --create", "plog topic create --topic t --partitions 3\n"),
        ("group --bootstrap-server h:1 --describe --group g", "has no --bootstrap-server",
         "plog group describe --bootstrap-server h:1 --group g\n"),
        ("group describe", "Missing argument 'GROUP...'", "--all-groups"),
        ("group describe g --all-groups", "do not go together", "plog group list"),
        ("group reset-offsets g --to start", "has no --to", "--to-earliest"),
        ("kafka-topics.sh --list", "no such command 'kafka-topics.sh'", "plog topic list\n"),
        ("kafka-topics.sh", "no such command 'kafka-topics.sh'", "plog topic\n"),
        ("topic trim-prefix t", "no such command 'trim-prefix'", "plog topic delete-records"),
        ("consum t", "error: no such command 'consum'", "did you mean consume?\n"),
        ("zzz", "no such command 'zzz'", "plog --help lists the commands"),
        ("consume t --partitoin 1", "plog consume has no --partitoin", "--partition"),
        ("consume", "Missing argument 'TOPIC", "plog consume --help"),
        ("produce t --acks 2", "--acks", "plog produce --help"),
        ("topic creat", "no such command 'creat'", "did you mean create?"),
        ("topic zzz", "no such command 'zzz'", "plog topic --help lists the commands"),
    ],
)  # fmt: skip
def test_what_is_meant_by_names_of_other_tools(
    line: str, problem: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split(" ")) == 2
    said = capsys.readouterr().err
    assert problem in said.splitlines()[0]
    assert hint in said.split("hint: ")[1]


# --- small ones


def test_inverted_ranges_are_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["consume", "t"], ["spark-replay", "t", "--dry-run"]):
        for start, end in (
            ("10", "5"), ("-5", "-10"), ("2013-01-02", "2013-01-01T00:00:00Z"), ("-1h", "-2h"), ("end", "beginning"),
            ("@2", "@1"), ("0=1,5", "3"), ("1=9,beginning", "1=8,end"),
        ):  # fmt: skip
            assert run([*command, "--from", start, "--until", end]) == 2
            assert "lies after --until" in capsys.readouterr().err, (command, start, end)
    assert run(["consume", "t", "--from", "10", "--as-of", "5"]) == 2
    assert "--from 10 lies after --as-of 5" in capsys.readouterr().err


def test_empty_ranges_are_ranges(where: list[str]) -> None:
    ok("produce", "t", *where, stdin=b"a\nb\nc\n")
    for start, end in (("1", "1"), ("end", "end"), ("@5", "@5"), ("1", "end"), ("0=1,beginning", "1")):
        assert ok("consume", "t", "--from", start, "--until", end, *where) in (b"", b"b\nc\n")


def test_a_rate_is_more_than_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for rate in ("-5", "0"):
        assert run(["produce", "t", "--rate", rate]) == 2
        assert f"--rate {rate}: expected a number above 0" in capsys.readouterr().err


def test_settings_that_are_none(where: list[str]) -> None:
    ok("topic", "create", "t", "--set", "retention.ms=5", *where)
    for alter in (["topic", "alter", "t"], ["config", "alter", "topic", "t"]):
        for change in (["--unset", "retention.mss"], ["--set", "retention.mss=1"]):
            for how in ([], ["--dry-run"]):
                refused = call_plog(*alter, *change, *how, *where)
                assert refused.returncode == 1
                assert b"INVALID_CONFIG" in refused.stderr
                assert b"retention.mss" in refused.stderr
                assert b"did you mean retention.ms?" in refused.stderr
        ok(*alter, "--unset", "retention.ms", *where)
    refused = call_plog("topic", "create", "u", "--set", "retention.mss=1", *where)
    assert (refused.returncode, b"did you mean retention.ms?" in refused.stderr) == (1, True)
    refused = call_plog("config", "alter", "broker", "1", "--unset", "log.retention.mss", *where)
    assert (refused.returncode, b"did you mean log.retention.ms?" in refused.stderr) == (1, True)


def test_a_setting_of_a_broker_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["serve", "--set", "num.partition=3", "--data-dir", str(tmp_path / "file"), "--listen", ":0"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("warning: num.partition is not known to plog and changes nothing\nhint: did you mean num.pa")
    secured = ["serve", "--listener", "SSL://:0", "--set", "ssl.keystore.locaton=server.pem"]
    assert run([*secured, "--data-dir", str(tmp_path / "none")]) == 2
    typo, _, missing = capsys.readouterr().err.partition("\nerror: ")
    assert "hint: did you mean ssl.keystore.location?" in typo
    assert "it has no certificate" in missing


def test_messages_say_what_is_wrong_once(where: list[str]) -> None:
    ok("topic", "create", "t", *where)
    for options in (["--key-field", "a"], ["--format", "envelope"]):
        bad = call_plog("produce", "t", *options, *where, stdin=b"ready\n")
        assert b"error: line 1: not JSON: Expecting value at column 1; 0 records" in bad.stderr


def test_records_that_are_too_large_are_told_how_to_be_sent(where: list[str]) -> None:
    ok("topic", "create", "t", "--set", "max.message.bytes=1000", *where)
    refused = call_plog("produce", "t", *where, stdin=b"x" * 5000)
    assert refused.returncode == 1
    assert b"MESSAGE_TOO_LARGE" in refused.stderr
    assert b"--chunk" in refused.stderr
    assert b"--claim-check" in refused.stderr


def test_internal_topics_are_deleted_only_with_internal(where: list[str]) -> None:
    ok("produce", "t", *where, stdin=b"a\n")
    ok("consume", "t", "--group", "g", "--max-messages", "1", *where)
    refused = call_plog("topic", "delete", "t", "__consumer_offsets", *where)
    assert (refused.returncode, b"--internal deletes it" in refused.stderr) == (2, True)
    assert b"t,1\n" in ok("topic", "list", "--output", "csv", *where)
    planned = call_plog("topic", "delete", "__consumer_offsets", "--internal", "--dry-run", *where)
    assert b"would delete" in planned.stderr


def test_a_group_without_a_server_waits_for_the_directory_as_long_as_it_is_told(tmp_path: Path) -> None:
    from core.files.directory_lock import DirectoryLock

    ok("produce", "t", "--data-dir", str(tmp_path), stdin=b"a\n")
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    try:
        done = call_plog("consume", "t", "--group", "g", "--lock-timeout", "0", "--data-dir", str(tmp_path))
        assert (done.returncode, done.stdout) == (3, b"")
    finally:
        lock.release()


# --- config.toml


@pytest.mark.longer
def test_a_relative_command_config_lies_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings").mkdir()
    config = tmp_path / "settings" / "config.toml"
    config.write_text("[default]\ncommand-config = 'client.properties'\n")
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    with Server(tmp_path / "data") as server:
        (tmp_path / "settings" / "client.properties").write_text(f"bootstrap.servers={server.address}\n")
        assert json.loads(ok("cluster", "status", "--output", "json"))[0]["state"] == "reachable"
