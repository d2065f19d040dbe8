"""What `plog inspect` looks at: the files of a data directory, or a server's topics."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.client.net.read_options import FAILOVER_SECONDS, ReadOptions
from core.client.read.directory_source import DirectorySource
from core.client.read.record_source import RecordSource
from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.forensics.directory_reader import DirectoryReader
from core.inspector.check.file_kind import ensure_there
from core.pipeline.log_places import split_offset
from core.pipeline.session import Session
from core.view.records.log_rows import DirectoryRows, LogRows, ServerRows
from core.view.target.place_text import Place, parse_place

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.pipeline.schemas import Schemas


class InspectTarget:
    """Reads files or asks a server, never both. Owned by one task at a time, the reader's; what says where it is may be
    asked by any.
    """

    def __init__(self, session: Session, *, reader: DirectoryReader | None = None) -> None:
        """Reads the files of `reader`; without one, asks the session's server, which is connected to at first use."""
        self.session = session
        self.reader = reader
        self.notes: list[str] = []
        """What sources had to say of the logs, in words, each once."""
        self._opened = ExitStack()
        self._source: RecordSource | None = None
        self._client: KafkaClient | None = None

    @property
    def is_of_files(self) -> bool:
        return self.reader is not None

    @property
    def option(self) -> str:
        """The option that names it on a command line, after a space: for records, of a lone partition's folder too."""
        if self.reader is not None:
            return f" --data-dir {shlex.quote(str(self.reader.directory))}"
        return f" --bootstrap-server {shlex.quote(self.session.find_named_server() or '')}"

    @property
    def root_option(self) -> str:
        """The same for what is known of a whole directory, such as its groups."""
        if self.reader is not None and self.reader.root != self.reader.directory:
            return f" --data-dir {shlex.quote(_shorter(self.reader.root))}"
        return self.option

    @property
    def name(self) -> str:
        """Says what it is, for a title."""
        if self.reader is not None:
            return str(self.reader.directory)
        return self.session.find_named_server() or ""

    def folder(self, partition: TopicPartition) -> Path | None:
        """Gives the partition's folder; None for a server's, and for a partition that is not there."""
        return None if self.reader is None else self.reader.partitions.get(partition)

    # --- what the reader's task asks

    @property
    def source(self) -> RecordSource:
        """The records. Raises ConnectionFailedError if no server can be reached."""
        if self._source is None:
            patience = ReadOptions(
                seconds=FAILOVER_SECONDS, skips_damage=True, tell=self._note, tell_left_out=self._note, note=self._note
            )
            if self.reader is not None:
                self._source = DirectorySource(self.reader, read_committed=False, with_control=True, patience=patience)
            else:
                from core.client.read.cluster_source import ClusterSource

                client = self.client
                self._source = ClusterSource(client, read_committed=False, with_control=True, patience=patience)
        return self._source

    @property
    def client(self) -> KafkaClient:
        """The reader's client of the server."""
        assert self.reader is None, "the files are read without a server"
        if self._client is None:
            self._client = self._opened.enter_context(self.session.open_client(is_read_only=True))
        return self._client

    def topics(self) -> dict[str, list[int]]:
        """Gives partition numbers by topic, both in order; of files those of now."""
        if self.reader is not None:
            return self.reader.topics
        return {topic.name: sorted(topic.partitions) for topic in self.client.refresh().values()}

    def look_again(self) -> None:
        """Lists the directory's partitions again, which come and go while somebody looks. Raises AccessError if it is
        gone.
        """
        if self.reader is not None:
            self.reader.look_again()

    def rows(self, partition: TopicPartition) -> LogRows:
        """Opens the partition's records. Raises AccessError if there is no such partition, or its folder can't be
        read.
        """
        if self.reader is None:
            return ServerRows(self.client, partition, self._note)
        assert isinstance(self.source, DirectorySource)
        self.reader.look_again()
        self.source.look_again(partition)
        return DirectoryRows(self.source.log(partition), partition, self.reader)

    def find_offset(self, partition: TopicPartition, where: str) -> int:
        """Finds the offset of a place, as `plog consume --from` does. Raises UsageError for a text that is none."""
        from core.pipeline.consume_request import resolve

        if isinstance(self.source, DirectorySource):
            self.source.look_again(partition)
        return resolve(where, self.source, [partition], self.source.ends([partition]))[partition]

    def place(self, text: str, current: TopicPartition | None) -> Place:
        """Finds what somebody typed; a place without a partition is of `current`."""
        return parse_place(text, self.topics(), current)

    def schemas(self, url: str) -> Schemas:
        """Opens the Schema Registry there."""
        from core.pipeline.schemas import Schemas
        from core.records.side_format import SideFormats

        return Schemas(SideFormats(url), self.session.find_settings())

    def close(self) -> None:
        self._opened.close()

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _shorter(path: Path) -> str:
    """Writes the path as it is seen from here, if that is below."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


class Opened(NamedTuple):
    """What a command line named: what is looked at, and where one begins. `place` is a text for `InspectTarget.place`;
    `file` is to be shown byte by byte.
    """

    inspected: InspectTarget
    place: str | None = None
    file: Path | None = None


def open_places(texts: list[str], session: Session, is_path: Callable[[str], bool]) -> Opened:
    """Opens what the arguments of `plog inspect` name: a path, a topic of the session's, or a path and a topic of it.
    Raises UsageError for more than that, AccessError for a path that is not there.
    """
    if len(texts) > 2:
        raise UsageError(f"{len(texts)} places: expected PATH, TOPIC[:P][@OFFSET], or one after the other")
    if texts and is_path(texts[0]):
        return _open_path(texts[0], texts[1] if len(texts) > 1 else None, session)
    if len(texts) > 1:
        raise UsageError(f"{texts[0]} is no path: expected PATH TOPIC[:P][@OFFSET], or one of them")
    text = texts[0] if texts else None
    if session.find_named_server() is not None:
        return Opened(InspectTarget(session), place=text)
    return Opened(InspectTarget(session, reader=DirectoryReader(session.directory)), place=text)


def _open_path(text: str, topic: str | None, session: Session) -> Opened:
    name, offset = split_offset(text)
    path = Path(name)
    ensure_there(path)
    folder = path if path.is_dir() else path.parent
    reader = DirectoryReader(folder)
    is_partition = folder in reader.partitions.values()
    if path.is_dir() and not reader.partitions:
        from core.inspector.check.verify import nothing_there

        raise nothing_there(path)
    session = replace(session, directory=reader.root if is_partition else folder, is_default=False)
    inspected = InspectTarget(session, reader=reader)
    if not path.is_dir():
        return Opened(inspected, file=path)
    if is_partition and topic is None:
        (partition,) = reader.partitions
        where = "" if offset is None else f"@{offset}"
        return Opened(inspected, place=f"{partition.topic}:{partition.partition}{where}")
    return Opened(inspected, place=topic)
