"""`plog cluster` and `plog topic` ask three brokers of Apache Kafka, of which one is killed, lags, or loses a disk; and
move things from one to the other, as Kafka's own tools do.

The tests share one cluster and run in this order. Each leaves it well, but for the last.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.client.net.client_connection import ClientConnection
from core.protocol.message import Api
from core.protocol.schema.cluster_nodes import UPDATE_FEATURES
from tests.support.kafka_cluster import kafka_cluster
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka, run_tool
from tests.support.pseudo_terminal import call_at_terminal
from tests.support.server import PLOG, call_plog
from tests.support.waiting import PROMPT_SECONDS, wait_for_exit, wait_until

pytestmark = requires_kafka

Cluster = dict[int, KafkaServer]
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as servers:
        where = ("--bootstrap-server", servers[1].address)
        for name, *options in (
            ("flights", "--replication-factor", "3", "--partitions", "2", "--set", "min.insync.replicas=2"),
            ("slow", "--replication-factor", "3", "--set", "leader.replication.throttled.replicas=*"),
            ("alone", "--replication-factor", "1", "--partitions", "6"),
        ):
            assert call_plog("topic", "create", name, "--partitions", "1", *options, *where).returncode == 0
        yield servers


def ask(cluster: Cluster, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = call_plog(*arguments, "--bootstrap-server", cluster[1].address, "--output", "json")
    assert done.returncode == code, done.stderr.decode()
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def status(cluster: Cluster) -> dict[str, Any]:
    """What is known of the whole."""
    done = call_plog("cluster", "status", "--bootstrap-server", cluster[1].address, "--output", "json")
    rows = json.loads(done.stdout)
    found: dict[str, Any] = rows[0]
    is_silent = any(row["failure"] for row in rows)  # killed, and nobody has noticed yet
    assert done.returncode == (3 if is_silent else 1 if found["problems"] else 0), done.stderr.decode()
    return found


def is_well(cluster: Cluster) -> bool:
    return not status(cluster)["problems"]


def test_a_cluster_that_is_well(cluster: Cluster) -> None:
    wait_until(lambda: is_well(cluster), "all replicas are in sync")
    assert status(cluster)["partitions"] == 9
    brokers = ask(cluster, "cluster", "brokers")
    assert [(row["broker"], row["rack"], row["version"], row["state"]) for row in brokers] == [
        (number, f"r{number}", "4.4", "reachable") for number in (1, 2, 3)
    ]
    assert sum(row["replicas"] for row in brokers) == 2 * 3 + 3 + 6
    assert sum(row["leaders"] for row in brokers) == 9
    assert not any(row["lagging"] or row["failed_dirs"] for row in brokers)
    topics = {row["topic"]: row for row in ask(cluster, "cluster", "topics")}
    assert {name: (row["partitions"], row["replicas"], row["min_isr"]) for name, row in topics.items()} == {
        "alone": (6, 1, 1), "flights": (2, 3, 2), "slow": (1, 3, 1),
    }  # fmt: skip
    wait_until_replicas_answer(cluster, "flights")
    for row in ask(cluster, "cluster", "describe", "flights"):
        assert (row["in_sync"], row["lag"], row["lag_bytes"], row["why_out_of_sync"]) == (True, 0, 0, None)


def test_more_replicas_than_brokers_are_refused(cluster: Cluster) -> None:
    done = call_plog(
        "topic", "create", "much", "--replication-factor", "4", "--bootstrap-server", cluster[1].address
    )  # fmt: skip
    assert done.returncode == 1
    assert b"INVALID_REPLICATION_FACTOR" in done.stderr
    assert b"hint: each replica needs a broker of its own: --replication-factor 3 is the most here" in done.stderr


# --- what moves things


@pytest.fixture(autouse=True)
def _notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def moved(cluster: Cluster) -> str:
    """A topic of four partitions, each of more bytes than a follower gets at once; the last test of it deletes it."""
    where = ("--bootstrap-server", cluster[1].address)
    assert call_plog("topic", "create", "moved", "--partitions", "4", *where).returncode == 0
    lines = b"".join(b"%d:%s\n" % (n, b"x" * 4000) for n in range(2000))
    small = ("--batch-size", "16384")
    assert call_plog("produce", "moved", "--key-separator", ":", *small, *where, stdin=lines).returncode == 0
    to_two = call_plog("cluster", "reassign", "--topics", "moved", "--to", "1,2", "--replication-factor", "2", *where)
    assert to_two.returncode == 0, to_two.stderr
    return "moved"


def told(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    """What a command says beside its listing."""
    done = call_plog(*arguments, "--bootstrap-server", cluster[1].address)
    assert done.returncode == code, done.stderr.decode()
    return done.stderr.decode()


def replicas(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    return {row["partition"]: row["replicas"] for row in ask(cluster, "topic", "describe", topic)}


def kafkas_reassign(cluster: Cluster, *arguments: str) -> str:
    done = run_tool(REASSIGN, "--bootstrap-server", cluster[1].address, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_replicas_are_moved_and_kafkas_tool_agrees(cluster: Cluster, moved: str, tmp_path: Path) -> None:
    assert {tuple(sorted(one)) for one in replicas(cluster, moved).values()} == {(1, 2)}
    wanted = ("cluster", "reassign", "--topics", moved, "--to", "2,3")
    shown = call_plog(*wanted, "--dry-run", "--output", "json", "--bootstrap-server", cluster[1].address)
    assert b"nothing was changed" in shown.stderr
    plan = tmp_path / "plan.json"
    plan.write_bytes(shown.stdout)
    firsts = [entry["replicas"][0] for entry in json.loads(plan.read_text())["partitions"]]
    assert sorted(firsts) == [2, 2, 3, 3]
    rows = ask(cluster, *wanted)
    assert all(row["copies_to"] == [3] and row["moved_bytes"] > 100_000 for row in rows), rows
    assert {tuple(sorted(one)) for one in replicas(cluster, moved).values()} == {(2, 3)}
    verified = kafkas_reassign(cluster, "--verify", "--reassignment-json-file", str(plan))
    assert verified.count("is completed") == 4, verified
    assert "there is nothing to move" in told(cluster, "cluster", "reassign", "--plan", str(plan))


def test_a_throttled_move_that_nobody_watches_is_seen_and_cancelled(cluster: Cluster, moved: str) -> None:
    """What others have throttled stays: the rate of broker 2, and the replicas of another topic."""
    told(cluster, "config", "alter", "broker", "2", "--set", "follower.replication.throttled.rate=999000111")
    wanted = ("cluster", "reassign", "--topics", moved, "--to", "1,2", "--throttle", "1KB/s")
    where = ("--bootstrap-server", cluster[1].address)
    environment = {**os.environ, "NO_COLOR": "1"}
    watching = subprocess.Popen([PLOG, *wanted, *where], stderr=subprocess.PIPE, env=environment)
    wait_until(lambda: ask(cluster, "cluster", "reassign", "--status", "--dry-run"), "it has begun")
    throttled = "follower.replication.throttled.replicas"
    wait_until(lambda: "0:1" in settings(cluster, "topic", moved).get(throttled, ""), "slowly")
    watching.send_signal(signal.SIGINT)
    assert wait_for_exit(watching, seconds=PROMPT_SECONDS) == 130
    _, said = watching.communicate()
    assert b"hint: plog cluster reassign --status --bootstrap-server " in said
    assert b"broker 2 has follower.replication.throttled.rate=999000111 already, which stays" in said

    rate = "follower.replication.throttled.rate"
    wait_until(lambda: settings(cluster, "broker", "3").get(rate) == "1024", "broker 3 knows its rate")
    listed = kafkas_reassign(cluster, "--list")
    assert f"{moved}-0: replicas: " in listed
    assert "adding: 1. removing: 3." in listed
    ensure_nothing_is_under_replicated(cluster, moved)
    assert "REASSIGNMENT_IN_PROGRESS" in told(cluster, *wanted[:6], code=1)
    assert "REASSIGNMENT_IN_PROGRESS" in told(cluster, "cluster", "drain", "2", code=1)
    assert "the throttle is removed" in told(cluster, "cluster", "reassign", "--cancel")
    assert ask(cluster, "cluster", "reassign", "--status") == []
    assert {tuple(sorted(one)) for one in replicas(cluster, moved).values()} == {(2, 3)}
    ensure_nothing_is_throttled_but_by_others(cluster, moved)
    told(cluster, "config", "alter", "broker", "2", "--unset", "follower.replication.throttled.rate")


def ensure_nothing_is_under_replicated(cluster: Cluster, topic: str) -> None:
    """A replica that is being added is not missing, all say alike, Kafka's tool too."""
    said = told(cluster, "cluster", "status")
    assert "note: replicas are being added: " in said
    assert "under-replicated" not in said
    assert [row["under_replicated"] for row in ask(cluster, "cluster", "topics", topic)] == [0]
    said = told(cluster, "topic", "describe", topic)
    assert "note: replicas are being added: " in said
    assert "lack a leader or a replica" not in said
    reasons = {row["why_out_of_sync"] for row in ask(cluster, "cluster", "describe", topic)} - {None}
    assert reasons
    assert all(reason.startswith("it is being added, and has ") for reason in reasons)
    kafka = run_tool(TOPICS, "--bootstrap-server", cluster[1].address, "--describe", "--under-replicated-partitions")
    assert (kafka.returncode, kafka.stdout) == (0, b"")


def settings(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """What is set for a topic or a broker."""
    own = {"topic": "topic_config", "broker": "dynamic_broker_config"}[kind]
    rows = ask(cluster, "config", "describe", kind, name)
    return {row["key"]: row["value"] for row in rows if row["source"] == own}


def ensure_nothing_is_throttled_but_by_others(cluster: Cluster, topic: str) -> None:
    """Each broker hears of it a moment later."""
    wait_until(lambda: settings(cluster, "topic", topic) == {}, "nothing is set for the topic")
    assert settings(cluster, "topic", "slow")["leader.replication.throttled.replicas"] == "*"
    wanted = {1: {}, 2: {"follower.replication.throttled.rate": "999000111"}, 3: {}}

    def rates() -> dict[int, dict[str, str]]:
        return {number: settings(cluster, "broker", str(number)) for number in (1, 2, 3)}

    wait_until(lambda: rates() == wanted, lambda: f"rates of brokers: {rates()}")


def test_what_kafkas_tool_began_is_watched_to_its_end(cluster: Cluster, moved: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    entries = [{"topic": moved, "partition": number, "replicas": [3, 1]} for number in range(4)]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    begin = ("--execute", "--reassignment-json-file", str(plan), "--throttle")
    assert "Successfully started" in kafkas_reassign(cluster, *begin, "1000")
    rows = ask(cluster, "cluster", "reassign", "--status", "--dry-run")
    assert [row["to"] for row in rows] == [[3, 1]] * 4
    assert all(row["copied_bytes"] + row["left_bytes"] == row["moved_bytes"] > 100_000 for row in rows), rows
    assert sum(row["left_bytes"] for row in rows) > 0
    kafkas_reassign(cluster, *begin, "100000000", "--additional")
    ask(cluster, "cluster", "reassign", "--status")
    assert list(replicas(cluster, moved).values()) == [[3, 1]] * 4
    assert settings(cluster, "topic", moved), "it was not ours to remove"
    verified = kafkas_reassign(cluster, "--verify", "--reassignment-json-file", str(plan))
    assert "Clearing topic-level throttles" in verified


def test_leadership_is_given_to_the_first_replicas(cluster: Cluster, moved: str, tmp_path: Path) -> None:
    before = {row["partition"]: row["leader"] for row in ask(cluster, "topic", "describe", moved)}
    plan = tmp_path / "plan.json"
    entries = [
        {"topic": moved, "partition": number, "replicas": [4 - leader, leader]} for number, leader in before.items()
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    assert f"hint: plog cluster elect --preferred {moved} --bootstrap-server" in told(
        cluster, "cluster", "reassign", "--plan", str(plan)
    )
    (planned, *_) = ask(cluster, "cluster", "elect", "--preferred", "--dry-run", f"{moved}-0")
    assert planned["result"] == f"{4 - before[0]} would lead"
    (first,) = ask(cluster, "cluster", "elect", "--preferred", f"{moved}-0")
    assert (first["before"], first["leader"], first["result"]) == (before[0], 4 - before[0], "elected")
    results = [row["result"] for row in ask(cluster, "cluster", "elect", "--preferred", moved)]
    assert results == ["not needed", "elected", "elected", "elected"]
    ask(cluster, "cluster", "elect", "--preferred")  # a broker that stood still has lost what it led
    assert ask(cluster, "cluster", "elect", "--preferred") == []


def test_replicas_that_differ_are_named(cluster: Cluster, moved: str) -> None:
    rows = ask(cluster, "cluster", "check")
    assert {row["result"] for row in rows} == {"equal", "one replica"}
    compared = [row for row in rows if row["partition"].startswith(moved)]
    assert sum(row["end_offset"] - row["start_offset"] for row in compared) == 2000

    (log,) = (path for path in cluster[3].data_dir.parent.glob(f"b3*/{moved}-1/*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1  # in a record
    content[15] ^= 1  # in the leader epoch, which no crc covers
    log.write_bytes(content)
    (row,) = ask(cluster, "cluster", "check", f"{moved}-1", code=1)
    first, *_ = row["differences"]
    assert first["start_offset"] == 0
    assert first["what"].count("broker 3: ") == 1, first
    assert "crc mismatch" in json.dumps(row["differences"])
    assert {one["result"] for one in ask(cluster, "cluster", "check", f"{moved}:0,2,3")} == {"equal"}
    told(cluster, "topic", "delete", moved)
    wait_until(lambda: len(ask(cluster, "cluster", "topics")) == 3, "it is gone")


def test_who_is_the_controller(cluster: Cluster) -> None:
    rows = ask(cluster, "cluster", "controller")
    assert [(row["node"], row["role"], row["controller"], row["epoch"]) for row in rows if row["node"] == 1] == [
        (1, "controller", 1, 1)
    ]
    assert {row["node"] for row in rows} == {1, 2, 3}
    (term,) = json.loads(
        call_plog("cluster", "controller", "--data-dir", str(cluster[2].data_dir), "--output", "json").stdout
    )
    assert (term["controller"], term["epoch"], term["offset"]) == (1, 1, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_that_no_broker_supports_are_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Each version of UpdateFeatures has its own way to say so."""
    version_of = ClientConnection.version_of

    def older(self: ClientConnection, api: Api[Any, Any], **options: int) -> int:
        return version if api is UPDATE_FEATURES else version_of(self, api, **options)

    monkeypatch.setattr(ClientConnection, "version_of", older)
    refused = told(cluster, "cluster", "features", "--upgrade", "transaction.version=9", "--yes", code=1)
    assert re.search("error: INVALID_UPDATE_VERSION: .*transaction.version", refused), refused


def test_features_are_finalized_here_and_there(cluster: Cluster) -> None:
    lower = ("cluster", "features", "--downgrade", "group.version=0", "--downgrade", "transaction.version=1")
    before = ask(cluster, "cluster", "features")
    assert [row["result"] for row in ask(cluster, *lower, "--dry-run")] == ["would be lowered", "would be lowered"]
    assert [row["result"] for row in ask(cluster, *lower)] == ["lowered", "lowered"]
    server = ("--bootstrap-server", cluster[3].address)
    described = run_tool(FEATURES, *server, "describe").stdout.decode()
    line = r"Feature: (\S+)\s+SupportedMinVersion: (\d)\s+SupportedMaxVersion: (\d)\s+FinalizedVersionLevel: (\d)\s"
    by_tool = {name: tuple(map(int, levels)) for name, *levels in re.findall(line, described)}
    assert (by_tool["group.version"], by_tool["transaction.version"]) == ((0, 1, 0), (0, 2, 1))
    for row in ask(cluster, "cluster", "features"):
        assert row["brokers"] == [1, 2, 3]
        if row["feature"] != "metadata.version":  # of which the tool says releases
            assert by_tool.pop(row["feature"]) == (row["min"], row["max"], row["finalized"])
    assert not by_tool
    raised = run_tool(
        FEATURES, *server, "upgrade", "--feature", "group.version=1", "--feature", "transaction.version=2"
    )
    assert raised.returncode == 0, raised.stdout
    levels = {row["feature"]: row["finalized"] for row in before}

    def now() -> list[dict[str, Any]]:
        return ask(cluster, "cluster", "features")

    wait_until(lambda: now()[0]["epoch"] > before[0]["epoch"], "the asked broker knows")
    assert {row["feature"]: row["finalized"] for row in now()} == levels


def test_plans_fit_on_a_narrow_terminal(cluster: Cluster) -> None:
    where = ("--bootstrap-server", cluster[1].address)
    assert call_plog("topic", "create", "narrow", "--replication-factor", "2", *where).returncode == 0
    wait_until_replicas_answer(cluster, "narrow")
    for command in (("reassign", "--topics", "narrow", "--replication-factor", "3"), ("check", "narrow")):
        dry = ("--dry-run",) if command[0] == "reassign" else ()
        shown, code = call_at_terminal("cluster", *command, *dry, *where, columns=50)
        assert code == 0, shown
        assert max(map(len, shown.splitlines())) <= 50, shown
        assert "narrow-0" in shown
    assert call_plog("topic", "delete", "narrow", *where).returncode == 0


def wait_until_replicas_answer(cluster: Cluster, topic: str) -> None:
    """Until each broker knows of its replicas of a topic that is new."""

    def ends() -> list[int | None]:
        where = ("--bootstrap-server", cluster[1].address, "--output", "json")
        rows = json.loads(call_plog("cluster", "describe", topic, *where).stdout or b"[]")
        return [row["end_offset"] for row in rows]

    wait_until(lambda: ends() and None not in ends(), lambda: f"{topic}: {ends()}")


def test_moves_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    for arguments, code, text in (
        (("drain", "3"), 2, "2 brokers can't hold the replicas of flights (3), slow (3)"),
        (("drain", "7"), 2, "broker 7 is not in the cluster; its brokers are 1, 2, 3"),
        (("drain", "three"), 2, "'three' is no id of a broker, expected a number"),
        (
            ("reassign", "--topics", "flights", "--to", "1,2,7"),
            2,
            "broker 7 is not there; the live brokers are 1, 2, 3",
        ),
        (("reassign", "--topics", "flight", "--to", "1"), 1, "did you mean flights?"),
        (("reassign", "--topics", "flights", "--to", "1"), 2, "1 broker can't hold the replicas of flights (3)"),
        (("check", "flights-7"), 1, "topic 'flights' has no partition 7"),
        (("elect", "--unclean", "flights"), 2, "--unclean needs each partition of flights by its number"),
    ):
        assert text in told(cluster, "cluster", *arguments, code=code)
    assert "nothing is being moved" in told(cluster, "cluster", "reassign", "--status")


# --- a broker that is gone


def test_all_doors_agree_when_a_broker_is_killed_and_when_it_lags_and_is_back(cluster: Cluster) -> None:
    """Leaders give a follower that is not in sync a megabyte, and then nothing for a long time."""
    throttle(cluster, "--set", "leader.replication.throttled.rate=1")
    cluster[3].kill()
    wait_until(lambda: any("broker 3 is fenced" in text for text in status(cluster)["problems"]), "3 is fenced")
    ensure_doors_agree(cluster)
    ensure_the_killed_is_described(cluster)

    produced = call_plog(
        "produce", "slow", "--bootstrap-server", cluster[1].address, stdin=(b"x" * 999 + b"\n") * 20_000
    )  # fmt: skip
    assert produced.returncode == 0
    cluster[3].start()
    wait_until(lambda: of_three(cluster, "slow-0")["end_offset"] is not None, "3 tells how far it is")
    lagging = of_three(cluster, "slow-0")
    assert lagging["in_sync"] is False
    assert lagging["lag"] == 20_000 - lagging["end_offset"] > 0
    assert lagging["lag_bytes"] > 0
    assert lagging["why_out_of_sync"] == f"it lags by {lagging['lag']:,} records"
    assert "slow-0" in ask(cluster, "cluster", "brokers")[2]["lagging"]

    throttle(cluster, "--unset", "leader.replication.throttled.rate")
    wait_until(lambda: is_well(cluster), "all replicas are in sync again")
    assert of_three(cluster, "slow-0")["lag"] == 0


def throttle(cluster: Cluster, *change: str) -> None:
    """Changes how fast the brokers 1 and 2 are, as leaders."""
    where = ("--bootstrap-server", cluster[1].address)
    for broker in ("1", "2"):
        assert call_plog("config", "alter", "broker", broker, *change, *where).returncode == 0


def of_three(cluster: Cluster, partition: str) -> dict[str, Any]:
    """What is said of broker 3's replica."""
    return next(row for row in ask(cluster, "cluster", "describe", partition) if row["broker"] == 3)


def ensure_doors_agree(cluster: Cluster) -> None:
    def leaders_answer() -> bool:  # a new one hears of it a moment later than the broker that is asked
        rows = ask(cluster, "cluster", "describe", *(row["topic"] for row in ask(cluster, "cluster", "topics")))
        return all(row["high_watermark"] is not None for row in rows if row["leader"] is not None)

    wait_until(leaders_answer, "leaders know what they lead")
    whole = status(cluster)
    topics = {row["topic"]: row for row in ask(cluster, "cluster", "topics")}
    replicas = ask(cluster, "cluster", "describe", *topics)
    described = {f"{row['topic']}-{row['partition']}": row for row in ask(cluster, "topic", "describe", *topics)}
    for row in replicas:
        other = described[row["partition"]]
        assert (row["leader"] if row["leader"] is not None else -1) == other["leader"]
        for key in ("leader_epoch", "replicas", "isr"):
            assert row[key] == other[key], key
        assert row["high_watermark"] == other["end_offset"]
        assert (row["broker"] in row["isr"]) is row["in_sync"] is (row["why_out_of_sync"] is None)
    assert len(described) == whole["partitions"] == sum(row["partitions"] for row in topics.values())
    leaderless = sum(row["leader"] == -1 for row in described.values())
    under_replicated = sum(len(row["isr"]) < len(row["replicas"]) for row in described.values())
    assert leaderless == whole["leaderless"] == sum(row["leaderless"] for row in topics.values()) > 0
    assert under_replicated == whole["under_replicated"] == sum(row["under_replicated"] for row in topics.values()) > 3
    brokers = ask(cluster, "cluster", "brokers")
    assert sum(len(row["lagging"]) for row in brokers) == sum(not row["in_sync"] for row in replicas)
    assert sum(row["leaders"] for row in brokers) == len(described) - leaderless


def ensure_the_killed_is_described(cluster: Cluster) -> None:
    killed = of_three(cluster, "flights-0")
    assert (killed["in_sync"], killed["end_offset"], killed["lag"]) == (False, None, None)
    assert killed["why_out_of_sync"] == (
        "its broker is fenced: it is stopped, or the controller does not hear from it"
    )  # fmt: skip
    lost = next(row for row in ask(cluster, "cluster", "describe", "alone") if row["broker"] == 3)
    assert (lost["leader"], lost["elr"], lost["eligible"]) == (None, [3], True)  # KIP-966
    where = ("--bootstrap-server", cluster[1].address)
    for command in (("status",), ("brokers",), ("topics",), ("describe", "flights-0"), ("describe", lost["partition"])):
        shown, _ = call_at_terminal("cluster", *command, *where)
        assert max(map(len, shown.splitlines())) <= 80, shown
    shown, _ = call_at_terminal("topic", "describe", "flights", *where)
    assert {"leader", "replicas", "isr"} <= set(shown.split()), shown
    assert "hint: plog cluster describe flights-0" in shown


def test_a_disk_that_failed(cluster: Cluster) -> None:
    """Nothing mends it: this test is the last."""
    disk = cluster[3].data_dir.with_name("b3-second-disk")
    held = sorted(path.name for path in disk.iterdir() if path.name[:-1] in ("flights-", "slow-"))
    disk.rename(disk.with_name("gone"))  # at once, while Kafka writes there
    wait_until(lambda: any("offline replicas" in text for text in status(cluster)["problems"]), "3 misses its disk")
    assert held
    for name in held:
        row = of_three(cluster, name)
        assert row["why_out_of_sync"] == f"its disk has failed: {disk}"
        assert row["lag"] is None
    assert ask(cluster, "cluster", "brokers")[2]["failed_dirs"] == [str(disk)]
