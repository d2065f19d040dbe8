"""Transactions, as `plog inspect` shows them: of a server, or of the files of a directory that nobody serves."""

from __future__ import annotations

from collections.abc import Iterator

from core.client.net.kafka_client import KafkaClient
from core.client.write.transaction_admin import TRANSACTIONS_TOPIC, OpenTransaction, TransactionAdmin
from core.common.clock import Clock, SystemClock
from core.common.errors import ConnectionFailedError, KafkaError
from core.view.groups.transaction_files import FileTransactions
from core.view.groups.transaction_rows import KnownId, TransactionListing, TransactionSource, known_id
from core.view.target.inspect_target import InspectTarget
from core.view.target.live_server import LiveServer
from core.view.target.log_figures import open_logs

_OVER = ("Empty", "CompleteCommit", "CompleteAbort")
"""States in which an id has nothing open."""

_STEP_MS = 250
"""How often something is shown while much is read or asked."""


class KnownTransactions:
    """Owned by one task, with files and connections of its own; `steps` raises ConnectionFailedError if the server
    can't be reached, and AccessError if the directory is gone; called again, it tries again.
    """

    def __init__(self, inspected: InspectTarget, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._server = LiveServer(inspected)
        self._reader = inspected.reader
        self._source: ServerTransactions | FileTransactions | None = None

    @property
    def note(self) -> str:
        """Says where the answers come from; nothing for a server that was named."""
        return self._server.note

    def close(self) -> None:
        self._server.close()

    def look(self) -> TransactionListing:
        """Gives all of it."""
        listing = TransactionListing([], [], 0, 0, [])
        for listing in self.steps():  # noqa: B007 - the last one counts
            pass
        return listing

    def steps(self) -> Iterator[TransactionListing]:
        """Gives what is known, again and again while more becomes known."""
        shown_ms = self._clock.monotonic_ms()
        source = self._find_source()
        try:
            for done, total in source.look():
                if done < total and self._clock.monotonic_ms() - shown_ms >= _STEP_MS:
                    shown_ms = self._clock.monotonic_ms()
                    yield source.listing(done, total)
            yield source.listing(1, 1)
        except ConnectionFailedError:
            self._server.forget()
            raise

    def _find_source(self) -> TransactionSource:
        client = self._server.find_client()
        source = self._source
        if client is not None and not (isinstance(source, ServerTransactions) and source.client is client):
            source = ServerTransactions(client)
        elif client is None and not isinstance(source, FileTransactions):
            assert self._reader is not None
            source = FileTransactions(open_logs(self._reader, self._clock), self._clock)
        assert source is not None
        self._source = source
        return source


class ServerTransactions:
    """A `TransactionSource` that asks a cluster's brokers; owned by one task."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._admin = TransactionAdmin(client)

        self._ids: list[KnownId] = []
        self._open: list[OpenTransaction] = []
        self._problems: list[str] = []

    def look(self) -> Iterator[tuple[int, int]]:
        self._problems = []
        self._ids = self._find_ids()
        yield 0, 1
        try:
            self._open = self._admin.open_transactions()
        except KafkaError:  # one topic must not hide the others
            topics = sorted(name for name in self.client.refresh() if name != TRANSACTIONS_TOPIC)
            found: list[OpenTransaction] = []
            for done, topic in enumerate(topics, 1):
                found += self._of_topic(topic)
                yield done, len(topics)
            self._open = found

    def listing(self, done: int, total: int) -> TransactionListing:
        return TransactionListing(list(self._open), self._ids, done, total, list(self._problems))

    def _find_ids(self) -> list[KnownId]:
        try:
            listed = self._admin.list_transactions()
        except KafkaError as error:
            self._problems.append(f"the transactional ids can't be listed: {error.message}")
            return []
        ids = []
        for one in listed:
            known = KnownId(one.transactional_id, one.state, one.producer_id, one.coordinator)
            if one.state not in _OVER:
                try:
                    known = known_id(self._admin.describe(one.transactional_id))
                except KafkaError as error:
                    known = known._replace(problem=error.message)
            ids.append(known)
        return ids

    def _of_topic(self, topic: str) -> list[OpenTransaction]:
        try:
            return self._admin.open_transactions([topic])
        except KafkaError as error:
            self._problems.append(f"{topic}: {error.message}")
            return []
