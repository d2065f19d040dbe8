"""`plog cluster`: of a server, of several, of one that can't be reached, and of files.

tests/interop/test_cluster_commands.py asks several brokers of Kafka, of which some are not well.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.cluster_rows import api_rows
from core.client.net.client_connection import ClientConnection
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError
from plog.testing import running_broker
from tests.support.golden import GOLDEN
from tests.support.requests import SERVED_APIS
from tests.support.server import Server, call_plog

SAMPLE = Path(__file__).resolve().parents[2] / "sample-data" / "partition"


def plog(*arguments: str | Path, code: int = 0, command: str = "status") -> tuple[str, str]:
    done = call_plog("cluster", command, *map(str, arguments))
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout.decode(), done.stderr.decode()


def rows(*arguments: str | Path, code: int = 0, command: str = "status") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plog(*arguments, "--output", "json", code=code, command=command)[0])
    return found


@pytest.mark.longer
def test_a_server(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--set", "broker.rack=r1") as server:
        (row,) = rows("--bootstrap-server", server.address)
        shown, told = plog("--bootstrap-server", server.address)
        of_directory = rows("--data-dir", tmp_path / "data")
    meta = dict(
        line.split("=", 1)
        for line in (tmp_path / "data" / "meta.properties").read_text().splitlines()
        if line[:1] not in ("#", "")
    )
    assert row["cluster_id"] == meta["cluster.id"]
    assert (row["broker"], row["controller"], row["controller_id"], row["voters"]) == (1, True, 1, [1])
    assert (row["listeners"], row["rack"], row["state"]) == ([server.address], "r1", "reachable")
    assert row["features"]["metadata.version"] == 33
    assert row["apis"] == len(SERVED_APIS)
    assert of_directory == [row]
    assert f"cluster {meta['cluster.id']}: controller 1 (voters 1), brokers: 1\n" in told
    assert max(map(len, (shown + told).splitlines())) <= 80
    assert shown.splitlines()[0].split() == ["broker", "listeners", "rack", "controller", "state", "apis"]


@pytest.mark.longer
def test_versions_of_each_api(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        found = rows("--bootstrap-server", server.address, "--api-versions")
        shown, _ = plog("--bootstrap-server", server.address, "--api-versions")
    assert {row["key"]: row["api"] for row in found} == {api.key: api.name for api in SERVED_APIS}
    assert next(row for row in found if row["api"] == "Fetch") == {
        "key": 1, "api": "Fetch", "min": 4, "max": 18, "brokers": [1],
    }  # fmt: skip
    assert shown.splitlines()[0].split() == ["key", "api", "min", "max", "brokers"]
    assert shown.splitlines()[2].split() == ["1", "Fetch", "4", "18", "all"]


def test_a_broker_whose_address_can_not_be_reached() -> None:
    """The first one answers, and sends us to where nobody is."""
    with running_broker(advertised_listeners="PLAINTEXT://127.0.0.1:1") as broker:
        (row,) = rows("--bootstrap-server", broker.bootstrap_servers, code=3)
        shown, told = plog("--bootstrap-server", broker.bootstrap_servers, code=3)
    assert (row["listeners"], row["state"], row["apis"]) == (["127.0.0.1:1"], "unreachable", None)
    failure = "could not connect to 127.0.0.1:1: connection refused"
    failure += f"; the server on {broker.bootstrap_servers} answers, and names that address for its clients"
    assert row["failure"] == failure
    assert "unreachable" in shown
    assert f"error: {failure}\n" in told
    assert "note: the controller can't be reached from here" in told


def test_a_cluster_that_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Kafka 2.8 there is no DescribeCluster, with other servers no quorum: Metadata has the rest."""
    speaks = ClientConnection.speaks
    monkeypatch.setattr(ClientConnection, "speaks", lambda self, api: api.key not in (55, 60) and speaks(self, api))
    with running_broker(broker_rack="r1") as broker:
        (row,) = rows("--bootstrap-server", broker.bootstrap_servers)
    assert (row["listeners"], row["rack"], row["state"]) == ([broker.bootstrap_servers], "r1", "reachable")
    assert (row["controller_id"], row["voters"]) == (1, [])
    assert len(row["cluster_id"]) == 22


def test_brokers_that_speak_different_versions() -> None:
    """One is of an older Kafka, one can't be reached."""
    brokers = [
        BrokerDescription(1, {"": "a:1"}, versions={1: (4, 18), 999: (0, 0)}),
        BrokerDescription(2, {"": "b:1"}, versions={1: (0, 17), 999: (0, 0)}),
        BrokerDescription(3, {"": "c:1"}, failure=ConnectionFailedError("no")),
    ]
    found = api_rows(ClusterDescription("id", 1, brokers), shows_all=True)
    assert [tuple(row.values()) for row in found] == [
        (1, "Fetch", 0, 17, [2]),
        (1, "Fetch", 4, 18, [1]),
        (999, "of a newer Kafka", 0, 0, "all"),
    ]


def test_files_of_kafka(tmp_path: Path) -> None:
    """Expected: what Kafka's own tool printed of the metadata log (tests/golden/kafka)."""
    directory = tmp_path / "kafka"
    shutil.copytree(GOLDEN / "__cluster_metadata-0", directory / "__cluster_metadata-0")
    shutil.copy(GOLDEN / "_root" / "meta.properties", directory)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    (row,) = rows("--data-dir", directory)
    assert (row["broker"], row["listeners"]) == (1, ["PLAINTEXT://127.0.0.1:19292"])
    assert (row["cluster_id"], row["controller_id"]) == ("MkU3OEVBNTcwNTJENDM2Qk", None)
    assert row["features"]["metadata.version"] == 30
    _, told = plog("--data-dir", directory)
    assert "no broker serves the directory: this is what its metadata log says" in told
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    _, told = plog("--data-dir", directory, "--api-versions", code=2)
    assert "--api-versions needs a server" in told


def test_a_directory_without_a_metadata_log() -> None:
    (row,) = rows("--data-dir", GOLDEN / "_root")
    assert (row["broker"], row["listeners"], row["state"]) == (1, [], "not registered")
    assert row["cluster_id"] == "MkU3OEVBNTcwNTJENDM2Qk"
    assert rows("--data-dir", SAMPLE) == []
    assert "cluster without an id: controller not known, brokers: 0\n" in plog("--data-dir", SAMPLE)[1]


@pytest.mark.longer
def test_a_directory_that_plog_served(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--set", "advertised.listeners=PLAINTEXT://127.0.0.1:1") as server:
        (served,) = rows("--bootstrap-server", server.address, code=3)
        server.stop()
        (row,) = rows("--data-dir", tmp_path / "data")
    assert (row["broker"], row["cluster_id"], row["features"]) == (1, served["cluster_id"], served["features"])
    assert row["listeners"] == ["PLAINTEXT://127.0.0.1:1"]
    assert row["state"] in ("registered", "fenced")


def test_what_can_not_be_asked_or_read(tmp_path: Path) -> None:
    _, told = plog("--bootstrap-server", "127.0.0.1:1", code=3)
    assert told.startswith("error: could not connect to 127.0.0.1:1: connection refused\n")
    for content, reason in (
        ("version=9\n", "version '9', expected 0 or 1"),
        ("version=1\nnode.id=x\n", "node.id 'x' is no number"),
        ("version=1\nnode.id=\\u12\n", r"node.id has a \u without four hexadecimal digits"),
        ("version=1\nnode.id=1\ndirectory.id=x\n", "directory.id: "),
    ):
        (tmp_path / "meta.properties").write_text(content)
        assert reason in plog("--data-dir", tmp_path, code=1)[1]
    assert "none" in plog("--data-dir", tmp_path / "none", code=3)[1]


@pytest.mark.longer
def test_what_plogs_own_server_holds(tmp_path: Path) -> None:
    """One broker has all, and is all well; the same directory says the same once it is not served any more."""
    with Server(tmp_path / "data") as server:
        where = ("--bootstrap-server", server.address)
        assert call_plog("topic", "create", "t-1", "--partitions", "2", *where).returncode == 0
        assert call_plog("produce", "t-1", "--partition", "1", *where, stdin=b"a\nb\n").returncode == 0
        (whole,) = rows(*where)
        (broker,) = rows(*where, command="brokers")
        (topic,) = rows(*where, command="topics")
        (replica,) = rows("t-1-1", *where, command="describe")
        shown, told = plog("t-1:1", *where, command="describe")
        _, refused = plog("t-1-2", *where, command="describe", code=1)
    assert (whole["partitions"], whole["problems"], whole["under_replicated"]) == (2, [], 0)
    assert (broker["state"], broker["replicas"], broker["leaders"], broker["lagging"]) == ("reachable", 2, 2, [])
    assert broker["size_bytes"] == sum(path.stat().st_size for path in (tmp_path / "data" / "t-1-1").glob("*.log"))
    assert (topic["topic"], topic["partitions"], topic["replicas"], topic["min_isr"]) == ("t-1", 2, 1, 1)
    assert (replica["role"], replica["in_sync"], replica["end_offset"], replica["lag"]) == ("leader", True, 2, 0)
    assert (replica["high_watermark"], replica["isr"], replica["why_out_of_sync"]) == (2, [1], None)
    assert "t-1-1: leader 1, epoch 0, 1 of 1 replicas in sync, min.insync.replicas 1\n" in told
    assert max(map(len, (shown + told).splitlines())) <= 80
    assert "error: UNKNOWN_TOPIC_OR_PARTITION: topic 't-1' has no partition 2\n" in refused
    where = ("--data-dir", str(tmp_path / "data"))
    (of_files,) = rows("t-1-1", *where, command="describe")
    assert of_files == {**replica, "high_watermark": None, "min_isr": None, "eligible": None, "elr": None}
    assert rows(*where, command="topics") == [{**topic, "min_isr": None}]
    (of_files,) = rows(*where, command="brokers")
    assert (of_files["replicas"], of_files["leaders"], of_files["size_bytes"]) == (2, 2, broker["size_bytes"])
    assert "no broker serves the directory: this is what its files say" in plog(*where, command="brokers")[1]


def test_a_server_that_lacks_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be known is empty and said; the rest is there."""
    version_of = ClientConnection.version_of

    def of_an_old_server(self: ClientConnection, api: Any, **options: Any) -> int:
        if api.key in (32, 35, 75):  # DescribeConfigs, DescribeLogDirs, DescribeTopicPartitions
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no {api.name}")
        return version_of(self, api, **options)

    monkeypatch.setattr(ClientConnection, "version_of", of_an_old_server)
    with running_broker() as broker:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        assert call_plog("topic", "create", "t", *where).returncode == 0
        (replica,) = rows("t", *where, command="describe")
        _, told = plog("t", *where, command="describe")
        (of_broker,) = rows(*where, command="brokers")
        (topic,) = rows(*where, command="topics")
        assert rows(*where)[0]["problems"] == []
    assert (replica["size_bytes"], replica["elr"], replica["min_isr"]) == (None, [], None)
    assert (replica["end_offset"], replica["lag"], replica["high_watermark"]) == (0, 0, 0)
    assert (of_broker["size_bytes"], of_broker["leaders"], topic["min_isr"]) == (None, 1, None)
    assert "note: min.insync.replicas is not known: no DescribeConfigs\n" in told
    assert "note: broker 1: sizes are not known: no DescribeLogDirs\n" in told
    assert "eligible leader replicas" not in told  # all replicas are in sync


def test_several_replicas_with_one_broker() -> None:
    with running_broker() as broker:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        done = call_plog("topic", "create", "t", "--replication-factor", "3", *where)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: INVALID_REPLICATION_FACTOR: ")
    assert b"hint: each replica needs a broker of its own: --replication-factor 1 is the most here\n" in done.stderr
