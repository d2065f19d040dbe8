"""A server that names an address which can't be reached from here: each command says so, and does not try again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.testing import running_broker
from tests.support.for_each import for_each
from tests.support.server import call_plog

COMMANDS = [
    "consume t", "consume t --follow", "consume t --group g", "produce t", "produce t --acks 0",
    "produce t --transactional-id a", "perf produce t --num-records 1", "perf consume t", "perf latency t",
    "group list", "group describe g", "group reset-offsets g --topic t --to-latest", "transaction list",
    "transaction describe a", "topic describe t", "topic delete-records t --before 1", "gaps t", "stats t", "trace t@0",
    "cluster status", "cluster brokers", "spark-replay t --to json:never", "spark-replay t --to json:never --dry-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Nothing listens at port 1, which the broker names."""
    with running_broker(advertised_listeners="PLAINTEXT://127.0.0.1:1", auto_create_topics_enable="true") as broker:
        assert call_plog("topic", "create", "t", "--bootstrap-server", broker.bootstrap_servers).returncode == 0
        yield broker.bootstrap_servers


@for_each("command", COMMANDS, first=6)
def test_it_is_said_at_once_who_named_it(command: str, address: str) -> None:
    done = call_plog(*command.split(), "--bootstrap-server", address, stdin=b"a\n")
    message = done.stderr.decode()
    assert done.returncode == 3, message
    assert f"127.0.0.1:1: connection refused; the server on {address} answers, and names that address" in message
    assert "advertised.listeners" in message


def test_with_another_broker_that_is_reached_it_may_come_back(tmp_path: Path) -> None:
    """The client of a cluster whose other broker is down waits for a failover, as before."""
    from core.client.net.kafka_client import KafkaClient
    from core.common.errors import ConnectionFailedError, UnreachableAddressError

    with running_broker(tmp_path) as broker:
        host, port = broker.bootstrap_servers.split(":")
        client = KafkaClient([("localhost", int(port))])
        client._brokers = {1: (host, int(port)), 2: (host, 1)}
        with pytest.raises(ConnectionFailedError):
            client.connection_to(2)
        client._brokers = {2: (host, 1)}
        with pytest.raises(UnreachableAddressError):
            client.connection_to(2)
        client.close()
