"""franz-go and kafkajs on `plog serve`: produce, consume, a group with a rebalance, resume after a restart, administer.

Their programs are in `go/` and `js/`; what these need is fetched from the Go proxy and from npm at the first use on a
machine. Skipped where there is no Go or no Node.js.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.oracle import CACHE
from tests.support.server import Server
from tests.support.ways_in import environment

_HERE = Path(__file__).resolve().parent


def _place(folder: Path, files: list[str]) -> Path:
    """Where what is made of the files is kept: another place for other files."""
    checksum = 0
    for name in files:
        checksum = zlib.crc32((folder / name).read_bytes(), checksum)
    return CACHE / f"{folder.name}-{checksum:08x}"


@cache
def go_client() -> list[str]:
    """The program, built at the first use."""
    folder = _HERE / "go"
    program = _place(folder, ["main.go", "copy.go", "secured.go", "go.mod", "go.sum"])
    if not program.exists():
        beside = program.with_name(f"{program.name}.{os.getpid()}")
        subprocess.run(["go", "build", "-o", beside, "."], cwd=folder, check=True)
        beside.rename(program)
    return [str(program)]


@cache
def js_client() -> list[str]:
    """The program beside its modules, installed at the first use."""
    folder = _HERE / "js"
    files = ["client.js", "package.json", "package-lock.json"]
    place = _place(folder, files)
    if not place.exists():
        beside = place.with_name(f"{place.name}.{os.getpid()}")
        beside.mkdir(parents=True)
        for name in files:
            shutil.copy(folder / name, beside)
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=beside, check=True)
        try:
            beside.rename(place)
        except OSError:  # another process was faster
            shutil.rmtree(beside)
    return ["node", str(place / "client.js")]


def call(client: list[str], phase: str, server: Server) -> dict[str, Any]:
    variables = {**os.environ, **environment(server.address)}
    done = subprocess.run([*client, phase, server.address], capture_output=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "data", "--set", "group.initial.rebalance.delay.ms=0")


needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="no Go on the PATH")
needs_node = pytest.mark.skipif(shutil.which("npm") is None, reason="no Node.js on the PATH")


@needs_go
def test_franz_go(server: Server) -> None:
    with server:
        use_franz_go(server)


def use_franz_go(server: Server) -> None:
    everything = sorted(f"{codec}-{n}" for codec in ("none", "gzip", "snappy", "lz4", "zstd") for n in range(100))
    seen = call(go_client(), "first", server)
    assert seen["values"] == everything
    joined = seen["rebalance"]["joined"]
    assert seen["rebalance"] == {"alone": 3, "joined": joined, "left": 3 - joined, "again": 3}
    assert seen["committed"] == 200
    server.stop()
    server.start()
    seen = call(go_client(), "second", server)
    assert seen["admin"] == {
        "segment.ms": "777", "ends": 500, "state": "Empty", "lag": 300, "brokers": 1, "partitions": 4
    }  # fmt: skip
    assert len(seen["rest"]) == len(set(seen["rest"])) == 300
    assert set(seen["rest"]) <= set(everything)


@needs_node
def test_kafkajs(server: Server) -> None:
    with server:
        use_kafkajs(server)


def use_kafkajs(server: Server) -> None:
    everything = sorted(f"{codec}-{n}" for codec in ("none", "gzip") for n in range(100))
    seen = call(js_client(), "first", server)
    assert seen["values"] == everything
    joined = seen["rebalance"]["joined"]
    assert seen["rebalance"] == {"alone": 3, "joined": joined, "left": 3 - joined, "again": 3}
    assert seen["committed"] == 80
    server.stop()
    server.start()
    seen = call(js_client(), "second", server)
    assert seen["admin"] == {
        "segment.ms": "777", "ends": 200, "state": "Empty", "committed": 80, "listed": True, "brokers": 1,
        "partitions": 4,
    }  # fmt: skip
    assert len(seen["rest"]) == len(set(seen["rest"])) == 120
    assert set(seen["rest"]) <= set(everything)
