"""How `plog serve` starts: its listeners, its threads, and a configuration that names a ZooKeeper, whose cluster it
joins by `--zookeeper` alone.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.first_topics import parse_first_topics
from cli.main import run
from core.client.admin.admin import Admin
from core.client.net.kafka_client import KafkaClient
from core.client.read.cluster_source import ClusterSource
from core.client.read.record_source import ReadOptions
from core.client.write.producer import RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.errors import KafkaError, UsageError
from core.common.topic_partition import TopicPartition
from core.pipeline.session import Session
from core.records.byte_strings import ByteStrings
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.server import PLOG, Server, call_plog, read_json
from tests.support.waiting import wait_for_exit, wait_until

# --- listeners


@pytest.mark.longer
def test_clients_of_each_listener_get_its_address(tmp_path: Path) -> None:
    arguments = ["--listener", "INSIDE://127.0.0.1:0", "--listener", "OUTSIDE://127.0.0.1:0"]
    with Server(tmp_path / "data", *arguments, "--advertise", "OUTSIDE://localhost:0") as server:
        ready = re.search(r"ready (\S+) .* listeners INSIDE://(\S+),OUTSIDE://(\S+)\n", server.log.read_text())
        assert ready is not None
        assert "without authentication" not in server.log.read_text()
        first, inside, outside = ready.groups()
        assert first == inside == server.address
        assert told(inside) == [inside]
        assert told(outside) == [outside.replace("127.0.0.1", "localhost")]


@pytest.mark.longer
def test_a_configuration_with_listeners_of_all_protocols(tmp_path: Path) -> None:
    """Its passwords are elsewhere, as Kafka's config providers have them; no output shows them."""
    ca = make_ca()
    (tmp_path / "server.p12").write_bytes(sign(ca).pkcs12("s3cret"))
    (tmp_path / "ca.pem").write_text(ca.pem)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    (tmp_path / "secrets.properties").write_text(f'store=s3cret\njaas={module} user_alice="s3cret-too";\n')
    protocols = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT")
    lines = [
        f"ssl.keystore.location={tmp_path}/server.p12",
        f"ssl.keystore.password=${{file:{tmp_path}/secrets.properties:store}}",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config=${{file:{tmp_path}/secrets.properties:jaas}}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=${env:PLOG_TESTS_JAAS}",
    ]
    (tmp_path / "server.properties").write_text("\n".join(lines))
    jaas = f'{module} user_bob="s3cret-too";'
    arguments = ["--config", str(tmp_path / "server.properties")]
    arguments += [word for name in protocols for word in ("--listener", f"{name}://127.0.0.1:0")]
    with Server(tmp_path / "data", *arguments, environment={"PLOG_TESTS_JAAS": jaas}) as server:
        line = next(line for line in server.log.read_text().splitlines() if line.startswith("ready "))
        assert line.endswith(" protocols " + ",".join(f"{name}:{name}" for name in protocols))
        found = re.search(r" listeners (\S+)", line)
        assert found is not None
        for listed in found[1].split(","):
            name, _, address = listed.partition("://")
            settings = {
                "security.protocol": name,
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice" if name == "SASL_SSL" else "bob",
                "sasl.password": "s3cret-too",
                "ssl.ca.location": str(tmp_path / "ca.pem"),
            }
            path = tmp_path / f"{name}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            done = call_plog("cluster", "brokers", "--output", "json", "--bootstrap-server", address,
                             "--command-config", str(path))  # fmt: skip
            assert [row["address"] for row in json.loads(done.stdout)] == [address], done.stderr
        done = call_plog(
            "config", "describe", "broker", "1", "--all", "--output", "json", "--data-dir", str(tmp_path / "data")
        )
        values = {row["key"]: row["value"] for row in json.loads(done.stdout)}
        hidden = {key for key, value in values.items() if value == "(hidden)"}
        assert {"ssl.keystore.password", "listener.name.sasl_ssl.plain.sasl.jaas.config", "ssl.key.password"} <= hidden
        assert b"s3cret" not in done.stdout + done.stderr
    assert "s3cret" not in server.log.read_text()
    assert "warning" not in server.log.read_text()


def told(address: str) -> list[str]:
    done = call_plog("cluster", "brokers", "--bootstrap-server", address, "--output", "json")
    return [row["address"] for row in json.loads(done.stdout)]


@for_each(
    "arguments, message, hint",
    [
        (["--listen", ":1", "--listener", "A://:2"], "use one of them", "--listener PLAINTEXT://:1"),
        (["--listener", "127.0.0.1:1"], "'127.0.0.1:1' is no NAME://HOST:PORT", "INTERNAL://127.0.0.1:9093"),
        (["--listener", "A://:1", "--listener", "a://:2"], "A is there twice", "INTERNAL://"),
        (["--listener", "A://:1", "--listener", "b://:1"], "needs an address of its own, and B://:1 has that of A", ""),
        (["--listener", "SSL://:1"], "listener SSL://:1, SSL: it has no certificate", "plog cert dev"),
        (["--listen", ":1", "--set", "listeners=SSL://:2"], "listener SSL://:2, SSL: it has no certificate", ""),
        (["--listener", "SSL://:1", "--set", "ssl.keystore.location=/no/k.pem"],
         "listener SSL://:1, SSL: ssl.keystore.location: could not read /no/k.pem: no such file or directory", ""),
        (["--listener", "SASL_SSL://:1", "--set", "ssl.keystore.location=/k.pem"],
         "sasl.enabled.mechanisms is not set, and Kafka's default is GSSAPI (Kerberos), which plog does not speak",
         "listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512"),
        (["--set", "listeners=SSL://:1", "--set", "listener.name.ssl.ssl.key.password=s3cret"],
         "--set listener.name.ssl.ssl.key.password: other users can see a secret on the command line",
         "--set 'listener.name.ssl.ssl.key.password=${env:NAME}'"),
        (["--set", "listeners=A://:1"], "listeners has A://:1, whose protocol is not in listener.security.protocol.map",
         "listener.security.protocol.map=A:SASL_SSL"),
        (["--set", "listeners=SSL://:1", "--set", "ssl.keystore.location=${vault:p:k}"],
         "--set: ssl.keystore.location: ${vault:..} is of a config provider that plog does not have", "${env:NAME}"),
        (["--listener", "A://:1", "--listener", "B://:2", "--advertise", "h:3"],
         "--advertise h:3 does not say which listener it is for: A, B", "--advertise A://h:3"),
        (["--set", "num.partitions=x"], "error: Invalid value x for configuration num.partitions: Not a number", ""),
        (["--topic", "orders:6:3"], "3 is no KEY=VALUE; expected NAME[:PARTITIONS]", "default.replication.factor=N"),
        (["--topic", "orders:"], "--topic orders:: nothing is no number of partitions", ""),
        (["--topic", "orders:0"], "0 is no number of partitions", ""),
        (["--topic", "../x"], "topic name '../x' is invalid", ""),
        (["--topic", "a:1:retention=1"], "Unknown topic config name: retention", "did you mean retention.ms?"),
        (["--topic", "a", "--topic", "a:2"], "--topic a is there twice", ""),
        (["--topic", "a.b", "--topic", "a_b"], "--topic a_b and a.b have the same name in Kafka's metrics", ""),
        (["--topic", "a", "--read-only"], "--topic and --seed have to: use one of them", ""),
        (["--seed-format", "csv"], "--seed-format is the format of --seed", ""),
        (["--seed", "orders"], "--seed orders: expected TOPIC=FILE", ""),
        (["--seed", "a=/dev/null"], "/dev/null is no regular file", ""),
        (["--listener", "A://:1", "--advertise", "B://h:3"], "--advertise B://h:3: there is no such listener", "A"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, arguments: list[str], message: str, hint: str) -> None:
    done = call_plog("serve", "--data-dir", str(tmp_path / "data"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert hint in done.stderr.decode()
    assert b"s3cret" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_certificate_that_is_not_there_leaves_an_empty_directory_empty(tmp_path: Path) -> None:
    arguments = ["--listener", "SSL://:1", "--set", "ssl.keystore.location=/no/k.pem"]
    done = call_plog("serve", "--data-dir", str(tmp_path), *arguments)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert b"could not read /no/k.pem" in done.stderr


@for_each(
    "line, message",
    [
        ("listener.name.ssl.ssl.client.auth=yes",
         "FILE: Invalid value yes for configuration listener.name.ssl.ssl.client.auth: String must be one of"),
        ("listeners=SSL://:1\nssl.keystore.location=\\u0000k", "FILE: ssl.keystore.location has a null byte"),
        ("listeners=SASL_PLAINTEXT://:1\nsasl.enabled.mechanisms=PLAIN,", "plog does not speak an empty name"),
    ],
)  # fmt: skip
def test_what_is_refused_in_a_file(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "server.properties"
    path.write_text(line)
    done = call_plog("serve", "--config", str(path))
    assert done.returncode == 2
    assert done.stderr.decode().startswith("error: ")
    assert message.replace("FILE", str(path)) in done.stderr.decode()


# --- topics and records to begin with


def ending(bytes_: bytes) -> str:
    return bytes_.decode().partition("error: ")[2]


def test_a_seed_that_is_not_right_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "bad.ndjson").write_text('{"value": "a"}\n' * 16 + '{"value": \n')
    (tmp_path / "third.ndjson").write_text('{"value": "a", "partition": 2}\n')
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-9])
    directory = tmp_path / "data"
    for name, options, message in [
        ("bad.ndjson", ["--topic", "t:2"], f"{tmp_path}/bad.ndjson: line 17: not JSON"),
        ("third.ndjson", ["--topic", "t:2"], "a record is for partition 2, and t has 2 partitions\nhint: --topic t:3"),
        ("cut.csv.gz", [], f"{tmp_path}/cut.csv.gz does not decompress by gzip"),
    ]:
        seed = ["--seed", f"t={tmp_path / name}", "--seed-format", "envelope"]
        done = call_plog("serve", "--data-dir", str(directory), "--listen", ":0", *options, *seed)
        assert done.returncode == 2
        assert message in ending(done.stderr)
    done = call_plog("serve", "--data-dir", str(directory), "--listen", ":0", "--seed", f"t={tmp_path}/none")
    assert done.returncode == 3
    assert not directory.exists()


def make_first(client: KafkaClient, topics: list[str], *seeds: str) -> None:
    parse_first_topics(topics, seeds, None, is_kafka_3=False).make(client, " --data-dir d")


def test_topics_and_seeds_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = tmp_path / "f.csv.gz"
    seed.write_bytes(gzip.compress(b"id,name\n7,a\n8,b\n"))
    asked = ["orders:6", "audit:1:cleanup.policy=compact,delete:retention.ms=-1"]
    with Session(directory=tmp_path / "data").open_client(makes_directory=True) as client:
        for _ in range(2):
            make_first(client, asked, f"orders={seed}", f"more={seed}")
        make_first(client, ["audit:1:cleanup.policy=delete,compact"])  # their order says nothing
        for text, message, hint in [
            ("orders:7", "--topic orders:7: the topic is there, with 6 partitions", "alter orders --partitions 7 --da"),
            ("orders:5", "--topic orders:5: the topic is there, with 6 partitions", "--topic orders takes it as it is"),
            ("audit:1:retention.ms=5", "retention.ms=5 was asked for, and the topic is there with retention.ms=-1",
             "plog topic alter audit --set retention.ms=5 --data-dir d changes it"),
        ]:  # fmt: skip
            with pytest.raises(UsageError, match=re.escape(message)) as caught:
                make_first(client, ["new:1", text])
            assert hint in (caught.value.hint or "")
        assert {name for name in client.refresh() if not name.startswith("__")} == {"orders", "audit", "more"}
        more = TopicPartition("more", 0)
        Admin(client).delete_records({more: -1})
        make_first(client, [], f"more={seed}")  # it had records, though it has none now
        assert ClusterSource(client, ReadOptions()).starts([more]) == ClusterSource(client, ReadOptions()).ends([more])
    said = capsys.readouterr().err
    assert "orders has records already, up to offset " in said
    assert f": not seeded from {seed}" in said
    place = ["--data-dir", str(tmp_path / "data")]
    rows = sorted(call_plog("consume", "orders", *place).stdout.splitlines())
    assert [json.loads(row) for row in rows] == [{"id": "7", "name": "a"}, {"id": "8", "name": "b"}]
    (audit,) = read_json(0, "topic", "describe", "audit", *place)
    assert audit["settings"] == {"cleanup.policy": "compact,delete", "retention.ms": "-1"}


def test_what_a_seed_that_was_cut_off_left_is_no_record(tmp_path: Path) -> None:
    """The transaction is still open, as after a kill -9."""
    seed = tmp_path / "f"
    seed.write_text("one\ntwo\n")
    with Session(directory=tmp_path / "data").open_client(makes_directory=True) as client:
        Admin(client).create_topic("t", partitions=1)
        cut = TransactionalProducer(client.another, "plog-seed-t", timeout_ms=60_000)
        texts = ByteStrings.of_list([b"one"])
        cut.send(RecordsToSend(partition=0, timestamps=np.zeros(1, np.int64), keys=None, values=texts,
                                       headers=None, rows=np.zeros(1, np.int64)), "t")  # fmt: skip
        cut.flush()
        make_first(client, [], f"t={seed}")
    assert call_plog("consume", "t", "--data-dir", str(tmp_path / "data")).stdout == b"one\ntwo\n"


def test_a_seed_that_is_refused_in_its_midst_leaves_no_record(tmp_path: Path) -> None:
    """The topic stays, and the next start seeds it."""
    seed = tmp_path / "f"
    seed.write_text(f"one\n{'x' * 2000}\n")
    asked = ["t:1:max.message.bytes=1000"]
    with Session(directory=tmp_path / "data").open_client(makes_directory=True) as client:
        with pytest.raises(KafkaError) as caught:
            make_first(client, asked, f"t={seed}")
        assert caught.value.message.startswith(f"--seed t={seed}: line 2: the record batch has ")
        assert caught.value.message.endswith("the transaction is aborted, and none of its records counts")
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("--topic t:max.message.bytes=BYTES, or plog topic alter")
        seed.write_text("one\ntwo\n")
        make_first(client, asked, f"t={seed}")
    assert call_plog("consume", "t", "--data-dir", str(tmp_path / "data")).stdout == b"one\ntwo\n"


@pytest.mark.longer
def test_topics_and_seeds_are_there_when_the_broker_is_ready(tmp_path: Path) -> None:
    seed = tmp_path / "f"
    seed.write_text("one\ntwo\n")
    environment = {"PLOG_TOPICS": "orders:6 audit:1:cleanup.policy=compact", "PLOG_SEEDS": f"orders={seed}"}
    with Server(tmp_path / "data", environment=environment) as server:
        for _ in range(2):
            counts = {row["topic"]: row["partitions"] for row in read_json(
                0, "topic", "list", "--bootstrap-server", server.address)}  # fmt: skip
            assert counts == {"orders": 6, "audit": 1}
            read = call_plog("consume", "orders", "--bootstrap-server", server.address)
            assert sorted(read.stdout.split()) == [b"one", b"two"]
            server.stop()
            server.start()
        said = server.log.read_text()
    first, *again = said.split("ready ")
    assert "created topic orders" in first
    assert "2 records written to orders, committed as one transaction" in first
    assert "orders has records already" in again[0]


# --- which scheduling policy of Linux it takes, and how its threads share the interpreter

STARTED_UNDER = """
import os, sys
from cli.main import run
os.sched_setscheduler(0, os.{policy}, os.sched_param(0))
sys.exit(run(sys.argv[1:]))
"""
REFUSED = """
import errno, os, sys
from cli.main import run
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
def refuse(*_: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")
os.sched_setscheduler = refuse
sys.exit(run(sys.argv[1:]))
"""
HANDED_OVER = """
import atexit, sys
from pathlib import Path
from cli.main import run
atexit.register(lambda: Path({path!r}).write_text(str(sys.getswitchinterval())))
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.longer
@pytest.mark.skipif(sys.platform != "linux", reason="scheduling policies are Linux's")
@pytest.mark.parametrize(
    ("program", "policy"),
    [
        pytest.param(STARTED_UNDER.format(policy="SCHED_OTHER"), "SCHED_BATCH", id="interrupts nobody"),
        pytest.param(STARTED_UNDER.format(policy="SCHED_IDLE"), "SCHED_IDLE", id="what was chosen is kept"),
        pytest.param(REFUSED, "SCHED_OTHER", id="where it is not allowed"),
    ],
)
def test_the_policy(program: str, policy: str, tmp_path: Path) -> None:
    with Server(tmp_path / "data", command=(sys.executable, "-c", program, "serve")) as server:
        assert server.process is not None
        threads = Path(f"/proc/{server.process.pid}/task").iterdir()
        assert {os.sched_getscheduler(int(thread.name)) for thread in threads} == {getattr(os, policy)}


@pytest.mark.longer
def test_no_thread_waits_long_for_the_interpreter(tmp_path: Path) -> None:
    told = tmp_path / "interval"
    program = HANDED_OVER.format(path=str(told))
    with Server(tmp_path / "data", command=(sys.executable, "-c", program, "serve")) as server:
        server.stop()
    assert float(told.read_text()) == pytest.approx(0.0001)


# --- a ZooKeeper

_JOINS_NOTHING = """\
warning: zookeeper.connect joins no cluster: this broker serves its directory alone
hint: --zookeeper zk:1//x joins the cluster, with the same data directory and node id
"""
_ANOTHER = "warning: zookeeper.connect is zk:1//x, and --zookeeper wins: zk:2//x\n"


@for_each(
    "arguments, said",
    [(["--read-only"], _JOINS_NOTHING), (["--zookeeper", "zk:1//x"], ""), (["--zookeeper", "zk:2//x"], _ANOTHER)],
)
def test_a_configuration_alone_joins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """A copy of a broker's disk comes with its server.properties: whoever looks at it must not join by that. What is
    started here ends with an error: there is no such directory, and //x is no chroot.
    """
    config = tmp_path / "server.properties"
    config.write_text("zookeeper.connect=zk:1//x\nbroker.id=3\n")
    directory = str(tmp_path / "missing")
    assert run(["serve", "--config", str(config), "--data-dir", directory, "--listen", ":0", *arguments]) != 0
    warnings, error, _ = capsys.readouterr().err.partition("error: ")
    assert (warnings, error) == (said, "error: ")


def test_a_new_member_needs_a_node_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default could be that of a broker which is away just now: its replicas would begin with nothing."""
    new = tmp_path / "new"
    assert run(["serve", "--zookeeper", "127.0.0.1:1/x", "--data-dir", str(new), "--listen", "127.0.0.1:0"]) == 2
    error = f"error: {new} has no node id yet, and a member of a cluster needs one of its own\nhint: --node-id N\n"
    assert capsys.readouterr().err == error
    assert not new.exists()


def test_a_member_that_could_not_log_in_at_others_does_not_wait_for_zookeeper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listener for brokers lets users log in, and this broker has no login of its own."""
    config = tmp_path / "server.properties"
    config.write_text(
        "listeners=IN://127.0.0.1:0\nlistener.security.protocol.map=IN:SASL_PLAINTEXT\n"
        "inter.broker.listener.name=IN\nsasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
        "listener.name.in.sasl.enabled.mechanisms=SCRAM-SHA-512\n"
    )
    config.chmod(0o600)
    place = ["--data-dir", str(tmp_path / "new"), "--node-id", "3", "--zookeeper", "127.0.0.1:1/x"]
    assert run(["serve", "--config", str(config), *place]) == 2
    key = "listener.name.in.scram-sha-512.sasl.jaas.config"
    error = capsys.readouterr().err
    assert f"error: {key} has no username and password, with which this broker logs in at others" in error
    assert not (tmp_path / "new").exists()


@pytest.mark.longer
def test_a_signal_ends_the_wait_for_a_zookeeper_that_hangs(tmp_path: Path) -> None:
    """It takes connections, and says nothing: closing the session would wait for it in vain."""
    new, said = tmp_path / "new", tmp_path / "said"
    with socket.create_server(("127.0.0.1", 0)) as hangs, said.open("wb") as log:
        where = f"127.0.0.1:{hangs.getsockname()[1]}/x"
        command = [PLOG, "serve", "--zookeeper", where, "--node-id", "3", "--data-dir", new, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: "waiting for it" in said.read_text(), "it says that it waits")
            process.send_signal(signal.SIGTERM)
            assert wait_for_exit(process) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert said.read_text().count("\n") == 1, said.read_text()
    assert not new.exists()
