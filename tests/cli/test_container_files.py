"""Dockerfile, compose.yaml and action.yml: no container is run here, so their steps are, in a fresh environment."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.endpoint import Endpoint
from core.processes.free_port import ensure_free
from core.protocol.schema.metadata import METADATA, MetadataRequest
from plog.testing import running_broker
from tests.support.installed import ROOT, Installed
from tests.support.server import Server
from tests.support.waiting import wait_for_exit

pytestmark = pytest.mark.longer


@pytest.fixture(scope="module")
def dockerfile() -> list[tuple[str, str]]:
    """Its instructions, in order."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def last(dockerfile: list[tuple[str, str]], instruction: str) -> str:
    return [rest for name, rest in dockerfile if name == instruction][-1]


def test_what_the_build_of_the_image_sees_is_enough(tmp_path: Path, dockerfile: list[tuple[str, str]]) -> None:
    """`COPY . /src` takes what .dockerignore leaves; pip builds the wheel of that."""
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    for name in (line.removeprefix("!") for line in lines if line.startswith("!")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", ROOT / name, tmp_path / name], check=True)
    assert ("COPY", ". /src") in dockerfile
    assert (tmp_path / "requirements-image.lock").exists()
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", tmp_path]
    subprocess.run(command, check=True, capture_output=True)


def test_the_container_serves_is_healthy_and_stops(
    installed: Installed, tmp_path: Path, dockerfile: list[tuple[str, str]]
) -> None:
    assert last(dockerfile, "USER") == "plog"
    entrypoint = json.loads(last(dockerfile, "ENTRYPOINT"))
    command = json.loads(last(dockerfile, "CMD"))
    check = json.loads(last(dockerfile, "HEALTHCHECK").partition("CMD ")[2])
    command[command.index("--listen") + 1] = "127.0.0.1:0"
    command[command.index("--advertise") + 1] = "kafka.invalid:9092"  # which a container need not reach to be healthy
    environment = {**installed.environment, "PLOG_DATA_DIR": str(tmp_path / "data")}
    server = Server(tmp_path / "data", command=[installed.bin / entrypoint[0], *command], environment=environment)
    with server:
        check[-1] = server.address
        assert subprocess.run([installed.bin / check[0], *check[1:]], capture_output=True, check=False).returncode == 0
        assert server.process is not None
        server.process.send_signal(getattr(signal, last(dockerfile, "STOPSIGNAL")))
        assert wait_for_exit(server.process) == 0
        assert subprocess.run([installed.bin / check[0], *check[1:]], capture_output=True, check=False).returncode == 3


def test_the_services_of_compose_are_commands_of_ours(installed: Installed) -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert set(compose["volumes"]) == {"plog-data"}
    for service in compose["services"].values():
        words = service["command"]
        verbs = words[: next(i for i, word in enumerate(words) if word.startswith("--"))]
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        command = verbs[:2] if verbs[0] == "topic" else verbs[:1]
        listed = installed.run("plog", *command, "--help").stdout.decode()
        assert options <= set(re.findall(r"--[a-z-]+", listed))


def test_compose_tells_each_client_what_it_can_reach() -> None:
    """Inside, the name of the service; on the host, the port that is published. No container is run: the broker listens
    on this machine's own ports instead.
    """
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    words = [word.split("=", 1) for word in services["plog"]["command"] if "://" in word]
    listeners = {word.partition("://")[0]: word.partition("://")[2] for option, word in words if option == "--listener"}
    advertised = [word for option, word in words if option == "--advertise"]
    assert listeners == {"INSIDE": "0.0.0.0:29092", "OUTSIDE": "0.0.0.0:9092"}
    assert services["plog"]["ports"] == ["127.0.0.1:9092:9092"]
    ports = {name: ensure_free(Endpoint("127.0.0.1", 0)).port for name in listeners}
    with running_broker(
        listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        advertised_listeners=",".join(advertised),
        listener_security_protocol_map=",".join(f"{name}:PLAINTEXT" for name in ports),
    ):
        for name, told in (("INSIDE", ("plog", 29092)), ("OUTSIDE", ("localhost", 9092))):
            with closing(ClientConnection(SocketTransport("127.0.0.1", ports[name]))) as connection:
                (broker,) = connection.call(METADATA, MetadataRequest([])).brokers
            assert (broker.host, broker.port) == told
    assert "--topic=orders:4" in services["plog"]["command"]


class Runner:
    """What GitHub does with a composite action: inputs and conditions put in, steps in bash, files for variables."""

    def __init__(self, installed: Installed, folder: Path) -> None:
        self._installed = installed
        self._folder = folder
        self.temp = folder / "runner's own"
        self.temp.mkdir()
        self._action = yaml.safe_load((ROOT / "action.yml").read_text())
        self.uploaded: dict[str, Any] | None = None

    def use(self, **given: str) -> dict[str, str]:
        """Runs the steps; gives the variables that they set. The step that installs plog is passed over."""
        assert set(given) <= {name.replace("-", "_") for name in self._action["inputs"]}
        inputs = {
            name: given.get(name.replace("-", "_"), str(one["default"])) for name, one in self._action["inputs"].items()
        }
        variables, path, outputs = (self._folder / name for name in ("env", "path", "outputs"))
        variables.write_text("")
        outputs.write_text("")
        for step in self._action["runs"]["steps"]:
            wanted = {"== 'true'": "true", "!= 'true'": "false"}[step["if"].removeprefix("inputs.report ")]
            if inputs["report"] != wanted:
                continue
            if "uses" in step:
                known = inputs | dict(line.split("=", 1) for line in outputs.read_text().splitlines())
                self.uploaded = {key: self._filled(value, known) for key, value in step["with"].items()}
            elif "pip" not in step["run"]:
                environment = {key: self._filled(value, inputs) for key, value in step["env"].items()}
                files = {
                    "GITHUB_ENV": variables,
                    "GITHUB_PATH": path,
                    "GITHUB_OUTPUT": outputs,
                    "RUNNER_TEMP": self.temp,
                }
                with (self._folder / "output").open("ab") as output:
                    done = subprocess.run(
                        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], check=False,
                        env={**self._installed.environment, **environment, **files}, stdout=output, stderr=output,
                    )  # fmt: skip
                assert done.returncode == 0, (self._folder / "output").read_text()
        return dict(line.split("=", 1) for line in variables.read_text().splitlines())

    @staticmethod
    def _filled(value: str, inputs: dict[str, str]) -> str:
        return re.sub(r"\$\{\{ (?:inputs|steps\.report\.outputs)\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)


@pytest.mark.parametrize("is_named", [False, True], ids=["runner.temp", "data-dir"])
def test_the_action_starts_seeds_and_reports(installed: Installed, tmp_path: Path, *, is_named: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    seed = tmp_path / "orders.ndjson"
    seed.write_text("one\ntwo\n")
    runner = Runner(installed, tmp_path)
    data = tmp_path / "data" if is_named else runner.temp / "plog-data"
    named = {"data_dir": str(data)} if is_named else {}
    variables = runner.use(
        port=port, topics="orders:2 customers:1", seed=f"orders={seed}", settings="num.partitions=3", **named
    )
    address = variables["KAFKA_BOOTSTRAP_SERVERS"]
    try:
        read = installed.run("plog", "consume", "orders", "--bootstrap-server", address).stdout
        assert sorted(read.split()) == [b"one", b"two"]
    finally:
        runner.use(report="true", **named)
    assert installed.run("plog", "topic", "list", "--bootstrap-server", address, expect=3)
    assert runner.uploaded is not None
    for path in runner.uploaded["path"].splitlines():
        assert Path(path).exists()
    assert (data / "orders-1").is_dir()
    (noted,) = runner.temp.glob("*.pid")
    assert not Path("/proc", noted.read_text().strip()).exists()
    with subprocess.Popen(["sleep", "600"]) as another:  # which has that id by now
        noted.write_text(f"{another.pid}\n")
        runner.use(report="true", **named)
        assert another.poll() is None
        another.kill()
