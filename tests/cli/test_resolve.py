"""`--resolve`: a server whose advertised name is unknown here is reached through a port-forward, by every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.testing import running_broker
from tests.crash.chaos.proxy import Proxy
from tests.support.certificates import make_ca, sign
from tests.support.for_each import for_each
from tests.support.secured_commands import commands_with_a_server, lines, plog
from tests.support.secured_door import secured_door, server_context

NAME = "kafka-0.kafka-headless.ns.svc.cluster.local"


@pytest.fixture(scope="module")
def forward() -> Iterator[str]:
    """A port that is forwarded to a broker, which advertises a name of its own network."""
    with running_broker(advertised_listeners=f"PLAINTEXT://{NAME}:9092") as broker, Proxy(0) as proxy:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        proxy.target = host, int(port)
        plog("topic", "create", "t", "--bootstrap-server", proxy.address)
        yield proxy.address


def test_without_it_the_pair_to_type_is_named(forward: str) -> None:
    _, told = plog("produce", "t", "--bootstrap-server", forward, stdin=b"a\n", code=3)
    assert f"could not connect to {NAME}:9092: " in told
    assert f"--resolve bootstrap, or --resolve {NAME}:9092=HOST:PORT\n" in told


@for_each("pairs", ["bootstrap", f"{NAME}:9092={{0}}", f"{NAME.upper()}.={{0}}"])
def test_the_pair_of_the_hint_leads_to_the_broker(pairs: str, forward: str) -> None:
    where = ["--bootstrap-server", forward, "--resolve", pairs.format(forward)]
    told = plog("produce", "t", *where, stdin=b"a\n")[1]
    assert "note:" not in told
    assert plog("consume", "t", "--from", "-1", *where) == (b"a\n", "")
    assert plog("consume", "t", "--group", "g", "--max-messages", "1", *where)[0] == b"a\n"


def test_the_bootstrap_server_may_be_the_advertised_name(
    forward: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a profile of the cluster is the same inside its network and outside, but for the pair."""
    monkeypatch.setenv("PLOG_RESOLVE", f"{NAME}:9092={forward}")
    assert b"t\n" in plog("topic", "describe", "t", "--output", "csv", "--bootstrap-server", NAME)[0].replace(
        b",", b"\n"
    )
    monkeypatch.delenv("PLOG_RESOLVE")
    config = tmp_path / "config.toml"
    config.write_text(f"[profile.p.default]\nbootstrap-server = '{NAME}'\nresolve = '{NAME}={forward}'\n")
    monkeypatch.setenv("PLOG_CONFIG", str(config))
    rows = json.loads(plog("--profile", "p", "cluster", "status", "--output", "json")[0])
    assert [(row["listeners"], row["state"]) for row in rows] == [([f"{NAME}:9092"], "reachable")]
    assert plog("topic", "list", "--data-dir", str(tmp_path / "d"), code=3)[1].count("resolve") == 0


def test_what_the_pairs_do_not_do_is_said(forward: str, tmp_path: Path) -> None:
    where = ["--bootstrap-server", forward]
    told = plog("consume", "t", *where, "--resolve", f"{NAME}:9092=127.0.0.1:1", code=3)[1]
    assert f"could not connect to {NAME}:9092 (at 127.0.0.1:1): connection refused" in told
    assert "is the port forwarded to which --resolve leads" in told
    told = plog("consume", "t", *where, "--resolve", "kafka-1:9092=127.0.0.1:1", code=3)[1]
    assert f"--resolve {NAME}:9092=HOST:PORT\n" in told
    assert f"note: --resolve kafka-1:9092 was not needed: the servers advertise {NAME}:9092\n" in told
    twice = f"{NAME}:9092={forward},x:1={forward}"
    told = plog("topic", "list", *where, "--resolve", twice)[1]
    assert f"warning: --resolve leads from several addresses to {forward}" in told
    assert "note: --resolve x:1 was not needed" in told
    plog("topic", "create", "u", "--data-dir", str(tmp_path / "d"))
    told = plog("topic", "list", "--data-dir", str(tmp_path / "d"), "--resolve", "bootstrap")[1]
    assert told == "note: --resolve changes nothing here: no server was asked\n"
    assert "expected HOST:PORT=HOST:PORT" in plog("topic", "list", *where, "--resolve", "kafka", code=2)[1]


@pytest.mark.longer
def test_every_command_and_tls_checks_the_advertised_name(tmp_path: Path) -> None:
    ca = make_ca()
    (tmp_path / "ca.pem").write_text(ca.pem)
    context = server_context(*map(str, sign(ca, names=(NAME,)).write(tmp_path, "server")))
    with secured_door(context=context, advertised=f"{NAME}:9092") as door:
        config = tmp_path / "client.properties"
        config.write_text(
            f"security.protocol=SSL\nssl.truststore.location={tmp_path / 'ca.pem'}\nssl.truststore.type=PEM\n"
            f"bootstrap.servers={NAME}\n"
        )
        where = ("--command-config", config, "--resolve", f"{NAME}:9092={door.address}")
        asked = lines("life", f"{NAME}:9092", tmp_path, has_tls=True)
        assert {line.path for line in asked} == commands_with_a_server()
        for line in asked:
            shown, told = plog(*line.path, *line.arguments, *where, stdin=line.stdin, code=line.code)
            assert line.shows in shown, (line, told)
            assert "not needed" not in told, line
        for name in ("other.svc", "127.0.0.1"):
            other = ("-X", f"bootstrap.servers={name}:9092", "--resolve", f"{name}:9092={door.address}")
            told = plog("topic", "list", "--command-config", config, *other, code=3)[1]
            assert f"the certificate of {name}:9092 (at {door.address}) is not good: it is not for {name}" in told
