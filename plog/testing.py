"""A Kafka for tests, started in a fraction of a second: in this process, or as a process of its own.

    from plog.testing import running_broker

    with running_broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

In pytest the fixtures of `plog.pytest_plugin` do it. For tests in other languages: `plog serve --ephemeral --listen
127.0.0.1:0` prints `ready HOST:PORT` when clients may connect.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import AccessError, KafkaError

if TYPE_CHECKING:
    from core.broker.broker_config import BrokerConfig
    from core.broker.loop_runtime import LoopRuntime
    from core.broker.node import Node
    from core.broker.socket_server import SocketServer

__all__ = ["AccessError", "KafkaError", "RunningBroker", "running_broker", "running_server"]

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that clients may connect to; `data_dir` is where its files are. `client_settings`, by the names of
    Kafka's client.properties, say how it is reached if it needs TLS or SASL; `${env:NAME}` is replaced in them.
    """

    bootstrap_servers: str
    data_dir: Path
    client_settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Makes a topic; `configs` by Kafka's names, with _ for a dot. Topics that a producer or consumer asks for are
        made as well, with one partition. Raises KafkaError if the broker refuses.
        """
        from core.client.admin import Admin
        from core.client.client_config import replace_references
        from core.client.kafka_client import KafkaClient
        from core.common.endpoint import parse_bootstrap
        from core.security.client_settings import parse_client_settings

        settings = replace_references(self.client_settings, "client_settings")
        security = parse_client_settings(settings).security
        client = KafkaClient(parse_bootstrap(self.bootstrap_servers, security.protocol), security=security)
        try:
            named = {key.replace("_", "."): value for key, value in configs.items()}
            Admin(client).create_topic(name, partitions=partitions, configs=named)
        finally:
            client.close()


@contextmanager
def running_broker(data_dir: Path | str | None = None, **settings: str) -> Iterator[RunningBroker]:
    """Runs a broker in a thread of this process. `settings` are the broker's, with _ for a dot; without a `data_dir` it
    gets one that is deleted at the end.

    Raises AccessError if the directory can't be used, KafkaError for settings that are none.
    """
    from core.broker.broker_config import EPHEMERAL_SETTINGS, BrokerConfig

    config = BrokerConfig.parse({**EPHEMERAL_SETTINGS, **_named(settings)})
    with _directory(data_dir) as directory:
        thread = _BrokerThread(directory, config)
        thread.start()
        try:
            yield RunningBroker(thread.wait_until_ready(), directory)
        finally:
            thread.stop()


@contextmanager
def running_server(data_dir: Path | str | None = None, **settings: str) -> Iterator[RunningBroker]:
    """Runs `plog serve` as a process of its own. Raises RuntimeError, with what it said, if it does not start."""
    from core.broker.broker_config import EPHEMERAL_SETTINGS

    with _directory(data_dir) as directory, tempfile.TemporaryDirectory(prefix="plog-server-") as beside:
        ready, log = Path(beside, "ready"), Path(beside, "log")
        options = [f"--set={key}={value}" for key, value in {**EPHEMERAL_SETTINGS, **_named(settings)}.items()]
        command = [sys.executable, "-m", "plog", "serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0"]
        command += ["--lock-timeout", "0"]
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, "--ready-file", str(ready), *options], stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"plog serve did not start: {log.read_text()}")
                time.sleep(0.005)
            yield RunningBroker(ready.read_text().strip(), directory)
        finally:
            process.terminate()
            process.wait()


def _named(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): str(value) for key, value in settings.items()}


@contextmanager
def _directory(data_dir: Path | str | None) -> Iterator[Path]:
    if data_dir is not None:
        yield Path(data_dir)
        return
    temporary = Path(tempfile.mkdtemp(prefix="plog-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _BrokerThread(threading.Thread):
    """Runs a broker and its loop; `stop` returns when all of it is on the disk."""

    def __init__(self, directory: Path, config: BrokerConfig) -> None:
        super().__init__(name="plog-broker", daemon=True)
        self._directory = directory
        self._config = config
        self._is_decided = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: SocketServer | None = None

    def run(self) -> None:
        from core.broker.event_loop import new_runner
        from core.broker.loop_runtime import LoopRuntime
        from core.broker.node import Node

        try:
            with new_runner() as runner:
                runtime = LoopRuntime(runner.get_loop(), self._directory)
                node = Node(self._directory, self._config, runtime=runtime)
                try:
                    runner.run(self._serve(node, runtime))
                finally:
                    node.close()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._failure = error
        finally:
            self._is_decided.set()

    async def _serve(self, node: Node, runtime: LoopRuntime) -> None:
        from core.broker.socket_server import SocketServer
        from core.common.endpoint import Endpoint

        server = SocketServer(node, runtime, Endpoint("127.0.0.1", 0))
        await server.start()
        self._loop, self._server = asyncio.get_running_loop(), server
        self._is_decided.set()
        await server.run()

    def wait_until_ready(self) -> str:
        """Gives the address; raises what kept the broker from starting."""
        self._is_decided.wait(_START_SECONDS)
        if self._failure is not None:
            raise self._failure
        assert self._server is not None
        return str(self._server.endpoint)

    def stop(self) -> None:
        if self._loop is not None and self._server is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._server.stop)
        self.join()
