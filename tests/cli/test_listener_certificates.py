"""The certificate of `plog serve`: stores that are bad at the start, and new ones while clients are at work."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.listener_security import find_listener_security
from core.files.tls_context import find_files
from core.security.principal_mapping import PrincipalMapping
from core.security.server_security import ClientAuth
from tests.support.certificates import Certificate, make_ca, sign
from tests.support.for_each import for_each
from tests.support.server import Server, call_plog
from tests.support.waiting import wait_until

CA = make_ca()
SERVER = sign(CA)
MARKED = "m4rked-pa55word"


def settings(folder: Path, **more: str) -> Path:
    """A broker's settings, whose certificate is in server.p12; what the client needs is beside it."""
    (folder / "server.p12").write_bytes(SERVER.pkcs12(MARKED))
    (folder / "ca.pem").write_text(CA.pem)
    alice = sign(CA, "alice")
    (folder / "client.pem").write_text(alice.key_pem() + alice.pem)
    lines = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "server.p12"),
        "ssl.keystore.password": MARKED,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    client = folder / "client.properties"
    client.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={folder}/ca.pem\nssl.keystore.location={folder}/client.pem\n"
    )
    client.chmod(0o600)
    return path


# --- at the start

BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (Path.unlink, "could not read {}: no such file or directory"),
    "empty": (lambda path: path.write_bytes(b""), "{} is empty"),
    "16 MB of zeros": (
        lambda path: path.write_bytes(bytes(16 << 20)),
        "{} is nothing that plog knows, expected PKCS12",
    ),
    "another password": (
        lambda path: path.write_bytes(SERVER.pkcs12("another")),
        "{} can't be read as PKCS12: the password is wrong, or it is damaged",
    ),
}


@for_each("what", BAD)
def test_a_bad_store_ends_the_start(tmp_path: Path, what: str) -> None:
    make, message = BAD[what]
    config, store, data = settings(tmp_path), tmp_path / "server.p12", tmp_path / "data"
    make(store)
    done = call_plog("serve", "--config", str(config), "--listener", "SSL://127.0.0.1:0", "--data-dir", str(data))
    assert done.returncode == 2
    said = done.stderr.decode()
    assert f"error: listener SSL://127.0.0.1:0, SSL: ssl.keystore.location: {message.format(store)}" in said
    assert MARKED not in said
    assert "Traceback" not in said


def test_the_settings_of_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "certificates.md").read_text()
    given = dict(re.findall(r"^    ([a-z.]+)=(.*)$", page, re.MULTILINE))
    files = {name: given.pop(f"listener.name.outside.ssl.{name}.location") for name in ("certificate", "key")}
    config = BrokerConfig.parse(given)
    assert not config.unknown
    inside, outside = (find_listener_security(config, listener) for listener in config.served_listeners)
    assert inside.tls is None
    assert outside.tls is not None
    assert outside.tls.client_auth is ClientAuth.REQUIRED
    assert PrincipalMapping(outside.tls.principal_mapping_rules).find_name("CN=Alice,OU=eng,O=plog") == "alice"
    assert list(find_files(outside.tls.tls)) == ["/etc/plog/clients-ca.pem", "/etc/plog/server.pem"]
    del given["listener.name.outside.ssl.keystore.type"], given["listener.name.outside.ssl.keystore.location"]
    config = BrokerConfig.parse(given | {f"ssl.{name}.location": path for name, path in files.items()})
    outside = find_listener_security(config, config.served_listeners[1])
    assert outside.tls is not None
    assert list(find_files(outside.tls.tls)) == ["/etc/plog/clients-ca.pem", *files.values()]


# --- while it runs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    arguments = ("--config", str(settings(tmp_path)), "--listener", "SSL://127.0.0.1:0", "--topic", "t")
    with Server(tmp_path / "data", *arguments) as running:
        yield running


def shown(server: Server) -> bytes:
    """What a new connection is shown."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(server.host_and_port))


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.pem)


class Load:
    """A producer that goes on until the block ends; its connection must stay."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._sent = self._delivered = 0
        self.errors: list[KafkaError] = []
        self.stats: dict[str, Any] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._producer = Producer(
            {
                "bootstrap.servers": server.address,
                "security.protocol": "ssl",
                "ssl.ca.location": str(folder / "ca.pem"),
                "ssl.certificate.location": str(folder / "client.pem"),
                "ssl.key.location": str(folder / "client.pem"),
                "acks": "all",
                "error_cb": self.errors.append,
                "statistics.interval.ms": 100,
                "stats_cb": lambda text: self.stats.update(json.loads(text)),
            }
        )

    def _run(self) -> None:
        while not self._ends.is_set():
            self._producer.produce("t", b"x" * 1000, on_delivery=self._on_delivery)
            self._sent += 1
            while len(self._producer) > 1000:
                self._producer.poll(0.1)
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _message: object) -> None:
        if error is None:
            self._delivered += 1

    def wait_for_more(self) -> None:
        least = self._delivered + 100
        wait_until(lambda: self._delivered >= least, lambda: str(self.errors))

    def __enter__(self) -> Load:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush() == 0
        assert self._delivered == self._sent

    @property
    def disconnects(self) -> int:
        return sum(int(broker["disconnects"]) for broker in self.stats["brokers"].values())


@pytest.mark.longer
def test_a_certificate_is_replaced_while_a_client_produces(server: Server, tmp_path: Path) -> None:
    assert shown(server) == der(SERVER)
    with Load(server, tmp_path) as load:
        for _ in range(3):
            new = sign(CA)
            store, whole = tmp_path / "server.p12", new.pkcs12(MARKED)
            with store.open("wb") as file:  # in two halves, as a copy is
                file.write(whole[: len(whole) // 2])
                file.flush()
                load.wait_for_more()
                file.write(whole[len(whole) // 2 :])
            wait_until(lambda new=new: shown(server) == der(new), server.log.read_text)  # type: ignore[misc]
            load.wait_for_more()
        store.write_bytes(b"broken")
        wait_until(lambda: "keeps its certificate" in server.log.read_text(), server.log.read_text)
        load.wait_for_more()
        assert shown(server) == der(new)
        wait_until(lambda: bool(load.stats), str)
        assert load.disconnects == 0
        assert load.errors == []
    log = server.log.read_text()
    assert log.count("shows another certificate from now on: CN=server") == 3
    assert MARKED not in log


@pytest.mark.longer
def test_a_certificate_is_replaced_by_a_setting(server: Server, tmp_path: Path) -> None:
    where = ("--bootstrap-server", server.address, "--command-config", str(tmp_path / "client.properties"))
    new, other = sign(CA), sign(CA, "mallory")
    for name, one in (("new", new), ("other", other)):
        (tmp_path / f"{name}.p12").write_bytes(one.pkcs12(MARKED))

    def alter(name: str) -> tuple[int, str]:
        change = f"listener.name.ssl.ssl.keystore.location={tmp_path}/{name}.p12"
        done = call_plog("config", "alter", "broker", "1", "--set", change, *where)
        return done.returncode, done.stderr.decode()

    assert alter("new")[0] == 0
    wait_until(lambda: shown(server) == der(new), server.log.read_text)
    for name, why in (("other", "the new certificate is of CN=mallory"), ("none", "no such file or directory")):
        code, said = alter(name)
        assert code == 1
        assert why in said
        assert MARKED not in said
    assert shown(server) == der(new)
    done = call_plog("cert", "show", server.address, "--command-config", str(tmp_path / "client.properties"))
    assert done.returncode == 0
    assert "is trusted by the settings given" in done.stderr.decode()
