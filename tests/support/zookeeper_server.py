"""A real Apache ZooKeeper, of PySpark's jars, and what happens to it: kills, pauses, sessions that expire."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.common.endpoint import Endpoint
from core.processes.process_group import ProcessGroup
from core.processes.zookeeper_process import ZooKeeperProcess
from core.zookeeper.zookeeper_config import ZooKeeperConfig, parse_zookeeper_connect
from core.zookeeper.zookeeper_session import ZooKeeperSession
from tests.support.class_archives import quick_options
from tests.support.waiting import ANSWER_SECONDS

if TYPE_CHECKING:
    from kazoo.client import KazooClient

requires_zookeeper = pytest.mark.skipif(
    find_spec("pyspark") is None or find_spec("kazoo") is None, reason="the extras spark and cluster are not installed"
)

SESSION_TIMEOUT_MS = 6000
_SESSION_S = 30.0
"""Of other clients than ours."""


_LOGIN = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret"; };'
_SETTINGS = {"tickTime": "500", "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}


class ZooKeeperServer:
    """Started by `with`; `address` is what clients connect to, the same after a kill and a start. SASL knows one user,
    kafka, with the password secret; who does not log in may connect as well.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._group = ProcessGroup()
        self._process = self._make(Endpoint("127.0.0.1", 0))

    def _make(self, endpoint: Endpoint) -> ZooKeeperProcess:
        login = self._directory.with_name(f"{self._directory.name}.jaas")
        login.write_text(_LOGIN)
        options = (*quick_options(), f"-Djava.security.auth.login.config={login}")
        return ZooKeeperProcess(self._directory, endpoint, group=self._group, settings=_SETTINGS, java_options=options)

    def start(self) -> None:
        """Returns when it answers."""
        self._process = self._make(self._process.endpoint)
        self._process.start()
        self._process.wait_until_ready()

    @property
    def address(self) -> str:
        return str(self._process.endpoint)

    def stop(self) -> None:
        self._process.stop()
        self._group.__exit__()

    def kill(self) -> None:
        """As a crash does it."""
        self._process.signal(signal.SIGKILL)
        self._process.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It says nothing meanwhile, and its connections stay open."""
        self._process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal(signal.SIGCONT)

    @contextmanager
    def client(self, **options: object) -> Iterator[KazooClient]:
        """Another client than ours, connected."""
        from kazoo.client import KazooClient

        client = KazooClient(hosts=self.address, timeout=_SESSION_S, **options)
        client.start(ANSWER_SECONDS)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def expire(self, session: ZooKeeperSession) -> None:
        """Ends a session from outside: by a client that says it has it, and closes it."""
        with self.client(client_id=session._client.client_id):
            pass

    def config(self, chroot: str = "", **options: object) -> ZooKeeperConfig:
        servers, _ = parse_zookeeper_connect(self.address)
        return ZooKeeperConfig(servers, chroot, **{"session_timeout_ms": SESSION_TIMEOUT_MS, **options})  # type: ignore[arg-type]

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
