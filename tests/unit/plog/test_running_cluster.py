"""A cluster for other people's tests: `plog.testing.running_cluster`, and the fixture `plog_cluster`.

One cluster serves most of the tests: each leaves it healthy. confluent-kafka, which is not ours, says what is so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.endpoint import parse_bootstrap
from plog import pytest_plugin
from plog.testing import RunningCluster, UsageError, running_cluster
from tests.support.for_each import for_each
from tests.support.waiting import ANSWER_SECONDS, wait_until
from tests.support.zookeeper_server import requires_zookeeper

CLUSTER = pytest.mark.plog_cluster(
    features="transaction.version=1", zookeeper_session_timeout_ms="6000", min_insync_replicas="2"
)
pytestmark = [pytest.mark.longer, requires_zookeeper, pytest.mark.java, CLUSTER]

DOCUMENTATION = (Path(__file__).resolve().parents[3] / "docs" / "testing.md").read_text()


@pytest.fixture
def cluster(plog_cluster: RunningCluster) -> RunningCluster:
    return plog_cluster


def metadata(cluster: RunningCluster, broker: int | None = None) -> ClusterMetadata:
    """What one broker says, or any."""
    address = cluster.bootstrap_servers if broker is None else cluster.bootstrap_servers.split(",")[broker - 1]
    return AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=ANSWER_SECONDS)


def finalized(cluster: RunningCluster, broker: int) -> dict[str, int]:
    ((host, port),) = parse_bootstrap(cluster.bootstrap_servers.split(",")[broker - 1])
    with closing(ClientConnection(SocketTransport(host, port))) as connection:
        return connection.features


def consume(cluster: RunningCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"of-{topic}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:  # the topic may not be known yet
            found.append(message.value() or b"")
        return len(found) >= count

    wait_until(has_all, lambda: f"{count} records of {topic}: {found}")
    consumer.close()
    return sorted(found)


def test_it_is_whole_when_it_is_there(cluster: RunningCluster) -> None:
    assert cluster.brokers == [1, 2, 3]
    for broker in cluster.brokers:
        assert sorted(metadata(cluster, broker).brokers) == [1, 2, 3]
        assert metadata(cluster, broker).controller_id == cluster.controller()
        assert finalized(cluster, broker) == {"group.version": 1, "transaction.version": 1}
    cluster.create_topic("t", 2, max_message_bytes="1000")
    cluster.wait_until_healthy()
    partitions = metadata(cluster).topics["t"].partitions
    assert [sorted(one.isrs) for one in partitions.values()] == [[1, 2, 3], [1, 2, 3]]


def test_the_example_of_the_documentation(cluster: RunningCluster) -> None:
    """The controller is killed, another one follows, and nothing is lost."""
    example = DOCUMENTATION.partition("\n## A cluster\n")[2].partition("\nIt needs")[0].partition(":\n\n")[2]
    names: dict[str, Any] = {}
    exec(dedent(example), names)
    addresses, first = cluster.bootstrap_servers, cluster.controller()
    names["test_orders_survive_the_loss_of_a_broker"](cluster)
    assert cluster.controller() != first
    cluster.start(first)  # which runs
    assert cluster.bootstrap_servers == addresses
    partitions = metadata(cluster, first).topics["orders"].partitions
    assert [sorted(one.isrs) for one in partitions.values()] == [[1, 2, 3]] * 3
    assert consume(cluster, "orders", 2) == [b"after", b"before"]


def test_a_paused_broker_counts_for_nothing_until_it_goes_on(cluster: RunningCluster) -> None:
    cluster.pause(2)
    cluster.wait_until_healthy()
    assert sorted(metadata(cluster, 3).brokers) == [1, 3]
    cluster.resume(2)
    cluster.wait_until_healthy()
    assert sorted(metadata(cluster, 2).brokers) == [1, 2, 3]


def test_a_stopped_broker_hands_over(cluster: RunningCluster) -> None:
    cluster.stop(3)
    cluster.wait_until_healthy()
    assert sorted(metadata(cluster, 1).brokers) == [1, 2]
    cluster.start(3)
    cluster.wait_until_healthy()


def test_brokers_that_are_none(cluster: RunningCluster) -> None:
    for work in (cluster.kill, cluster.start, cluster.stop, cluster.pause, cluster.resume):
        with pytest.raises(UsageError, match="there is no broker 4: the brokers are 1, 2, 3"):
            work(4)


FAKE = """
from contextlib import contextmanager
from types import SimpleNamespace
from plog import testing

@contextmanager
def fake(data_dir, *, brokers, features, **settings):
    (data_dir / "broker-1.log").touch()
    yield SimpleNamespace(data_dir=data_dir, brokers=brokers, features=features, settings=settings)

testing.running_cluster = fake
"""
SOMEBODYS_TESTS = """
import pytest

pytestmark = pytest.mark.plog_cluster(brokers=2, features="none", num_partitions="2")
seen = []

@pytest.fixture(scope="module")
def of_the_module(plog_cluster):
    seen.append(plog_cluster)

def test_one(plog_cluster, of_the_module):
    assert plog_cluster.brokers == 2
    assert plog_cluster.features == "none"
    assert plog_cluster.settings == {
        "security": "plaintext", "num_partitions": "2", "min_insync_replicas": "2"
    }

def test_another(plog_cluster):
    assert plog_cluster is seen[0]
    assert False, "to see what is kept"

@pytest.mark.plog_cluster(brokers=3)
def test_without_it():
    pass
"""
TOO_NEAR = """
import pytest

class TestOfOne:
    @pytest.mark.plog_cluster(brokers=2)
    def test_it(self, plog_cluster):
        pass
"""
OF_A_CLASS = """
import pytest

@pytest.mark.plog_cluster(brokers=2)
class TestOfOne:
    def test_it(self, plog_cluster):
        assert plog_cluster.brokers == 2

def test_it(plog_cluster):
    assert plog_cluster.brokers == 5
    assert plog_cluster.features == ["group.version=0"]
"""


def run_tests(folder: Path, configuration: str, **files: str) -> str:
    """What pytest says of these files; there is a cluster that does nothing."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "conftest.py").write_text(FAKE)
    (folder / "pytest.ini").write_text(f"[pytest]\n{configuration}\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    environment = {**os.environ, "TMPDIR": "tmp", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "plog.pytest_plugin"],
        cwd=folder, capture_output=True, text=True, check=False, env=environment,
    ).stdout  # fmt: skip


def test_the_tests_of_a_module_share_one_which_is_kept_if_one_fails(tmp_path: Path) -> None:
    settings = "plog_cluster_settings =\n  num.partitions=7\n  min.insync.replicas=2"
    said = run_tests(tmp_path, settings, somebodys=SOMEBODYS_TESTS, too_near=TOO_NEAR)
    assert "1 failed, 2 passed, 1 error" in said, said
    assert "the mark plog_cluster of test_too_near.py::TestOfOne::test_it has no effect" in said
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"the cluster's data and logs are kept in {kept}\n" in said
    assert (kept / "broker-1.log").exists()


def test_the_configuration_says_who_shares_one(tmp_path: Path) -> None:
    said = run_tests(
        tmp_path,
        "plog_cluster_scope = class\nplog_cluster_brokers = 5\nplog_cluster_features = group.version=0",
        of_a_class=OF_A_CLASS,
    )
    assert "2 passed" in said, said
    assert not list((tmp_path / "tmp").iterdir())


@for_each(
    "arguments, error",
    [
        ('brokers="x"', "plog_cluster(brokers='x'): expected a number from 1 on"),
        ("brokers=0", "plog_cluster(brokers=0): expected a number from 1 on"),
        ('min_insync_replcas="2"', "plog_cluster(min_insync_replcas=..): no such setting; did you mean min_insync_rep"),
        ('"min.insync.replicas=2"', "plog_cluster('min.insync.replicas=2'): expected SETTING=VALUE, with _ for a dot"),
        ('listeners="PLAINTEXT://:9092"', "plog_cluster(listeners=..): each broker has its own"),
        ('features="nosuch=1"', "plog_cluster(features=..): nosuch=1: expected none, or FEATURE=LEVEL"),
    ],
)
def test_a_mark_that_says_what_is_not(tmp_path: Path, arguments: str, error: str) -> None:
    text = f"import pytest\n@pytest.mark.plog_cluster({arguments})\nclass TestIt:"
    text += "\n    def test_it(self, plog_cluster): pass"
    said = run_tests(tmp_path, "plog_cluster_scope = class", wrong=text)
    assert error in said, said
    assert "1 error" in said
    assert "Traceback" not in said
    assert "--feature" not in said


def test_a_scope_that_is_none() -> None:
    configuration: Any = SimpleNamespace(getini=lambda _name: "hour")
    with pytest.raises(pytest.UsageError, match="plog_cluster_scope = hour: expected one of session, package, module"):
        pytest_plugin._cluster_scope("plog_cluster", configuration)


def test_brokers_and_clients_of_a_secured_one_log_in() -> None:
    """Also a broker that was away, at the other one."""
    with running_cluster(brokers=2, security="sasl_ssl") as cluster:
        cluster.create_topic("orders", 2)
        producer = Producer({**cluster.librdkafka_settings, "acks": "all", "log_level": 0})
        lost = cluster.controller()
        cluster.kill(lost)
        producer.produce("orders", b"one")
        assert producer.flush(ANSWER_SECONDS) == 0
        cluster.start(lost)
        cluster.wait_until_healthy(ANSWER_SECONDS)
        cluster.expect("orders", ["one"], ANSWER_SECONDS)
        logs = "".join(log.read_text() for log in cluster.data_dir.glob("broker-*.log"))
        assert not any(secret in logs for secret in secrets_of(cluster))
        assert "failed to authenticate" not in logs


def secrets_of(cluster: RunningCluster) -> list[str]:
    return [value for name, value in cluster.librdkafka_settings.items() if name.endswith("password")]
