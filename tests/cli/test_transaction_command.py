"""`plog transaction` and `plog produce --transactional-id`, against a server and embedded: the same answers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.data_location import Place
from core.client.write.producer import RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.errors import ConnectionFailedError
from core.records.byte_strings import ByteStrings
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.server import PLOG, Server, call_plog
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit


@pytest.fixture
def topic(where: list[str]) -> list[str]:
    """`tx`, of one partition; the options that name the log."""
    ok("topic", "create", "tx", *where)
    return where


def seen(where: list[str], isolation: str = "read_committed") -> list[bytes]:
    return ok("consume", "tx", "--isolation", isolation, *where).splitlines()


def rows(*command: str, where: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ok("transaction", *command, "--output", "json", *where))
    return found


def open_one(where: list[str], name: str = "opener", *, version: int = 2) -> None:
    """A transaction of one record on `tx` whose producer is gone."""
    address = where[1] if where[0] == "--bootstrap-server" else None
    with (
        Place(bootstrap_server=address, data_dir=None if address else Path(where[1])).session().open_client() as client
    ):
        producer = TransactionalProducer(client.another, name, transaction_version=version)
        values = ByteStrings.of_list([b"open"])
        producer.send(RecordsToSend(0, np.array([1_700_000_000_000]), None, values, None, np.array([0])), "tx")
        producer.prepare()
        producer.close()


# --- produce


def test_the_input_is_one_transaction(topic: list[str]) -> None:
    done = call_plog("produce", "tx", "--transactional-id", "load", *topic, stdin=b"a\nb\nc\n")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"3 records written to tx, committed as one transaction" in done.stderr
    assert seen(topic) == [b"a", b"b", b"c"]
    (row,) = rows("describe", "load", where=topic)
    assert (row["state"], row["timeout_ms"], row["partitions"]) == ("CompleteCommit", 900_000, [])


def test_files_are_one_transaction(topic: list[str], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    files = [str(tmp_path / name) for name in ("one", "two")]
    ok("produce", "tx", *files, "--format", "raw", "--transactional-id", "load", *topic)
    assert seen(topic) == [b"one", b"two"]


def test_a_bad_line_aborts_it(topic: list[str]) -> None:
    lines = b'{"k": "a"}\n{"k": "b"}\nno json\n'
    done = call_plog("produce", "tx", "--transactional-id", "load", "--key-field", "k", *topic, stdin=lines)
    assert done.returncode == 1
    assert b"line 3" in done.stderr
    assert b"the transaction is aborted, and none of its records counts" in done.stderr
    assert seen(topic) == []
    assert len(seen(topic, "read_uncommitted")) == 2


def test_a_record_that_is_refused_aborts_it(topic: list[str]) -> None:
    ok("topic", "alter", "tx", "--set", "max.message.bytes=1000", *topic)
    lines = b"small\n" + b"x" * 2000 + b"\n"
    done = call_plog("produce", "tx", "--transactional-id", "load", "--batch-size", "100", *topic, stdin=lines)
    assert done.returncode == 1
    assert b"the transaction is aborted" in done.stderr
    assert seen(topic) == []


def test_nothing_to_write_is_no_transaction(topic: list[str]) -> None:
    done = call_plog("produce", "tx", "--transactional-id", "load", *topic)
    assert done.returncode == 0
    assert rows("describe", "load", where=topic)[0]["state"] == "Empty"


@for_each(
    "options, problem",
    [
        (["--transactional-id", ""], "--transactional-id is empty"),
        (["--transactional-id", "x", "--acks", "1"], "--transactional-id goes with --acks all"),
    ],
)
def test_options_that_make_no_sense(topic: list[str], options: list[str], problem: str) -> None:
    done = call_plog("produce", "tx", *options, *topic)
    assert done.returncode == 2
    assert problem in done.stderr.decode()


def test_a_timeout_that_the_broker_does_not_allow(topic: list[str]) -> None:
    options = ["--transactional-id", "x", "--transaction-timeout-ms", "900001"]
    done = call_plog("produce", "tx", *options, *topic, stdin=b"a\n")
    assert done.returncode == 1
    assert b"INVALID_TRANSACTION_TIMEOUT" in done.stderr


@pytest.mark.longer
def test_ctrl_c_aborts_it(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", "tx", *where)
        command = [PLOG, "produce", "tx", "--transactional-id", "load", *where]
        producer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert producer.stdin is not None
        producer.stdin.write(b"a\nb\n")
        producer.stdin.flush()
        while len(seen(where, "read_uncommitted")) < 2:
            assert producer.poll() is None
        producer.send_signal(signal.SIGINT)
        assert wait_for_exit(producer, seconds=PROMPT_SECONDS) == 130
        _, said = producer.communicate()
        assert b"interrupted: the transaction is aborted, and none of its records counts" in said
        assert seen(where) == []
        assert rows("describe", "load", where=where)[0]["state"] == "CompleteAbort"


# --- list, describe


def test_what_there_is(topic: list[str]) -> None:
    open_one(topic, version=1)  # whose producer adds each partition itself
    ok("produce", "tx", "--transactional-id", "load", *topic, stdin=b"a\n")
    states = {row["transactional_id"]: row["state"] for row in rows("list", where=topic)}
    assert states.items() >= {"opener": "Ongoing", "load": "CompleteCommit"}.items()

    def names(*options: str) -> set[str]:
        return {row["transactional_id"] for row in rows("list", *options, where=topic)} & {"opener", "load"}

    assert names("--state", "ongoing") == {"opener"}
    assert names("--state", "complete-commit") == {"load"}
    assert names("--pattern", "op.*") == {"opener"}
    assert names("--longer-than", "3600") == set()
    (row,) = rows("describe", "opener", where=topic)
    assert row["partitions"] == ["tx-0"]
    assert row["open_seconds"] is not None
    ok("transaction", "abort", "opener", *topic)


@for_each(
    "command, code, problem",
    [
        (["list", "--state", "sleeping"], 1, "unknown transaction state sleeping"),
        (["list", "--pattern", "["], 1, "INVALID_REGULAR_EXPRESSION"),
        (["describe", "nobody"], 1, "no transactional id 'nobody'"),
        (["abort", "nobody"], 1, "no transactional id 'nobody'"),
        (["abort"], 2, "name a transactional id"),
        (["abort", "x", "--topic", "tx"], 2, "name a transactional id"),
        (["abort", "x", "--partition", "0"], 2, "go with --topic"),
        (["abort", "--topic", "tx", "--partition", "0"], 2, "one of --start-offset and --producer-id"),
        (["abort", "--topic", "tx", "--partition", "0", "--start-offset", "5"], 1, "no transaction is open on tx-0"),
        (["find-hanging", "--topic", "nope"], 1, "no topic 'nope'"),
    ],
)
def test_bad_requests(topic: list[str], command: list[str], code: int, problem: str) -> None:
    done = call_plog("transaction", *command, *topic)
    assert (done.returncode, done.stdout) == (code, b"")
    assert problem in done.stderr.decode()
    assert b"Traceback" not in done.stderr


# --- those that hold readers up


def test_an_open_one_is_shown_and_ended_by_its_id(topic: list[str]) -> None:
    open_one(topic)
    quiet = call_plog("transaction", "find-hanging", "--topic", "tx", *topic)
    assert (quiet.returncode, b"none hangs; 1 open" in quiet.stderr) == (0, True)
    shown = call_plog("transaction", "find-hanging", "--all", "--topic", "tx", "--output", "json", *topic)
    hint = f"hint: opener does not hang; to abort it all the same: plog transaction abort opener {' '.join(topic)}\n"
    assert (shown.returncode, shown.stderr.decode()) == (0, hint)
    (row,) = json.loads(shown.stdout)
    assert (row["transactional_id"], row["coordinator_state"], row["is_hanging"]) == ("opener", "Ongoing", False)
    assert (row["start_offset"], row["last_stable_offset"], row["high_watermark"]) == (0, 0, 1)
    assert row["pins_last_stable_offset"]
    torn = call_plog("transaction", "abort", "--topic", "tx", "--partition", "0", "--start-offset", "0", *topic)
    assert torn.returncode == 1
    assert b"would tear it apart" in torn.stderr
    assert b"plog transaction abort opener" in torn.stderr
    ok("transaction", "abort", "opener", *topic)
    assert rows("find-hanging", "--all", "--topic", "tx", where=topic) == []


@pytest.mark.parametrize("by", ["--start-offset", "--producer-id"])
def test_one_that_hangs_is_found_and_aborted(topic: list[str], by: str) -> None:
    open_one(topic, f"hung-{by}")
    ok("produce", "tx", *topic, stdin=b"behind\n")
    ok("topic", "delete", "__transaction_state", "--internal", *topic)
    assert seen(topic) == []
    done = call_plog("transaction", "find-hanging", "--topic", "tx", "--output", "json", *topic)
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)
    assert (row["is_hanging"], row["transactional_id"], row["since"]) == (True, None, "2023-11-14T22:13:20.000Z")
    assert b"hint: plog transaction abort --topic tx --partition 0 --start-offset 0" in done.stderr
    which = str(row["start_offset"] if by == "--start-offset" else row["producer_id"])
    ok("transaction", "abort", "--topic", "tx", "--partition", "0", by, which, *topic)
    assert seen(topic) == [b"behind"]


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """What a Kafka left: a partition with an open transaction, and the coordinator's records."""
    data = tmp_path / "data"
    shutil.copytree(GOLDEN / "txn_open", data / "txn_open-0")
    for path in GOLDEN.glob("__transaction_state-?"):
        shutil.copytree(path, data / path.name)
    return data


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_kafkas_files_tell_who_pins_the_last_stable_offset_and_stay_as_they_are(kafkas: Path) -> None:
    before = content(kafkas)
    where = ["--data-dir", str(kafkas)]
    (row,) = rows("find-hanging", "--all", where=where)
    truth = json.loads((GOLDEN / "txn_open.json").read_text())
    assert (row["start_offset"], row["last_stable_offset"]) == (truth["last_stable_offset"],) * 2
    assert (row["transactional_id"], row["producer_id"], row["coordinator_state"]) == ("txopen-1", 65, "Ongoing")
    assert rows("describe", "txopen-1", where=where)[0]["partitions"] == ["txn_open-0"]
    assert content(kafkas) == before


def test_kafkas_files_without_the_coordinators_show_it_hanging_and_it_can_be_ended(kafkas: Path) -> None:
    for path in kafkas.glob("__transaction_state-?"):
        shutil.rmtree(path)
    where = ["--data-dir", str(kafkas)]
    done = call_plog("transaction", "find-hanging", *where)
    assert done.returncode == 1
    hint = done.stderr.decode().split("hint: plog ")[1].split()
    ok(*hint, *where)
    assert rows("find-hanging", "--all", where=where) == []
    aborted = ok("consume", "txn_open", "--isolation", "read_uncommitted", *where).splitlines()
    assert len(ok("consume", "txn_open", *where).splitlines()) < len(aborted)


def test_a_connection_lost_while_it_is_committed_leaves_it_in_doubt(
    topic: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(producer: TransactionalProducer) -> None:
        raise ConnectionFailedError("lost the connection", where="somewhere")

    monkeypatch.setattr(TransactionalProducer, "commit", lose)
    done = call_plog("produce", "tx", "--transactional-id", "doubt", *topic, stdin=b"a\n")
    assert done.returncode == 3
    assert b"it may be committed or not" in done.stderr
    assert b"hint: plog transaction describe doubt" in done.stderr
    assert rows("describe", "doubt", where=topic)[0]["state"] == "Ongoing", "it is not aborted: it might be committed"
    ok("transaction", "abort", "doubt", *topic)
