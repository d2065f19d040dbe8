"""Kafka's text checkpoints: a version line (0), a line with the number of entries, then an entry a line.

In the root of a log directory an entry is `topic partition offset`; in a partition's `leader-epoch-checkpoint` it is
`epoch start_offset` (org.apache.kafka.server.common.CheckpointFile). They are replaced whole.

`LeaderEpochCache` keeps which leader epoch started at which offset. An epoch is a number that rises with every change
of leader (here: with every start that had to cut the log), so that a pair (epoch, offset) names one record for ever
(KIP-101, org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache).

`partition.metadata`, in a partition's folder, is no list: it says to which topic, by id, the folder belongs.

    version: 0
    topic_id: G0fpkTIoSrm35pn5auABdQ

without a newline at the end (org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile, KIP-516).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.common.salvaging_file import read_small_text
from core.common.topic_partition import TopicPartition, parse_uuid, uuid_text
from core.files.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA

if TYPE_CHECKING:
    from core.records.batches import Batch

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
_MOST_BATCHES = 1 << 62

UNKNOWN_RECOVERY_POINT = (1 << 63) - 1
"""The recovery point in a checkpoint if nobody knows how far the log is safe. Kafka takes it for the log's end."""

_VERSION = 0
_NUMBER = re.compile(r"[0-9]{1,19}")


def parse_checkpoint(text: str, fields: int, path: str) -> list[list[str]]:
    """Returns the words of each entry, the last two of which are numbers. Raises CorruptRecordError, naming the line,
    if the text breaks the format.
    """
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if not lines or lines[0] != str(_VERSION):
        raise CorruptRecordError(f"line 1: version {lines[0] if lines else ''!r}, expected {_VERSION}", path=path)
    if len(lines) < 2 or not _NUMBER.fullmatch(lines[1]):
        raise CorruptRecordError("line 2: expected the number of entries", path=path)
    count = int(lines[1])
    if len(lines) - 2 != count:
        raise CorruptRecordError(f"line 2: says {count} entries, {len(lines) - 2} follow", path=path)
    entries = [line.split() for line in lines[2:]]
    for number, words in enumerate(entries, start=3):
        if len(words) != fields or not all(_NUMBER.fullmatch(word) for word in words[-2:]):
            raise CorruptRecordError(f"line {number}: expected {fields} words, the last two numbers", path=path)
    return entries


def format_checkpoint(entries: Sequence[Iterable[object]]) -> bytes:
    lines = [str(_VERSION), str(len(entries)), *(" ".join(map(str, entry)) for entry in entries)]
    return ("\n".join(lines) + "\n").encode()


def parse_offset_checkpoint(text: str, path: str) -> dict[TopicPartition, int]:
    """Returns offsets by partition; raises what `parse_checkpoint` raises."""
    entries = parse_checkpoint(text, 3, path)
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}


def read_offset_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Reads offsets by partition; returns an empty dict if there is no such file."""
    try:
        text = read_small_text(path)
    except FileNotFoundError:
        return {}
    return parse_offset_checkpoint(text, str(path))


def write_offset_checkpoint(path: Path, offsets: Mapping[TopicPartition, int], filesystem: FileSystem) -> None:
    entries = [(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
    filesystem.write_atomic(path, format_checkpoint(entries))


# --- leader epochs


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


def parse_leader_epochs(text: str, path: str) -> list[EpochEntry]:
    """Parses them; raises CorruptRecordError if the text is no checkpoint of epochs."""
    return [EpochEntry(int(epoch), int(offset)) for epoch, offset in parse_checkpoint(text, 2, path)]


def rising_epochs(runs: Sequence[tuple[int, int]], known: Container[int] = ()) -> list[int]:
    """Chooses, of runs of batches of one epoch, given as (epoch, how many batches), those whose epochs do not fall and
    which hold most batches together; returns their numbers. Each batch has an epoch of its own, which may be wrong,
    however many records are in it. A run of a known epoch counts before any other.
    """
    best: list[tuple[int, int, int]] = []  # (epoch, batches, last run), the first two rising
    before: list[int | None] = []  # each run, in the best chain that it ends
    for number, (epoch, count) in enumerate(runs):
        at = bisect_right(best, epoch, key=lambda entry: entry[0])
        batches = best[at - 1][1] if at else 0
        before.append(best[at - 1][2] if at else None)
        batches += count * (_MOST_BATCHES if epoch in known else 1)
        while at < len(best) and best[at][1] <= batches:
            del best[at]
        if at and best[at - 1][0] == epoch:
            at -= 1
            del best[at]
        best.insert(at, (epoch, batches, number))
    chain: list[int] = []
    last = best[-1][2] if best else None
    while last is not None:
        chain.append(last)
        last = before[last]
    return chain[::-1]


class LeaderEpochCache:
    """Owned by one task (the partition log's). Every change is written through, unsynced: every batch carries its
    epoch, so that a file that a power cut took, or broke, is made again from the log. Only where the log begins is in
    no batch, and synced.

    I1 epochs and start offsets rise from entry to entry
    """

    def __init__(self, directory: Path, filesystem: FileSystem) -> None:
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._filesystem = filesystem
        self._entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """-1 if nothing was appended with an epoch."""
        self.was_damaged = False
        self.was_missing = False
        self._is_refused = False  # whether the disk refused to write the entries
        try:
            text = read_small_text(self._path)
            self.was_missing = not text  # a replica of Kafka's that has no record yet has it empty
            if text:
                self._hold(parse_leader_epochs(text, str(self._path)))
        except FileNotFoundError:
            self.was_missing = True
        except CorruptRecordError:
            self.was_damaged = True

    @property
    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    def _hold(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    def check_invariants(self) -> None:
        for entry, following in pairwise(self._entries):
            is_above = entry.epoch < following.epoch and entry.start_offset < following.start_offset
            assert is_above, f"{self._path}: {entry}, {following}"

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that the record at `start_offset` was written in `epoch`; nothing to do within the latest one. Raises
        the disk's OSError, nothing noted then.
        """
        if epoch != self.latest_epoch and epoch >= 0:
            self._begin(epoch, start_offset)

    def note(self, batch: Batch, unsafe_from: int) -> None:
        """Does what `assign` does for a batch of a later epoch. From `unsafe_from` on the batch is believed against the
        file: a power cut may have taken back a truncation of the log, but not the change of the file that went with it.
        """
        epoch, offset = batch.partition_leader_epoch, batch.base_offset
        if epoch > self.latest_epoch:
            self._begin(epoch, offset)
        elif unsafe_from <= batch.last_offset and 0 <= epoch != (known := self.epoch_of(max(offset, unsafe_from))):
            before = [e for e in self._entries if e.epoch <= epoch and e.start_offset < offset]
            begun = [] if before and before[-1].epoch == epoch else [EpochEntry(epoch, offset)]
            later = [e for e in self._entries if e.epoch >= epoch and e.start_offset > offset]
            begins_later = known == UNDEFINED_EPOCH or epoch in [e.epoch for e in later[:1]]
            # the file is that of a log with a later start, or contradicts the batch: it is not believed
            self._write([*before, *begun, *([e for e in later if e.epoch > epoch] if begins_later else [])])

    def _begin(self, epoch: int, start_offset: int) -> None:
        kept = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._write([*kept, EpochEntry(epoch, start_offset)])

    def epoch_of(self, offset: int) -> int:
        """Returns the epoch in which the record at `offset` was written, or -1 if that is not known."""
        after = bisect_right(self._entries, offset, key=attrgetter("start_offset"))
        return self._entries[after - 1].epoch if after else UNDEFINED_EPOCH

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Answers OffsetForLeaderEpoch with (epoch, end offset) of the largest epoch not above `epoch`: a follower cuts
        its log there. If all are above, returns `epoch` and where the first epoch begins; (-1, -1) if `epoch` is above
        the latest, or no epochs are known.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self._entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._entries[-1].epoch:
            return epoch, log_end_offset
        higher = bisect_right(self._entries, epoch, key=attrgetter("epoch"))
        return (self._entries[higher - 1].epoch if higher else epoch), self._entries[higher].start_offset

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at `end_offset` or above."""
        self._replace([e for e in self._entries if e.start_offset < end_offset])

    def clear(self) -> None:
        """Drops all entries, as the log begins again."""
        self._replace([])

    def truncate_from_start(self, start_offset: int) -> None:
        """Moves the epoch that holds the new log start to begin there, and drops those before it. Synced before the
        segments are deleted: an epoch that begins below the first segment says that segments were lost.
        """
        before = [e for e in self._entries if e.start_offset <= start_offset]
        after = [e for e in self._entries if e.start_offset > start_offset]
        first = [EpochEntry(before[-1].epoch, start_offset)] if before else []
        self._replace(first + after, sync=True)

    def make_again(self, entries: list[EpochEntry]) -> None:
        """Replaces the file's entries by those of the log's batches. `entries` do not fall; of several of one epoch the
        first counts.
        """
        firsts: dict[int, EpochEntry] = {}
        for entry in entries:
            firsts.setdefault(entry.epoch, entry)
        self._replace(list(firsts.values()))

    def _replace(self, entries: list[EpochEntry], *, sync: bool = False) -> None:
        """Replaces the entries; if the disk refuses, `settle` or the next start drops the stale ones in the file."""
        if entries != self._entries:
            try:
                self._write(entries, sync=sync)
            except OSError as error:
                import logging  # a reader of a log does not need it

                logging.getLogger("plog.log").warning("could not write %s: %s", self._path, error.strerror)
                self._hold(entries)
                self._is_refused = True

    def settle(self) -> None:
        """Writes the file if the disk refused it, before a clean stop states that all files agree. Raises the disk's
        OSError.
        """
        if self._is_refused:
            self._write(self._entries, sync=True)

    def settle_before_deletion(self) -> None:
        """Is called before segments go, because nothing could show afterwards that they were deleted: the file must not
        say that the log begins with them. If the disk refuses to write it, as a full one does, it is taken away; it is
        made again from the log. Raises OSError if that is refused too.
        """
        try:
            self.settle()
        except OSError:
            self._filesystem.unlink(self._path)
            self._filesystem.sync_directory(self._path.parent)

    def _write(self, entries: list[EpochEntry], *, sync: bool = False) -> None:
        self._filesystem.write_atomic(self._path, format_checkpoint(entries), sync=sync)
        self._hold(entries)
        self._is_refused = False


def parse_partition_metadata(text: str, path: str) -> bytes:
    """Returns the topic id, 16 bytes; raises CorruptRecordError if the text breaks the format."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if fields.get("version") != "0":
        raise CorruptRecordError(f"version {fields.get('version')!r}, expected 0", path=path)
    try:
        return parse_uuid(fields.get("topic_id", ""))
    except ValueError as error:
        raise CorruptRecordError(f"topic_id: {error}", path=path) from error


def read_partition_metadata(directory: Path) -> bytes | None:
    """Reads the topic id of a partition's folder; None if it has no such file (topics from before Kafka 2.8)."""
    path = directory / PARTITION_METADATA
    try:
        text = read_small_text(path)
    except FileNotFoundError:
        return None
    return parse_partition_metadata(text, str(path))


def find_topic_id(directory: Path) -> bytes | None:
    """Reads the topic id; None also if the file is damaged or can't be read."""
    try:
        return read_partition_metadata(directory)
    except CorruptRecordError:
        return None


def write_partition_metadata(directory: Path, topic_id: bytes, filesystem: FileSystem) -> None:
    content = f"version: 0\ntopic_id: {uuid_text(topic_id)}"
    filesystem.write_atomic(directory / PARTITION_METADATA, content.encode(), sync=False)
