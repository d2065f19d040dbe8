"""What a running server tells of itself: Prometheus's metrics, structured logs, the request log."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from tests.support.server import Server, call_plog, run_plog
from tests.support.waiting import ANSWER_SECONDS, FLUSH_SECONDS

ROOT = Path(__file__).resolve().parents[2]


class Watched(Server):
    """With metrics, the request log as JSON, and an authorizer that allows its clients everything."""

    def __init__(self, data_dir: Path) -> None:
        options = ["--metrics-listen", "127.0.0.1:0", "--log-requests", "--log-format", "json"]
        settings = [f"authorizer.class.name={STANDARD_AUTHORIZER}", "super.users=User:ANONYMOUS"]
        super().__init__(data_dir, *options, "--set", settings[0], "--set", settings[1])

    def scraped(self) -> str:
        found = re.findall(r"metrics (\S+)$", self.log.read_text(), re.MULTILINE)
        with urllib.request.urlopen(f"http://{found[-1]}/metrics") as response:
            text: str = response.read().decode()
        return text

    def metrics(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """By name and the values of the labels, sorted by the labels' names."""
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.scraped())
            for sample in family.samples
        }

    def requests(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["logger"] == "plog.request"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Topic `t` was written to and half of it was read; a group read once."""
    with Watched(tmp_path_factory.mktemp("watched") / "data") as server:
        where = ["--bootstrap-server", server.address]
        call_plog("topic", "create", "t", "--partitions", "2", *where)
        producer = Producer({"bootstrap.servers": server.address})
        for number in range(100):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(FLUSH_SECONDS) == 0
        consumer = Consumer(
            {"bootstrap.servers": server.address, "group.id": "g", "auto.offset.reset": "earliest",
             "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["t"])
        seen = 0
        while seen < 100:
            message = consumer.poll(ANSWER_SECONDS)
            assert message is not None
            assert not message.error()
            seen += 1
        consumer.commit(offsets=[TopicPartition("t", 0, 100)], asynchronous=False)
        consumer.close()
        call_plog("topic", "describe", "nope", *where)
        yield server


def test_what_went_through(server: Watched) -> None:
    metrics = server.metrics()
    size = (server.data_dir / "t-0" / f"{0:020d}.log").stat().st_size
    assert metrics["kafka_server_brokertopicmetrics_messagesin_total", ("t",)] == 100
    assert metrics["kafka_server_brokertopicmetrics_bytesin_total", ("t",)] == size
    assert metrics["kafka_server_brokertopicmetrics_bytesout_total", ("t",)] >= size


def test_what_is_there(server: Watched) -> None:
    metrics = server.metrics()
    size = (server.data_dir / "t-0" / f"{0:020d}.log").stat().st_size
    assert metrics["kafka_log_log_size", ("0", "t")] == size
    assert metrics["kafka_log_log_logendoffset", ("0", "t")] == 100
    assert metrics["kafka_log_log_logendoffset", ("1", "t")] == 0
    assert metrics["kafka_controller_kafkacontroller_globaltopiccount", ()] == 2  # t and __consumer_offsets
    assert metrics["kafka_server_replicamanager_leadercount", ()] == 52
    assert metrics["kafka_coordinator_group_groupmetadatamanager_numoffsets", ()] == 1
    assert metrics["kafka_server_group_coordinator_metrics_group_count", ("classic", "empty")] == 1
    assert metrics["process_open_fds", ()] > 0


def test_requests_are_counted(server: Watched) -> None:
    before = server.metrics()
    call_plog("group", "list", "--bootstrap-server", server.address)
    after = server.metrics()
    more = {key: after[key] - before.get(key, 0) for key in after}
    asked = [
        key for key in after if key[0] == "kafka_network_requestmetrics_requests_total" and key[1][0] == "ListGroups"
    ]
    assert sum(more[key] for key in asked) == 1
    assert more["kafka_network_requestmetrics_totaltimems_count", ("ListGroups",)] == 1
    assert more["kafka_network_requestmetrics_totaltimems_bucket", ("+Inf", "ListGroups")] == 1
    assert more["kafka_network_requestmetrics_errors_total", ("NONE", "ListGroups")] == 1
    assert after["kafka_network_requestmetrics_errors_total", ("UNKNOWN_TOPIC_OR_PARTITION", "Metadata")] >= 1


def test_questions_to_the_authorizer_are_counted_and_logged_if_the_operator_wants_it(server: Watched) -> None:
    where = ["--data-dir", str(server.data_dir)]
    call_plog("config", "alter", "broker-logger", "1", "--set", "plog.authorizer=DEBUG", *where)
    before = server.metrics()
    call_plog("group", "list", *where)
    after = server.metrics()
    call_plog("config", "alter", "broker-logger", "1", "--set", "plog.authorizer=INFO", *where)
    allowed = "plog_authorizations_total", ("allowed",)
    assert after[allowed] > before[allowed]
    assert after["plog_authorizations_total", ("denied",)] == after["plog_acls", ()] == 0
    assert "Principal = Local:owner is Allowed operation = DESCRIBE from host = localhost" in server.log.read_text()


def test_connections_are_counted(server: Watched) -> None:
    before = server.metrics()
    client = Producer({"bootstrap.servers": server.address})
    client.list_topics(timeout=ANSWER_SECONDS)
    after = server.metrics()
    opened = "kafka_server_socket_server_metrics_connection_creation_total", ()
    assert after[opened] > before[opened]
    assert after["kafka_server_socket_server_metrics_connection_count", ()] >= 1


OF_MEMBERS = ("kafka_server_sessionexpirelistener_", "plog_zookeeper_")
OF_PROCESSES = ("process_", "python_")


def test_the_document_has_all_metrics_and_no_others(server: Watched) -> None:
    """A name that begins with _ has the first words of the one before it in the row."""
    rows = re.findall(r"^\| (`[a-z_].*?) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    served = set(re.findall(r"^(?:# TYPE )?([a-z_]+)", server.scraped(), re.MULTILINE))
    documented: set[str] = set()
    for row in rows:
        whole, *others = re.findall(r"`([a-z_]+)`", row) or [""]
        words = whole.split("_")
        begins = ["_".join(words[:number]) for number in range(2, len(words))]
        for name in others:
            found = {f"{begin}{name}" if name.startswith("_") else name for begin in begins} & served
            assert found or whole.startswith(OF_MEMBERS), f"{name} beside {whole}"
            documented |= found
        documented |= {name for name in served if name == whole or re.sub("_(bucket|count|sum)$", "", name) == whole}
        assert whole in documented or whole.startswith((*OF_MEMBERS, *OF_PROCESSES)) or not whole, whole
    left = {name for name in served - documented if not name.startswith(OF_PROCESSES)}
    assert {name for name in left if not any(one.startswith(name) for one in documented)} == set()


def test_every_request_is_logged_with_its_answer(server: Watched) -> None:
    requests = server.requests()
    names = {request["requestHeader"]["requestApiKeyName"] for request in requests}
    assert names >= {"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "OffsetCommit", "LeaveGroup"}
    produced = [r for r in requests if r["requestHeader"]["requestApiKeyName"] == "Produce"]
    sizes = [
        partition["recordsSizeInBytes"]
        for r in produced
        for topic in r["request"]["topicData"]
        for partition in topic["partitionData"]
    ]
    assert sum(sizes) == (server.data_dir / "t-0" / f"{0:020d}.log").stat().st_size
    offsets = [p["baseOffset"] for r in produced for t in r["response"]["responses"] for p in t["partitionResponses"]]
    assert offsets[0] == 0
    assert all(request["totalTimeMs"] >= 0 for request in requests)


def test_the_request_log_is_turned_on_and_off_while_the_server_runs(server: Watched) -> None:
    where = ["--bootstrap-server", server.address]
    call_plog("config", "alter", "broker-logger", "1", "--set", "plog.request=INFO", *where)
    before = len(server.requests())
    call_plog("topic", "list", *where)
    assert len(server.requests()) == before
    call_plog("config", "alter", "broker-logger", "1", "--set", "plog.request=DEBUG", *where)
    call_plog("topic", "list", *where)
    assert len(server.requests()) > before


def test_each_topic_that_is_created_or_deleted_is_logged_with_who_asked(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        where = ["--bootstrap-server", server.address]
        call_plog("topic", "create", "t", *where)
        call_plog("topic", "create", "t", *where)
        call_plog("topic", "create", "dry", "--dry-run", *where)
        call_plog("topic", "create", "bad name", *where)
        Producer({"bootstrap.servers": server.address, "client.id": "an\napp"}).list_topics("asked", ANSWER_SECONDS)
        call_plog("topic", "delete", "t", *where)
        call_plog("topic", "delete", "asked", "--dry-run", *where)
        call_plog("topic", "delete", "t", *where)
        found = re.findall(r" INFO plog\.broker: (.* topic .*)$", server.log.read_text(), re.M)
    named = r"created topic asked for client 'an\napp' at 127.0.0.1, which asked for its metadata"
    deleted = "deleted topic t for client 'plog' at 127.0.0.1"
    assert found == ["created topic t for client 'plog' at 127.0.0.1", named, deleted]


def test_log_lines_as_text(tmp_path: Path) -> None:
    with Server(tmp_path / "data", "--log-requests") as server:
        call_plog("topic", "list", "--bootstrap-server", server.address)
        found = re.search(r"^\S+ \S+ DEBUG plog.request: Completed request:(\{.*\})$", server.log.read_text(), re.M)
        assert found
        assert json.loads(found[1])["requestHeader"]["clientId"] == "plog"


def test_an_address_that_is_taken(server: Watched, tmp_path: Path) -> None:
    done = run_plog(
        "serve", "--data-dir", str(tmp_path / "x"), "--listen", "127.0.0.1:0", "--metrics-listen", server.address
    )
    assert done.returncode == 3
    assert b"for metrics: address already in use" in done.stderr
    assert b"Traceback" not in done.stderr


def test_transactions_are_counted(server: Watched) -> None:
    done = call_plog("produce", "tx", "--transactional-id", "x", "--bootstrap-server", server.address, stdin=b"a\n")
    assert done.returncode == 0
    metrics = server.metrics()
    assert metrics["plog_transaction_coordinator_transactionalids", ("CompleteCommit",)] == 1
    assert metrics["kafka_server_replicamanager_produceridcount", ()] >= 1
