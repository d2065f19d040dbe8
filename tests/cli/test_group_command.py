"""`plog group`, against a server and embedded: the same answers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from core.client.net.kafka_client import KafkaClient
from core.client.read.classic_member import ClassicMember
from core.client.read.cluster_source import Subscription
from core.client.read.group_consumer import ConsumerMember
from core.common.endpoint import parse_bootstrap
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog
from tests.support.waiting import ANSWER_SECONDS

HOUR_MS = 3_600_000
EARLY = 1_700_000_000_000


@pytest.fixture
def topic(where: list[str]) -> list[str]:
    """`t`, of two partitions, with ten records an hour apart in each; the options that name the log."""
    ok("topic", "create", "t", "--partitions", "2", "--set", "retention.ms=-1", *where)
    for partition in ("0", "1"):
        lines = [json.dumps({"value": str(n), "timestamp": EARLY + n * HOUR_MS}) for n in range(10)]
        ok("produce", "t", "--partition", partition, "--format", "envelope", *where, stdin="\n".join(lines).encode())
    return where


@pytest.mark.parametrize("where", ["server"], indirect=True)
def test_a_commit_outside_the_log_is_told_in_words(topic: list[str]) -> None:
    """Kafka's tool gives the same numbers, and no word."""
    consumer = Consumer({"bootstrap.servers": topic[1], "group.id": "outside"})
    consumer.commit(offsets=[TopicPartition("t", 0, 5), TopicPartition("t", 1, 25)], asynchronous=False)
    consumer.close()
    ok("topic", "delete-records", "t", "--before", "8", "--partition", "0", *topic)
    rows = json.loads(ok("group", "describe", "outside", "--output", "json", *topic))
    below = "3 below the log's start: deleted before they were read; 2 can still be read"
    above = "15 above the log's end: the next fetch is out of range"
    assert [(row["lag"], row["lag_ms"] is None, row["note"]) for row in rows] == [(5, False, below), (-15, True, above)]
    (life,) = json.loads(ok("trace", "t:1@9", "--output", "json", *topic))
    assert [group["note"] for group in life["groups"] if group["group"] == "outside"] == [above]
    reset = call_plog(
        "group", "reset-offsets", "outside", "--topic", "t", "--to-datetime", "2099-01-01T00:00:00Z", *topic
    )
    assert "warning: t-1 has no record of that time or later; taking its end, 10" in reset.stderr.decode()


def reset(where: list[str], *options: str, group: str = "g") -> dict[str, int]:
    """The new offsets by partition; without --apply as well as with it."""
    shown = ok("group", "reset-offsets", group, *options, "--output", "json", *where)
    done = ok("group", "reset-offsets", group, *options, "--output", "json", "--execute", *where)
    assert done == shown
    return {f"{row['topic']}-{row['partition']}": row["new_offset"] for row in json.loads(done)}


def described(where: list[str], *options: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(ok("group", "describe", "g", "--output", "json", *options, *where))
    return rows


def test_all_groups_are_described(topic: list[str]) -> None:
    for group in ("all-1", "all-2"):
        ok("consume", "t", "--group", group, "--max-messages", "3", *topic)
    every = json.loads(ok("group", "describe", "--all-groups", "--output", "json", *topic))
    named = json.loads(ok("group", "describe", "all-1", "all-2", "--output", "json", *topic))
    assert [(row["group"], row["lag"]) for row in every if row["group"].startswith("all-")] == [
        (row["group"], row["lag"]) for row in named
    ]
    assert {row["group"] for row in named} == {"all-1", "all-2"}


@for_each(
    "mode, expected",
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-offset", "7"], [7, 7]),
        (["--to-offset", "70"], [10, 10]),
        (["--to-current"], [5, 10]),
        (["--shift-by", "3", "--topic", "t:0"], [8]),
        (["--shift-by", "-30", "--topic", "t:0"], [0]),
        (["--to-datetime", str(EARLY + 3 * HOUR_MS - 1)], [3, 3]),
        (["--to-datetime", "2099-01-01T00:00:00Z"], [10, 10]),
        (["--to-datetime", "1969-12-31T23:59:59.999Z"], [0, 0]),  # -1 ms: no word for the end
        (["--by-duration", "PT1H"], [10, 10]),
        (["--by-duration", "P36500D"], [0, 0]),
    ],
    first=6,
)
def test_reset_offsets(topic: list[str], mode: list[str], expected: list[int]) -> None:
    call_plog("group", "delete", "g", *topic)
    assert reset(topic, "--topic", "t:0", "--to-offset", "5") == {"t-0": 5}
    scope = [] if "--topic" in mode else ["--topic", "t"]
    assert list(reset(topic, *scope, *mode).values()) == expected


def test_reset_offsets_from_a_file(topic: list[str], tmp_path: Path) -> None:
    """Of Kafka's tool's form, or of what `--output csv` writes."""
    path = tmp_path / "offsets.csv"
    path.write_text("t,0,4\nt,1,6\n")
    assert reset(topic, "--from-file", str(path)) == {"t-0": 4, "t-1": 6}
    path.write_bytes(ok("group", "reset-offsets", "g", "--all-topics", "--shift-by", "1", "--output", "csv", *topic))
    assert reset(topic, "--from-file", str(path)) == {"t-0": 5, "t-1": 7}
    assert reset(topic, "--from-file", str(path), "--topic", "t:1") == {"t-1": 7}


def test_nothing_changes_without_execute(topic: list[str]) -> None:
    done = call_plog("group", "reset-offsets", "g", "--topic", "t", "--to-latest", *topic)
    assert b"nothing was changed: --apply does it" in done.stderr
    assert ok("group", "list", "--output", "json", *topic) == b"[]\n"


def test_a_groups_life(topic: list[str]) -> None:
    reset(topic, "--topic", "t", "--to-offset", "4")
    assert json.loads(ok("group", "list", "--output", "json", *topic)) == [
        {"group": "g", "state": "Empty", "type": "classic", "protocol_type": ""}
    ]
    assert ok("group", "list", "--state", "stable", "--output", "json", *topic) == b"[]\n"
    readers = json.loads(ok("group", "list", "--topic", "t", "--output", "json", *topic))
    assert [(r["group"], r["state"], r["members"], r["partitions"], r["lag"]) for r in readers] == [
        ("g", "Empty", 0, 2, 12)
    ]
    assert readers[0]["last_commit"] is not None
    nobody = call_plog("group", "list", "--topic", "t", "--state", "stable", *topic)
    assert (nobody.returncode, b"no group in that state reads t" in nobody.stderr) == (0, True)
    assert b"--no-times goes with --topic" in call_plog("group", "list", "--no-times", *topic).stderr
    unknown = call_plog("group", "list", "--state", "idle", *topic)
    assert (unknown.returncode, b"hint: Empty, " in unknown.stderr) == (2, True)
    rows = described(topic)
    assert [(r["partition"], r["offset"], r["end_offset"], r["lag"]) for r in rows] == [(0, 4, 10, 6), (1, 4, 10, 6)]
    assert described(topic, "--members") == []
    ok("group", "delete-offsets", "g", "--topic", "t:0", *topic)
    assert [r["partition"] for r in described(topic)] == [1]
    ok("group", "delete", "g", *topic)
    missing = call_plog("group", "describe", "g", *topic)
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert b"error: GROUP_ID_NOT_FOUND: Group g not found." in missing.stderr


@pytest.mark.longer
def test_a_group_in_use(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--set", "group.initial.rebalance.delay.ms=0") as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", "t", "--partitions", "2", *where)
        ok("produce", "t", "--partition", "0", *where, stdin=b"a\nb\n")
        consumer = Consumer(
            {"bootstrap.servers": server.address, "group.id": "g", "client.id": "etl", "auto.offset.reset": "earliest",
             "group.instance.id": "one", "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["t"])
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        (member,) = described(where, "--members")
        assert (member["client_id"], member["instance_id"], member["host"]) == ("etl", "one", "/127.0.0.1")
        assert member["partitions"] == ["t-0", "t-1"]
        rows = described(where)
        assert [(r["offset"], r["lag"], r["client_id"]) for r in rows] == [(1, 1, "etl"), (None, None, "etl")]
        for command in (
            ["reset-offsets", "g", "--topic", "t", "--to-latest", "--execute"],
            ["delete", "g"],
            ["delete-offsets", "g", "--topic", "t"],
        ):
            refused = call_plog("group", *command, *where)
            assert refused.returncode == 1
            assert b"error: " in refused.stderr
        assert [r["offset"] for r in described(where)] == [1, None]
        consumer.close()


@pytest.mark.parametrize("where", ["server"], indirect=True)
def test_static_members_are_removed(topic: list[str]) -> None:
    """Kafka removes the one that it knows, and not the other (administrator-removes-consumers.ndjson)."""
    address = parse_bootstrap(topic[1])
    for group, kind, note in (("old", ClassicMember, None), ("new", ConsumerMember, "it had left, and was awaited")):
        remove = ["group", "remove-members", group, "--output", "json", *topic]
        with closing(KafkaClient(address)) as client:
            member = kind(client, group, Subscription(client, ["t"]), "worker-3")
            assert len(member.assignment(frozenset())) == 2
            member.leave()  # it is static: the group keeps its partitions for it
        (planned,) = json.loads(ok(*remove, "--all", "--dry-run"))
        assert (planned["instance_id"], planned["note"]) == ("worker-3", note)
        assert planned["result"] == "would be removed"
        refused = call_plog(*remove, "--all")
        assert (refused.returncode, b"1 static and 0 dynamic ones" in refused.stderr) == (2, True)
        done = call_plog(*remove, "--instance", "zz", "--instance", "worker-3")
        (row,) = json.loads(done.stdout)
        assert (done.returncode, row["member_id"], row["result"]) == (1, planned["member_id"], "removed")
        assert b"1 of 1 members removed from group " in done.stderr
        assert b"has no static member zz" in done.stderr
        assert json.loads(ok("group", "describe", group, "--members", "--output", "json", *topic)) == []
        assert json.loads(ok(*remove, "--all")) == []


def test_members_of_a_directory(topic: list[str]) -> None:
    wrong = call_plog("group", "remove-members", "g", *topic)
    assert (wrong.returncode, b"expected either --instance or --all" in wrong.stderr) == (2, True)
    if topic[0] == "--data-dir":
        done = call_plog("group", "remove-members", "g", "--all", "--yes", *topic)
        assert (done.returncode, b"nobody serves" in done.stderr) == (2, True)


@for_each(
    "options, message",
    [
        (["--to-latest"], b"expected either --topic or --all-topics"),
        (["--topic", "t"], b"expected one option that says where to, found none"),
        (["--topic", "t", "--to-latest", "--to-earliest"], b"--to-earliest and --to-latest"),
        (["--topic", "t:9", "--to-latest"], b"topic t has no partition '9', only 0 to 1"),
        (["--topic", "t:x", "--to-latest"], b"topic t has no partition 'x', only 0 to 1"),
        (["--topic", "t", "--by-duration", "2 hours"], b"expected PnDTnHnMnS"),
        (["--topic", "t", "--to-datetime", "noon"], b"'noon' is no time"),
        (["--topic", "t", "--shift-by", "1"], b"the group committed no offset of t-0, t-1"),
        (["--topic", "t", "--to-latest", "--execute", "--dry-run"], b"contradict each other"),
    ],
)
def test_bad_input(topic: list[str], options: list[str], message: bytes) -> None:
    done = call_plog("group", "reset-offsets", "g", *options, *topic)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == b""


def test_a_file_of_offsets_that_is_none(topic: list[str], tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("t,0,4\nt,one,6\n")
    done = call_plog("group", "reset-offsets", "g", "--from-file", str(path), *topic)
    assert done.returncode == 2
    assert b"offsets.csv:2: 't,one,6' is not topic,partition,offset" in done.stderr
    for text, problem in (
        ("g,t,0,4\nh,t,0,5\n", b"offsets.csv:2: t-0 has another offset in a line before, 4"),
        ("", b"no line"),
    ):
        path.write_text(text)
        done = call_plog("group", "reset-offsets", "g", "--from-file", str(path), *topic)
        assert (done.returncode, problem in done.stderr) == (2, True)
    done = call_plog("group", "reset-offsets", "g", "--from-file", str(tmp_path / "none"), *topic)
    assert done.returncode == 3
