"""Names that no host can have: a sentence and exit code 3, whoever says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.for_each import for_each
from tests.support.server import Server, call_plog

NAMES = ["a..b", ".example.com", "x" * 64 + ".example", "ä..example"]


@for_each("name", NAMES)
@for_each(
    "arguments",
    [
        ("topic", "list", "--bootstrap-server", "HOST:9092"),
        ("consume", "t", "--bootstrap-server", "HOST:9092"),
        ("cert", "show", "HOST:9093"),
        ("serve", "--listen", "HOST:9092", "--data-dir", "DIR"),
        ("serve", "--listen", "127.0.0.1:0", "--metrics-listen", "HOST:9092", "--data-dir", "DIR"),
    ],
)
def test_a_name_that_is_typed(tmp_path: Path, name: str, arguments: tuple[str, ...]) -> None:
    done = call_plog(*(one.replace("HOST", name).replace("DIR", str(tmp_path / "data")) for one in arguments))
    assert done.returncode == 3, done.stderr
    assert b"no host can have that name" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize("address", ["a..b:9092", "x" * 64 + ".example:9092"])
def test_a_name_that_a_server_advertises(tmp_path: Path, address: str) -> None:
    with Server(tmp_path / "data", "--advertise", address) as server:
        assert call_plog("topic", "create", "t", "--bootstrap-server", server.address).returncode in (0, 3)
        done = call_plog("consume", "t", "--bootstrap-server", server.address)
    assert done.returncode == 3, done.stderr
    assert f"could not connect to {address}: no host can have that name".encode() in done.stderr
