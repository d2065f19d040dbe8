"""The files of `plog cert dev` as a new user takes them: Apache Kafka, its tools, kcat and plog by their settings."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.free_ports import free_ports
from tests.support.kafka_server import KafkaServer
from tests.support.oracle import requires_kafka, run_tool
from tests.support.server import call_plog

pytestmark = [requires_kafka, pytest.mark.java]


def plog(*arguments: str | Path) -> tuple[str, str]:
    done = call_plog(*map(str, arguments))
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module", params=["SSL", "SASL_SSL"])
def certs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / f"größe {request.param}"
    plog("cert", "dev", "--out", folder, "--protocol", request.param)
    return folder


@pytest.fixture(scope="module")
def address(certs: Path) -> Iterator[str]:
    """A listener that wants a client's certificate, or a password; the broker's own connections take it, too."""
    port, protocol = free_ports()[0], certs.name.partition(" ")[2]
    kafka = KafkaServer(certs.parent / "data", broker_rack="r1")
    listeners = f"PLAINTEXT://{kafka.address},{protocol}://localhost:{port}"
    kafka._settings += (certs / "server.properties").read_text() + (
        f"ssl.client.auth=required\nlisteners={listeners},CONTROLLER://127.0.0.1:{kafka._controller_port}\n"
        f"advertised.listeners={listeners}\n"
        f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocol}:{protocol}\n"
    )
    kafka.format()
    with kafka:
        yield f"localhost:{port}"


@pytest.mark.parametrize("file", ["client.properties", "kcat.conf"])
def test_plog_takes_both(file: str, certs: Path, address: str) -> None:
    secured = ("--bootstrap-server", address, "--command-config", certs / file)
    plog("topic", "create", file, *secured)
    assert file in plog("topic", "list", *secured)[0]
    (row,) = json.loads(plog("cluster", "status", "--output", "json", *secured)[0])
    assert (row["listeners"], row["rack"], row["state"]) == ([address], "r1", "reachable")
    assert (row["cluster_id"], row["controller_id"], row["voters"]) == ("MkU3OEVBNTcwNTJENDM2Qk", 1, [1])
    assert row["features"].items() >= {"metadata.version": 33, "group.version": 1}.items()


def test_kafkas_tools_take_one(certs: Path, address: str) -> None:
    secured = ("--bootstrap-server", address, "--command-config", str(certs / "client.properties"))
    done = run_tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "by-kafka", *secured)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_takes_the_other(certs: Path, address: str) -> None:
    command = ["kcat", "-F", str(certs / "kcat.conf"), "-b", address, "-L"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"broker 1 at {address}" in done.stdout


def test_what_the_broker_shows(certs: Path, address: str) -> None:
    shown, told = plog("cert", "show", address, "--command-config", certs / "client.properties")
    assert "subject  CN=server,O=plog dev\n" in shown
    assert "certificate 2 of 2 (CA)\n  subject  CN=plog dev CA\n" in shown
    assert told == f"{address} is trusted by the settings given, and speaks TLSv1.3\n"


def test_versions_of_apis_are_those_of_kafkas_own_tool(certs: Path, address: str) -> None:
    secured = ("--bootstrap-server", address, "--command-config", str(certs / "client.properties"))
    rows = json.loads(plog("cluster", "status", "--api-versions", "--output", "json", *secured)[0])
    listed = run_tool("org.apache.kafka.tools.BrokerApiVersionsCommand", *secured).stdout.decode()
    for row in rows:
        versions = f"{row['min']} to {row['max']}" if row["min"] != row["max"] else f"{row['min']}"
        assert f"{row['api']}({row['key']}): {versions} [" in listed, listed
