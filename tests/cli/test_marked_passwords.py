"""Passwords with a mark in them go the whole way: a broker's settings, users, clients. Nothing shows one."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.server import PLOG, Server, call_plog

pytestmark = pytest.mark.longer

MARK = b"M4rk3d"
ALICE, BOB, STORE, SET, WRONG = (f"M4rk3d-{name}" for name in ("alice", "bob", "store", "set", "wrong"))


def test_no_output_and_no_log_has_one(tmp_path: Path) -> None:
    server = write_settings(tmp_path)
    shown: list[tuple[object, bytes]] = []
    environment = {**os.environ, "BOB": BOB, "WRONG": WRONG, "PLOG_CONFIG": ""}

    def plog(*arguments: str, code: int = 0, stdin: bytes = b"") -> bytes:
        """A process of its own, whose traceback is shown as well."""
        command = [str(PLOG), "--debug", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)
        assert done.returncode == code, (arguments, done.stderr)
        shown.append((arguments, done.stdout + done.stderr))
        return done.stdout + done.stderr

    data = ("--data-dir", str(tmp_path / "data"))
    with Server(
        tmp_path / "data", "--config", str(server), "--log-requests", "--metrics-listen", "127.0.0.1:0"
    ) as broker:
        plog("config", "alter", "broker-logger", "1", "--set", "plog.authorizer=DEBUG", *data)
        plog("user", "create", "bob", "--password-stdin", *data, stdin=BOB.encode())
        alice = ("--bootstrap-server", broker.address, "--command-config", str(tmp_path / "certs/client.properties"))
        scram = ("-X", "sasl.mechanisms=SCRAM-SHA-512", "-X", "sasl.username=bob")
        bob = ("--bootstrap-server", broker.address, "--command-config", str(tmp_path / "certs/kcat.conf"), *scram)
        plog("topic", "create", "t", *alice)
        plog("produce", "t", *bob, "-X", "sasl.password=${env:BOB}", stdin=b"x\n")
        plog("config", "describe", "broker", "1", "--all", *alice)
        plog("config", "describe", "broker", "1", "--all", "--output", "json", *data)
        key = "listener.name.sasl_ssl.plain.sasl.jaas.config"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        (tmp_path / "set").write_text(f'{module} username="alice" password="{ALICE}" user_alice="{SET}";')
        plog("config", "alter", "broker", "1", "--set", f"{key}=${{directory:{tmp_path}:set}}", *data)
        assert b"SASL_AUTHENTICATION_FAILED" in plog("topic", "list", *alice, code=1)
        assert b"SASL_AUTHENTICATION_FAILED" in plog("topic", "list", *bob, "-X", "sasl.password=${env:WRONG}", code=1)
        plog("config", "describe", "broker", "1", *data)
        plog("user", "list", "--output", "json", *data)
        plog("doctor", str(tmp_path / "data"))
        log = broker.log.read_text()
        metrics = log.partition(" metrics ")[2].split()[0]
        with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
            shown.append(("metrics", answer.read()))
        shown.append(("ps", subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True).stdout))
    for segment in (tmp_path / "data").glob("__cluster_metadata-0/*.log"):
        plog("dump-segment", str(segment))
        plog("dump-segment", str(segment), "--format", "ndjson")
    plog("verify", str(tmp_path / "data"), "--deep")
    shown.append(("broker.log", broker.log.read_bytes()))
    assert [what for what, text in shown if MARK in text] == []


def write_settings(folder: Path) -> Path:
    """Those of `plog cert dev`, with passwords that have a mark."""
    done = call_plog("cert", "dev", "--out", str(folder / "certs"), "--protocol", "sasl_ssl", "--user", "alice")
    assert done.returncode == 0, done.stderr
    kcat = (folder / "certs" / "kcat.conf").read_text()
    made = kcat.partition("sasl.password=")[2].strip()
    for file in ("server.properties", "client.properties", "kcat.conf"):
        path = folder / "certs" / file
        path.write_text(path.read_text().replace(made, ALICE))
    server = folder / "certs" / "server.properties"
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    store = folder / "certs" / "server.p12"
    key, certificate, others = pkcs12.load_key_and_certificates(store.read_bytes(), b"changeit")
    encryption = BestAvailableEncryption(STORE.encode())
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"key", key, certificate, others, encryption))
    server.write_text(server.read_text().replace("changeit", STORE))
    return server
