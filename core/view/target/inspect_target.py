"""What `plog inspect` looks at: the files of a data directory, or a server's topics.

People type places in logs so: `flights:2@2013-01-15`.

    TOPIC            the topic's first partition
    TOPIC:P, TOPIC-P that partition; `-P` only if no topic is called so
    :P               that partition of the topic that is looked at
    ...@WHERE        an offset, a time (ISO 8601, -2h), @EPOCH_MS, -N (N before the end), beginning or end
    WHERE            that place of the partition that is looked at
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.client.read.directory_source import DirectorySource
from core.client.read.record_source import WHOLE_LOG, RecordSource
from core.common.errors import UsageError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.files.file_names import parse_partition_directory_name
from core.forensics.partition_reader import DirectoryReader
from core.inspector.check.file_kind import ensure_there
from core.pipeline.log_places import split_offset
from core.pipeline.session import Session
from core.view.records.log_rows import DirectoryRows, LogRows, ServerRows

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.cluster.description.cluster_description import TopicDescription
    from core.pipeline.key_value_text import Schemas
    from core.records.side_format import SideFormats


EXPECTED = "TOPIC[:P][@OFFSET or @TIME], or an offset, a time, -N, beginning or end"


class Place(NamedTuple):
    """A partition, and the place in it, as it was typed, or None."""

    partition: TopicPartition
    where: str | None = None


def parse_place(text: str, topics: Mapping[str, Sequence[int]], current: TopicPartition | None = None) -> Place:
    """Parses the text of a user who looks at `current`. Raises UsageError for an unknown place."""
    text = text.strip()
    if not text:
        raise UsageError(f"nothing was typed: expected {EXPECTED}")
    name, separator, where = text.partition("@")
    if not name and separator and current is not None:
        return Place(current, where or None)
    found = _find(name, topics, current)
    if found is not None:
        return Place(found, where or None)
    if current is not None and not separator and _is_where(text):
        return Place(current, text)
    raise UsageError(
        f"{text!r} names no topic, and no place in one: expected {EXPECTED}", hint=did_you_mean(name, topics)
    )


def _find(name: str, topics: Mapping[str, Sequence[int]], current: TopicPartition | None) -> TopicPartition | None:
    """Finds the partition of a name. Raises UsageError for one that the topic does not have."""
    topic, separator, number = name.partition(":")
    if not topic and current is not None:
        topic = current.topic
    if topic in topics:
        partitions = topics[topic]
        if not separator:
            return TopicPartition(topic, partitions[0] if partitions else 0)
        if number.isdecimal() and int(number) in partitions:
            return TopicPartition(topic, int(number))
        raise UsageError(f"no partition {number!r} of {topic}", hint=f"it has {_listed(partitions)}")
    folder = None if separator else parse_partition_directory_name(name)
    if folder is not None and folder.partition in topics.get(folder.topic, ()):
        return folder
    return None


def _listed(partitions: Sequence[int]) -> str:
    if len(partitions) > 8:
        return f"{len(partitions)} partitions, {partitions[0]} to {partitions[-1]}"
    return f"partition{'s' * (len(partitions) != 1)} {', '.join(map(str, partitions))}"


def _is_where(text: str) -> bool:
    return text in ("beginning", "earliest", "end", "latest") or text[0].isdigit() or text[0] in "-@"


class InspectTarget:
    """Reads files or asks a server, never both. Owned by one task at a time, the reader's; its names may be read by
    any.
    """

    def __init__(self, session: Session, *, reader: DirectoryReader | None = None) -> None:
        """Reads the files of `reader`; without one, asks the session's server, which is connected to at first use."""
        self.session = session
        self.reader = reader
        self.notes: list[str] = []
        """Messages of the sources about the logs, each once."""
        self._opened = ExitStack()
        self._schemas: Schemas | None = None

    @property
    def option(self) -> str:
        """The option for it on a command line, after a space: for records, of a single partition's folder too."""
        if self.reader is not None:
            return f" --data-dir {shlex.quote(str(self.reader.directory))}"
        return f" --bootstrap-server {shlex.quote(self.session.find_named_server() or '')}"

    @property
    def root_option(self) -> str:
        """The option for facts about a whole directory, such as its groups."""
        if self.reader is not None and self.reader.root != self.reader.directory:
            return f" --data-dir {shlex.quote(_shorter(self.reader.root))}"
        return self.option

    @property
    def name(self) -> str:
        if self.reader is not None:
            return str(self.reader.directory)
        return self.session.find_named_server() or ""

    def folder(self, partition: TopicPartition) -> Path | None:
        """Returns the partition's folder, or None for a server's, and for an unknown partition."""
        return None if self.reader is None else self.reader.partitions.get(partition)

    # --- what the reader's task asks

    @cached_property
    def source(self) -> RecordSource:
        """The records. Raises ConnectionFailedError if no server can be reached."""
        options = replace(WHOLE_LOG, tell=self._note, note=self._note, tell_left_out=self._note)
        if self.reader is not None:
            return DirectorySource(self.reader, options=options)
        from core.client.read.cluster_source import ClusterSource

        return ClusterSource(self.client, options)

    @cached_property
    def client(self) -> KafkaClient:
        """The reader's client of the server."""
        assert self.reader is None, "the files are read without a server"
        return self._opened.enter_context(self.session.open_client(is_read_only=True))

    def topics(self) -> dict[str, list[int]]:
        """Returns the present partition numbers by topic, both in order."""
        if self.reader is not None:
            return self.reader.topics
        return {topic.name: sorted(topic.partitions) for topic in self.client.refresh().values()}

    def describe(self, topic: str) -> TopicDescription:
        """Raises KafkaError if the topic does not exist, and what reading the directory or asking the server raises."""
        from core.client.admin.admin import Admin
        from core.cluster.description.directory_topics import DirectoryTopics

        if self.reader is not None:
            return DirectoryTopics(self.reader).describe(topic)
        return Admin(self.client).describe_topic(topic)

    def rows(self, partition: TopicPartition) -> LogRows:
        """Opens the partition's records. Raises AccessError if it does not exist, or its folder can't be read."""
        if self.reader is None:
            return ServerRows(self.client, partition, self._note)
        assert isinstance(self.source, DirectorySource)
        self.reader.look_again()
        self.source.look_again(partition)
        return DirectoryRows(self.source.log(partition), partition, self.reader)

    def find(self, text: str, current: TopicPartition | None) -> tuple[TopicPartition, int | None]:
        """Finds a place that was typed by a user who looks at `current`: its partition, and its offset if it names one,
        as in `plog consume --from`. Raises UsageError for other text, AccessError if the directory is gone.
        """
        from core.pipeline.consume_request import resolve

        if self.reader is not None:
            self.reader.look_again()  # partitions come and go
        partition, where = parse_place(text, self.topics(), current)
        if where is None:
            return partition, None
        if isinstance(self.source, DirectorySource):
            self.source.look_again(partition)
        return partition, resolve(where, self.source, [partition], self.source.ends([partition]))[partition]

    def schemas(self, formats: SideFormats) -> Schemas:
        """Opens the decoders of these formats, once. Raises UsageError for schemas that can't be used."""
        from core.pipeline.key_value_text import Schemas

        if self._schemas is None:
            self._schemas = Schemas(formats, self.session.find_settings())
        return self._schemas

    def close(self) -> None:
        self._opened.close()

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _shorter(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


class Opened(NamedTuple):
    """The target of a command line, and the place to begin. `place` is a text for `InspectTarget.find`; `file` is
    shown byte by byte.
    """

    inspected: InspectTarget
    place: str | None = None
    file: Path | None = None


def open_places(texts: list[str], session: Session, is_path: Callable[[str], bool]) -> Opened:
    """Opens the arguments of `plog inspect`: a path, a topic of the session's, or a path and a topic of it. Raises
    UsageError for more than that, AccessError for a missing path.
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
    is_folder = path.is_dir()
    if not is_folder:
        ensure_there(path)
    folder = path if is_folder else path.parent
    reader = DirectoryReader(folder)
    is_partition = folder in reader.partitions.values()
    if is_folder and not reader.partitions:
        from core.inspector.check.verify import nothing_there

        raise nothing_there(path)
    session = replace(session, directory=reader.root if is_partition else folder, is_default=False)
    inspected = InspectTarget(session, reader=reader)
    if not is_folder:
        return Opened(inspected, file=path)
    if is_partition and topic is None:
        (partition,) = reader.partitions
        where = "" if offset is None else f"@{offset}"
        return Opened(inspected, place=f"{partition.topic}:{partition.partition}{where}")
    return Opened(inspected, place=topic)
