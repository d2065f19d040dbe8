"""A log to work on, as users have it: a server, or a directory alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import Installed
from tests.support.plog_forks import PlogForks
from tests.support.server import Server, call_plog


@pytest.fixture(scope="session")
def _only_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    never = ["--set", "log.retention.check.interval.ms=86400000"]  # records are of 2023
    settings = ["--set", "group.initial.rebalance.delay.ms=0", *never]
    with Server(tmp_path_factory.mktemp("shared") / "data", *settings) as server:
        yield server


@pytest.fixture
def shared_server(_only_server: Server) -> Iterator[Server]:
    """The server of all tests of this process. It begins without topics and groups; transactional ids stay."""
    yield _only_server
    options = ["--bootstrap-server", _only_server.address]
    for kind in ("topic", "group"):
        names = [line.split(",")[0] for line in ok(kind, "list", "--output", "csv", *options).decode().splitlines()[1:]]
        if names:
            ok(kind, "delete", *names, *options)


@pytest.fixture(params=["embedded", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The options that name a log without topics: a directory, or a server."""
    if request.param == "embedded":
        yield ["--data-dir", str(tmp_path / "data")]
        return
    server: Server = request.getfixturevalue("shared_server")
    yield ["--bootstrap-server", server.address]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """One for all processes of a run. Nobody changes what is in it."""
    base = tmp_path_factory.getbasetemp()
    installed = Installed((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installed")
    installed.make()
    return installed


@pytest.fixture(scope="session")
def forks() -> Iterator[PlogForks]:
    with PlogForks() as forks:
        yield forks


def ok(*arguments: str, stdin: bytes = b"") -> bytes:
    """What a command prints that must succeed."""
    done = call_plog(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
