"""The places that stats, gaps and trace take: paths and names, of a directory or of a server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.inspector.stats.trace import is_settled_by
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Topic `t`: 50 records in partition 0, the first ten deleted; in partition 1 a transaction, and an aborted one."""
    with Server(tmp_path_factory.mktemp("served") / "data") as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", "t", "--partitions", "2", *where)
        ok("topic", "create", "c", "--set", "cleanup.policy=compact", *where)
        ok("topic", "create", "t-9", *where)
        ok("produce", "t", "--partition", "0", *where, stdin=b"".join(b"%d\n" % n for n in range(50)))
        in_transaction = ["produce", "t", "--partition", "1", "--transactional-id", "x", *where]
        ok(*in_transaction, stdin=b"a\nb\nc\n")
        call_plog(*in_transaction, "--format", "json", stdin=b'{"value": "d"}\nnone\n')
        ok("produce", "c", "--key-separator", "=", *where, stdin=b"a=1\nb=2\na=3\n")
        ok("consume", "t", "--partition", "0", *where)
        ok("group", "reset-offsets", "g", "--topic", "t:0", "--to-offset", "20", "--apply", *where)
        ok("topic", "delete-records", "t", "--before", "10", "--partition", "0", *where)
        yield server


@pytest.fixture(params=["server", "directory"])
def where(request: pytest.FixtureRequest, served: Server) -> list[str]:
    if request.param == "server":
        return ["--bootstrap-server", served.address]
    return ["--data-dir", str(served.data_dir)]


def rows(*arguments: str) -> Any:
    return json.loads(ok(*arguments, "--output", "json"))


@for_each("place", ["t:0", "t-0"])
def test_a_partition_by_its_name(place: str, where: list[str]) -> None:
    assert [log["summary"]["end_offset"] for log in rows("stats", place, *where)] == [50]
    assert [(gap["start_offset"], gap["end_offset"], gap["reason"]) for gap in rows("gaps", place, *where)] == [
        (0, 10, "trimmed")
    ]
    assert [trace["record"]["value"] for trace in rows("trace", f"{place}@12", *where)] == ["12"]


def test_a_topic_is_all_of_its_partitions(where: list[str]) -> None:
    assert [(log["log"], log["summary"]["records"]) for log in rows("stats", "t", *where)] == [("t-0", 40), ("t-1", 4)]
    found = [(gap["partition"], gap["start_offset"], gap["reason"]) for gap in rows("gaps", "t", *where)]
    assert found == [(0, 0, "trimmed"), (1, 3, "control record"), (1, 4, "aborted"), (1, 5, "control record")]


def test_several_places(where: list[str]) -> None:
    assert [log["log"] for log in rows("stats", "c", "t:1", *where)] == ["c-0", "t-1"]
    assert [gap["start_offset"] for gap in rows("gaps", "t:1@4", "t:1@5", "t:0@20", *where)] == [4, 5]
    assert [trace["offset"] for trace in rows("trace", "t:0@20", "t:1@0", *where)] == [20, 0]


def test_a_topic_that_is_called_like_a_partition_comes_first(where: list[str]) -> None:
    assert [log["log"] for log in rows("stats", "t-9", *where)] == ["t-9-0"]


def test_a_record_and_its_surroundings(where: list[str]) -> None:
    [committed] = rows("trace", "t:1@1", *where)
    assert committed["transaction"]["state"] == "committed"
    assert committed["transaction"]["marker_offset"] == 3
    [aborted] = rows("trace", "t:1@4", *where)
    assert (aborted["transaction"]["state"], aborted["transaction"]["marker_offset"]) == ("aborted", 5)
    for offset, passed in ((12, 20), (30, None)):
        [trace] = rows("trace", f"t:0@{offset}", *where)
        assert [(group["group"], group["passed_offset"]) for group in trace["groups"]] == [("g", passed)]
    [superseded] = rows("trace", "c@0", *where)
    assert "superseded by offset 2" in " ".join(superseded["fate"])
    [newest] = rows("trace", "c", "--key", "a", *where)
    assert (newest["offset"], newest["record"]["value"]) == (2, "3")


def test_a_server_does_not_tell_where_a_record_lies(served: Server) -> None:
    server = ["--bootstrap-server", served.address]
    [trace] = rows("trace", "t:0@12", *server)
    assert "file" not in trace["batch"]
    assert trace["batch"]["position"] is None
    assert {log["summary"]["segments"] for log in rows("stats", "t", *server)} == {None}
    assert not any(".log" in gap["evidence"] for gap in rows("gaps", "t", *server))
    assert b"segments" not in ok("stats", "t", *server)


def test_ranges_of_a_server_are_those_of_its_files(served: Server) -> None:
    for options in (
        ["--from", "5", "--until", "15"], ["--from", "-7"], ["--from", "40"], ["--until", "12"], ["--from", "50"],
        ["--from", "7", "--until", "7"],
    ):  # fmt: skip
        found = [
            rows("gaps", "t:0", *options, *where)
            for where in (["--bootstrap-server", served.address], ["--data-dir", str(served.data_dir)])
        ]
        assert found[0] == found[1], options
    uncommitted = rows("gaps", "t:1", "--isolation", "read_uncommitted", "--bootstrap-server", served.address)
    assert [(row["start_offset"], row["reason"]) for row in uncommitted] == [
        (3, "control record"),
        (5, "control record"),
    ]


def test_paths(served: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = served.data_dir / "t-1"
    [trace] = rows("trace", f"{folder}@1")
    assert trace["transaction"]["state"] == "committed"
    assert [gap["start_offset"] for gap in rows("gaps", f"{folder}@4")] == [4]
    copy = tmp_path / "t-1"
    shutil.copytree(folder, copy)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("PLOG_DATA_DIR", str(tmp_path / "other"))
    assert [log["log"] for log in rows("stats", "t-1")] == ["t-1"]  # what is there as a path is one,
    assert call_plog("stats", "t-1", "--data-dir", str(tmp_path / "other")).returncode == 0
    shutil.rmtree(copy)
    assert [log["log"] for log in rows("stats", "t-1", "--data-dir", str(served.data_dir))] == ["t-1"]


@for_each(
    "command, code, said",
    [
        (["stats", "t@1"], 2, b"t@1: whole logs are looked at, not one record\nhint: leave @1 out"),
        (["gaps", "t", "--from", "5", "--until", "1"], 2, b"--from 5 lies after --until 1"),
        (["gaps", "t@3", "--from", "5"], 2, b"@OFFSET names one offset, --from and --until a range"),
        (["trace", "t"], 2, b"'t': expected TOPIC@OFFSET"),
        (["trace", "t@1", "--key", "k"], 2, b"'t@1': expected TOPIC@OFFSET"),
        (["gaps", "t:7"], 1, b"no partition 7 of 't'"),
        (["gaps", "tt:7"], 1, b"no topic 'tt'"),
        (["stats", "tt"], 1, b"no topic 'tt'"),
        (["stats", "t:x"], 2, b"'t:x': expected a path, TOPIC, TOPIC-PARTITION or TOPIC:PARTITION"),
    ],
)
def test_places_that_are_none(command: list[str], code: int, said: bytes, where: list[str]) -> None:
    done = call_plog(*command, *where)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr


def test_a_path_is_none_of_a_servers(served: Server) -> None:
    done = call_plog("gaps", "./t-0", "--bootstrap-server", served.address)
    assert done.returncode == 2
    assert b"./t-0 is a path, and a server has none" in done.stderr


class _Batch:
    def __init__(self, last_offset: int, producer_id: int = -1, *, is_control: bool = False) -> None:
        self.last_offset, self.producer_id = last_offset, producer_id
        self.is_transactional, self.is_control = producer_id >= 0, is_control


@for_each(
    "batches, settled",
    [
        ([_Batch(3), _Batch(9), _Batch(12)], 1),
        ([_Batch(9, 1), _Batch(10, 2, is_control=True), _Batch(11), _Batch(12, 1, is_control=True), _Batch(13)], 3),
        ([_Batch(9, 1), _Batch(10)], None),
        ([_Batch(5, 1, is_control=True)], 0),
    ],
)
def test_what_is_copied_ends_when_no_later_batch_tells_more(batches: list[Any], settled: int | None) -> None:
    is_enough = is_settled_by(5)
    assert next((n for n, batch in enumerate(batches) if is_enough(batch)), None) == settled


@pytest.mark.longer
def test_damage_of_a_server_is_missing_in_its_copy(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(data) as server:
        ok("topic", "create", "t", "--bootstrap-server", server.address)
        for value in (b"a\n", b"b\n", b"c\n"):
            ok("produce", "t", "--bootstrap-server", server.address, stdin=value)
    log = data / "t-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    with Server(data) as server:
        done = call_plog("gaps", "t", "--output", "json", "--bootstrap-server", server.address)
        assert done.returncode == 1
        assert [(row["start_offset"], row["reason"]) for row in json.loads(done.stdout)] == [(1, "unknown")]
        assert b"warning: " in done.stderr
        stats = call_plog("stats", "t", "--bootstrap-server", server.address)
        assert b"error: t-0 offset 1: offsets-missing: " in stats.stderr
        trace = call_plog("trace", "t@1", "--bootstrap-server", server.address)
        assert b"unknown: no batch holds" in trace.stdout
