"""The server that can be asked about the target, if there is one.

A server has the newest state of coordinators in its memory. So a directory's owner is asked, if it listens; else the
state is read from its files. The directory is not opened for that, which would take its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from core.client.net.kafka_client import KafkaClient
from core.common.errors import ConnectionFailedError, PlogError
from core.files.directory_lock import LockHolder, find_lock_holder
from core.pipeline.session import FoundServer
from core.view.target.inspect_target import InspectTarget

S = TypeVar("S")
F = TypeVar("F")


class LiveServer:
    """Owned by one task, with a connection of its own."""

    def __init__(self, inspected: InspectTarget) -> None:
        self._session = inspected.session
        self._root: Path | None = None if inspected.reader is None else inspected.reader.root
        self._client: KafkaClient | None = None
        self._address: object = None
        self._holder: LockHolder | None = None
        self._problem = ""

    def find_client(self) -> KafkaClient | None:
        """Returns a client of the named server, or of the one that owns the directory now, or None if the files must be
        read. Raises ConnectionFailedError if the named server can't be reached.
        """
        server = self._find()
        if server is None:
            self.forget()
            return None
        if self._client is None or self._address != server.addresses:
            self.forget()
            try:
                self._client = server.open_client()
            except ConnectionFailedError as error:
                if self._root is None:
                    raise
                self._problem = error.message
                return None
            self._address = server.addresses
        self._problem = ""
        return self._client

    def _find(self) -> FoundServer | None:
        if self._root is None:
            return self._session.find_server()
        self._holder = find_lock_holder(self._root)
        if self._holder is None or not self._holder.address:
            return None
        try:
            return self._session.find_owner(self._holder, self._root)
        except PlogError:
            return None

    @property
    def note(self) -> str:
        """Names the source of the answers, and how old they may be; "" for a named server."""
        if self._root is None:
            return ""
        if self._client is not None and self._holder is not None:
            return f"asked of the server on {self._holder.address}, which owns the directory"
        if self._holder is None:
            return "read from the files"
        held = f"the directory is in use by {self._holder}"
        if self._problem:
            return f"read from the files, as {held}, which can't be asked: {self._problem}"
        return f"read from the files, as far as they are written; {held}"

    def forget(self) -> None:
        """Closes the connections after they broke, or when they are no longer needed."""
        if self._client is not None:
            self._client.close()
        self._client = self._address = None

    @contextmanager
    def forgotten_if_lost(self) -> Iterator[None]:
        """Closes the connections if the block can't reach the server, so that the next look makes new ones."""
        try:
            yield
        except ConnectionFailedError:
            self.forget()
            raise


class ServerOrFiles(Generic[S, F]):
    """Asks the target's server while there is one, else its files; owned by one task, with files and connections of its
    own.
    """

    def __init__(self, inspected: InspectTarget, ask: Callable[[KafkaClient], S], read: Callable[[], F]) -> None:
        """`ask` makes the source of a server, `read` that of the files."""
        self._server = LiveServer(inspected)
        self._ask, self._read = ask, read
        self._client: KafkaClient | None = None
        self._source: S | F | None = None

    @property
    def note(self) -> str:
        """Names the source of the answers; "" for a named server."""
        return self._server.note

    @contextmanager
    def _asked(self) -> Iterator[S | F]:
        """Yields the present source; it is the one of the last time unless another server is there now."""
        client = self._server.find_client()
        if self._source is None or client is not self._client:
            self._source, self._client = self._read() if client is None else self._ask(client), client
        with self._server.forgotten_if_lost():
            yield self._source

    def close(self) -> None:
        self._server.forget()
