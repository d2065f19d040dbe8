"""One broker for a module's clients, as a user starts it, one Spark, one Kafka with transactions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.kafka_server import KafkaServer
from tests.support.oracle import why_not
from tests.support.server import Server
from tests.support.spark.connector import use_connector
from tests.support.zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its topics keep old records, and have one partition; a group does not wait for more members at its start."""
    settings = ["--set", "log.retention.ms=-1", "--set", "group.initial.rebalance.delay.ms=0"]
    with Server(tmp_path_factory.mktemp("interop") / "data", *settings) as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> str:
    """A cluster of the test's own, of which nothing is there yet."""
    path = f"/{''.join(c if c.isalnum() else '-' for c in request.node.name)}"
    with zookeeper.client() as client:
        client.create(path)
    return path


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test of the module uses."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


_SMALL_PLANS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""No Java is made and compiled for each of a thousand plans. Jobs in processes of their own have Spark's defaults."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests of a process, with Spark's own Kafka connector where that can be had."""
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    from core.spark.spark_session import spark_session
    from core.spark.spark_settings import SparkSettings
    from plog.spark import register

    if why_not() is None:
        use_connector()
    scratch = Path(tempfile.mkdtemp(prefix="plog-spark-"))
    with spark_session(SparkSettings("local[2]"), scratch) as session:
        for name, value in _SMALL_PLANS.items():
            session.conf.set(name, value)
        register(session)
        yield session
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="session", params=["kafka", "plog"])
def transactional_server(request: pytest.FixtureRequest) -> KafkaServer | Server:
    """Both of them: what holds of the one must hold of the other."""
    server: KafkaServer | Server = request.getfixturevalue(f"transactional_{request.param}")
    return server


@pytest.fixture(scope="session")
def transactional_plog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """As `transactional_kafka`."""
    settings = [
        "num.partitions=3",
        "transaction.state.log.num.partitions=3",
        "offsets.topic.num.partitions=3",
        "group.initial.rebalance.delay.ms=0",
        "log.retention.ms=-1",  # tests write records of 2023, and retention looks every five minutes
    ]
    options = [option for setting in settings for option in ("--set", setting)]
    with Server(tmp_path_factory.mktemp("plog") / "data", *options) as server:
        yield server


@pytest.fixture(scope="session")
def transactional_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A real Kafka whose topics have three partitions, and whose internal topics are small."""
    server = KafkaServer(
        tmp_path_factory.mktemp("kafka") / "data",
        num_partitions="3",
        transaction_state_log_num_partitions="3",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        offsets_topic_num_partitions="3",
        offsets_topic_replication_factor="1",
    )
    server.format()
    with server:
        yield server
