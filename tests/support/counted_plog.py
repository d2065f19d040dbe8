"""plog in a process that notes how often it authenticated again on each connection.

    python -m tests.support.counted_plog FILE COMMAND ..    any command of plog's
    python -m tests.support.counted_plog FILE copy CONFIG GROUP SOURCE TARGET    a copier, until it is told to stop

Each renewal of a session is a line of FILE, the number of its connection.

A broker that is killed must not be killed while it ends a transaction: Kafka 4.3.1 forgets to write the markers then
(KAFKA-20734). So SIGUSR1 makes the copier leave its next transaction open, and say so, until its broker is gone.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np

from cli.main import run
from core.client.admin.group_admin import GroupAdmin
from core.client.net.authenticator import Authenticator
from core.client.net.client_config_files import read_settings_file
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.client.read.consumer import Consumer
from core.client.write.producer import RecordsToSend
from core.client.write.transactional_producer import TransactionalProducer
from core.common.endpoint import parse_bootstrap
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings
from core.security.client_settings import parse_client_settings


def note_renewals(path: Path) -> None:
    authenticate = Authenticator.authenticate
    numbers = itertools.count()
    known: dict[int, tuple[int, Authenticator]] = {}  # held, so that no other has the same id

    def noted(self: Authenticator, connection: ClientConnection) -> None:
        authenticate(self, connection)
        if id(self) not in known:
            known[id(self)] = (next(numbers), self)
            return
        with path.open("a") as file:
            file.write(f"{known[id(self)][0]}\n")

    Authenticator.authenticate = noted  # type: ignore[method-assign]


def renewals(path: Path) -> Counter[str]:
    """By connection."""
    return Counter(path.read_text().split() if path.exists() else ())


HOLDS = "the transaction is left open"
"""What a copier says after SIGUSR1, when it has sent all of a transaction but its end."""


class Copier:
    """Copies partition 0 of a topic into another's, exactly once: with each transaction go the offsets of a group."""

    def __init__(self, config: Path, group: str, source: str, target: str) -> None:
        self._settings = parse_client_settings(read_settings_file(config)[0])
        self._group = group
        self._source = TopicPartition(source, 0)
        self._target = target
        self.is_over = threading.Event()
        self.is_to_hold = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                self._copy()
            except PlogError as error:  # a broker that goes away leaves a transaction, which the next life ends
                sys.stderr.write(f"again: {error.message}\n")
                self.is_over.wait(0.2)

    def _connect(self) -> KafkaClient:
        servers = parse_bootstrap(self._settings.bootstrap_servers or "")
        return KafkaClient(servers, security=self._settings.security)

    def _copy(self) -> None:
        with contextlib.ExitStack() as stack:
            producer = stack.enter_context(contextlib.closing(TransactionalProducer(self._connect, self._group)))
            client = stack.enter_context(contextlib.closing(self._connect()))
            committed = GroupAdmin(client).stable_offsets(self._group, [self._source]).get(self._source)
            positions = {self._source: committed.offset if committed is not None else 0}
            consumer = Consumer(client, max_wait_ms=100)
            while not self.is_over.is_set():
                for _, start, batches in consumer.poll(positions):
                    values = [r.value for batch in batches for r in batch.records() if r.offset >= start]
                    producer.send(_rows([value for value in values if value is not None]), self._target)
                    producer.send_offsets(self._group, positions)
                    if self.is_to_hold.is_set():
                        producer.prepare()
                        self._hold(client)
                    producer.commit()

    def _hold(self, client: KafkaClient) -> None:
        """Returns when the copier is to stop; raises ConnectionFailedError when the broker is gone."""
        self.is_to_hold.clear()
        sys.stderr.write(f"{HOLDS}\n")
        sys.stderr.flush()
        while not self.is_over.wait(0.05):
            client.refresh([])


def _rows(values: list[bytes]) -> RecordsToSend:
    numbers = np.arange(len(values))
    timestamps = np.full(len(values), 1_700_000_000_000)
    return RecordsToSend(0, timestamps, None, ByteStrings.of_list(values), None, numbers)


def main(notes: str, command: str, *arguments: str) -> int:
    note_renewals(Path(notes))
    if command != "copy":
        return run([command, *arguments])
    config, group, source, target = arguments
    copier = Copier(Path(config), group, source, target)
    signal.signal(signal.SIGTERM, lambda *_: copier.is_over.set())
    signal.signal(signal.SIGUSR1, lambda *_: copier.is_to_hold.set())
    copier.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
