"""docs/docker.md: no container is run here, so what its commands run in one is run as a process on this machine."""

from __future__ import annotations

import re
import shlex
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.protocol.schema.metadata import METADATA, MetadataRequest
from plog.testing import running_broker
from tests.support.free_ports import free_ports
from tests.support.server import Server, run_plog

pytestmark = pytest.mark.longer

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "docker.md").read_text()
_TAKES_A_VALUE = ("--name", "-p", "-v", "-e", "--network", "--user", "--add-host")


class Container(NamedTuple):
    """A `docker run` of the image: what it runs, and the variables and ports that it is given."""

    line: str
    command: list[str]
    variables: dict[str, str]
    ports: list[str]


def container_of(line: str) -> Container:
    words = shlex.split(line)[2:]
    given: dict[str, list[str]] = {name: [] for name in _TAKES_A_VALUE}
    while words[0] != "plog":
        option = words.pop(0)
        if option in _TAKES_A_VALUE:
            given[option].append(words.pop(0))
        else:
            assert option in ("-d", "--rm"), option
    default = re.findall(r"^CMD (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[-1]
    return Container(
        line, words[1:] or yaml.safe_load(default), dict(one.split("=", 1) for one in given["-e"]), given["-p"]
    )


CONTAINERS = [container_of(line) for line in re.findall(r"^    (docker run .*)$", PAGE, re.MULTILINE)]
BROKERS = [one for one in CONTAINERS if one.command[0] == "serve"]


def advertised(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    with closing(ClientConnection(SocketTransport(host, int(port)))) as connection:
        (broker,) = connection.call(METADATA, MetadataRequest([])).brokers
    return broker.host, broker.port


def test_the_page_has_all_of_them() -> None:
    assert len(BROKERS) == 6
    assert len(CONTAINERS) == 13


@pytest.mark.parametrize("container", BROKERS, ids=lambda one: one.line)
def test_a_broker_tells_the_address_of_its_row(container: Container, tmp_path: Path) -> None:
    command = container.command
    (port,) = {command[command.index("--listen") + 1].rpartition(":")[2]}
    told = command[command.index("--advertise") + 1]
    command = ["127.0.0.1:0" if word == f"0.0.0.0:{port}" else word for word in command[1:]]
    if container.ports:  # the port that is published is the one where it listens, and the one that it advertises
        assert container.ports[0].split(":")[-2:] == [port, told.rpartition(":")[2]]
    with Server(tmp_path / "data", *command, environment=container.variables) as server:
        assert advertised(server.address) == (told.partition(":")[0], int(told.rpartition(":")[2]))
        assert re.search(rf"`{told}`|localhost:19092|localhost:9092", PAGE)
        listed = run_plog("topic", "list", "--output", "csv", "--bootstrap-server", server.address)
        assert listed.stdout.count(b"\n") == (3 if "PLOG_TOPICS" in container.variables else 1)


def test_the_other_commands(tmp_path: Path) -> None:
    """A server stands at each address, and a directory in each volume."""
    others = [one.command for one in CONTAINERS if one.command[0] != "serve"]
    others += [shlex.split(line)[1:] for line in re.findall(r"^    (plog (?!serve).*)$", PAGE, re.MULTILINE)]
    assert len(others) == 9
    with Server(tmp_path / "data", "--topic", "orders", "--advertise", "localhost:1") as server:
        for command in others:
            words = [str(tmp_path / "data") if word in ("/data", "/kafka") else word for word in command]
            if "--bootstrap-server" in words:
                words[words.index("--bootstrap-server") + 1] = server.address
            resolve = [] if words[0] == "topic" or "verify" in words else ["--resolve", f"localhost:1={server.address}"]
            done = run_plog(*words, *resolve)
            assert done.returncode == 0, (command, done.stderr)


def test_a_broker_on_the_host_with_a_listener_for_docker(tmp_path: Path) -> None:
    (line,) = re.findall(r"^    plog serve (.*)$", PAGE, re.MULTILINE)
    ports = dict(zip(("127.0.0.1:9092", "0.0.0.0:29092"), free_ports(2), strict=True))
    for address, port in ports.items():
        line = line.replace(address, f"127.0.0.1:{port}")
    with Server(tmp_path / "data", *shlex.split(line)):
        here, docker = ports.values()
        assert advertised(f"127.0.0.1:{here}") == ("127.0.0.1", here)
        assert advertised(f"127.0.0.1:{docker}") == ("host.docker.internal", 29092)


def test_the_services_beside_each_other_know_the_broker() -> None:
    services = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0])["services"]
    of_the_project = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["plog"]
    words = services["plog"]["command"]
    assert words == [word for word in of_the_project["command"] if word in words]
    assert services["plog"]["ports"] == of_the_project["ports"]
    inside = services["billing"]["environment"]["KAFKA_BOOTSTRAP_SERVERS"]
    assert f"--advertise=INSIDE://{inside}" in words
    topics = services["plog"]["environment"]["PLOG_TOPICS"].split(" ")
    assert [topic.partition(":")[0] for topic in topics] == ["orders", "audit"]


def test_resolve_goes_past_an_address_of_another_network() -> None:
    """What the page says of a Kafka that advertises the name of its container."""
    with running_broker(advertised_listeners="PLAINTEXT://kafka:9092") as broker:
        where = ["--bootstrap-server", broker.bootstrap_servers]
        assert run_plog("consume", "t", *where).returncode != 0
        assert run_plog("topic", "create", "t", *where, "--resolve", "bootstrap").returncode == 0
        assert run_plog("consume", "t", *where, "--resolve", "bootstrap").returncode == 0
