from __future__ import annotations

import socket
from pathlib import Path

import pytest

from core.common.endpoint import Endpoint
from core.common.errors import AccessError, UsageError
from core.processes.free_port import ensure_free, find_free
from core.processes.local_cluster import ClusterAddresses, ClusterDirectory
from tests.support.for_each import for_each

A, B = Endpoint("127.0.0.1", 9092), Endpoint("::1", 9093)


@pytest.mark.parametrize("zookeeper", [None, A])
def test_it_remembers_where_they_listened(tmp_path: Path, zookeeper: Endpoint | None) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.read() == ((), None)
    directory.write(ClusterAddresses((A, B), zookeeper))
    assert ClusterDirectory(tmp_path).read() == ((A, B), zookeeper)


@pytest.mark.parametrize("text", ["brokers=a:b", "brokers=\nzookeeper=x:y", "brokers=127.0.0.1:9092,1:x"])
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.properties"
    path.write_text(text)
    with pytest.raises(UsageError, match=str(path)) as error:
        ClusterDirectory(tmp_path).read()
    assert "delete the file" in str(error.value.hint)
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=f"could not read {path}"):
        ClusterDirectory(tmp_path).read()


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = Endpoint("127.0.0.1", server.getsockname()[1])
        found = find_free(taken)
        assert found.port > taken.port
        assert find_free(taken, [found]).port > found.port
        with pytest.raises(AccessError, match=f"no port from {found.port} on is free"):
            find_free(found, [Endpoint(found.host, found.port + n) for n in range(100)])


@for_each(
    "host, hint",
    [
        ("192.0.2.1", "192.0.2.1 is no address of this machine: --listen 127.0.0.1:{port}"),
        ("127.0.0.1", "if another server listens there, take another port: --listen 127.0.0.1:{next}"),
    ],
)
def test_the_hint_fits_why_nobody_can_listen_there(host: str, hint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(AccessError, match=f"could not listen on {host}:{port}: ") as refused:
            ensure_free(Endpoint(host, port))
    assert refused.value.hint == hint.format(port=port, next=port + 1)


def test_a_name_that_nobody_knows_is_no_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def know_nothing(*_names: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", know_nothing)
    with pytest.raises(AccessError, match="could not listen on nonsense:9092: name or service not known") as refused:
        ensure_free(Endpoint("nonsense", 9092))
    assert refused.value.hint == "nonsense is no name that this machine knows: --listen 127.0.0.1:9092"
