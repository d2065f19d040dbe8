"""Finds the logs of `plog stats`, `plog gaps` and `plog trace` by the places that the user names.

A place is a path (a partition's folder, a data directory, for `stats` a `.log`), or a name: `TOPIC`, `TOPIC-P`,
`TOPIC:P`. Either may end with `@OFFSET`. Names are of the server that is named, else of the data directory. Text that
exists as a path is a path, unless a server or a directory was typed. A server's partitions are copied to a temporary
folder first, as far as they are needed (`core/inspector/stats/server_copy.py`).
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError, UsageError
from core.common.printable import did_you_mean
from core.common.topic_partition import TopicPartition
from core.files.file_names import parse_partition_directory_name
from core.forensics.partition_reader import DirectoryReader
from core.pipeline.session import Session

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.inspector.stats.server_copy import ServerCopy

_NAME = re.compile(r"(?P<topic>[^@:/]+)(:(?P<partition>\d+))?")
_WHERE = re.compile(r"^\d{20}\.log( position \d+)?: ")
_HINT = "name a partition's folder, a data directory (an entry of log.dirs), or TOPIC[:PARTITION] with --data-dir"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The partitions of one place, and their reader; `offset` is None if the place has none."""

    reader: DirectoryReader
    partitions: Sequence[TopicPartition]
    offset: int | None = None
    client: KafkaClient | None = None
    """A client of the server that the partitions were copied from, or None if the files are read where they are."""
    settings: Mapping[str, str] | None = None
    """The topic's settings, if a server has them."""


OnBytes = Callable[[int], None]
Copy = Callable[["ServerCopy", TopicPartition, "int | None", OnBytes], None]
"""Copies the part of a server's partition that a command needs; the offset is the place's."""


def without_file(evidence: str) -> str:
    """Removes positions in the file of a copied log, which are of no use."""
    return _WHERE.sub("", evidence)


class LogPlaces:
    """Finds places; owned by one task."""

    def __init__(self, session: Session, copy: Copy) -> None:
        """Takes names for those of the session's directory, even if they are paths, if options named it."""
        self._session = session
        self._has_server = session.find_named_server() is not None
        self._copy = copy

    @contextlib.contextmanager
    def opened(self) -> Iterator[Callable[[str], LogPlace]]:
        """Yields a function that finds a place by its text. The function raises UsageError for a text that is not a
        place, AccessError and KafkaError for missing logs.
        """
        if not self._has_server:
            yield self._local
            return
        from core.client.read.record_source import ReadOptions
        from core.inspector.stats.server_copy import ServerCopy

        def warn(text: str) -> None:
            self._session.frontend.say(f"warning: {text}")

        options = ReadOptions(skips_damage=True, tell=warn, tell_left_out=warn)
        with (
            tempfile.TemporaryDirectory(prefix="plog-copy-", ignore_cleanup_errors=True) as folder,
            self._session.open_client() as client,
        ):
            copy = ServerCopy(client, Path(folder), options)
            yield lambda text: self._remote(text, client, copy)

    def is_path(self, text: str) -> bool:
        path, _ = split_offset(text)
        if self._has_server:
            return False
        return "/" in path or (Path(path).exists() and not (self._session.options and self._is_name(path)))

    def _is_name(self, text: str) -> bool:
        with contextlib.suppress(AccessError, KafkaError, UsageError):
            reader = DirectoryReader(self._session.directory)
            return bool(_named(text, reader.partitions, str(reader.directory)))
        return False

    def _local(self, text: str) -> LogPlace:
        from core.inspector.check.file_kind import ensure_there
        from core.inspector.check.verify import nothing_there

        place, offset = split_offset(text)
        if not self.is_path(text):
            if self._session.is_default and not self._session.directory.exists():
                ensure_there(Path(place))  # it is not
            reader = DirectoryReader(self._session.directory)
            return LogPlace(reader, _named(place, reader.partitions, f"in {reader.directory}"), offset)
        ensure_there(Path(place))
        reader = DirectoryReader(Path(place), hint=_HINT)
        if not reader.partitions:
            raise nothing_there(Path(place))
        return LogPlace(reader, sorted(reader.partitions), offset)

    def _remote(self, text: str, client: KafkaClient, copy: ServerCopy) -> LogPlace:
        place, offset = split_offset(text)
        if "/" in place:
            hint = "name TOPIC or TOPIC:PARTITION of the server, or the path alone"
            raise UsageError(f"{place} is a path, and a server has none", hint=hint)
        topics = client.refresh().values()
        known = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        partitions = _named(place, known, client.place)
        progress = self._session.frontend.show_progress("copied", "bytes")
        try:
            for partition in partitions:
                self._copy(copy, partition, offset, lambda size: progress.add(size, size))
        finally:
            progress.done()
        settings = copy.settings_of(partitions[0].topic)
        reader = DirectoryReader(copy.root)
        return LogPlace(reader, partitions, offset=offset, client=client, settings=settings)


def split_offset(text: str) -> tuple[str, int | None]:
    """Splits `PLACE@OFFSET` into the place and the offset; a path with an @ of its own stays whole."""
    place, separator, offset = text.rpartition("@")
    if not separator or not offset.isdecimal() or Path(text).exists():
        return text, None
    return place, int(offset)


def _named(text: str, known: Iterable[TopicPartition], where: str) -> list[TopicPartition]:
    """Finds the partitions of `TOPIC`, `TOPIC:P` or `TOPIC-P`; an existing topic of that name comes first. Raises
    UsageError and KafkaError.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r}: expected a path, TOPIC, TOPIC-PARTITION or TOPIC:PARTITION")
    known = sorted(known)
    topic, number = match["topic"], match["partition"]
    found = [tp for tp in known if tp.topic == topic and number in (None, str(tp.partition))]
    folder = parse_partition_directory_name(text)
    if not found and number is None and folder in known:
        found = [folder]
    if not found:
        topics = sorted({tp.topic for tp in known})
        is_partition = number is not None and topic in topics
        what = f"no partition {number} of {topic!r}" if is_partition else f"no topic {topic!r}"
        hint = None if is_partition else did_you_mean(topic, topics)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what} {where}", hint=hint)
    return found
