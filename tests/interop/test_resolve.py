"""Two brokers of a cluster behind two port-forwards, whose advertised names nobody here knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.chaos.proxy import Proxy
from tests.support.free_ports import free_ports
from tests.support.secured_commands import plog
from tests.support.server import Server, run_plog
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper

pytestmark = [requires_zookeeper, pytest.mark.java]

NAMES = ["kafka-0.b.svc:9092", "kafka-1.b.svc:9092"]


@pytest.fixture
def forwards(zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path) -> Iterator[list[str]]:
    """The brokers find each other by a listener that is not forwarded."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(number)) for number in range(2)]
        for number, (name, port, proxy) in enumerate(zip(NAMES, free_ports(2), proxies, strict=True)):
            listeners = ["--listener", "INSIDE://127.0.0.1:0", "--listener", f"OUTSIDE://127.0.0.1:{port}"]
            reached = ["--advertise", f"OUTSIDE://{name}", "--set", "inter.broker.listener.name=INSIDE"]
            offsets = ["--set", "offsets.topic.replication.factor=1", "--set", "offsets.topic.num.partitions=2"]
            joined = ["--zookeeper", zookeeper.address + chroot, "--new-cluster", "--node-id", str(number)]
            stack.enter_context(Server(tmp_path / f"b{number}", *joined, *listeners, *reached, *offsets))
            proxy.target = "127.0.0.1", port
        yield [proxy.address for proxy in proxies]


def test_two_brokers_behind_two_forwards(forwards: list[str], tmp_path: Path) -> None:
    where = ["--bootstrap-server", forwards[0]]
    pairs = [*where, "--resolve", ",".join(f"{name}={there}" for name, there in zip(NAMES, forwards, strict=True))]
    plog("topic", "create", "t", "--partitions", "4", "--replication-factor", "1", *pairs)
    told = plog("produce", "t", *where, stdin=b"a\n", code=3)[1]
    assert "--resolve kafka-0.b.svc:9092=HOST:PORT,kafka-1.b.svc:9092=HOST:PORT\n" in told
    told = plog("produce", "t", *where, "--resolve", "bootstrap", stdin=b"a\n", code=2)[1]
    assert "--resolve bootstrap is for a cluster with one broker, and this one has 2" in told
    assert "hint: --resolve kafka-0.b.svc:9092=HOST:PORT,kafka-1.b.svc:9092=HOST:PORT" in told
    lone = [*where, "--resolve", f"{NAMES[0]}={forwards[0]}"]
    told = plog("produce", "t", "--partitioner", "round_robin", *lone, stdin=b"a\nb\nc\nd\n", code=3)[1]
    assert "--resolve kafka-1.b.svc:9092=HOST:PORT\n" in told

    written = b"".join(b"%d\n" % number for number in range(100))
    plog("topic", "create", "u", "--partitions", "4", "--replication-factor", "1", *pairs)
    plog("produce", "u", "--partitioner", "round_robin", *pairs, stdin=written)
    read = plog("consume", "u", "--group", "g", "--max-messages", "100", *pairs)[0]
    assert sorted(read.splitlines()) == sorted(written.splitlines())
    rows = json.loads(plog("group", "describe", "g", "--output", "json", *pairs)[0])
    assert [row["lag"] for row in rows] == [0] * 4
    states = json.loads(plog("cluster", "status", "--output", "json", *pairs)[0])
    assert [row["state"] for row in states] == ["reachable"] * 2

    pytest.importorskip("pyspark")
    done = run_plog("spark-replay", "u", "--to", f"json:{tmp_path / 'out'}", *pairs)
    assert done.returncode == 0, done.stderr
    replayed = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.open()]
    assert len(replayed) == 100
