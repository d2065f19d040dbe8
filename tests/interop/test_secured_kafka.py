"""plog's commands against an Apache Kafka with TLS and SASL: each way of authenticating, and each way of failing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.certificates import make_ca
from tests.support.counted_plog import HOLDS, renewals
from tests.support.oracle import requires_kafka, run_tool
from tests.support.secured_commands import lines, plog
from tests.support.secured_kafka import PASSWORD, SecuredKafka, other_client
from tests.support.server import call_plog, run_plog
from tests.support.waiting import MOST_SECONDS, machine_seconds, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [requires_kafka, pytest.mark.java]

WAYS = [
    "PLAIN",
    "PLAIN over TLS",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "delegation token",
    "OAUTHBEARER",
    "token endpoint",
    "TLS",
    "mTLS",
    "renewed",
]


EVERYTHING = os.environ.get("PLOG_SECURED_WAYS") == "all"
"""Not only what fits into CI: Spark replays through each way."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    kafka = SecuredKafka(tmp_path_factory.mktemp("secured-kafka"))
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


@pytest.mark.parametrize("way", WAYS)
def test_every_command(way: str, kafka: SecuredKafka, tmp_path: Path) -> None:
    """`tests/cli` holds that none is left out. No output shows a secret, whatever else is asked to be shown."""
    config = kafka.write(way)
    server = f"127.0.0.1:{kafka.ports[kafka.ways()[way][0]]}"
    has_tls = "SSL" in config.read_text().partition("security.protocol=")[2]
    for line in lines(way.replace(" ", "-"), server, tmp_path, has_tls=has_tls, replays=EVERYTHING):
        shown, told = plog(*line.path, *line.arguments, "--command-config", config, stdin=line.stdin, code=line.code)
        while "for an open transaction" in told:  # Kafka writes the marker after its answer
            shown, told = plog(*line.path, *line.arguments, "--command-config", config, stdin=line.stdin)
        assert line.shows in shown, (line, told)
        ensure_hidden(kafka, shown, told.encode())


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512", "mTLS"])
def test_kafkas_own_tools_take_the_same_file(way: str, kafka: SecuredKafka) -> None:
    config = kafka.write(way)
    address = next(line for line in config.read_text().splitlines() if line.startswith("bootstrap")).partition("=")[2]
    secured = ("--bootstrap-server", address, "--command-config", str(config))
    done = run_tool("org.apache.kafka.tools.TopicCommand", "--list", *secured)
    assert done.returncode == 0, done.stderr.decode()
    plog("topic", "list", "--command-config", config)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_takes_the_same_file(kafka: SecuredKafka, tmp_path: Path) -> None:
    config = tmp_path / "kcat.conf"
    config.write_text(
        f"bootstrap.servers=127.0.0.1:{kafka.ports['SASLS']}\nsecurity.protocol=sasl_ssl\n"
        f"sasl.mechanisms=PLAIN\nsasl.username=alice\nsasl.password={PASSWORD}\n"
        f"ssl.ca.location={kafka.folder / 'ca.pem'}\nenable.auto.commit=false\n"
    )
    config.chmod(0o600)
    done = subprocess.run(["kcat", "-F", str(config), "-L"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    plog("topic", "list", "--command-config", config)


def test_mechanisms_that_the_broker_takes_are_named(kafka: SecuredKafka) -> None:
    _, told = plog(
        "topic",
        "list",
        "--command-config",
        kafka.write("PLAIN", "OAUTH", ssl_truststore_location=kafka_ca(kafka)),
        code=1,
    )
    assert "does not take PLAIN on this listener; it takes OAUTHBEARER" in told


def kafka_ca(kafka: SecuredKafka) -> str:
    return str(kafka.folder / "ca.pem")


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(way: str, kafka: SecuredKafka, tmp_path: Path) -> None:
    config = tmp_path / "wrong.properties"
    config.write_text(kafka.write(way).read_text().replace(PASSWORD, "marked-wrong"))
    config.chmod(0o600)
    _, told = plog("topic", "list", "--command-config", config, code=1)
    assert f"error: SASL_AUTHENTICATION_FAILED: {way} for 'alice': Authentication failed" in told


def test_a_token_that_has_expired(kafka: SecuredKafka, tmp_path: Path) -> None:
    now = int(time.time())
    token = tmp_path / "token"
    token.write_text(kafka.bearer_token(iat=now - 900, exp=now - 300))
    config = kafka.write("OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=f"file://{token}")
    _, told = plog("topic", "list", "--command-config", config, code=1)
    assert 'OAUTHBEARER: {"status":"invalid_token"}' in told
    assert "the token: of alice, for plog, by https://issuer.example, expires " in told
    assert "the clock here says " in told


@pytest.mark.parametrize("who", ["nobody", "a stranger"])
def test_no_certificate_that_the_broker_takes(who: str, kafka: SecuredKafka) -> None:
    way = "TLS" if who == "nobody" else "mTLS"
    more = {} if who == "nobody" else {"ssl_keystore_location": str(other_client(kafka.folder, make_ca("other")))}
    _, told = plog("topic", "list", "--command-config", kafka.write(way, "MTLS", **more), code=3)
    if "lost the connection" in told:  # the alert came after we had sent more, and was lost
        assert "wants the client's certificate" in told
    else:
        assert ("and plog has none to show" if who == "nobody" else "refuses our certificate") in told


@pytest.mark.parametrize(
    ("listener", "protocol", "words"),
    [
        ("SASLP", "PLAINTEXT", ["lost the connection to", "with SASL closes connections like this"]),
        ("TLS", "PLAINTEXT", ["TLS"]),
        ("SASLS", "SASL_PLAINTEXT", ["TLS"]),
        ("SASLP", "SSL", ["it speaks Kafka's protocol without TLS", "security.protocol=PLAINTEXT or SASL_PLAINTEXT"]),
        ("TLS", "SASL_SSL", ["the listener does not authenticate", "security.protocol=PLAINTEXT or SSL"]),
    ],
)
def test_the_wrong_protocol(listener: str, protocol: str, words: list[str], kafka: SecuredKafka) -> None:
    config = kafka.write("PLAIN over TLS", listener, security_protocol=protocol)
    done = call_plog("topic", "list", "--command-config", str(config))
    told = done.stderr.decode()
    assert done.returncode in (1, 3), told
    assert all(word in told for word in words), told


def test_a_certificate_of_another_name(kafka: SecuredKafka) -> None:
    config = kafka.write("TLS")
    server = f"127.0.0.2:{kafka.ports['TLS']}"
    done = call_plog("topic", "list", "--command-config", str(config), "--bootstrap-server", server)
    told = done.stderr.decode()
    assert done.returncode == 3
    if "could not connect" not in told:  # where it listens on that address, too
        assert "it is not for 127.0.0.2, but for localhost, 127.0.0.1" in told


class _Worker:
    """A process that works through sessions that end."""

    def __init__(self, folder: Path, name: str, *arguments: str | Path, stdin: int | None = None) -> None:
        self.name = name
        self.out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        self._notes = folder / f"{name}.renewals"
        with self.out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "tests.support.counted_plog", self._notes, *arguments]
            self.process = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=err)

    @property
    def lines(self) -> list[bytes]:
        return self.out.read_bytes().splitlines()

    @property
    def told(self) -> str:
        return self._err.read_text()

    def most_renewals(self) -> int:
        """Of any of its connections."""
        return max(renewals(self._notes).values(), default=0)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()


def test_sessions_end_while_records_go_in_and_out(kafka: SecuredKafka, tmp_path: Path) -> None:
    """A producer, a follower, a member of each kind of group and a copier renew their sessions twice and more, on one
    connection, and see the broker die and come back: every line is everywhere, once and in order.
    """
    config = kafka.write("renewed")
    topic = "sessions"
    target = f"copied-{topic}"
    for name in (topic, target):
        plog("topic", "create", name, "--command-config", config)
    seconds = float(os.environ.get("PLOG_SECURED_SECONDS", "3"))
    secured = ("--command-config", config)
    read = ("consume", topic, "--from", "beginning", *secured)
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str | Path, stdin: int | None = None) -> _Worker:
            worker = _Worker(tmp_path, name, *arguments, stdin=stdin)
            stack.callback(worker.stop)
            return worker

        readers = [
            start("follower", *read, "--follow"),
            start("classic", *read, "--group", f"{topic}-1", "--group-protocol", "classic"),
            start("consumer", *read, "--group", f"{topic}-2", "--group-protocol", "consumer"),
            start("bearer", *read[:-1], kafka.write("token endpoint"), "--follow"),
        ]
        copier = start("copier", "copy", config, f"{topic}-3", topic, target)
        producer = start("producer", "produce", topic, *secured, stdin=subprocess.PIPE)
        workers = [*readers, copier, producer]
        sent = _feed(producer, 0, seconds, workers)
        copier.process.send_signal(signal.SIGUSR1)
        sent = _feed(producer, sent, 0, until=lambda: HOLDS in copier.told)
        kafka.server.kill()
        kafka.server.start()
        sent = _feed(producer, sent, seconds / 2)
        assert producer.process.stdin is not None
        producer.process.stdin.close()
        assert producer.process.wait() == 0, producer.told
        copies = start("copies", "consume", target, "--from", "beginning", "--follow", *secured)
        _wait_until(lambda: all(len(worker.lines) >= sent for worker in (*readers, copies)), [*workers, copies])
        for worker in (*readers, copier, copies):
            worker.stop()
    expected = [b"%d" % number for number in range(sent)]
    for worker in (*readers, copies):
        assert worker.lines == expected, worker.name
    for worker in workers:
        assert "marked" not in worker.told
        assert "Traceback" not in worker.told


def _feed(
    producer: _Worker,
    start: int,
    seconds: float,
    workers: Sequence[_Worker] = (),
    until: Callable[[], bool] = lambda: True,
) -> int:
    """Lines while so much time goes by, as sessions need it, and until these have renewed theirs twice; the number of
    the next one.
    """
    assert producer.process.stdin is not None
    ends, deadline = time.monotonic() + seconds, machine_seconds() + MOST_SECONDS + seconds
    while ends - time.monotonic() > 0 or any(worker.most_renewals() < 2 for worker in workers) or not until():
        told = "\n".join(f"{one.name}: {one.most_renewals()} renewals; {one.told[-300:]}" for one in workers)
        assert machine_seconds() < deadline, told
        lines = b"".join(b"%d\n" % number for number in range(start, start + 10))
        start += 10
        try:
            producer.process.stdin.write(lines)
            producer.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the producer has ended: {producer.told}") from None
        time.sleep(0.02)
    return start


def _wait_until(is_done: Callable[[], bool], workers: Sequence[_Worker]) -> None:
    wait_until(
        is_done,
        lambda: "\n".join(f"{worker.name}: {len(worker.lines)} lines; {worker.told[-300:]}" for worker in workers),
    )


@pytest.mark.parametrize("way", WAYS if EVERYTHING else ["SCRAM-SHA-512", "mTLS"])
def test_spark_reads_and_writes_through_it(
    way: str, kafka: SecuredKafka, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In batches and in streams; neither a plan, nor the UI's store, nor a checkpoint shows a secret."""
    config = kafka.write(way)
    listener = kafka.ways()[way][0]
    secured = {"kafka.bootstrap.servers": f"127.0.0.1:{kafka.ports[listener]}", "commandConfig": str(config)}
    topic, copy = (f"{name}-{way.replace(' ', '-')}" for name in ("spark", "streamed"))
    for name in (topic, copy):
        plog("topic", "create", name, "--command-config", config)
    rows = spark.createDataFrame([(f"k{n}".encode(), f"v{n}".encode()) for n in range(20)], "key binary, value binary")
    rows.write.format("plog").options(**secured).option("topic", topic).mode("append").save()
    frame = spark.read.format("plog").options(**secured).option("subscribe", topic).load()
    expected = sorted(f"v{n}".encode() for n in range(20))
    assert sorted(bytes(row.value) for row in frame.collect()) == expected
    stream = spark.readStream.format("plog").options(**secured).option("subscribe", topic)
    reader = stream.option("startingOffsets", "earliest").load().selectExpr("key", "value")
    writer = reader.writeStream.format("plog").options(**secured).option("topic", copy)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(plog("consume", copy, "--command-config", config)[0].split()) == expected
    frame.explain(extended=True)
    query.explain(extended=True)
    shown = capsys.readouterr().out + str(frame._jdf.queryExecution().toString()) + str(query.lastProgress)
    store = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList()
    for number in range(done.size()):
        execution = done.apply(number)
        shown += execution.physicalPlanDescription() + execution.description() + str(execution.modifiedConfigs())
    assert topic in shown or "plog" in shown
    ensure_hidden(kafka, shown.encode(), *(path.read_bytes() for path in files_of(tmp_path)))


def test_a_replay_through_it(kafka: SecuredKafka, tmp_path: Path) -> None:
    """Into Parquet and into a topic; the plan and the manifest name no secret."""
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    config = kafka.write("SCRAM-SHA-512")
    secured = ("--command-config", str(config))
    plog("topic", "create", "replayed", *secured)
    plog("topic", "create", "replayed-into", *secured)
    plog("produce", "replayed", *secured, stdin=b"a\nb\nc\n")
    target = tmp_path / "out"
    events = tmp_path / "events"
    events.mkdir()
    settings = ("enabled=true", "compress=false", f"dir=file://{events}")
    logged = " ".join(f"--conf spark.eventLog.{setting}" for setting in settings) + " pyspark-shell"
    for to in (f"parquet:{target}", "topic:replayed-into"):
        environment = {"PYSPARK_SUBMIT_ARGS": logged}
        done = run_plog("spark-replay", "replayed", "--to", to, *secured, environment=environment)
        assert done.returncode == 0, done.stderr.decode()
        ensure_hidden(kafka, done.stdout, done.stderr)
    done = run_plog("spark-replay", "--verify", str(target), "--output", "json", *secured)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(plog("consume", "replayed-into", *secured)[0].split()) == [b"a", b"b", b"c"]
    logs = [path.read_bytes() for path in files_of(events)]
    assert any(b"SparkListenerJobEnd" in log for log in logs)
    ensure_hidden(kafka, *logs, *(path.read_bytes() for path in files_of(target)))


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def ensure_hidden(kafka: SecuredKafka, *texts: bytes) -> None:
    for secret in kafka.secrets():
        assert not any(secret in text for text in texts)
