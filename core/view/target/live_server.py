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
from core.forensics.partition_reader import DirectoryReader
from core.pipeline.session import FoundServer
from core.view.target.inspect_target import InspectTarget

S = TypeVar("S")
F = TypeVar("F")


class ServerOrFiles(Generic[S, F]):
    """Asks the target's server while there is one, else its files; owned by one task, with files and connections of its
    own.
    """

    def __init__(
        self,
        inspected: InspectTarget,
        ask: Callable[[KafkaClient], S],
        read: Callable[[DirectoryReader], F],
        *,
        asks_owner: bool = True,
    ) -> None:
        """`ask` makes the source of a server, `read` that of the files. Without `asks_owner` a directory is read even
        if a server owns it.
        """
        self.inspected = inspected
        self._ask, self._read, self._asks_owner = ask, read, asks_owner
        self._client: KafkaClient | None = None
        self._address: object = None
        self._holder: LockHolder | None = None
        self._problem = ""
        self._source: S | F | None = None
        self._source_client: KafkaClient | None = None

    @property
    def _root(self) -> Path | None:
        return None if self.inspected.reader is None else self.inspected.reader.root

    @contextmanager
    def _asked(self) -> Iterator[S | F]:
        """Yields the present source; it is the one of the last time unless another server is there now."""
        client, reader = self.find_client(), self.inspected.reader
        if self._source is None or client is not self._source_client:
            self._source_client = client
            if client is not None:
                self._source = self._ask(client)
            else:
                assert reader is not None, "a named server is asked, or can't be reached"
                self._source = self._read(reader)
        try:
            yield self._source
        except ConnectionFailedError:  # so that the next look makes new connections
            self._forget()
            raise

    def find_client(self) -> KafkaClient | None:
        """Returns a client of the named server, or of the one that owns the directory now, or None if the files must be
        read. Raises ConnectionFailedError if the named server can't be reached.
        """
        server = self._find()
        if server is None:
            self._forget()
            return None
        if self._client is None or self._address != server.addresses:
            self._forget()
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
            return self.inspected.session.find_server()
        if not self._asks_owner:
            return None
        self._holder = find_lock_holder(self._root)
        if self._holder is None or not self._holder.address:
            return None
        try:
            return self.inspected.session.find_owner(self._holder, self._root)
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

    def close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Closes the connections; the next look makes new ones."""
        if self._client is not None:
            self._client.close()
        self._client = self._address = None
