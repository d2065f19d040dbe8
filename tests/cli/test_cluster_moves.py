"""`plog cluster elect`, `reassign`, `drain`, `check` and `controller` where no cluster of several brokers is needed;
and which arguments of theirs, and of `features`, make no sense.

tests/interop/test_cluster_commands.py and test_moves_in_a_mixed_cluster.py do it with several.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.cluster.reassignment_common import parse_broker, parse_brokers, parse_rate
from core.client.admin import metadata_quorum
from core.client.cluster_admin.replica_check import Difference, ReplicaCheck, ReplicaComparison
from core.common.errors import ConnectionFailedError, UsageError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.cluster_nodes import DescribedPartition, ReplicaState
from plog.testing import running_broker
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.server import Server, call_plog

NEED_A_SERVER = [
    ("elect", "--preferred"), ("reassign", "--status"), ("drain", "1"), ("check",), ("features", "--upgrade", "all"),
]  # fmt: skip


@for_each(
    "text, rate",
    [
        ("2TB/s", 2 << 40),
        ("50MB/s", 50 << 20), ("50M", 50 << 20), ("1.5 KB/s", 1536), ("1gb", 1 << 30), ("7", 7), ("5242B/s", 5242),
    ],
)  # fmt: skip
def test_rates(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


def test_what_is_no_rate() -> None:
    for text in ("", "0", "-5MB/s", "fast", "5 apples", "nan", "inf", "0.1B"):
        with pytest.raises(UsageError, match="expected bytes per second"):
            parse_rate(text)
    for text in ("99999999999999TB/s", "99999999999G", "1e400", "4611686018427387904"):
        with pytest.raises(UsageError, match=f"^--throttle {text}: too large, expected bytes per second below 4 EB$"):
            parse_rate(text)


def test_ids_of_brokers() -> None:
    assert parse_brokers("1, 2,3") == [1, 2, 3]
    assert parse_broker("1001") == 1001
    for text in ("", "1,", "a", "-1", "1 2", "²", "9" * 20):
        with pytest.raises(UsageError, match="expected the ids of brokers"):
            parse_brokers(text)
        with pytest.raises(UsageError, match="is no id of a broker"):
            parse_broker(text)
    with pytest.raises(UsageError, match="named twice"):
        parse_brokers("1,2,1")


@for_each(
    "arguments, message",
    [
        (("elect",), "expected one of --preferred and --unclean"),
        (("elect", "--preferred", "--unclean"), "expected one of --preferred and --unclean"),
        (("reassign",), "expected what to move"),
        (("reassign", "--status", "--cancel"), "--status and --cancel contradict each other"),
        (("reassign", "--plan", "x", "--topics", "t"), "--plan says which partitions"),
        (("reassign", "--plan", "x", "--to", "1"), "go with --topics only"),
        (("reassign", "--status", "--replication-factor", "3"), "go with --topics only"),
        (("reassign", "--cancel", "--throttle", "1M"), "--throttle has no meaning with --cancel"),
        (("reassign", "--topics", "t", "--throttle", "x"), "--throttle x: expected bytes per second"),
        (("reassign", "--topics", "t", "--to", "x"), "--to x: expected the ids of brokers"),
        (("reassign", "--topics", ""), "--topics : expected the names of topics"),
        (("reassign", "--topics", ",", "--to", "1"), "--topics ,: expected the names of topics"),
        (("reassign", "--status", "--topics", "t,"), "--topics t,: expected the names of topics"),
        (("drain", "x"), "'x' is no id of a broker"),
        (("features", "--unsafe"), "--unsafe goes with --downgrade only"),
        (("features", "--upgrade", "all", "--unsafe"), "--unsafe goes with --downgrade only"),
        (("features", "--upgrade", "a=x"), "--upgrade a=x: x is no level, expected a number from 0 on"),
        (("features", "--downgrade", "a"), "--downgrade a: expected FEATURE=LEVEL"),
        (("features", "--upgrade", "a=1", "--downgrade", "a=0"), "a is named twice"),
        (("features", "--feature", "a=1"), "did you mean --upgrade FEATURE=LEVEL, or --downgrade?"),
    ],
)
def test_commands_that_make_no_sense_reach_no_server(arguments: tuple[str, ...], message: str) -> None:
    done = call_plog("cluster", *arguments, "--bootstrap-server", "127.0.0.1:1")
    assert done.returncode == 2
    assert message.encode() in done.stderr


@for_each("arguments", NEED_A_SERVER)
def test_a_directory_that_nobody_serves_is_refused(arguments: tuple[str, ...]) -> None:
    done = call_plog("cluster", *arguments, "--data-dir", str(SAMPLE_DATA))
    assert done.returncode == 2
    assert f"plog cluster {arguments[0]} needs a cluster: no broker serves {SAMPLE_DATA}".encode() in done.stderr


@for_each("arguments", NEED_A_SERVER)
def test_a_server_has_to_be_named_if_nothing_is_at_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    done = call_plog("cluster", *arguments)
    assert done.returncode == 2
    assert f"plog cluster {arguments[0]} needs a server\nhint: --bootstrap-server".encode() in done.stderr


@pytest.mark.longer
def test_a_broker_alone(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers what there is to answer, and what it can't do is said as such."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    where = ("--bootstrap-server", server.address)
    call_plog("topic", "create", "t", "--partitions", "2", *where)
    elected = call_plog("cluster", "elect", "--preferred", "t", "--output", "json", *where)
    assert elected.returncode == 0
    assert [row["result"] for row in json.loads(elected.stdout)] == ["not needed", "not needed"]
    planned = call_plog("cluster", "elect", "--preferred", "t", "--dry-run", *where)
    assert (planned.returncode, planned.stderr) == (0, b"no election is needed\n")
    assert planned.stdout.count(b"leads: not needed") == 2
    of_all = call_plog("cluster", "elect", "--preferred", "--dry-run", *where)
    assert (of_all.stdout, of_all.stderr) == (b"", b"every partition is led by its preferred leader\n")
    checked = call_plog("cluster", "check", "--output", "json", *where)
    assert [row["result"] for row in json.loads(checked.stdout)] == ["one replica", "one replica"]
    assert {(row["start_offset"], row["end_offset"]) for row in json.loads(checked.stdout)} == {(None, None)}
    assert b"nothing is being moved" in call_plog("cluster", "reassign", "--status", *where).stderr
    assert b"all replicas are where they should be" in call_plog("cluster", "reassign", "--topics", "t", *where).stderr
    drained = call_plog("cluster", "drain", "1", *where)
    assert drained.returncode == 2
    assert b"0 brokers can't hold the replicas of t (1)" in drained.stderr
    missing = call_plog("cluster", "reassign", "--plan", str(tmp_path / "none"), *where)
    assert missing.returncode == 3
    assert b"could not read" in missing.stderr


def test_what_differs_and_what_was_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    t0, t1 = (TopicPartition("t", number) for number in range(2))
    found = {
        t0: ReplicaComparison(t0, False, [1, 2], differences=[Difference(3, 7, "other keys")], more_differences=1200),
        t1: ReplicaComparison(t1, False, [1, 2], not_compared={3: ConnectionFailedError("no answer")}),
    }
    monkeypatch.setattr(ReplicaCheck, "compare", lambda _check, placed, **_: found[placed.partition])
    with running_broker() as broker:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        assert call_plog("topic", "create", "t", "--partitions", "2", *where).returncode == 0
        done = call_plog("cluster", "check", *where)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[:3] == [
        "error: t-0 differs from offset 3 to 7: other keys",
        "error: t-0 differs in 1,200 more places",
        "warning: broker 3 was not compared for t-1: no answer",
    ]
    assert b"1,201 differences" in done.stdout


def test_lag_is_counted_from_the_controllers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Controller 2 ends at offset 90; voter 1 is at 70, observer 3 is ahead of what was heard of 2."""
    ends = {1: 70, 2: 90, 3: 95}
    *voters, observer = [ReplicaState(node, log_end_offset=end) for node, end in ends.items()]
    quorum = DescribedPartition(
        leader_id=2, leader_epoch=5, high_watermark=60, current_voters=voters, observers=[observer]
    )
    monkeypatch.setattr(metadata_quorum, "find_quorum", lambda *_, **__: quorum)
    with running_broker() as broker:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        rows = json.loads(call_plog("cluster", "controller", "--output", "json", *where).stdout)
    assert {row["node"]: (row["role"], row["lag"]) for row in rows} == {
        1: ("voter", 20), 2: ("controller", 0), 3: ("observer", 0),
    }  # fmt: skip


def test_who_has_been_the_controller_by_the_files() -> None:
    """The fixture's log begins with Kafka's LeaderChange record (tests/golden/kafka/__cluster_metadata-0.dump.txt)."""
    done = call_plog("cluster", "controller", "--data-dir", str(GOLDEN), "--output", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == [
        {"controller": 1, "epoch": 1, "since_timestamp": 1795249436126, "offset": 0}
    ]  # fmt: skip
    without = call_plog("cluster", "controller", "--data-dir", str(SAMPLE_DATA))
    assert without.returncode == 1
    assert b"has no metadata log" in without.stderr
