"""docs/kubernetes.md: its sessions, typed as they stand there, with a stand-in for kubectl and brokers named like pods;
and its manifest, run as a process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cli.test_runbook import free_tens
from tests.support.free_ports import free_ports
from tests.support.server import PLOG, Server, run_plog
from tests.support.shown_session import ShownCommand, read_session
from tests.support.terminal import Terminal
from tests.support.zookeeper_server import ZooKeeperServer, requires_zookeeper

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
STAND_IN = ROOT / "tests" / "support" / "port_forward.py"
COLUMNS = 118
BROKER = "my-cluster-kafka-{}.my-cluster-kafka-brokers.kafka.svc:9092"


@pytest.mark.java
@requires_zookeeper
def test_what_the_page_shows_is_so(zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path) -> None:
    """A session uses 9092 and the ports from 32400 on; here others, which are free."""
    tens = free_tens()
    lone, *ports = free_ports(4)
    pods = {f"pod/my-cluster-kafka-{number}": port for number, port in enumerate(ports)}
    names = {"service/kafka": lone, "service/my-cluster-kafka-bootstrap": ports[1], **pods}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    (tmp_path / "bin" / "kubectl").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{PLOG.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PORT_FORWARDS": json.dumps(names),
    }

    def here(text: str) -> str:
        text = text.replace("localhost:9092", f"localhost:{tens}0").replace("32400", f"{tens}1")
        return re.sub(r"(service/\S+) 9092 ", rf"\1 {tens}0:9092 ", text)

    with ExitStack() as stack:
        own = ["--listen", f"127.0.0.1:{lone}", "--advertise", "kafka.dev.svc:9092"]
        stack.enter_context(Server(tmp_path / "lone", *own))
        for number, port in enumerate(ports):
            joined = ["--zookeeper", zookeeper.address + chroot, "--new-cluster", "--node-id", str(number)]
            listeners = ["--listener", "INSIDE://127.0.0.1:0", "--listener", f"OUTSIDE://127.0.0.1:{port}"]
            reached = [
                "--advertise",
                f"OUTSIDE://{BROKER.format(number)}",
                "--set",
                "inter.broker.listener.name=INSIDE",
            ]
            stack.enter_context(Server(tmp_path / f"b{number}", *joined, *listeners, *reached))
        terminal = stack.enter_context(Terminal(tmp_path, environment, COLUMNS))
        shown = read_session(PAGE)
        assert len(shown) > 10
        for command in shown:
            typed = ShownCommand(here(command.command), tuple(here(line) for line in command.lines))
            assert typed.type(terminal) == ""


def test_the_manifest_runs(tmp_path: Path) -> None:
    service, deployment = yaml.safe_load_all(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0])
    pod = deployment["spec"]["template"]
    labels = [service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]]
    assert labels == [{"app": "kafka"}] * 3
    (container,) = pod["spec"]["containers"]
    port = container["ports"][0]["containerPort"]
    assert service["spec"]["ports"] == [{"port": port}]
    assert container["readinessProbe"]["tcpSocket"]["port"] == port
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"--uid {pod['spec']['securityContext']['runAsUser']} " in dockerfile
    assert f'PLOG_DATA_DIR="{container["volumeMounts"][0]["mountPath"]}"' in dockerfile
    verb, listen, *rest = (argument.replace("$(NAMESPACE)", "dev") for argument in container["args"])
    assert (verb, listen) == ("serve", f"--listen=0.0.0.0:{port}")
    with Server(tmp_path / "data", *rest) as server:
        reached = ["--bootstrap-server", server.address, "--resolve", f"kafka.dev.svc:{port}={server.address}"]
        listed = run_plog("topic", "list", "--output", "csv", *reached)
        assert listed.stdout == b"topic,partitions\naudit,1\norders,6\n"
        assert run_plog("consume", "orders", *reached).returncode == 0
