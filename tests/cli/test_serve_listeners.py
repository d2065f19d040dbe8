"""`plog serve` with several listeners."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.for_each import for_each
from tests.support.server import Server, call_plog


@pytest.mark.longer
def test_clients_of_each_listener_get_its_address(tmp_path: Path) -> None:
    arguments = ["--listener", "INSIDE://127.0.0.1:0", "--listener", "OUTSIDE://127.0.0.1:0"]
    with Server(tmp_path / "data", *arguments, "--advertise", "OUTSIDE://localhost:0") as server:
        ready = re.search(r"ready (\S+) .* listeners INSIDE://(\S+),OUTSIDE://(\S+)\n", server.log.read_text())
        assert ready is not None
        first, inside, outside = ready.groups()
        assert first == inside == server.address
        assert told(inside) == [inside]
        assert told(outside) == [outside.replace("127.0.0.1", "localhost")]


def told(address: str) -> list[str]:
    done = call_plog("cluster", "brokers", "--bootstrap-server", address, "--output", "json")
    return [row["address"] for row in json.loads(done.stdout)]


@for_each(
    "arguments, message, hint",
    [
        (["--listen", ":1", "--listener", "A://:2"], "use one of them", "--listener PLAINTEXT://:1"),
        (["--listener", "127.0.0.1:1"], "'127.0.0.1:1' is no NAME://HOST:PORT", "INTERNAL://127.0.0.1:9093"),
        (["--listener", "A://:1", "--listener", "a://:2"], "A is there twice", "INTERNAL://"),
        (["--listener", "SSL://:1"], "asks for security", "--insecure-ignore-security"),
        (["--listener", "A://:1", "--listener", "B://:2", "--advertise", "h:3"],
         "--advertise h:3 does not say which listener it is for: A, B", "--advertise A://h:3"),
        (["--listener", "A://:1", "--advertise", "B://h:3"], "--advertise B://h:3: there is no such listener", "A"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, arguments: list[str], message: str, hint: str) -> None:
    done = call_plog("serve", "--data-dir", str(tmp_path / "data"), *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert hint in done.stderr.decode()
    assert not (tmp_path / "data").exists()
