"""Kafka's own command-line tools on `plog serve`: what an administrator types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import Server, call_plog

pytestmark = [requires_kafka, pytest.mark.java]

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "org.apache.kafka.tools.ConfigCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a topic `t` of two partitions and ten records."""
    with Server(tmp_path_factory.mktemp("admin") / "data") as server:
        where = ["--bootstrap-server", server.address]
        call_plog("topic", "create", "t", "--partitions", "2", "--set", "retention.ms=-1", *where)
        call_plog("produce", "t", "--partition", "0", *where, stdin=b"record\n" * 10)
        yield server


@pytest.fixture
def tool(server: Server) -> Callable[..., str]:
    def run(name: str, *options: str) -> str:
        done = run_tool(TOOLS[name], "--bootstrap-server", server.address, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.decode()

    return run


def test_topics(tool: Callable[..., str]) -> None:
    tool("topics", "--create", "--topic", "made", "--partitions", "3", "--config", "cleanup.policy=compact")
    assert set(tool("topics", "--list").split()) >= {"t", "made"}
    described = tool("topics", "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert "cleanup.policy=compact" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    tool("topics", "--alter", "--topic", "made", "--partitions", "5")
    assert "PartitionCount: 5" in tool("topics", "--describe", "--topic", "made")
    tool("topics", "--delete", "--topic", "made")
    assert "made" not in tool("topics", "--list").split()


def test_configs(tool: Callable[..., str]) -> None:
    tool("configs", "--alter", "--topic", "t", "--add-config", "segment.bytes=2000000,max.message.bytes=9999")
    described = tool("configs", "--describe", "--topic", "t")
    assert "segment.bytes=2000000" in described
    assert "max.message.bytes=9999" in described
    tool("configs", "--alter", "--topic", "t", "--delete-config", "segment.bytes,max.message.bytes")
    assert "segment.bytes" not in tool("configs", "--describe", "--topic", "t")


def test_configs_that_are_no_topics(tool: Callable[..., str]) -> None:
    """Brokers by id and by default, groups, client metrics, loggers."""
    tool("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.retention.ms=7777")
    tool("configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "max.connections=99")
    described = tool("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1")
    assert "max.connections=99 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections=99" in described
    assert "log.retention.ms=7777" in tool("configs", "--describe", "--entity-type", "brokers", "--entity-default")
    tool("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "log.retention.ms")
    group = ["--group", "g"]
    tool("configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tool("configs", "--describe", *group)
    metrics = ["--client-metrics", "m"]
    tool("configs", "--alter", *metrics, "--add-config", "interval.ms=1000,match=[client_id=a.*]")
    assert "match=client_id=a.*" in tool("configs", "--describe", *metrics)
    loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    tool("configs", "--alter", *loggers, "--add-config", "plog.connection=DEBUG")
    assert "plog.connection=DEBUG" in tool("configs", "--describe", *loggers)


def test_what_lies_where(tool: Callable[..., str], server: Server) -> None:
    text = tool("log-dirs", "--describe", "--topic-list", "t")
    (found,) = json.loads(text[text.index("{") :])["brokers"][0]["logDirs"]
    assert found["logDir"] == str(server.data_dir)
    sizes = {p["partition"]: p["size"] for p in found["partitions"]}
    assert sizes == {"t-0": Path(server.data_dir, "t-0", f"{0:020d}.log").stat().st_size, "t-1": 0}


def test_the_quorum_and_the_cluster(tool: Callable[..., str], server: Server) -> None:
    status = tool("metadata-quorum", "describe", "--status")
    assert "LeaderId:               1" in status
    cluster_id = (server.data_dir / "meta.properties").read_text().split("cluster.id=")[1].split()[0]
    assert cluster_id in status
    assert cluster_id in run_tool(TOOLS["cluster"], "cluster-id", "--bootstrap-server", server.address).stdout.decode()


def test_partitions(tool: Callable[..., str], tmp_path: Path) -> None:
    elected = tool("leader-election", "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert "Valid replica already elected for partitions t-0" in elected
    assert tool("get-offsets", "--topic", "t").split() == ["t:0:10", "t:1:0"]
    assert tool("get-offsets", "--topic", "t", "--time", "earliest").split() == ["t:0:0", "t:1:0"]
    assert "ProducerId" in tool("transactions", "describe-producers", "--topic", "t", "--partition", "0")
    plan = tmp_path / "offsets.json"
    plan.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 4}], "version": 1}')
    assert "low_watermark: 4" in tool("delete-records", "--offset-json-file", str(plan))
    assert tool("get-offsets", "--topic", "t", "--time", "earliest").split() == ["t:0:4", "t:1:0"]
